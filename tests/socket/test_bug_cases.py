"""Ways in which other gateways have failed their users, each as a case of its own."""

import json
import socket
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import TestCase, mock

from gateway.clock import RealClock
from gateway.config import ConfigError, load
from gateway.health import LONG_PAUSE_S
from llmkit.sse import frame
from tests.support.front import (
    CHAT,
    COST_NANOUSD,
    DONE,
    END,
    ONE_TRY,
    PROVIDER_KEY,
    ROLE,
    STOP,
    STREAM_HEAD,
    USAGE_EVENT,
    USAGE_WANTED,
    Answering,
    FrontCase,
    LiveFront,
    Reply,
    ShiftedClock,
    completion,
    event,
    sse,
    stream,
    whole,
    words,
)
from tests.support.process import WAIT_S, GatewayProcess
from tests.support.scripted_upstream import Peer, Request, chunk
from tests.support.world import CONFIG, chat


def send(wire: Sequence[bytes], peer: Peer, request: Request) -> None:
    """Answer with these bytes."""
    peer.send(*wire)


class SplitReadsTest(FrontCase):
    """An event, or a character, that is cut by the network."""

    TEXTS = ("日本語", "🙂", "x" * 40_000 + "語")
    ARGUMENTS = '{"quoted": "\\"a\\"", "city": "東京"}'

    def payloads(self) -> list[bytes]:
        """Text of several bytes a character, a line of 40 KB, escaped quotes, usage and the end mark."""
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": self.ARGUMENTS}}
        said = [event({"content": text}) for text in self.TEXTS]
        return [ROLE, *said, event({"tool_calls": [call]}), event(finish="tool_calls"), USAGE_EVENT, DONE]

    def assert_whole(self, front: LiveFront) -> None:
        """Nothing lost, nothing twice, nothing garbled, and the cost is exact."""
        reply = front.chat(**USAGE_WANTED)
        self.assertEqual(reply.text, "".join(self.TEXTS))
        self.assertEqual(reply.payloads[:-2], self.payloads()[:-2])
        (call,) = [call for each in reply.chunks[:-1] for call in each["choices"][0]["delta"].get("tool_calls", ())]
        self.assertEqual(call["function"]["arguments"], self.ARGUMENTS)
        self.assertEqual(front.rows(1)[0]["cost_nanousd"], COST_NANOUSD)

    def test_one_byte_per_write(self) -> None:
        """Chunk sizes, line ends and characters are all cut."""
        raw = b"".join(chunk(frame(payload)) for payload in self.payloads()) + END
        self.assert_whole(self.live(partial(send, [STREAM_HEAD, *(raw[at : at + 1] for at in range(len(raw)))])))

    def test_one_chunk_for_every_three_bytes(self) -> None:
        """The transfer's own framing is not the stream's; and line ends of the other kinds."""
        raw = b"".join(frame(payload).replace(b"\n", b"\r\n") for payload in self.payloads())
        pieces = [chunk(raw[at : at + 3]) for at in range(0, len(raw), 3)]
        self.assert_whole(self.live(partial(send, [STREAM_HEAD, b"".join(pieces), END])))


class LockedLedgerTest(FrontCase):
    """Another process that holds the database's write lock."""

    CHATS = 8

    def test_nothing_is_sent_and_nothing_but_chats_waits(self) -> None:
        """While it lasts: 503 with Retry-After, no upstream call, no 500, and reads are served."""
        with mock.patch("gateway.sqlite_file.BUSY_TIMEOUT_S", 0.2):
            front = self.live(whole(), durability="full")
        with write_lock(front.world.path / "ledger.db"), ThreadPoolExecutor(self.CHATS) as pool:
            refused = pool.map(lambda _: front.chat(), range(self.CHATS))
            self.assertEqual(front.ask("GET", "/healthz", key=None).status, 200)
            self.assertEqual([front.ask("GET", "/v1/models").status for _ in range(self.CHATS)], [200] * self.CHATS)
            for reply in refused:
                self.assert_error(reply, 503, "store_unavailable")
                self.assertEqual(reply.get("retry-after"), "1")
        self.assertEqual(front.upstream.requests, [])
        self.assertEqual({type(error) for error in front.errors}, {sqlite3.OperationalError})
        front.errors.clear()
        with ThreadPoolExecutor(self.CHATS) as pool:
            statuses = list(pool.map(lambda _: front.chat().status, range(40)))
        self.assertEqual((statuses, front.money()), ([200] * 40, (40 * COST_NANOUSD, 0, 0)))


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Hold the write lock of the database at `path`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        yield
        foreign.execute("ROLLBACK")


