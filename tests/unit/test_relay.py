"""One answer on its way to one client: what leaves, in which order, and what is known when it ends."""

import json
import unittest
from collections.abc import Awaitable, Callable
from typing import Any, cast

from gateway.clock import FakeClock
from gateway.context import Answer, Facts, Options, Principal, RequestContext
from gateway.drive import drive
from gateway.errors import ClientGone, Draining, GatewayError, UpstreamError, UpstreamTimeout
from gateway.evidence import Evidence, Reach
from gateway.ledger import Account, Ledger, Reservation
from gateway.relay import Relay
from gateway.rows import RequestRow
from gateway.settlement import Settlement
from llmkit.errors import ProviderError, ProviderErrorKind
from llmkit.prices import Price, PriceEntry
from llmkit.sse import DONE
from llmkit.types import Cancel, Usage

PRICE = PriceEntry(0, Price.parse({"input": 1, "output": 4}), "1")
Step = bytes | BaseException | None | Callable[[], None]


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """One event of an upstream's stream."""
    choices = [{"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gw-mini"}
    return json.dumps(head | {"choices": choices} | fields).encode()


def usage(prompt: int, completion: int) -> dict[str, int]:
    """Usage as an upstream reports it."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


ROLE, HELLO, WORLD = (
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "hello "}),
    chunk({"content": "world"}),
)
FINISH = chunk({}, "stop")
USAGE = chunk(choices=[], usage=usage(9, 2))


class ScriptedAnswer:
    """An open answer: gives bytes and None, raises exceptions, and calls what can be called on the way."""

    def __init__(self, *steps: Step) -> None:
        self._steps = iter(steps)

    async def next_event(self) -> bytes | None:
        while callable(step := next(self._steps)) and not isinstance(step, bytes | BaseException):
            step()
        if isinstance(step, BaseException):
            raise step
        return step

    async def whole(self) -> bytes:
        raw = await self.next_event()
        assert raw is not None
        return raw

    def close(self) -> None: ...


class Journal:
    """A client and a ledger in one, which note what happens to them in order; `troubles` raise at one of them."""

    cancel: Cancel | None = None
    boot_id = 1

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.received = b""
        self.cost: int | None = None
        self.row: RequestRow | None = None
        self.troubles: dict[str, BaseException] = {}

    def _note(self, entry: str) -> None:
        self.entries.append(entry)
        if entry in self.troubles:
            raise self.troubles.pop(entry)

    async def start(self) -> None:
        self._note("start")

    async def send(self, frame: bytes) -> None:
        self._note("send")
        self.received += frame

    async def finish(self, last: bytes) -> None:
        self._note("finish")
        self.received += last

    async def pause(self, seconds: float) -> None:
        raise AssertionError("nobody pauses here")

    async def settle(self, reservation: Reservation, cost_nanousd: int, row: RequestRow) -> None:
        self._note("settle")
        self.cost, self.row = cost_nanousd, row

    async def leave_unresolved(self, reservation: Reservation, why: str, row: RequestRow) -> None:
        self._note("unresolved")
        self.row = row


class RelayTest(unittest.TestCase):
    """A relay between a scripted answer and a journal."""

    def setUp(self) -> None:
        self.journal = Journal()
        self.clock = FakeClock(now_s=50.0)
        self.facts = Facts("req_1", deployment="mini")
        self.evidence = Evidence(300, 20, Reach.UNKNOWN)

    def relay(self, *steps: Step, streams: bool = True, wants_usage: bool = False) -> Relay:
        """A relay for a request that started now."""
        self.context = RequestContext(
            principal=Principal("k", "acme", Account("acme", "k", (1, 2, 3)), None),
            raw=b"",
            caller=self.journal,
            options=Options(),
            facts=self.facts,
            started_s=self.clock.now_s(),
            started_ms=0,
            streams=streams,
        )
        settlement = Settlement(cast("Ledger", self.journal), self.clock, self.context)
        settlement.hold(Reservation(1, 10**9, "req_1"), self.evidence, PRICE)
        return Relay(self.context, ScriptedAnswer(*steps), self.evidence, settlement, self.clock, wants_usage)

    def stream(self, *steps: Step, wants_usage: bool = False) -> Answer:
        """Relay a stream."""
        return drive(self.relay(*steps, wants_usage=wants_usage).stream())

    def raises(self, story: Awaitable[Answer], kind: type[BaseException]) -> BaseException:
        """What a story raises; it must not have begun to stream."""
        with self.assertRaises(kind) as raised:
            drive(cast("Any", story))
        self.assertEqual(self.journal.received, b"")
        return raised.exception

    def last_event(self) -> dict[str, Any]:
        """The last event that the client got."""
        return dict(json.loads(self.journal.received.rstrip().rpartition(b"data: ")[2]))

    # --- whole answers ---

    def test_a_whole_answer_is_settled_before_it_is_returned(self) -> None:
        """Its bytes are the upstream's own."""
        message = {"role": "assistant", "content": "hello", "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        raw = json.dumps(head | {"choices": [choice], "usage": usage(9, 2)}).encode()
        answer = drive(self.relay(raw, streams=False).whole())
        self.assertEqual((answer.body, answer.cut), (raw, False))
        self.assertEqual((self.journal.entries, self.journal.cost), (["settle"], 17_000))
        self.assertEqual((self.facts.hops, self.evidence.output_bytes), (["mini=ok"], 5))

    def test_a_whole_answer_that_is_none_is_a_bad_gateway(self) -> None:
        """Junk, an error object, or a cut; it may all have been billed."""
        cut = ProviderError(ProviderErrorKind.MALFORMED, "cut", sent=True, first_byte_seen=True, status=200)
        for step in (b"<html>", b"{}", b'{"error": {"message": "CANARY"}}', cut):
            with self.subTest(str(step)):
                self.setUp()
                error = self.raises(self.relay(step, streams=False).whole(), UpstreamError)
                self.assertNotIn("CANARY", str(error))
                self.assertIs(self.evidence.reach, Reach.PRODUCED)
                self.assertEqual(self.facts.hops, ["mini=malformed"])

    def test_usage_beside_an_error_object_is_known(self) -> None:
        """It is what the upstream bills for the failure."""
        raw = json.dumps({"error": {"message": "x"}, "usage": usage(9, 2)}).encode()
        self.raises(self.relay(raw, streams=False).whole(), UpstreamError)
        self.assertEqual(self.evidence.usage, Usage(9, completion_tokens=2))

    def test_a_clock_that_fires_in_a_whole_answer_leaves_it_unknown(self) -> None:
        """The upstream goes on without us."""
        late = ProviderError(ProviderErrorKind.TIMEOUT, "idle", sent=True, first_byte_seen=True, clock="idle")
        self.raises(self.relay(late, streams=False).whole(), UpstreamTimeout)
        self.assertIs(self.evidence.reach, Reach.UNKNOWN)

    # --- streams ---

    def test_a_stream_leaves_event_by_event_and_is_settled_before_its_end(self) -> None:
        """The same bytes, the upstream's usage hidden, one end mark."""
        answer = self.stream(ROLE, HELLO, WORLD, FINISH, USAGE, DONE)
        self.assertEqual((answer.body, answer.cut), (None, False))
        self.assertEqual(self.journal.entries, ["start", "send", "send", "send", "send", "settle", "finish"])
        expected = b"".join(b"data: " + payload + b"\n\n" for payload in (ROLE, HELLO, WORLD, FINISH, DONE))
        self.assertEqual(self.journal.received, expected)
        self.assertEqual((self.journal.cost, self.facts.exit, self.facts.hops), (17_000, "routed", ["mini=ok"]))

    def test_usage_is_told_to_a_client_that_asked(self) -> None:
        """With the exact cost, in one piece with the end mark."""
        self.stream(ROLE, HELLO, FINISH, USAGE, DONE, wants_usage=True)
        told, done = self.journal.received.rstrip().split(b"\n\n")[-2:]
        self.assertEqual(done, b"data: [DONE]")
        event = json.loads(told.removeprefix(b"data: "))
        self.assertEqual((event["choices"], event["usage"]["prompt_tokens"]), ([], 9))
        self.assertIn(b'"cost_usd":0.000017}', told)

    def test_the_first_content_stops_the_clock(self) -> None:
        """A role is no content."""
        self.stream(ROLE, lambda: self.clock.advance(0.25), HELLO, lambda: self.clock.advance(5), FINISH, DONE)
        self.assertEqual(self.context.ttft_ms, 250)

    def test_the_wait_for_the_upstream_is_kept_apart(self) -> None:
        """It is not the gateway's own time."""
        self.stream(lambda: self.clock.advance(1), ROLE, lambda: self.clock.advance(2), FINISH, DONE)
        self.assertEqual(self.facts.upstream_s, 3)

    def test_what_came_is_known_before_it_is_sent(self) -> None:
        """A client that leaves just then is billed for it."""
        self.journal.troubles["send"] = ClientGone()
        counted = chunk({"content": "hello"}, usage=usage(9, 3))
        self.raises(self.relay(counted).stream(), ClientGone)
        self.assertIs(self.evidence.reach, Reach.PRODUCED)
        self.assertEqual((self.evidence.deltas, self.evidence.output_bytes), (1, 5))
        self.assertEqual(self.evidence.usage, Usage(9, completion_tokens=3))

    def test_an_error_before_the_first_event_is_raised(self) -> None:
        """Nothing has been promised yet."""
        silent = ProviderError(ProviderErrorKind.TIMEOUT, "late", sent=True, first_byte_seen=True, clock="ttft")
        table: list[tuple[Step, type[GatewayError], Reach]] = [
            (b"junk", UpstreamError, Reach.PRODUCED),
            (b'{"error": {"message": "CANARY", "code": 500}}', UpstreamError, Reach.PRODUCED),
            (None, UpstreamError, Reach.PRODUCED),
            (DONE, UpstreamError, Reach.PRODUCED),
            (silent, UpstreamTimeout, Reach.UNKNOWN),
        ]
        for step, kind, reach in table:
            with self.subTest(str(step)):
                self.setUp()
                self.raises(self.relay(step).stream(), kind)
                self.assertEqual((self.journal.entries, self.evidence.reach), ([], reach))

    def test_a_stream_that_breaks_is_settled_and_says_so(self) -> None:
        """Its last event is an error, and there is no end mark."""
        cut = ProviderError(ProviderErrorKind.MALFORMED, "cut", sent=True, first_byte_seen=True, status=200)
        late = ProviderError(ProviderErrorKind.TIMEOUT, "x", sent=True, first_byte_seen=True, status=200, clock="idle")
        table: list[tuple[Step, str]] = [
            (cut, "stream_truncated"),
            (late, "stream_truncated"),
            (None, "stream_truncated"),
            (DONE, "stream_truncated"),
            (b"{", "upstream_error"),
            (b'{"error": "CANARY"}', "upstream_error"),
            (chunk({}, "error"), "upstream_error"),
        ]
        for step, code in table:
            with self.subTest(str(step)):
                self.setUp()
                answer = self.stream(ROLE, HELLO, step)
                self.assertTrue(answer.cut)
                self.assertEqual(self.journal.entries, ["start", "send", "send", "settle", "send"])
                self.assertEqual(self.last_event()["error"]["code"], code)
                self.assertEqual(set(self.last_event()["error"]), {"message", "type", "code", "param"})
                self.assertNotIn(b"[DONE]", self.journal.received)
                self.assertNotIn(b"CANARY", self.journal.received)
                self.assertEqual((self.journal.cost, self.facts.exit), (300_000 + 6 * 4_000, "failed"))

    def test_silence_after_a_role_is_an_unknown_outcome(self) -> None:
        """Nothing that costs was seen, and the upstream goes on."""
        late = ProviderError(ProviderErrorKind.TIMEOUT, "x", sent=True, first_byte_seen=True, status=200, clock="idle")
        self.assertTrue(self.stream(ROLE, late).cut)
        self.assertEqual(self.journal.entries, ["start", "send", "unresolved", "send"])

    def test_the_end_of_a_finished_stream_may_be_anything(self) -> None:
        """No mark, two marks, silence, a reset, more after the mark: the answer was whole."""
        late = ProviderError(ProviderErrorKind.TIMEOUT, "x", sent=True, first_byte_seen=True, status=200, clock="idle")
        reset = ProviderError(ProviderErrorKind.MALFORMED, "x", sent=True, first_byte_seen=True, status=200)
        for ends in ([None], [DONE, DONE], [DONE, HELLO], [late], [reset]):
            with self.subTest(str(ends)):
                self.setUp()
                self.assertFalse(self.stream(ROLE, HELLO, FINISH, *ends).cut)
                self.assertEqual(self.journal.received.count(b"[DONE]"), 1)
                self.assertTrue(self.journal.received.endswith(b"data: [DONE]\n\n"))
                self.assertEqual((self.journal.entries[-2:], self.facts.exit), (["settle", "finish"], "routed"))

    def test_late_usage_is_waited_for(self) -> None:
        """It comes after the finish reason, and the last one counts."""
        self.stream(ROLE, HELLO, FINISH, chunk(choices=[], usage=usage(1, 1)), USAGE, DONE)
        self.assertEqual((self.journal.cost, self.evidence.usage), (17_000, Usage(9, completion_tokens=2)))

    def test_a_stream_that_passes_its_cap_is_cut(self) -> None:
        """When running usage says so, or twice as many deltas as the cap."""
        over = chunk({"content": "x"}, usage=usage(9, 21))
        self.assertTrue(self.stream(ROLE, chunk({"content": "x"}, usage=usage(9, 20)), over, FINISH, DONE).cut)
        self.assertEqual((self.journal.cost, self.last_event()["error"]["code"]), (93_000, "stream_truncated"))
        self.setUp()
        self.assertTrue(self.stream(ROLE, *[HELLO] * 60, FINISH, DONE).cut)
        self.assertEqual(self.evidence.deltas, 41)
        self.setUp()
        self.assertFalse(self.stream(ROLE, *[HELLO] * 40, FINISH, DONE).cut)

    def test_a_finished_answer_is_not_cut_for_what_it_cost(self) -> None:
        """There is nothing left to stop; the overage is booked."""
        answer = self.stream(ROLE, HELLO, FINISH, chunk(choices=[], usage=usage(9, 500)), DONE)
        self.assertFalse(answer.cut)
        self.assertEqual(self.journal.cost, 9_000 + 500 * 4_000)

    def test_draining_ends_a_stream_in_band(self) -> None:
        """Before its first event it is raised."""
        self.assertTrue(self.stream(ROLE, HELLO, Draining()).cut)
        self.assertEqual(self.last_event()["error"]["code"], "draining")
        self.setUp()
        self.raises(self.relay(Draining()).stream(), Draining)

    def test_a_client_that_leaves_after_the_settlement_changes_nothing(self) -> None:
        """The money was booked before the last byte."""
        self.journal.troubles["finish"] = ClientGone()
        with self.assertRaises(ClientGone):
            self.stream(ROLE, HELLO, FINISH, USAGE, DONE)
        self.assertEqual((self.journal.entries.count("settle"), self.journal.cost), (1, 17_000))

    def test_a_client_that_is_gone_need_not_hear_of_a_cut(self) -> None:
        """The stream is cut all the same."""
        relay = self.relay(ROLE, HELLO, lambda: self.journal.troubles.update(send=ClientGone()), b"{")
        self.assertTrue(drive(relay.stream()).cut)
        self.assertEqual(self.journal.entries[-2:], ["settle", "send"])
