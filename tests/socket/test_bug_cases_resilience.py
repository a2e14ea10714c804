"""Ways in which other gateways have failed their users when an upstream failed, each as a case of its own."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

from gateway.health import LONG_PAUSE_S
from llmkit.sse import comment, frame
from tests.support.front import (
    COST_NANOUSD,
    DONE,
    END,
    ONE_TRY,
    PATIENCE_S,
    ROLE,
    STOP,
    STREAM_HEAD,
    USAGE_EVENT,
    USAGE_WANTED,
    Answering,
    Front,
    FrontCase,
    ShiftedClock,
    completion,
    event,
    fleet,
    sse,
    stream,
    whole,
    words,
)
from tests.support.scripted_upstream import Peer, Request, chunk

QUICK = "[retry]\nbase_s = 0.01\n"


def failing(status: str, **error: Any) -> Answering:
    """Refuses with an error body."""
    return whole({"error": {"message": "no", "type": "x", "param": None, "code": None} | error}, status=status)


def saying(*texts: str) -> list[bytes]:
    """The beginning of a stream, on the wire."""
    return [STREAM_HEAD, sse(ROLE), *(sse(event({"content": text})) for text in texts)]


def state(front: Front, name: str) -> str:
    """How a deployment stands."""
    return front.world.gateway.deployment_states()[name]


class KeepAliveCommentTest(FrontCase):
    """Comments of an upstream that thinks first."""

    def test_the_client_gets_comments_of_the_gateway_and_whole_events(self) -> None:
        """No comment becomes an event, none is within one; usage and cost are as without them."""
        heard = threading.Event()

        def think(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, chunk(comment("PROCESSING")))
            self.wait(heard)
            peer.send(chunk(comment("PROCESSING")), sse(ROLE), sse(event({"content": "a"})))
            peer.send(
                chunk(comment("PROCESSING")), sse(event({"content": "b"})), sse(STOP), sse(USAGE_EVENT), sse(DONE), END
            )

        with mock.patch("gateway.api.SILENCE_S", 0.05):
            front = self.live(think, more="[server]\nhead_hold_s = 0.05\n")
            client = self.client(front)
            client.chat(stream=True)
            self.assertEqual(client.head()[0], 200)
            pieces = [client.piece(), client.piece()]
            heard.set()
            pieces += iter(client.piece, None)
        pings = [piece for piece in pieces if piece == b": ping\n\n"]
        said = [piece or b"" for piece in pieces if piece not in pings]
        self.assertGreaterEqual(len(pings), 2)
        payloads = [ROLE, event({"content": "a"}), event({"content": "b"}), STOP]
        self.assertEqual(b"".join(said), b"".join(map(frame, [*payloads, DONE])))
        (row,) = front.rows(1)
        self.assertEqual((row["cost_nanousd"], row["estimated"]), (COST_NANOUSD, False))


class DeathInTheMiddleTest(FrontCase):
    """An upstream that dies within its answer, beside one that is well."""

    WORDS = ("one ", "two ", "three ", "four ", "five")

    def test_nobody_goes_on_for_it(self) -> None:
        """A reset, a proper end, silence: five words, an error, no second call, and the first is sick."""
        read = threading.Event()

        def reset(peer: Peer, request: Request) -> None:
            peer.send(*saying(*self.WORDS))
            self.wait(read)
            peer.reset()

        def end(peer: Peer, request: Request) -> None:
            peer.send(*saying(*self.WORDS), END)

        def silence(peer: Peer, request: Request) -> None:
            peer.send(*saying(*self.WORDS))
            self.assertTrue(peer.closed_within(5))

        for way in reset, end, silence:
            with self.subTest(way=way.__name__):
                one, two = self.upstream(way), self.upstream(stream(*words("other")))
                front = self.front(fleet(one, two, more="[breaker]\nthreshold = 1\n", provider="idle_timeout_s = 1"))
                client = self.client(front)
                client.chat(stream=True)
                client.head()
                pieces = [client.piece() or b"" for _ in range(1 + len(self.WORDS))]
                read.set()
                [last] = client.pieces_to_the_cut()
                self.assertEqual(json.loads(last.removeprefix(b"data: "))["error"]["code"], "stream_truncated")
                self.assertEqual([each for each in self.WORDS if each.encode() in b"".join(pieces)], list(self.WORDS))
                self.assertNotIn(b'"finish_reason": "', b"".join(pieces))
                (row,) = front.rows(1)
                self.assertEqual((row["exit"], row["state"], row["attempts"]), ("failed", "settled", 1))
                self.assertEqual((len(two.requests), state(front, "one")), (0, "open"))


class EndMarkTest(FrontCase):
    """An end mark that is missing, doubled, or not the end."""

    def test_exactly_one_leaves(self) -> None:
        """Also when nothing follows the finish: within the time between two chunks, and the upstream is let go."""
        let_go = threading.Event()

        def silent(peer: Peer, request: Request) -> None:
            peer.send(*saying("a"), sse(STOP))
            self.assertTrue(peer.closed_within(5))
            let_go.set()

        ways: list[Answering] = [
            stream(ROLE, event({"content": "a"}), STOP),
            silent,
            stream(ROLE, event({"content": "a"}), STOP, DONE, DONE),
            stream(ROLE, event({"content": "a"}), STOP, DONE, event({"content": "b"})),
        ]
        front = self.live(*ways, provider="idle_timeout_s = 1")
        for _ in ways:
            reply = front.chat(stream=True)
            self.assertEqual(reply.payloads, [ROLE, event({"content": "a"}), STOP, DONE])
        self.wait(let_go)
        self.assertEqual({row["exit"] for row in front.rows(len(ways))}, {"routed"})

    def test_an_end_without_a_finish_is_none(self) -> None:
        """It is an error, whatever mark it has."""
        client = self.client(self.live(stream(ROLE, event({"content": "a"}), DONE)))
        client.chat(stream=True)
        reply = client.cut_reply()
        self.assertNotIn(DONE, reply.payloads)


class RepeatedBeginningTest(FrontCase):
    """Failover within a stream."""

    def test_visible_text_is_never_begun_again(self) -> None:
        """After text an error; before it the second's answer, as if it had been the first."""

        def after_text(peer: Peer, request: Request) -> None:
            peer.send(*saying("Hello wor"))
            self.wait(read)
            peer.reset()

        def before_text(peer: Peer, request: Request) -> None:
            peer.send(*saying())
            peer.reset()

        read = threading.Event()
        second = [event(choices=choice["choices"], id="two") for choice in map(json.loads, words("Hello world")[:3])]
        one, two = self.upstream(after_text, before_text), self.upstream(stream(*second, USAGE_EVENT, DONE))
        front = self.front(fleet(one, two, more=ONE_TRY))
        client = self.client(front)
        client.chat(stream=True)
        client.head()
        pieces = [client.piece(), client.piece()]
        read.set()
        pieces += client.pieces_to_the_cut()
        self.assertEqual(b"".join(piece or b"" for piece in pieces).count(b"Hello wor"), 1)
        self.assertEqual(len(two.requests), 0)
        reply = front.chat(**USAGE_WANTED)
        self.assertEqual(reply.text, "Hello world")
        self.assertEqual(reply.payloads[:3], second)
        self.assertEqual(reply.get("x-gateway-exit"), "failed_over")
        first, failed_over = front.rows(2)
        self.assertEqual((failed_over["exit"], failed_over["attempts"]), ("failed_over", 2))
        self.assertGreaterEqual(failed_over["cost_nanousd"], COST_NANOUSD)
        self.assertEqual(front.money(), (first["cost_nanousd"] + failed_over["cost_nanousd"], 0, 0))