class FailureBeforeTheFirstEventTest(FrontCase):
    """An upstream that fails again and again before it has said a word."""

    def test_no_hold_stays_behind(self) -> None:
        """Streamed or not: a status that is not 200, the client's own 401 never, and the next call goes through."""
        for fields in {}, {"stream": True}:
            with self.subTest(**fields):
                self.check(fields)

    def check(self, fields: dict[str, Any]) -> None:
        def silent(peer: Peer, request: Request) -> None:
            self.assertTrue(peer.closed_within(5))

        def dropped(peer: Peer, request: Request) -> None:
            """Close without a byte."""

        failures: list[Answering] = [
            whole({"error": {"message": "oops"}}, status="500 Oops"),
            whole(b"", status="503 Busy"),
            whole({"error": {"message": "bad key"}}, status="401 No"),
            dropped,
            silent,
        ]
        answer = stream(*words("fine")) if fields else whole()
        front = self.live(*failures, answer, provider="ttft_timeout_s = 1", clock=(clock := ShiftedClock()))
        replies = []
        for _ in failures:
            replies.append(front.chat(max_tokens=100_000, **fields))
            clock.shift_s += LONG_PAUSE_S
        self.assertEqual([reply.status for reply in replies], [503, 503, 502, 503, 504])
        rows = front.rows(len(failures))
        self.assertEqual([row["state"] for row in rows], ["void"] * 3 + ["unresolved"] * 2)
        spent, held, unresolved = front.money()
        holds = [hold["amount_nanousd"] for hold in front.world.run("ledger.holds")]
        self.assertEqual((spent, held, unresolved, len(holds)), (0, 0, sum(holds), 2))
        self.assertEqual(front.chat(max_tokens=100_000, **fields).status, 200)
        self.assertEqual(front.money(), (COST_NANOUSD, 0, unresolved))


class CommentTest(FrontCase):
    """Comments that keep a connection busy."""

    PING = chunk(b": PROCESSING\n\n")

    def test_they_are_no_events(self) -> None:
        """Before the first event, between two, and within one: the client sees JSON and the end mark only."""
        within = chunk(b": here\ndata: ") + chunk(b'{"choices": [],\n: no comment\n') + chunk(b'data: "x": 1}\n\n')

        def reply(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, self.PING * 3, sse(ROLE), self.PING, sse(event({"content": "a"})), within)
            peer.send(self.PING, sse(STOP), self.PING, sse(USAGE_EVENT), chunk(b"\n\n:\n\n"), sse(DONE), END)

        front = self.live(reply)
        self.assertEqual(front.chat(stream=True).payloads, [ROLE, event({"content": "a"}), STOP, DONE])
        (row,) = front.rows(1)
        self.assertEqual((row["cost_nanousd"], row["estimated"]), (COST_NANOUSD, False))

    def test_they_are_no_first_token(self) -> None:
        """A server that only says that it is busy runs into the time limit of the first byte."""

        def reply(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD)
            peer.drip(self.PING, every_s=0.02)

        front = self.live(reply, provider="ttft_timeout_s = 0.3\nidle_timeout_s = 5")
        self.assert_error(front.chat(stream=True), 504, "upstream_timeout")
        self.assertEqual(front.money()[:2], (0, 0))


