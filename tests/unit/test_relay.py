"""One answer on its way to one client: what leaves, in which order, and what is known when it ends."""

import json
import unittest
from collections.abc import Awaitable, Callable
from typing import Any, cast

from gateway.chat import parse_chat
from gateway.clock import FakeClock
from gateway.context import Answer, Facts, Options, Principal, RequestContext
from gateway.drive import drive
from gateway.errors import ClientGone, Draining
from gateway.evidence import Evidence, Reach
from gateway.holds import Purpose, Reservation
from gateway.ledger import Ledger
from gateway.levels import Account
from gateway.relay import AnswerRefused, Delivery, Keeper
from gateway.relay_stream import MOST_HELD_BYTES, relay_stream
from gateway.relay_whole import relay_whole
from gateway.rows import Exit, RequestRow
from gateway.settlement import Settlement
from gateway.validators import Refusal
from gateway.verdict import AttemptFailed
from llmkit.errors import ProviderError, ProviderErrorKind
from llmkit.openai import Completion
from llmkit.prices import Price, PriceEntry
from llmkit.sse import DONE, comment
from llmkit.types import Cancel, Pulse, Usage
from tests.support.world import chat

PRICE = PriceEntry(0, Price.parse({"input": 1, "output": 4}), "1")
Step = bytes | tuple[bytes, ...] | BaseException | None | Callable[[], None]


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
    """An open answer: gives bytes and None, raises exceptions, and calls what can be called on the way.

    The bytes of a tuple come together.
    """

    def __init__(self, *steps: Step) -> None:
        self._steps = iter(steps)

    async def next_events(self) -> list[bytes] | None:
        while callable(step := next(self._steps)) and not isinstance(step, bytes | BaseException):
            step()
        if isinstance(step, BaseException):
            raise step
        if step is None:
            return None
        return list(step) if isinstance(step, tuple) else [step]

    async def whole(self) -> bytes:
        events = await self.next_events()
        assert events is not None
        return events[0]

    def close(self) -> None: ...


class Journal:
    """A client and a ledger in one, which note what happens to them in order; `troubles` raise at one of them.

    sent  what left in one piece, as the frames of it
    """

    cancel: Cancel | None = None
    pulse: Pulse | None = None
    boot_id = 1

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.received = b""
        self.sent: list[tuple[bytes, ...]] = []
        self.cost: int | None = None
        self.row: RequestRow | None = None
        self.troubles: dict[str, BaseException] = {}

    def _note(self, entry: str) -> None:
        self.entries.append(entry)
        if entry in self.troubles:
            raise self.troubles.pop(entry)

    def will_wait(self, head_until_s: float | None) -> None:
        raise AssertionError("the relay is behind that")

    def promise(self) -> None:
        """The head could be held back no longer: it went out with a comment."""
        self.received += comment("ping")

    async def start(self) -> None:
        self._note("start")

    async def send(self, *frames: bytes) -> None:
        self._note("send")
        self.sent.append(frames)
        self.received += b"".join(frames)

    async def finish(self, last: bytes) -> None:
        self._note("finish")
        self.received += last

    async def pause(self, seconds: float) -> None:
        raise AssertionError("nobody pauses here")

    async def reserve(self, account: Account, amount_nanousd: int, purpose: Purpose) -> Reservation:
        return Reservation(1, amount_nanousd, purpose.request_id)

    async def settle(self, reservation: Reservation, cost_nanousd: int, row: RequestRow) -> None:
        self._note("settle")
        self.cost, self.row = cost_nanousd, row

    async def leave_unresolved(self, reservation: Reservation, why: str, row: RequestRow) -> None:
        self._note("unresolved")
        self.row = row