class InvalidRequestTest(FrontCase):
    """A request that the upstream calls invalid, and a credential that it refuses."""

    def test_the_clients_fault_is_told_and_the_operators_is_not(self) -> None:
        """One call each; the first kind keeps its words, the second goes elsewhere; failures cost nothing."""
        said = {"message": "bad field", "type": "invalid_request_error", "param": "messages", "code": "some_code"}
        statuses = {"400 B": 400, "413 B": 413, "422 B": 400, "404 B": 404, "401 B": 200, "403 B": 200}
        one = self.upstream(*(failing(status, **said) for status in statuses))
        two = self.upstream(whole())
        front = self.front(fleet(one, two, more=QUICK), clock=(clock := ShiftedClock()))
        for calls, told in enumerate(statuses.values(), 1):
            before = len(two.requests)
            reply = front.chat()
            self.assertEqual((reply.status, len(one.requests)), (told, calls))
            self.assertEqual(len(two.requests) - before, told == 200)
            if told != 200:
                self.assertEqual(reply.error, said)
            clock.shift_s += LONG_PAUSE_S
        self.assertEqual(front.money(), (2 * COST_NANOUSD, 0, 0))
        self.assertEqual(state(front, "one"), "closed")


QUOTA = failing("429 No", type="insufficient_quota", code="insufficient_quota")