class HealthTest(TestCase):
    """Health that depends on the right thing."""

    CONFIG = (
        "[server]\nannounce_s = 0\n"
        '[[providers]]\nname = "up"\nbase_url = "http://127.0.0.1:9/v1"\n'
        '[[deployments]]\nname = "mini"\nprovider = "up"\nmodel = "m"\nprice = { input = 1, output = 4 }\n' + ONE_TRY
    )

    def test_upstreams_do_not_matter_and_the_ledger_does(self) -> None:
        """No upstream: alive and ready. No ledger: alive, not ready, nothing sent. Back: ready without a restart."""
        with GatewayProcess(self.CONFIG) as gateway:
            key = gateway.create_key()["key"]
            self.assertEqual(self.health(gateway), (200, 200))
            self.assert_refused(gateway.chat(key, model="mini"), "all_providers_failed")
            self.assertEqual(self.health(gateway), (200, 200))
            with write_lock(gateway.data_dir / "ledger.db"):
                self.assert_refused(gateway.chat(key, model="mini"), "store_unavailable")
                self.assertEqual(self.health(gateway), (200, 503))
            tick, deadline_s, clock = threading.Event(), RealClock().now_s() + WAIT_S, RealClock()
            while self.health(gateway) != (200, 200):
                self.assertLess(clock.now_s(), deadline_s, "not ready again")
                tick.wait(0.05)
            self.assert_refused(gateway.chat(key, model="mini"), "all_providers_failed")
            self.assertEqual(gateway.command("ledger.holds"), [])
            self.assertTrue(gateway.command("ledger.verify")["ok"])

    def health(self, gateway: GatewayProcess) -> tuple[int, int]:
        """The status of liveness and of readiness."""
        alive, ready = (gateway.call("GET", path)[0] for path in ("/healthz", "/readyz"))
        return alive, ready

    def assert_refused(self, answer: tuple[int, dict[str, str], bytes], code: str) -> None:
        """A 503 that says why and when to come back."""
        status, headers, body = answer
        self.assertEqual((status, json.loads(body)["error"]["code"], headers["retry-after"]), (503, code, "1"))


class PriceTest(FrontCase):
    """A price that nobody stated."""

    MODEL = '[[deployments]]\nname = "{0}"\nprovider = "up"\nmodel = "{0}"\n'

    def test_a_model_without_a_price_is_refused_at_the_start(self) -> None:
        """By its place and its name; a price of nothing must be said."""
        with self.assertRaises(ConfigError) as caught:
            load(CONFIG + self.MODEL.format("new-model"), {})
        (fault,) = caught.exception.faults
        self.assertTrue(fault.startswith("deployments[1].price: is required for new-model (new-model): "), fault)

    def test_each_model_has_its_own_price(self) -> None:
        """A dated id is not priced by its likeness; what is free costs nothing, also for a key without money."""
        more = self.MODEL.format("mini-2026-01-01") + "price = { input = 10, output = 40 }\n"
        more += self.MODEL.format("free") + 'price = "free"\n'
        more += self.MODEL.format("zero") + "price = { input = 0, output = 0 }\n"
        front = self.live(whole(), more=more)
        costs = [
            front.chat(model=model).get("x-gateway-cost-usd") for model in ("mini", "mini-2026-01-01", "free", "zero")
        ]
        self.assertEqual(costs, ["0.000027", "0.00027", "0", "0"])
        poor = front.world.key("0")
        statuses = [front.chat(model=model, key=poor).status for model in ("mini", "free", "zero")]
        self.assertEqual(statuses, [402, 200, 200])


class BrokenStreamTest(FrontCase):
    """An upstream that dies in the middle of its answer."""

    WORDS = ("one ", "two ", "three ", "four ", "five")

    def broken(self, front: LiveFront, read: threading.Event | None = None) -> Reply:
        """What the client gets: five words, an error, no end mark, and a body that is not finished."""
        client = self.client(front)
        client.chat(stream=True)
        status, headers = client.head()
        pieces = [client.piece() or b"" for _ in range(1 + len(self.WORDS))]
        if read is not None:
            read.set()
        pieces += client.pieces_to_the_cut()
        return Reply(status, headers, b"".join(pieces), pieces)

    def assert_broken(self, front: LiveFront, reply: Reply) -> None:
        """The error comes last, no finish reason is invented, and what was said is billed."""
        *events, last = reply.payloads
        chunks = [json.loads(payload)["choices"][0] for payload in events]
        self.assertEqual("".join(choice["delta"]["content"] for choice in chunks), "".join(self.WORDS))
        self.assertEqual({choice["finish_reason"] for choice in chunks}, {None})
        self.assertEqual(json.loads(last)["error"]["code"], "stream_truncated")
        (row,) = front.rows(1)
        self.assertEqual((row["exit"], row["state"], row["code"]), ("failed", "settled", "stream_truncated"))
        self.assertEqual((row["completion_tokens"], row["estimated"]), (len("".join(self.WORDS)), True))
        self.assertGreater(row["prompt_tokens"], 0)
        self.assertEqual(front.money(), (row["cost_nanousd"], 0, 0))
        self.assertEqual(len(front.upstream.requests), 1)

    def said(self) -> list[bytes]:
        """The chunks of the first five words."""
        return [sse(ROLE), *(sse(event({"content": word})) for word in self.WORDS)]

    def test_a_reset_in_the_middle(self) -> None:
        """The connection breaks."""
        read = threading.Event()

        def reply(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, *self.said())
            self.wait(read)
            peer.reset()

        front = self.live(reply)
        self.assert_broken(front, self.broken(front, read))

    def test_a_proper_end_without_a_finish_reason(self) -> None:
        """The body ends as if all were well, with the end mark and without."""
        for end in (END, sse(DONE) + END):
            wire = [STREAM_HEAD, *self.said(), end]
            front = self.live(partial(send, wire))
            self.assert_broken(front, self.broken(front))

    def test_silence_in_the_middle(self) -> None:
        """Until the time limit between two chunks."""

        def reply(peer: Peer, request: Request) -> None:
            peer.send(STREAM_HEAD, *self.said())
            self.assertTrue(peer.closed_within(5))

        front = self.live(reply, provider="idle_timeout_s = 1")
        self.assert_broken(front, self.broken(front))