def whole(text: str, **fields: Any) -> bytes:
    """A whole answer in form."""
    message = {"role": "assistant", "content": text, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps(head | {"choices": [choice]} | fields).encode()


class Kept:
    """A keeper that keeps everything it is told, and notes in the journal when it is told to keep."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.whole: list[tuple[bytes, dict[str, Any]]] = []
        self.seen: list[bytes] = []
        self.usage: list[Usage] = []

    def keep_whole(self, raw: bytes, completion: Completion) -> None:
        self._journal.entries.append("keep")
        self.whole.append((raw, {"content": completion.document["choices"][0]["message"]["content"]}))

    def see(self, payload: bytes) -> None:
        self.seen.append(payload)

    def keep_stream(self, usage: Usage) -> None:
        self._journal.entries.append("keep")
        self.usage.append(usage)


class RelayTest(unittest.TestCase):
    """A relay between a scripted answer and a journal."""

    def setUp(self) -> None:
        self.journal = Journal()
        self.clock = FakeClock(now_s=50.0)
        self.facts = Facts("req_1", deployment="mini")
        self.evidence = Evidence(300, 20)
        self.exit = Exit.ROUTED
        self.keeper: Keeper | None = None

    def delivery(
        self, *steps: Step, streams: bool = True, may_climb: bool = False, validates: bool = False, **fields: Any
    ) -> Delivery:
        """A delivery for a request that started now; `fields` are those of its body."""
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
        purpose = Purpose("req_1", 1, "mini", "mini", "1")
        drive(settlement.cover(purpose, 10**9, self.evidence, PRICE))
        self.request = parse_chat(json.dumps(chat(stream=streams, **fields)).encode(), Options())
        return Delivery(
            self.context,
            self.request,
            ScriptedAnswer(*steps),
            self.evidence,
            settlement,
            self.clock,
            exit=self.exit,
            validates=validates or may_climb,
            may_climb=may_climb,
            keeper=self.keeper,
        )

    def stream(self, *steps: Step, wants_usage: bool = False, may_climb: bool = False) -> Answer:
        """Relay a stream."""
        fields: dict[str, Any] = {"stream_options": {"include_usage": True}} if wants_usage else {}
        self.last = self.delivery(*steps, may_climb=may_climb, **fields)
        return drive(relay_stream(self.last))

    def raises(self, story: Awaitable[Answer], kind: type[BaseException]) -> BaseException:
        """What a story raises; no event must have reached the client."""
        with self.assertRaises(kind) as raised:
            drive(cast("Any", story))
        self.assertNotIn(b"data:", self.journal.received)
        return raised.exception

    def fails(self, story: Awaitable[Answer], code: str = "upstream_error") -> AttemptFailed:
        """How a story gives up, so that another call may answer; nothing was settled."""
        failed = self.raises(story, AttemptFailed)
        assert isinstance(failed, AttemptFailed)
        self.assertEqual(failed.verdict.error.code, code)
        self.assertTrue(failed.verdict.elsewhere)
        self.assertNotIn("CANARY", str(failed.verdict.error))
        self.assertNotIn("settle", self.journal.entries)
        return failed

    def refused(self, story: Awaitable[Answer]) -> AnswerRefused:
        """How a story gives an answer up for a better one; nothing was settled."""
        refused = self.raises(story, AnswerRefused)
        assert isinstance(refused, AnswerRefused)
        self.assertEqual((self.journal.entries, self.facts.hops), ([], [f"mini={refused.reason}"]))
        return refused

    def last_event(self) -> dict[str, Any]:
        """The last event that the client got."""
        return dict(json.loads(self.journal.received.rstrip().rpartition(b"data: ")[2]))

    # --- whole answers ---

    def test_a_whole_answer_is_settled_before_it_is_returned(self) -> None:
        """Its bytes are the upstream's own."""
        raw = whole("hello", usage=usage(9, 2))
        answer = drive(relay_whole(self.delivery(raw, streams=False)))
        self.assertEqual((answer.body, answer.cut), (raw, False))
        self.assertEqual((self.journal.entries, self.journal.cost), (["settle"], 17_000))
        self.assertEqual((self.facts.hops, self.evidence.output_bytes), (["mini=ok"], 5))

    def test_an_answer_without_usage_is_given_what_it_was_settled_at(self) -> None:
        """A client can see what it paid for."""
        answer = drive(relay_whole(self.delivery(whole("hello"), streams=False)))
        self.assertEqual(json.loads(answer.body or b"")["usage"]["completion_tokens"], 5)
        self.assertEqual(self.journal.cost, 300_000 + 5 * 4_000)

    def test_usage_that_is_not_believed_is_not_told_either(self) -> None:
        """Nor is a count that had to be estimated left at nothing: what the client reads is what it paid for."""
        for reported in (usage(9, 0), usage(0, 2), usage(2**53, 2**53)):
            with self.subTest(reported):
                self.setUp()
                answer = drive(relay_whole(self.delivery(whole("hello", usage=reported), streams=False)))
                told = json.loads(answer.body or b"")["usage"]
                self.assertEqual(self.journal.cost, told["prompt_tokens"] * 1_000 + told["completion_tokens"] * 4_000)

    def test_the_request_ends_as_its_dispatcher_says(self) -> None:
        """Routed, retried, failed over or escalated."""
        for exit_ in (Exit.FAILED_OVER, Exit.ESCALATED):
            for streams in (False, True):
                self.setUp()
                self.exit = exit_
                if streams:
                    self.stream(HELLO, FINISH, DONE)
                else:
                    drive(relay_whole(self.delivery(whole("hello"), streams=False)))
                assert self.journal.row is not None
                self.assertEqual((self.facts.exit, self.journal.row.exit), (exit_, exit_))

    def test_a_whole_answer_that_is_none_may_be_given_by_another(self) -> None:
        """Junk, an error object, or a cut; it may all have been billed."""
        cut = ProviderError(ProviderErrorKind.MALFORMED, "cut", sent=True, first_byte_seen=True, status=200)
        for step in (b"<html>", b"{}", b'{"error": {"message": "CANARY"}}', cut):
            with self.subTest(str(step)):
                self.setUp()
                failed = self.fails(relay_whole(self.delivery(step, streams=False)))
                self.assertTrue(failed.verdict.sick)
                self.assertIs(self.evidence.reach, Reach.PRODUCED)
                self.assertEqual(self.facts.hops, ["mini=malformed"])

    def test_usage_beside_what_is_no_answer_is_known(self) -> None:
        """It is what the upstream bills for the failure."""
        failures: list[Any] = [{"error": {"message": "x"}}, {"choices": []}, {"choices": [{"message": None}]}, {}]
        for failure in failures:
            with self.subTest(failure=failure):
                self.setUp()
                raw = json.dumps(failure | {"usage": usage(9, 2)}).encode()
                self.fails(relay_whole(self.delivery(raw, streams=False)))
                self.assertEqual(self.evidence.usage, Usage(9, completion_tokens=2))

    def test_a_clock_that_fires_in_a_whole_answer_leaves_it_unknown(self) -> None:
        """The upstream goes on without us."""
        late = ProviderError(ProviderErrorKind.TIMEOUT, "idle", sent=True, first_byte_seen=True, clock="idle")
        self.fails(relay_whole(self.delivery(late, streams=False)), "upstream_timeout")
        self.assertIs(self.evidence.reach, Reach.UNKNOWN)

    def test_an_answer_that_a_validator_refuses_is_given_up(self) -> None:
        """If something stronger may answer: nothing was settled, and what it cost is known."""
        schema = {"type": "object", "required": ["a"]}
        wants_schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        table: list[tuple[str, dict[str, Any], Refusal]] = [
            ("", {}, Refusal.EMPTY),
            (" \n", {}, Refusal.EMPTY),
            ("no", {"response_format": {"type": "json_object"}}, Refusal.NOT_JSON),
            ("{", {"response_format": wants_schema}, Refusal.NOT_JSON),
            ("{}", {"response_format": wants_schema}, Refusal.SCHEMA),
        ]
        for text, fields, reason in table:
            with self.subTest(text):
                self.setUp()
                raw = whole(text, usage=usage(9, 2))
                refused = self.refused(relay_whole(self.delivery(raw, streams=False, may_climb=True, **fields)))
                self.assertIs(refused.reason, reason)
                self.assertEqual(
                    (self.evidence.reach, self.evidence.usage), (Reach.PRODUCED, Usage(9, completion_tokens=2))
                )

    def test_a_refused_answer_can_be_given_after_all(self) -> None:
        """Nothing better came: it is settled once, and delivered as it is."""
        raw = whole("", usage=usage(9, 2))
        refused = self.refused(relay_whole(self.delivery(raw, streams=False, may_climb=True)))
        answer = drive(cast("Any", refused.deliver()))
        self.assertEqual((answer.body, self.journal.entries, self.journal.cost), (raw, ["settle"], 17_000))
        self.assertEqual(self.facts.exit, "routed")

    def test_without_anything_stronger_nothing_is_refused(self) -> None:
        """The client gets what there is."""
        table: list[dict[str, Any]] = [{}, {"response_format": {"type": "json_object"}}]
        for fields in table:
            self.setUp()
            answer = drive(relay_whole(self.delivery(whole("", usage=usage(9, 0)), streams=False, **fields)))
            self.assertEqual((answer.cut, self.facts.hops), (False, ["mini=ok"]))

    def test_an_answer_that_is_good_enough_is_not_given_up(self) -> None:
        """Whatever could still be asked."""
        wants: dict[str, Any] = {"response_format": {"type": "json_object"}}
        answer = drive(relay_whole(self.delivery(whole('{"a": 1}'), streams=False, may_climb=True, **wants)))
        self.assertIsNotNone(answer.body)
        self.assertEqual(self.facts.hops, ["mini=ok"])

    def test_whoever_keeps_answers_is_told_of_a_whole_one(self) -> None:
        """With its bytes as they leave, once it is settled."""
        self.keeper = kept = Kept(self.journal)
        answer = drive(relay_whole(self.delivery(whole("hello"), streams=False)))
        self.assertEqual(kept.whole, [(answer.body, {"content": "hello"})])
        self.assertEqual(self.journal.entries, ["settle", "keep"])
        self.setUp()
        self.keeper = kept = Kept(self.journal)
        refused = self.refused(relay_whole(self.delivery(whole(""), streams=False, may_climb=True)))
        self.assertEqual(kept.whole, [])
        drive(cast("Any", refused.deliver()))
        self.assertEqual(len(kept.whole), 1)

    # --- streams ---

    def test_a_stream_leaves_event_by_event_and_is_settled_before_its_end(self) -> None:
        """The same bytes, the upstream's usage hidden, one end mark."""
        answer = self.stream(ROLE, HELLO, WORLD, FINISH, USAGE, DONE)
        self.assertEqual((answer.body, answer.cut), (None, False))
        self.assertEqual(self.journal.entries, ["start", "send", "send", "send", "settle", "finish"])
        self.assertEqual([len(frames) for frames in self.journal.sent], [2, 1, 1])
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

    def test_nothing_leaves_before_the_first_content(self) -> None:
        """Roles, empty deltas and usage are held back, and then leave in order before the next event is read."""
        seen: list[tuple[list[str], bytes]] = []

        def look() -> None:
            seen.append((list(self.journal.entries), self.journal.received))

        self.stream(ROLE, chunk({"content": ""}), look, HELLO, look, WORLD, FINISH, DONE)
        [before, after] = seen
        self.assertEqual(before, ([], b""))
        self.assertEqual(after[0], ["start", "send"])
        self.assertEqual(after[1].count(b"data:"), 3)
        self.assertTrue(after[1].endswith(b"data: " + HELLO + b"\n\n"))

    def test_events_that_came_together_leave_together(self) -> None:
        """Each framed alone, in order, before more is waited for; but the first content for itself."""
        seen: list[int] = []

        def look() -> None:
            seen.append(len(self.journal.sent))

        table: list[tuple[tuple[Step, ...], list[tuple[bytes, ...]]]] = [
            (((ROLE, HELLO), look, (WORLD, FINISH, USAGE), look, DONE), [(ROLE, HELLO), (WORLD, FINISH)]),
            ((ROLE, look, (HELLO, WORLD), look, (FINISH, USAGE, DONE)), [(ROLE, HELLO), (WORLD,), (FINISH,)]),
            (((ROLE, HELLO, WORLD, FINISH, USAGE, DONE),), [(ROLE, HELLO), (WORLD, FINISH)]),
        ]
        for steps, pieces in table:
            self.setUp()
            self.assertFalse(self.stream(*steps).cut)
            framed = [tuple(b"data: " + payload + b"\n\n" for payload in piece) for piece in pieces]
            self.assertEqual(self.journal.sent, framed)
            self.assertEqual(self.journal.entries, ["start", *["send"] * len(pieces), "settle", "finish"])
            self.assertEqual((self.journal.cost, self.facts.hops), (17_000, ["mini=ok"]))
        self.assertEqual(seen, [1, 2, 0, 2])

    def test_nothing_that_says_nothing_is_sent(self) -> None:
        """Usage that is kept for the end makes no empty piece."""
        self.stream(ROLE, HELLO, chunk(choices=[], usage=usage(9, 1)), FINISH, USAGE, DONE)
        self.assertEqual([len(frames) for frames in self.journal.sent], [2, 1])

    def test_content_leaves_before_what_came_with_it_breaks_the_stream(self) -> None:
        """The client has it, and pays for it: junk, an error, or more than the cap, in the same read."""
        much = [chunk({"content": "a"})] * 50
        table: list[tuple[tuple[bytes, ...], list[int]]] = [
            ((b"junk", WORLD), [2]),
            ((WORLD, b'{"error": {"message": "CANARY"}}', WORLD), [2, 1]),
            ((WORLD, *much), [2, 40]),
        ]
        for rest, left in table:
            with self.subTest(rest[-1]):
                self.setUp()
                self.assertTrue(self.stream((ROLE, HELLO, *rest)).cut)
                self.assertEqual([len(frames) for frames in self.journal.sent], [*left, 1])
                self.assertIn("error", self.last_event())
                self.assertEqual(self.journal.entries, ["start", *["send"] * len(left), "settle", "send"])
                self.assertEqual((self.evidence.reach, self.evidence.deltas), (Reach.PRODUCED, sum(left) - 1))

    def test_what_came_before_junk_without_content_is_not_sent(self) -> None:
        """Another call may answer."""
        self.fails(relay_stream(self.delivery((ROLE, b"junk", HELLO))))
        self.assertEqual((self.journal.entries, self.evidence.broken_off), ([], True))

    def test_what_came_after_the_last_report_is_known_wherever_it_came(self) -> None:
        """In the same read as the report, or later."""
        counted = chunk({"content": "hello"}, usage=usage(9, 3))
        for steps in ((ROLE, counted, HELLO, WORLD), ((ROLE, counted, HELLO, WORLD),), ((ROLE, counted, HELLO), WORLD)):
            self.setUp()
            self.stream(*steps, None)
            self.assertEqual((self.evidence.usage, self.evidence.unreported), (Usage(9, completion_tokens=3), (11, 2)))

    def test_any_content_lets_a_stream_flow(self) -> None:
        """Reasoning, a refusal, a call of a tool."""
        call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
        seen: list[int] = []

        def look() -> None:
            seen.append(len(self.journal.entries))

        for delta in ({"reasoning_content": "so"}, {"refusal": "no"}, {"tool_calls": [call]}):
            with self.subTest(str(delta)):
                self.setUp()
                self.stream(ROLE, chunk(delta), look, FINISH, DONE)
                self.assertEqual(seen.pop(), 2)

    def test_what_is_held_back_has_a_bound(self) -> None:
        """An upstream that never comes to the point fills no memory: another one may answer."""
        note = chunk({"x_note": "n" * (MOST_HELD_BYTES // 4)})
        seen: list[int] = []
        steps: list[Step] = [ROLE]
        for _ in range(5):
            steps += [note, lambda: seen.append(len(self.journal.entries))]
        with self.assertRaises(AttemptFailed) as raised:
            self.stream(*steps, None)
        self.assertEqual((seen, raised.exception.verdict.elsewhere), ([0, 0, 0], True))
        self.assertEqual(self.evidence.broken_off, True)
        self.setUp()
        self.fails(relay_stream(self.delivery((ROLE, *[note] * 5, HELLO))))
        self.assertEqual((self.journal.entries, self.evidence.broken_off), ([], True))

    def test_a_stream_says_in_its_head_what_is_true_so_far(self) -> None:
        """Its exit and its route are known when it starts."""
        told: list[Any] = []

        class Looks(Journal):
            async def start(looking) -> None:  # noqa: N805 - the test is `self`
                told.append((self.facts.exit, list(self.facts.hops)))
                await super().start()

        self.journal, self.exit = Looks(), Exit.FAILED_OVER
        self.stream(HELLO, FINISH, DONE)
        self.assertEqual(told, [("failed_over", ["mini=ok"])])

    def test_what_came_is_known_before_it_is_sent(self) -> None:
        """A client that leaves just then is billed for it."""
        self.journal.troubles["send"] = ClientGone()
        counted = chunk({"content": "hello"}, usage=usage(9, 3))
        self.raises(relay_stream(self.delivery(counted)), ClientGone)
        self.assertIs(self.evidence.reach, Reach.PRODUCED)
        self.assertEqual((self.evidence.deltas, self.evidence.output_bytes), (1, 5))
        self.assertEqual(self.evidence.usage, Usage(9, completion_tokens=3))

    def test_what_fails_before_content_is_raised(self) -> None:
        """So that another call may answer: nothing was settled, and no event has left."""
        silent = ProviderError(ProviderErrorKind.TIMEOUT, "late", sent=True, first_byte_seen=True, clock="ttft")
        cut = ProviderError(ProviderErrorKind.MALFORMED, "cut", sent=True, first_byte_seen=True, status=200)
        table: list[tuple[Step, str, Reach]] = [
            (b"junk", "upstream_error", Reach.PRODUCED),
            (b'{"error": {"message": "CANARY", "code": 500}}', "upstream_error", Reach.PRODUCED),
            (chunk({}, "error"), "upstream_error", Reach.PRODUCED),
            (None, "upstream_error", Reach.PRODUCED),
            (DONE, "upstream_error", Reach.PRODUCED),
            (cut, "upstream_error", Reach.PRODUCED),
            (silent, "upstream_timeout", Reach.UNKNOWN),
        ]
        for step, code, reach in table:
            for before, promised in (((), False), ((ROLE,), False), ((ROLE, chunk({"content": ""})), True)):
                with self.subTest(str(step), before=len(before)):
                    self.setUp()
                    if promised:
                        self.journal.promise()
                    failed = self.fails(relay_stream(self.delivery(*before, step)), code)
                    self.assertTrue(failed.verdict.sick)
                    self.assertEqual((self.journal.entries, self.evidence.reach), ([], reach))
                    self.assertEqual(self.facts.hops, [f"mini={failed.verdict.outcome}"])
                    self.assertEqual(self.evidence.broken_off, True)

    def test_a_stream_answers_after_its_head_has_gone_out(self) -> None:
        """The head could be held back no longer; the client sees a comment, then the answer alone."""
        self.journal.promise()
        self.stream(ROLE, HELLO, FINISH, DONE)
        expected = b"".join(b"data: " + payload + b"\n\n" for payload in (ROLE, HELLO, FINISH, DONE))
        self.assertEqual(self.journal.received, comment("ping") + expected)

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
                self.assertEqual((answer.cut, self.last.broke in ("malformed", "timeout")), (True, True))
                self.assertEqual(self.journal.entries, ["start", "send", "settle", "send"])
                self.assertEqual(self.last_event()["error"]["code"], code)
                self.assertEqual(set(self.last_event()["error"]), {"message", "type", "code", "param"})
                self.assertNotIn(b"[DONE]", self.journal.received)
                self.assertNotIn(b"CANARY", self.journal.received)
                self.assertEqual((self.journal.cost, self.facts.exit), (300_000 + 6 * 4_000, "failed"))

    def test_the_clients_own_clock_breaks_no_deployment(self) -> None:
        """The stream is cut in-band, and the upstream is not to blame."""
        late = ProviderError(
            ProviderErrorKind.TIMEOUT, "x", sent=True, first_byte_seen=True, status=200, clock="client"
        )
        answer = self.stream(ROLE, HELLO, late)
        self.assertEqual((answer.cut, self.last.broke), (True, None))

    def test_silence_after_a_role_is_an_unknown_outcome(self) -> None:
        """Nothing that costs was seen, and the upstream goes on: another may answer."""
        late = ProviderError(ProviderErrorKind.TIMEOUT, "x", sent=True, first_byte_seen=True, status=200, clock="idle")
        self.fails(relay_stream(self.delivery(ROLE, late)), "upstream_timeout")
        self.assertEqual((self.journal.entries, self.evidence.reach), ([], Reach.UNKNOWN))

    def test_a_stream_without_content_is_delivered_at_its_end(self) -> None:
        """It is an answer, if nothing stronger may give another."""
        answer = self.stream(ROLE, FINISH, USAGE, DONE)
        self.assertFalse(answer.cut)
        self.assertEqual(self.journal.entries, ["start", "send", "settle", "finish"])
        expected = b"".join(b"data: " + payload + b"\n\n" for payload in (ROLE, FINISH, DONE))
        self.assertEqual(self.journal.received, expected)

    def test_the_route_says_what_the_last_ones_answer_is_worth(self) -> None:
        """Where nobody stronger is left it is delivered, but nobody calls it good."""
        wants: dict[str, Any] = {"response_format": {"type": "json_object"}}
        table: list[tuple[Step, dict[str, Any], str]] = [
            (whole("no JSON"), wants, "not_json"),
            (whole(""), {}, "empty"),
            (whole("{}"), wants, "ok"),
        ]
        for raw, fields, outcome in table:
            with self.subTest(outcome):
                self.setUp()
                drive(relay_whole(self.delivery(raw, streams=False, validates=True, **fields)))
                self.assertEqual(self.facts.hops, [f"mini={outcome}"])
        self.setUp()
        drive(relay_stream(self.delivery(ROLE, FINISH, DONE, validates=True)))
        self.assertEqual(self.facts.hops, ["mini=empty"])
        self.setUp()
        drive(relay_whole(self.delivery(whole("no JSON"), streams=False, **wants)))
        self.assertEqual(self.facts.hops, ["mini=ok"])

    def test_a_stream_that_a_filter_emptied_is_delivered(self) -> None:
        """Nobody is asked to say what another's filter took away."""
        answer = self.stream(ROLE, chunk({}, "content_filter"), DONE, may_climb=True)
        self.assertFalse(answer.cut)
        self.assertIn(b"[DONE]", self.journal.received)

    def test_an_empty_stream_is_given_up_for_something_stronger(self) -> None:
        """And can be given after all, settled once."""
        refused = self.refused(relay_stream(self.delivery(ROLE, FINISH, USAGE, DONE, may_climb=True)))
        self.assertIs(refused.reason, Refusal.EMPTY)
        answer = drive(cast("Any", refused.deliver()))
        self.assertEqual((answer.cut, self.journal.cost), (False, 17_000))
        self.assertEqual(self.journal.entries, ["start", "send", "settle", "finish"])
        self.assertEqual(self.facts.exit, "routed")

    def test_a_stream_that_flows_is_not_given_up(self) -> None:
        """Not for its format either: the client has seen it."""
        wants: dict[str, Any] = {"response_format": {"type": "json_object"}}
        answer = drive(relay_stream(self.delivery(HELLO, FINISH, DONE, may_climb=True, **wants)))
        self.assertEqual((answer.cut, self.facts.hops), (False, ["mini=ok"]))

    def test_whoever_keeps_answers_sees_a_stream_as_it_leaves(self) -> None:
        """Every payload, and the usage once it has ended well."""
        self.keeper = kept = Kept(self.journal)
        self.stream(ROLE, HELLO, FINISH, USAGE, DONE)
        self.assertEqual((kept.seen, kept.usage), ([ROLE, HELLO, FINISH], [Usage(9, completion_tokens=2)]))
        self.assertEqual(self.journal.entries[-3:], ["settle", "keep", "finish"])

    def test_a_stream_that_is_cut_is_not_kept(self) -> None:
        """However it was cut."""
        over = chunk({"content": "x"}, usage=usage(9, 21))
        for step in (b"{", None, Draining(), over):
            self.setUp()
            self.keeper = kept = Kept(self.journal)
            self.assertTrue(self.stream(ROLE, HELLO, step).cut)
            self.assertEqual((kept.seen[:2], kept.usage), ([ROLE, HELLO], []))

    def test_a_stream_that_ends_for_an_unknown_reason_is_not_kept(self) -> None:
        """The client gets it as any other; nobody knows whether it is all of the answer."""
        self.keeper = kept = Kept(self.journal)
        answer = self.stream(ROLE, HELLO, chunk({}, "abort"), USAGE, DONE)
        self.assertEqual((answer.cut, kept.usage, self.journal.entries[-1]), (False, [], "finish"))

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

    def test_a_finished_stream_that_breaks_off_is_not_kept(self) -> None:
        """Silence or a reset behind the finish, mark or not; a clean end is kept without a mark."""
        late = ProviderError(ProviderErrorKind.TIMEOUT, "x", sent=True, first_byte_seen=True, status=200, clock="idle")
        reset = ProviderError(ProviderErrorKind.MALFORMED, "x", sent=True, first_byte_seen=True, status=200)
        for end, times in ((None, 1), (late, 0), (reset, 0)):
            self.setUp()
            self.keeper = kept = Kept(self.journal)
            self.assertFalse(self.stream(ROLE, HELLO, FINISH, end).cut)
            self.assertEqual(len(kept.usage), times)

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

    def test_passing_the_cap_is_no_sickness(self) -> None:
        """Nor is the end of the process: the deployment is not to blame."""
        over = chunk({"content": "x"}, usage=usage(9, 21))
        for step in (over, Draining()):
            self.setUp()
            self.assertTrue(self.stream(ROLE, HELLO, step).cut)
            self.assertIsNone(self.last.broke)

    def test_an_answer_passed_its_cap_before_any_content(self) -> None:
        """Running usage says so: another may answer, and what it says is what it bills."""
        over = chunk({"role": "assistant", "content": ""}, usage=usage(9, 21))
        self.fails(relay_stream(self.delivery(over, HELLO, FINISH, DONE)))
        self.assertEqual(self.evidence.usage, Usage(9, completion_tokens=21))

    def test_a_finished_answer_is_not_cut_for_what_it_cost(self) -> None:
        """There is nothing left to stop; the overage is booked."""
        answer = self.stream(ROLE, HELLO, FINISH, chunk(choices=[], usage=usage(9, 500)), DONE)
        self.assertFalse(answer.cut)
        self.assertEqual(self.journal.cost, 9_000 + 500 * 4_000)

    def test_draining_ends_a_stream_in_band(self) -> None:
        """Before its first content it is raised."""
        self.assertTrue(self.stream(ROLE, HELLO, Draining()).cut)
        self.assertEqual(self.last_event()["error"]["code"], "draining")
        for before in ((), (ROLE,)):
            self.setUp()
            self.raises(relay_stream(self.delivery(*before, Draining())), Draining)
            self.assertEqual(self.journal.entries, [])

    def test_a_client_that_leaves_after_the_settlement_changes_nothing(self) -> None:
        """The money was booked before the last byte."""
        self.journal.troubles["finish"] = ClientGone()
        with self.assertRaises(ClientGone):
            self.stream(ROLE, HELLO, FINISH, USAGE, DONE)
        self.assertEqual((self.journal.entries.count("settle"), self.journal.cost), (1, 17_000))

    def test_a_client_that_is_gone_need_not_hear_of_a_cut(self) -> None:
        """The stream is cut all the same."""
        delivery = self.delivery(ROLE, HELLO, lambda: self.journal.troubles.update(send=ClientGone()), b"{")
        self.assertTrue(drive(relay_stream(delivery)).cut)
        self.assertEqual(self.journal.entries[-2:], ["settle", "send"])