class QuotaTest(FrontCase):
    """An empty account is no short rate limit."""

    def test_it_moves_on_at_once_and_is_not_asked_again(self) -> None:
        """One call to it, then one to the other; it rests for longer than after a limit, and the state says why."""
        one, two = self.upstream(QUOTA), self.upstream(whole())
        front = self.front(fleet(one, two, more=QUICK), clock=(clock := ShiftedClock()))
        for shift_s in (0, 30, 59):
            clock.shift_s = shift_s
            self.assertEqual(front.chat().get("x-gateway-deployment"), "two")
            self.assertEqual((len(one.requests), state(front, "one")), (1, "quota_exhausted"))

    def test_alone_the_client_is_told_which_it_was(self) -> None:
        """429 with its own code, and not to retry; one call."""
        front = self.live(QUOTA)
        reply = front.chat()
        self.assert_error(reply, 429, "insufficient_quota")
        self.assertEqual((reply.get("x-should-retry"), len(front.upstream.requests)), ("false", 1))

    def test_a_short_limit_is_waited_for(self) -> None:
        """Two calls, 200."""
        one = self.upstream(failing("429 Slow", code="rate_limit_exceeded"), whole())
        front = self.front(fleet(one, more=QUICK + "pause_s = 0.01\n"))
        self.assertEqual((front.chat().status, len(one.requests)), (200, 2))


class OneCallersFaultsTest(FrontCase):
    """Bad requests and short time limits of one caller."""

    TIMES = 6

    def test_they_do_not_open_the_breaker_for_everyone(self) -> None:
        """Only failures of the upstream do; a success ends the row, and then five of them open it."""
        reached = threading.Semaphore(0)

        def silent(peer: Peer, request: Request) -> None:
            reached.release()
            self.assertTrue(peer.closed_within(5))

        replies: list[Answering] = [failing("400 B")] * self.TIMES + [failing("422 B")] * self.TIMES
        replies += [silent] * (2 * self.TIMES)
        replies += [failing("500 Oops")] * 4 + [whole()] + [failing("500 Oops")]
        one = self.upstream(*replies)
        front = self.front(fleet(one, more="[retry]\nmax_retries = 0\n[breaker]\nthreshold = 5\ncooldown_s = 60\n"))
        self.assertEqual({front.chat().status for _ in range(2 * self.TIMES)}, {400})
        for _ in range(self.TIMES):
            client = self.client(front)
            client.chat()
            self.assertTrue(reached.acquire(timeout=10))
            client.close()
        front.wait_ended(3 * self.TIMES)
        limit = [("x-gateway-timeout-s", "1")]
        with ThreadPoolExecutor(self.TIMES) as callers:
            replies_in_time = callers.map(lambda _: front.chat(limit).status, range(self.TIMES))
            self.assertEqual(set(replies_in_time), {504})
        for _ in range(self.TIMES):
            self.assertTrue(reached.acquire(timeout=PATIENCE_S))
        self.assertEqual(state(front, "one"), "closed")
        other = front.world.key()
        self.assertEqual([front.chat(key=other).status for _ in range(5)], [503] * 4 + [200])
        self.assertEqual({front.chat(key=other).status for _ in range(5)}, {503})
        self.assertEqual(state(front, "one"), "open")
        calls = len(one.requests)
        reply = front.chat(key=other)
        self.assert_error(reply, 503, "all_providers_failed")
        self.assertTrue(30 < int(reply.get("retry-after") or 0) <= 60, reply.get("retry-after"))
        self.assertEqual(len(one.requests), calls)


class HalfOpenTest(FrontCase):
    """Fifty callers at the moment at which a breaker may try again."""

    CALLERS = 50
    CONFIG = "[retry]\nmax_retries = 0\n[breaker]\nthreshold = 3\ncooldown_s = 60\n"

    def rush(self, answer: Answering, then: Answering) -> tuple[Front, list[int], Callable[[], int]]:
        """Open the breaker, let its cooldown pass, and call with everybody at once; the probe is answered last."""
        others = threading.Semaphore(0)

        def probe(peer: Peer, request: Request) -> None:
            for _ in range(self.CALLERS - 1):
                self.assertTrue(others.acquire(timeout=10))
            answer(peer, request)

        one = self.upstream(*[failing("500 Oops")] * 3, probe, then)
        front = self.front(fleet(one, more=self.CONFIG), clock=(clock := ShiftedClock()))
        self.assertEqual([front.chat().status for _ in range(3)], [503] * 3)
        clock.shift_s += 60

        def call(_: int) -> int:
            reply = front.chat()
            if reply.get("x-gateway-attempts") == "0":
                self.assertTrue(reply.get("retry-after"))
                others.release()
            return reply.status

        with ThreadPoolExecutor(self.CALLERS) as pool:
            statuses = sorted(pool.map(call, range(self.CALLERS)))
        self.assertEqual(len(one.requests), 4)
        return front, statuses, lambda: len(one.requests)

    def test_one_goes_in_and_its_success_lets_in_everybody(self) -> None:
        """The others are refused at once, which costs and holds nothing."""
        front, statuses, calls = self.rush(whole(), whole())
        self.assertEqual(statuses, [200] + [503] * (self.CALLERS - 1))
        self.assertEqual((front.money(), state(front, "one")), ((COST_NANOUSD, 0, 0), "closed"))
        with ThreadPoolExecutor(10) as pool:
            self.assertEqual(list(pool.map(lambda _: front.chat().status, range(10))), [200] * 10)
        self.assertEqual(calls(), 14)

    def test_a_bad_probe_opens_it_again(self) -> None:
        """For a full cooldown."""
        front, statuses, calls = self.rush(failing("500 Oops"), whole())
        self.assertEqual(statuses, [503] * self.CALLERS)
        self.assertEqual((front.money(), state(front, "one")), ((0, 0, 0), "open"))
        self.assertEqual((front.chat().status, calls()), (503, 4))