class RedirectionTest(FrontCase):
    """A client that tries to choose where the provider's key goes."""

    FIELDS = ("api_base", "base_url", "api_key", "organization", "extra_headers", "custom_llm_provider", "proxy")
    HEADERS = (
        "x-api-base",
        "x-upstream-url",
        "x-portkey-custom-host",
        "x-base-url",
        "Helicone-Target-URL",
        "Forwarded",
    )

    def test_nothing_in_a_request_chooses_the_upstream(self) -> None:
        """The other server is never called; the configured one gets its own key and plain data."""
        with socket.create_server(("127.0.0.1", 0)) as evil:
            url = f"http://127.0.0.1:{evil.getsockname()[1]}/v1"
            front = self.live(whole())
            bodies: list[dict[str, Any]] = [{name: url} for name in (*self.FIELDS, "deployment")]
            bodies += [{"extra_body": {"api_base": url}}, {"metadata": {"api_base": url}}]
            for body in bodies:
                self.assertEqual(front.chat(**body).status, 200)
                self.assertIn(front.upstream.body.get("metadata"), (None, {"api_base": url}))
                self.assertLessEqual(
                    set(front.upstream.body), {"model", "messages", "metadata", "max_completion_tokens"}
                )
            for name in self.HEADERS:
                self.assertEqual(front.chat([(name, url)]).status, 200)
            self.assertEqual(front.ask("POST", CHAT, chat(), [("Host", url.removeprefix("http://"))]).status, 400)
            image = {"type": "image_url", "image_url": {"url": url + "/cat.png"}}
            message = {"role": "user", "content": [image]}
            self.assertEqual(front.chat(messages=[message]).status, 200)
            self.assertEqual(front.upstream.body["messages"], [message])
            keys = {request.get("authorization") for request in front.upstream.requests}
            self.assertEqual(keys, {f"Bearer {PROVIDER_KEY}"})
            evil.setblocking(False)
            with self.assertRaises(BlockingIOError):
                evil.accept()


class BurstTest(FrontCase):
    """More callers at one instant than a tenant's rate allows."""

    CALLERS, BURST, EVERY_S = 50, 5, 1000
    TENANT = f'[[tenants]]\nname = "acme"\nrate_per_s = {1 / EVERY_S}\nburst = {BURST}\n'

    def test_exactly_the_burst_passes_and_then_one_for_each_interval(self) -> None:
        """The others are told when, cost nothing and reach nobody; no window doubles it, and no other tenant waits."""
        front = self.live(whole(), more=self.TENANT, clock=(clock := ShiftedClock()))
        with ThreadPoolExecutor(self.CALLERS) as pool:
            replies = list(pool.map(lambda _: front.chat(), range(self.CALLERS)))
        served = [reply for reply in replies if reply.status == 200]
        left = sorted(str(reply.get("x-ratelimit-remaining-requests")) for reply in served)
        self.assertEqual((left, len(front.upstream.requests)), (list("01234"), self.BURST))
        for reply in replies:
            self.assertEqual(reply.get("x-ratelimit-limit-requests"), str(self.BURST))
            if reply not in served:
                self.assert_error(reply, 429, "rate_limit_exceeded")
                self.assertEqual(reply.get("x-ratelimit-remaining-requests"), "0")
                self.assertLessEqual(int(reply.get("retry-after") or 0), self.EVERY_S)
        self.assertEqual(front.money(), (self.BURST * COST_NANOUSD, 0, 0))
        other = front.world.key(tenant="other")
        self.assertEqual(front.chat(key=other).status, 200)
        for shift_s, statuses in ((1000, [200, 429]), (2000, [200, 429]), (7000, [200] * self.BURST + [429])):
            clock.shift_s = shift_s
            self.assertEqual([front.chat().status for _ in statuses], statuses)


class CacheKeyTest(FrontCase):
    """A request that differs from a remembered one in a single field."""

    VARIANTS: tuple[dict[str, Any], ...] = (
        {"response_format": {"type": "text"}},
        {"seed": 7},
        {"stop": ["x"]},
        {"max_tokens": 5},
        {"max_completion_tokens": 5},
        {"top_p": 0.5},
        {"logit_bias": {"1": 5}},
        {"logprobs": True},
        {"reasoning_effort": "low"},
        {"x_vendor": 1},
        {"prompt_version": "2"},
        {"model": "other"},
        {"messages": [{"role": "system", "content": "s"}, *chat("describe a bike")["messages"]]},
    )
    BYPASSING: tuple[dict[str, Any], ...] = (
        {"tools": [{"type": "function", "function": {"name": "t"}}]},
        {"temperature": 1},
        {"private": True},
    )

    def test_it_gets_an_answer_of_its_own(self) -> None:
        """And is remembered for itself; the same request in another spelling gets the first answer, byte by byte."""

        def counted(peer: Peer, request: Request) -> None:
            whole(completion(f"answer {len(front.upstream.requests)}"))(peer, request)

        more = '[[deployments]]\nname = "other"\nprovider = "up"\nmodel = "gw-mini"\nprice = "free"\n'
        front = self.live(counted, more=more)
        base: dict[str, Any] = {"text": "describe a bike", "temperature": 0}
        first = front.chat(**base)
        answers = {first.body}
        for variant in self.VARIANTS:
            own, again = front.chat(**base | variant), front.chat(**base | variant)
            self.assertEqual((own.get("x-gateway-cache"), again.get("x-gateway-cache")), ("miss", "hit"), variant)
            self.assertEqual(own.body, again.body)
            answers.add(own.body)
        for variant in self.BYPASSING:
            answers |= {front.chat(**base | variant).body for _ in range(2)}
        calls_made = 1 + len(self.VARIANTS) + 2 * len(self.BYPASSING)
        self.assertEqual((len(answers), len(front.upstream.requests)), (calls_made, calls_made))
        spelt = b'{ "temperature" : 0,\n"messages":[{"content":"describe\\u0020a bike","role":"user"}], "model":"mini"}'
        hit = front.ask("POST", CHAT, spelt)
        self.assertEqual(
            (hit.body, hit.get("x-gateway-cache"), hit.get("x-gateway-cost-usd")), (first.body, "hit", "0")
        )
        foreign = front.chat(key=front.world.key(tenant="other"), **base)
        self.assertEqual(foreign.get("x-gateway-cache"), "miss")


class CachedPromptTest(FrontCase):
    """A prompt of which the upstream had a part in its own cache."""

    def test_the_cached_part_is_paid_once_and_at_its_own_price(self) -> None:
        """Streamed or not: 500 at 1, 1500 at 0.1 and 100 at 4 USD per million. More cached than sent earns nothing."""
        details = {"prompt_tokens_details": {"cached_tokens": 1500}}
        usage = {"prompt_tokens": 2000, "completion_tokens": 100, "total_tokens": 2100, **details}
        odd = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20, **details}
        front = self.live(
            whole(completion() | {"usage": usage}),
            stream(ROLE, event({"content": "a"}), STOP, event(choices=[], usage=usage), DONE),
            whole(completion() | {"usage": odd}),
        )
        asked: dict[str, Any] = {"text": "x" * 2000, "max_tokens": 200}
        self.assertEqual(front.chat(**asked).get("x-gateway-cost-usd"), "0.00105")
        self.assertIn('"cost_usd":0.00105}', front.chat(**asked, **USAGE_WANTED).payloads[-2].decode())
        self.assertEqual(front.chat(**asked).get("x-gateway-cost-usd"), "0.00019")
        costs = [row["cost_nanousd"] for row in front.rows(3)]
        self.assertEqual(costs, [1_050_000, 1_050_000, 190_000])