class CachedFaultTest(FrontCase):
    """An answer that was none, or not whole, must not be remembered."""

    def test_an_error_is_never_remembered(self) -> None:
        """The second request is answered by the upstream, the third by the cache, as a stream."""
        failures: dict[int, Answering] = {
            503: failing("500 Oops"),
            429: failing("429 Slow"),
            400: failing("400 Bad"),
            502: whole({"error": {"message": "busy"}}),
            -502: whole(completion() | {"choices": []}),
        }
        replies = [reply for failure in failures.values() for reply in (failure, whole())]
        front = self.live(*replies, clock=(clock := ShiftedClock()))
        for calls, status in enumerate(failures):
            asked: dict[str, Any] = {"text": f"prompt {calls}", "temperature": 0}
            self.assertEqual(front.chat(**asked).status, abs(status))
            clock.shift_s += LONG_PAUSE_S
            second = front.chat(**asked)
            self.assertEqual((second.status, second.get("x-gateway-cache")), (200, "miss"))
            third = front.chat(**asked, stream=True)
            self.assertEqual((third.get("x-gateway-cache"), third.text), ("hit", "hello there"))
            self.assertEqual(third.payloads[-1], DONE)
            self.assertEqual(len(front.upstream.requests), 2 * (calls + 1))

    def test_an_answer_that_is_not_whole_is_never_remembered(self) -> None:
        """Cut, ended early, an error within, no finish reason, the cap, a client that left: all are asked for again."""
        word = event({"content": "half"})
        failed = b'{"error": {"message": "busy"}}'
        unfinished = completion()
        unfinished["choices"][0]["finish_reason"] = None
        left = threading.Event()

        def half_read(peer: Peer, request: Request) -> None:
            peer.send(*saying("half"))
            self.assertTrue(peer.closed_within(5))
            left.set()

        streams: list[Answering] = [
            stream(ROLE, word, word),
            stream(ROLE, word, word, DONE),
            stream(ROLE, word, word, failed, DONE),
            stream(ROLE, word, event(finish="length"), USAGE_EVENT, DONE),
            half_read,
        ]
        good = stream(*words("whole"))
        replies = [reply for first in streams for reply in (first, good)]
        front = self.live(*replies, whole(unfinished), whole())
        for number in range(len(streams)):
            asked: dict[str, Any] = {"text": f"prompt {number}", "temperature": 0, "stream": True}
            client = self.client(front)
            client.chat(**asked)
            client.head()
            self.assertEqual([client.piece(), client.piece()], [frame(ROLE), frame(word)])
            client.close()
            front.wait_ended(3 * number + 1)
            for cache in "miss", "hit":
                reply = front.chat(**asked)
                self.assertEqual((reply.get("x-gateway-cache"), reply.text), (cache, "whole"))
        self.wait(left)
        for cache in "miss", "miss", "hit":
            reply = front.chat(text="not streamed", temperature=0)
            self.assertEqual((reply.status, reply.get("x-gateway-cache")), (200, cache))

    def test_a_finished_answer_whose_end_is_missing_is_given_but_not_remembered(self) -> None:
        """Cut behind the finish, or silent there: its client has it whole, and the next one asks again."""

        def cut(peer: Peer, request: Request) -> None:
            peer.send(*saying("first"), sse(STOP))

        def silent(peer: Peer, request: Request) -> None:
            cut(peer, request)
            self.assertTrue(peer.closed_within(5))

        for way in cut, silent:
            with self.subTest(way=way.__name__):
                front = self.live(way, stream(*words("second")), provider="idle_timeout_s = 1")
                replies = [front.chat(stream=True, temperature=0) for _ in range(3)]
                self.assertEqual([reply.text for reply in replies], ["first", "second", "second"])
                self.assertEqual([reply.get("x-gateway-cache") for reply in replies], ["miss", "miss", "hit"])
                self.assertEqual([reply.payloads[-1] for reply in replies], [DONE] * 3)
