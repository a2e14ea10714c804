"""Whole requests in the simulation, one story at a time: what the client got, what was booked, what the row says.

A request is stepped by hand from effect to effect, so that its client can leave, or the process drain, at exactly one
of them. After every test the books balance, nothing is held, and there is one row per request.
"""

import contextlib
import json
import tempfile
import unittest
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.context import Answer, Caller, Facts, Options
from gateway.engines.sim import Effect, Kind, SimCaller
from gateway.errors import ClientGone, Draining, GatewayError, InvalidRequest
from gateway.fake_provider import FakeProvider
from gateway.health import LONG_PAUSE_S
from gateway.keys import ShownKey
from gateway.providers import Provider, ProviderAnswer, UpstreamCall
from llmkit.errors import ProviderError, ProviderErrorKind
from tests.support.world import CONFIG, USD, SimWorld, chat, settle_story
from tracekit.sinks import MemorySink, SpanRecord

DONE = b"[DONE]"
INPUT, CACHED, OUTPUT = 1000, 100, 4000
"""Nano-dollars per token of `mini`."""
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where nothing waits for a disk, on machines that have such a place."""


def usage(prompt: Any, completion: Any, **details: int) -> dict[str, Any]:
    """Usage as an upstream reports it; `cached` and `reasoning` are parts of the two."""
    reported = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": 0}
    reported |= {"prompt_tokens_details": {"cached_tokens": details.get("cached", 0)}}
    return reported | {"completion_tokens_details": {"reasoning_tokens": details.get("reasoning", 0)}}


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """One event of an upstream's stream."""
    choices = [{"index": 0, "delta": delta or {}, "logprobs": None, "finish_reason": finish}]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "gw-mini"}
    return json.dumps(head | {"choices": choices} | fields).encode()


ROLE, FINISH = chunk({"role": "assistant", "content": ""}), chunk({}, "stop")


def word(text: str, **fields: Any) -> bytes:
    """One event with text."""
    return chunk({"content": text}, **fields)


def failure(kind: ProviderErrorKind, status: int | None = 200, **facts: Any) -> ProviderError:
    """What a transport raises in the middle of an answer."""
    return ProviderError(kind, "x", **{"sent": True, "first_byte_seen": True, "status": status} | facts)


IDLE = failure(ProviderErrorKind.TIMEOUT, clock="idle")
RESET = failure(ProviderErrorKind.MALFORMED)


class WireProvider:
    """An upstream that sends exactly these events, whole bodies or failures, and keeps what it was asked.

    opening  raised instead of an answer
    """

    name = "up"

    def __init__(self, *steps: bytes | BaseException | None, opening: BaseException | None = None) -> None:
        self.steps = steps
        self.opening = opening
        self.bodies: list[dict[str, Any]] = []
        self.closed = 0

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        self.bodies.append(json.loads(call.body))
        await caller.pause(0)
        if self.opening is not None:
            raise self.opening
        return _WireAnswer(self, caller)


class _WireAnswer:
    def __init__(self, provider: WireProvider, caller: Caller) -> None:
        self._provider = provider
        self._steps = iter(provider.steps)
        self._caller = caller

    async def next_events(self) -> list[bytes] | None:
        await self._caller.pause(0)
        step = next(self._steps, None)
        if isinstance(step, BaseException):
            raise step
        return None if step is None else [step]

    async def whole(self) -> bytes:
        events = await self.next_events()
        assert events is not None
        return events[0]

    def close(self) -> None:
        self._provider.closed += 1


@dataclass(frozen=True, slots=True)
class At:
    """The moment of an interruption: the `nth` effect (from 1) of a story with this label."""

    label: str
    nth: int = 1


@dataclass(slots=True)
class Outcome:
    """What became of one request."""

    caller: SimCaller
    facts: Facts
    answer: Answer | None = None
    error: BaseException | None = None
    interrupted: bool = False

    @property
    def events(self) -> list[Any]:
        """What the client received, decoded; the end mark stays text."""
        payloads = [part.removeprefix(b"data: ") for part in self.caller.received.split(b"\n\n") if part]
        return [payload.decode() if payload == DONE else json.loads(payload) for payload in payloads]

    @property
    def text(self) -> str:
        """The text of the stream."""
        return "".join(
            choice["delta"].get("content") or ""
            for event in self.events
            if isinstance(event, dict)
            for choice in event.get("choices", ())
        )

    @property
    def told(self) -> tuple[int, str]:
        """Status and code of the error that was raised."""
        assert isinstance(self.error, GatewayError), self.error
        return self.error.status, self.error.code


class Stories(unittest.TestCase):
    """A simulated gateway with one key of 1 USD."""

    config = CONFIG

    def setUp(self) -> None:
        self.start(self.config)

    def start(self, config: str, *, providers: Mapping[str, Provider] | None = None) -> None:
        """Begin anew, over an empty ledger."""
        folder = self.enterContext(tempfile.TemporaryDirectory(dir=IN_MEMORY))
        self.world = self.enterContext(contextlib.closing(SimWorld(Path(folder), config=config, providers=providers)))
        self.raw_key = self.world.key(USD)
        self.requests = 0

    def fake(self, *entries: dict[str, Any]) -> FakeProvider:
        """Script the upstream."""
        provider = FakeProvider(entries, name="up")
        self.world.providers["up"] = provider
        return provider

    def wire(self, *steps: bytes | BaseException | None, opening: BaseException | None = None) -> WireProvider:
        """Let the upstream send exactly this."""
        provider = WireProvider(*steps, opening=opening)
        self.world.providers["up"] = provider
        return provider

    def play(
        self,
        body: Mapping[str, Any],
        *,
        at: At | None = None,
        error: type[Exception] = ClientGone,
        options: Options | None = None,
        raw_key: str | None = None,
    ) -> Outcome:
        """Run one request to its end; at one moment, if it comes, `error` is thrown into it."""
        world, caller = self.world, SimCaller(self.world.scheduler)
        principal = world.gateway.authenticate(ShownKey.of(raw_key or self.raw_key))
        context = world.gateway.context(principal, json.dumps(body).encode(), caller, options=options)
        outcome = Outcome(caller, context.facts)
        story = world.gateway.serve(context)
        seen = 0
        effect: Effect | None = None
        self.requests += 1
        try:
            while True:
                seen += at is not None and effect is not None and effect.label.split()[0] == at.label
                if at is not None and seen == at.nth and not outcome.interrupted:
                    outcome.interrupted = True
                    effect = story.throw(error("simulated"))
                    continue
                if effect is not None and effect.kind is Kind.CLOCK:
                    world.clock.advance(float(effect.label.split()[1]))
                effect = story.send(None)
        except StopIteration as end:
            outcome.answer = end.value
        except BaseException as raised:
            outcome.error = raised
        settle_story(world.store.flush())
        self.check_books()
        return outcome

    def check_books(self) -> None:
        """What is true after every request."""
        report = self.world.verify()
        self.assertTrue(report.ok, report.differences)
        self.assertEqual(report.open_holds, 0)
        self.assertEqual(report.rows, self.requests)

    def row(self) -> dict[str, Any]:
        """The last row."""
        return self.world.rows()[-1]

    def spent(self) -> int:
        """What the key has spent, in nano-dollars."""
        return self.world.key_level(self.raw_key).spent_nanousd

    def assert_row(self, **expected: Any) -> None:
        """The last row says this."""
        row = self.row()
        self.assertEqual({name: row[name] for name in expected}, expected)


class UsageTest(Stories):
    """What is reported is booked to the nano-dollar; what is not is estimated from above."""

    def test_token_classes_have_their_own_prices(self) -> None:
        """Cached tokens are part of the prompt, reasoning tokens part of the completion; streamed or not."""
        table = [
            (usage(2000, 100, cached=1500), 1_050_000),
            (usage(12, 34), 12 * INPUT + 34 * OUTPUT),
            (usage(10, 50, reasoning=40), 10 * INPUT + 50 * OUTPUT),
            (usage(10, 1, cached=400), 400 * CACHED + OUTPUT),
        ]
        for reported, cost in table:
            for stream in (False, True):
                with self.subTest(reported=reported, stream=stream):
                    self.fake({"text": "noon", "usage": reported})
                    before = self.spent()
                    outcome = self.play(chat("long prompt", max_tokens=200, stream=stream))
                    self.assertEqual(self.spent() - before, cost)
                    self.assertEqual(outcome.facts.cost_nanousd, cost)
                    self.assert_row(cost_nanousd=cost, estimated=False, state="settled", exit="routed", status=200)
                    details = reported["completion_tokens_details"]
                    self.assert_row(
                        prompt_tokens=reported["prompt_tokens"],
                        cached_tokens=reported["prompt_tokens_details"]["cached_tokens"],
                        completion_tokens=reported["completion_tokens"],
                        reasoning_tokens=details["reasoning_tokens"],
                    )

    def test_a_stream_is_billed_by_usage_whether_its_client_asked_or_not(self) -> None:
        """The upstream is always asked; a client that did not ask sees none of it."""
        for options, sent in (
            (None, {"include_usage": True}),
            ({"include_usage": False, "x_other": 1}, {"include_usage": True, "x_other": 1}),
        ):
            with self.subTest(options):
                upstream = self.fake({"text": "noon", "usage": usage(12, 34)})
                outcome = self.play(chat(stream=True, max_tokens=50, stream_options=options))
                self.assertEqual(upstream.calls[0].body["stream_options"], sent)
                self.assert_row(cost_nanousd=148_000, estimated=False)
                self.assertEqual([event for event in outcome.events if event != "[DONE]" and not event["choices"]], [])
                self.assertNotIn(b'"usage"', outcome.caller.received)

    def test_a_call_that_is_no_stream_is_not_asked_for_stream_options(self) -> None:
        """Upstreams refuse them there."""
        upstream = self.fake({"text": "noon", "usage": usage(12, 34)})
        self.play(chat(stream=False, max_tokens=50, stream_options={"include_usage": True}))
        self.assertNotIn("stream_options", upstream.calls[0].body)
        self.assert_row(cost_nanousd=148_000)

    def test_an_upstream_that_does_not_know_stream_options_is_not_sent_any(self) -> None:
        """Its streams are billed by an estimate, marked as such."""
        self.start(CONFIG.replace('dialect = "fake"', 'dialect = "fake"\nstream_usage = false'))
        self.play(chat(stream=True, max_tokens=50, stream_options={"include_usage": True}))
        self.assertNotIn("stream_options", self.world.upstream.calls[0].body)
        self.assert_row(estimated=True, exit="routed")
        self.assertGreaterEqual(self.spent(), self.world.metered_nanousd())

    def test_a_client_that_asked_is_told_usage_and_cost(self) -> None:
        """In one last chunk, with the cost as an exact decimal."""
        self.fake({"text": "noon", "usage": usage(12, 34)})
        outcome = self.play(chat(stream=True, max_tokens=50, stream_options={"include_usage": True}))
        *_, told, done = outcome.events
        self.assertEqual((done, told["choices"], told["usage"]["completion_tokens"]), ("[DONE]", [], 34))
        self.assertIn(b'"cost_usd":0.000148', outcome.caller.received)

    def test_usage_that_makes_no_sense_is_estimated(self) -> None:
        """Missing, zero, negative, of odd types: marked, and never below the upstream's own meter."""
        senseless: list[Any] = ["missing", {}, {"total_tokens": 5}, usage(0, 0), usage(-5, 3), usage(12, -3)]
        senseless += [
            usage("12", 3),
            usage(12, 3.5),
            usage(None, None),
            usage(True, 3),
            usage(2**60, 1),
            usage(1, 2**60),
        ]
        for reported in senseless:
            for stream in (False, True):
                with self.subTest(reported=reported, stream=stream):
                    self.start(CONFIG)
                    self.fake({"text": "a bb ccc dddd", "usage": reported})
                    self.play(chat(stream=stream, max_tokens=50))
                    self.assert_row(estimated=True, state="settled", exit="routed", overage_nanousd=0)
                    self.assertGreaterEqual(self.spent(), self.world.metered_nanousd())
                    self.assertGreater(self.world.metered_nanousd(), 0)

    def test_usage_that_no_ledger_can_hold_is_estimated(self) -> None:
        """It would make the book unreadable."""
        reported = usage(2**53, 2**53)
        choice = {"index": 0, "message": {"role": "assistant", "content": "noon"}, "finish_reason": "stop"}
        whole = json.dumps({"choices": [choice], "usage": reported}).encode()
        for stream, steps in (
            (False, [whole]),
            (True, [ROLE, word("noon"), FINISH, chunk(choices=[], usage=reported), DONE]),
        ):
            with self.subTest(stream=stream):
                self.wire(*steps)
                self.assertIsNone(self.play(chat(stream=stream, max_tokens=50)).error)
                self.assert_row(estimated=True, exit="routed", completion_tokens=4, overage_nanousd=0)

    def test_running_usage_in_every_chunk_counts_once(self) -> None:
        """The last one stands for all."""
        running = [word("x ", usage=usage(12, count)) for count in range(1, 6)]
        self.wire(ROLE, *running, chunk({}, "stop", usage=usage(12, 34)), DONE)
        outcome = self.play(chat(stream=True, max_tokens=50))
        self.assert_row(cost_nanousd=148_000, estimated=False, completion_tokens=34)
        self.assertEqual(outcome.text, "x " * 5)
        self.assertNotIn(b'"usage"', outcome.caller.received)

    def test_usage_after_the_finish_is_waited_for(self) -> None:
        """Also when something else stands between."""
        self.wire(ROLE, word("noon"), FINISH, b"", chunk({"content": ""}), chunk(choices=[], usage=usage(12, 34)), DONE)
        self.play(chat(stream=True, max_tokens=50))
        self.assert_row(cost_nanousd=148_000, estimated=False)


class OverageTest(Stories):
    """An upstream that bills more than was held for it."""

    def overbill(self, *, stream: bool = False) -> Outcome:
        """A request for at most 10 tokens that is billed for 300,000."""
        self.fake({"text": "noon", "usage": usage(12, 300_000)})
        return self.play(chat(max_tokens=10, stream=stream))

    def test_all_of_it_is_booked_and_the_next_request_is_refused(self) -> None:
        """The part above the hold is marked, and the deployment is flagged."""
        for stream in (False, True):
            with self.subTest(stream=stream):
                self.start(CONFIG)
                self.assertEqual(self.world.gateway.overbilled, ())
                outcome = self.overbill(stream=stream)
                cost = 12 * INPUT + 300_000 * OUTPUT
                self.assert_row(cost_nanousd=cost, exit="routed", estimated=False)
                overage = self.row()["overage_nanousd"]
                self.assertTrue(cost - 1_000_000 < overage < cost, overage)
                level = self.world.key_level(self.raw_key)
                self.assertEqual((level.spent_nanousd, level.overage_nanousd), (cost, overage))
                self.assertGreater(level.spent_nanousd, USD)
                self.assertEqual(self.world.gateway.overbilled, ("mini",))
                self.assertIsNone(outcome.error)
                self.assertEqual(self.play(chat()).told, (402, "budget_exceeded"))
                self.assert_row(exit="rejected", status=402, cost_nanousd=0, state="none")

    def test_a_deployment_may_be_taken_out_for_it(self) -> None:
        """If its configuration says so; the others go on."""
        self.start(CONFIG + "quarantine_on_overage = true\n")
        self.raw_key = self.world.key(None)
        self.overbill()
        self.assertEqual(self.play(chat()).told, (503, "all_providers_failed"))
        self.assert_row(exit="rejected", status=503, attempts=0)
        other = (
            CONFIG
            + "quarantine_on_overage = true\n"
            + CONFIG.partition("[[deployments]]")[2].join(("[[deployments]]", "")).replace('"mini"', '"spare"')
        )
        self.start(other + '[[aliases]]\nname = "both"\ndeployments = ["mini", "spare"]\n')
        self.raw_key = self.world.key(None)
        self.overbill()
        self.assertEqual(self.play(chat() | {"model": "both"}).facts.deployment, "spare")

    def test_without_that_it_stays_in(self) -> None:
        """Flagged only."""
        self.raw_key = self.world.key(None)
        self.overbill()
        self.assertIsNone(self.play(chat(max_tokens=10)).error)

    def test_a_stream_is_cut_when_running_usage_passes_the_cap(self) -> None:
        """Its client is told, and what was billed is booked."""
        upstream = self.wire(
            ROLE, word("a", usage=usage(12, 10)), word("b", usage=usage(12, 11)), word("c"), FINISH, DONE
        )
        outcome = self.play(chat(stream=True, max_tokens=10))
        self.assertEqual((outcome.text, outcome.events[-1]["error"]["code"]), ("ab", "stream_truncated"))
        self.assertEqual((outcome.answer, upstream.closed), (Answer(None, cut=True), 1))
        self.assert_row(exit="failed", status=200, code="stream_truncated", cost_nanousd=12 * INPUT + 11 * OUTPUT)

    def test_a_stream_is_cut_after_twice_as_many_deltas_as_the_cap(self) -> None:
        """Each of them is a token at least; an estimate covers them all."""
        self.wire(ROLE, *[word("x")] * 30, FINISH, DONE)
        outcome = self.play(chat(stream=True, max_tokens=10))
        self.assertEqual((outcome.text, outcome.answer), ("x" * 21, Answer(None, cut=True)))
        self.assert_row(completion_tokens=21, estimated=True, code="stream_truncated")
        self.wire(ROLE, *[word("x")] * 20, FINISH, DONE)
        self.assertEqual(self.play(chat(stream=True, max_tokens=10)).answer, Answer(None))

    def test_every_choice_has_the_cap(self) -> None:
        """Two choices may have twice as many tokens."""
        finish = chunk(choices=[{"index": index, "delta": {}, "finish_reason": "stop"} for index in (0, 1)])
        self.wire(ROLE, word("a", usage=usage(12, 20)), finish, DONE)
        self.assertEqual(self.play(chat(stream=True, max_tokens=10, n=2)).answer, Answer(None))

    def test_a_finished_stream_is_not_cut(self) -> None:
        """Whatever it cost: the answer is whole."""
        self.assertEqual(self.overbill(stream=True).events[-1], "[DONE]")


class BrokenTest(Stories):
    """Upstreams that fail before and within their answers."""

    def test_a_stream_that_breaks_after_content_never_looks_finished(self) -> None:
        """Cut, ended early, silent, junk, an error event: an in-band error is the last thing its client gets."""
        table: list[tuple[bytes | BaseException | None, str]] = [
            (RESET, "stream_truncated"),
            (None, "stream_truncated"),
            (DONE, "stream_truncated"),
            (IDLE, "stream_truncated"),
            (b"{junk", "upstream_error"),
            (b'["no chunk"]', "upstream_error"),
            (b'{"error": {"message": "CANARY", "type": "server_error", "code": 500}}', "upstream_error"),
            (b'{"error": "CANARY"}', "upstream_error"),
            (chunk({}, "error", error={"message": "CANARY"}), "upstream_error"),
        ]
        for step, code in table:
            with self.subTest(str(step)):
                self.start(CONFIG)
                upstream = self.wire(ROLE, word("hello "), word("wor"), step, word("ld"), FINISH, DONE)
                outcome = self.play(chat(stream=True, max_tokens=50))
                self.assertEqual(outcome.text, "hello wor")
                self.assertEqual(
                    outcome.events[-1]["error"], outcome.events[-1]["error"] | {"code": code, "param": None}
                )
                self.assertNotIn("[DONE]", outcome.events)
                self.assertNotIn(b"CANARY", outcome.caller.received)
                self.assertEqual((outcome.answer, outcome.caller.finished), (Answer(None, cut=True), False))
                self.assertEqual(upstream.closed, 1)
                self.assert_row(exit="failed", status=200, code=code, state="settled", estimated=True)
                self.assertEqual(self.row()["completion_tokens"], 9)

    def test_usage_before_the_break_is_what_is_billed(self) -> None:
        """It is the provider's own count."""
        self.wire(ROLE, word("hello", usage=usage(12, 34)), RESET)
        self.play(chat(stream=True, max_tokens=50))
        self.assert_row(cost_nanousd=148_000, estimated=False, exit="failed")

    def test_an_error_before_the_first_event_keeps_its_status(self) -> None:
        """No stream was promised."""
        table: list[tuple[bytes | BaseException | None, int, str, str]] = [
            (RESET, 502, "upstream_error", "settled"),
            (None, 502, "upstream_error", "settled"),
            (DONE, 502, "upstream_error", "settled"),
            (b"<html>", 502, "upstream_error", "settled"),
            (b'{"error": {"message": "CANARY"}}', 502, "upstream_error", "settled"),
            (IDLE, 504, "upstream_timeout", "unresolved"),
        ]
        for step, status, code, state in table:
            with self.subTest(str(step)):
                self.start(CONFIG)
                upstream = self.wire(step)
                outcome = self.play(chat(stream=True, max_tokens=50))
                self.assertEqual((outcome.told, outcome.caller.started), ((status, code), False))
                self.assertNotIn("CANARY", str(outcome.error))
                self.assert_row(exit="failed", status=status, code=code, state=state)
                self.assertEqual((upstream.closed, outcome.caller.received), (1, b""))

    def test_what_a_scripted_upstream_does_ends_as_the_table_says(self) -> None:
        """Status, code and money of every failure, whole and streamed."""
        table: list[tuple[dict[str, Any], int, str, str]] = [
            ({"status": 400, "error": "too long"}, 400, "invalid_request", "void"),
            ({"status": 413}, 413, "invalid_request", "void"),
            ({"status": 422}, 400, "invalid_request", "void"),
            ({"status": 401}, 502, "upstream_error", "void"),
            ({"status": 403}, 502, "upstream_error", "void"),
            ({"status": 404}, 502, "upstream_error", "void"),
            ({"status": 302}, 502, "upstream_error", "void"),
            ({"status": 408}, 503, "all_providers_failed", "void"),
            ({"status": 429, "retry_after": 7}, 429, "rate_limit_exceeded", "void"),
            ({"status": 500}, 503, "all_providers_failed", "void"),
            ({"status": 500, "usage": usage(12, 34)}, 503, "all_providers_failed", "settled"),
            ({"timeout": True}, 504, "upstream_timeout", "unresolved"),
        ]
        for entry, status, code, state in table:
            for stream in (False, True):
                with self.subTest(entry=entry, stream=stream):
                    self.start(CONFIG)
                    upstream = self.fake(entry)
                    outcome = self.play(chat(stream=stream, max_tokens=50))
                    self.assertEqual(outcome.told, (status, code))
                    self.assert_row(exit="failed", status=status, code=code, state=state, attempts=1, deployment="mini")
                    level = self.world.key_level(self.raw_key)
                    self.assertEqual(level.unresolved_nanousd > 0, state == "unresolved")
                    self.assertEqual(level.spent_nanousd, self.world.metered_nanousd())
                    self.assertEqual(len(upstream.calls), 1)
                    if status == 429:
                        assert isinstance(outcome.error, GatewayError)
                        self.assertEqual(outcome.error.retry_after_s, 7)

    def test_a_broken_whole_answer_is_paid_for_as_if_it_had_been_written(self) -> None:
        """Nobody saw how much of it there was; never above the hold, never below the meter."""
        for entry in ({"text": "a b c d", "cut_after": 1}, {"text": "a b c d", "malformed": True}):
            with self.subTest(entry):
                self.start(CONFIG)
                self.fake(entry)
                self.assertEqual(self.play(chat(max_tokens=50)).told, (502, "upstream_error"))
                self.assert_row(state="settled", estimated=True, overage_nanousd=0, exit="failed")
                self.assertGreaterEqual(self.spent(), self.world.metered_nanousd())

    def test_the_end_of_a_finished_stream_may_be_anything(self) -> None:
        """The mark missing, doubled, late, followed by more; silence or a reset instead: one mark leaves."""
        ends: list[list[bytes | BaseException | None]] = [[None], [DONE, DONE], [DONE, word("more")], [IDLE], [RESET]]
        for end in ends:
            with self.subTest(str(end)):
                self.start(CONFIG)
                upstream = self.wire(ROLE, word("hello"), FINISH, *end)
                outcome = self.play(chat(stream=True, max_tokens=50))
                self.assertEqual(outcome.caller.received.count(b"[DONE]"), 1)
                self.assertEqual((outcome.events[-1], outcome.text, outcome.answer), ("[DONE]", "hello", Answer(None)))
                self.assertEqual((outcome.caller.finished, upstream.closed), (True, 1))
                self.assert_row(exit="routed", status=200, state="settled")

    def test_a_fault_of_ours_is_told_by_its_id_alone(self) -> None:
        """The operator is told which it was; the money of a call that may have been made stays."""
        self.wire(opening=KeyError("CANARY"))
        outcome = self.play(chat())
        self.assertEqual(outcome.told, (500, "internal_error"))
        self.assertNotIn("CANARY", str(outcome.error))
        self.assertIn(outcome.facts.request_id, str(outcome.error))
        self.assert_row(exit="failed", status=500, code="internal_error", state="unresolved")
        self.assertIsInstance(self.world.errors[-1], KeyError)

    def test_even_an_interrupted_thread_writes_its_row(self) -> None:
        """The guard is there for every exception."""
        self.wire(ROLE, word("hello"), KeyboardInterrupt())
        self.assertIsInstance(self.play(chat(stream=True)).error, KeyboardInterrupt)
        self.assert_row(exit="failed", status=500, state="settled")


class LeavingTest(Stories):
    """Clients that leave, and processes that end, at one effect."""

    def moments(self, *, stream: bool) -> Sequence[At]:
        """Every effect of a request at which its client can leave, before its money is settled."""
        waiting = (
            [At("sleep"), At("step", 1)]
            if not stream
            else [At("sleep"), At("start"), *[At("send", n) for n in (1, 2, 5)]]
        )
        return waiting if not stream else [*waiting, *[At("step", n) for n in (1, 2, 3, 6, 7)]]

    def test_a_client_that_leaves_is_billed_for_what_was_seen(self) -> None:
        """While waiting, within the stream, just before an event: one row, nothing held, never below the meter."""
        for stream in (False, True):
            for moment in self.moments(stream=stream):
                with self.subTest(stream=stream, moment=moment):
                    self.start(CONFIG)
                    upstream = self.fake({"text": "a bb ccc dddd", "latency_s": 3})
                    outcome = self.play(chat(stream=stream, max_tokens=50), at=moment)
                    self.assertTrue(outcome.interrupted)
                    self.assertIsInstance(outcome.error, ClientGone)
                    self.assert_row(exit="client_gone", status=499, code=None, state="settled", estimated=True)
                    level = self.world.key_level(self.raw_key)
                    self.assertEqual((level.held_nanousd, level.unresolved_nanousd), (0, 0))
                    self.assertGreaterEqual(level.spent_nanousd, self.world.metered_nanousd())
                    self.assertEqual(outcome.facts.exit, "client_gone")
                    self.assertEqual(upstream.calls[0].closed, moment.label != "sleep")

    def test_usage_that_was_seen_is_exact_for_a_client_that_left_too(self) -> None:
        """Nothing needs to be estimated then."""
        self.wire(ROLE, word("a", usage=usage(12, 34)), word("b"), FINISH, DONE)
        self.play(chat(stream=True, max_tokens=50), at=At("send"))
        self.assert_row(exit="client_gone", cost_nanousd=148_000, estimated=False)

    def test_a_client_that_leaves_before_anything_was_sent_owes_nothing(self) -> None:
        """The transport knows."""
        left = ClientGone()
        left.__cause__ = ProviderError(ProviderErrorKind.SERVER, "cancelled", sent=False, first_byte_seen=False)
        self.wire(opening=left)
        self.assertIsInstance(self.play(chat()).error, ClientGone)
        self.assert_row(exit="client_gone", status=499, state="void", cost_nanousd=0)

    def test_a_client_that_leaves_at_the_end_has_been_served(self) -> None:
        """The money is settled before the last byte, and its row is never rewritten."""
        self.fake({"text": "noon", "usage": usage(12, 34)})
        outcome = self.play(chat(stream=True, max_tokens=50), at=At("finish"))
        self.assertIsInstance(outcome.error, ClientGone)
        self.assert_row(exit="routed", status=200, cost_nanousd=148_000)

    def test_draining_before_the_first_event_is_an_error_of_the_gateway(self) -> None:
        """The outcome of the call is unknown, and counts until it is known."""
        for stream, moment in ((False, At("sleep")), (False, At("step")), (True, At("step"))):
            with self.subTest(stream=stream, moment=moment):
                self.start(CONFIG)
                self.fake({"text": "a b", "latency_s": 3})
                outcome = self.play(chat(stream=stream, max_tokens=50), at=moment, error=Draining)
                self.assertEqual(outcome.told, (503, "draining"))
                self.assert_row(exit="failed", status=503, code="draining", state="unresolved")
                self.assertGreater(self.world.key_level(self.raw_key).unresolved_nanousd, self.world.metered_nanousd())

    def test_draining_within_a_stream_ends_it_in_band(self) -> None:
        """What was seen is billed."""
        for moment in (At("step", 4), At("send", 2)):
            with self.subTest(moment):
                self.start(CONFIG)
                self.fake({"text": "a bb ccc dddd"})
                outcome = self.play(chat(stream=True, max_tokens=50), at=moment, error=Draining)
                self.assertEqual(outcome.events[-1]["error"]["code"], "draining")
                self.assertEqual((outcome.answer, "[DONE]" in outcome.events), (Answer(None, cut=True), False))
                self.assert_row(exit="failed", status=200, code="draining", state="settled", estimated=True)
                self.assertGreaterEqual(self.spent(), self.world.metered_nanousd())

    def test_the_requests_own_deadline_ends_the_wait(self) -> None:
        """Not a moment later; the outcome of the call is unknown."""
        self.fake({"text": "late", "latency_s": 60})
        began_s = self.world.clock.now_s()
        outcome = self.play(chat(max_tokens=50), options=Options(timeout_s=5))
        self.assertEqual((outcome.told, self.world.clock.now_s() - began_s), ((504, "upstream_timeout"), 5))
        self.assert_row(exit="failed", status=504, state="unresolved", duration_ms=5000)

    def test_an_upstream_in_time_is_not_hurried(self) -> None:
        """The deadline is far."""
        self.fake({"text": "noon", "latency_s": 4})
        self.assertIsNone(self.play(chat(), options=Options(timeout_s=5)).error)
        self.assert_row(exit="routed", duration_ms=4000)


class RefusedTest(Stories):
    """Requests that never reach an upstream."""

    config = (
        CONFIG
        + """
[[tenants]]
name = "acme"
models = ["mini"]
rate_per_s = 1
burst = 2
"""
    )

    def test_every_refusal_has_its_row_and_costs_nothing(self) -> None:
        """400, 402, 403, 404 and 429."""
        poor = self.world.key(1)
        table: list[tuple[Mapping[str, Any], str, tuple[int, str], str]] = [
            ({"model": "mini"}, self.raw_key, (400, "invalid_request"), ""),
            (chat() | {"model": "nobody"}, self.raw_key, (404, "model_not_found"), ""),
            (chat() | {"model": "auto"}, self.raw_key, (403, "model_not_allowed"), "auto"),
            (chat(), poor, (402, "budget_exceeded"), "mini"),
        ]
        for body, raw_key, told, alias in table:
            with self.subTest(told):
                self.assertEqual(self.play(body, raw_key=raw_key).told, told)
                self.assert_row(exit="rejected", status=told[0], code=told[1], alias=alias, attempts=0)
                self.assert_row(state="none", cost_nanousd=0, deployment=None)
        self.play(chat())
        self.play(chat())
        outcome = self.play(chat())
        self.assertEqual(outcome.told, (429, "rate_limit_exceeded"))
        self.assert_row(exit="rejected", status=429, state="none")
        self.assertEqual(len(self.world.upstream.calls), 2)
        assert isinstance(outcome.error, GatewayError)
        self.assertEqual(outcome.error.retry_after_s, 1)

    def test_a_request_that_never_came_to_be_served_has_its_row(self) -> None:
        """Its body could not be read."""
        world, caller = self.world, SimCaller(self.world.scheduler)
        facts = world.gateway.new_facts()
        refused = InvalidRequest("too large", status=413, code="request_too_large")
        principal = world.gateway.authenticate(ShownKey.of(self.raw_key))
        settle_story(world.gateway.refuse(principal, caller, facts, refused))
        settle_story(world.store.flush())
        self.assert_row(
            request_id=facts.request_id, exit="rejected", status=413, code="request_too_large", state="none"
        )
        self.assertEqual((facts.exit, facts.attempts), ("rejected", 0))

    def test_a_refused_budget_gives_the_unit_of_the_rate_back(self) -> None:
        """A tenant without money does not block its other keys."""
        poor = self.world.key(1)
        for _ in range(5):
            self.assertEqual(self.play(chat(), raw_key=poor).told, (402, "budget_exceeded"))
        for _ in range(2):
            self.assertIsNone(self.play(chat()).error)
        self.assertEqual(self.play(chat()).told, (429, "rate_limit_exceeded"))

    def test_a_failed_upstream_does_not_give_it_back(self) -> None:
        """The request was made."""
        self.fake({"status": 500})
        for _ in range(2):
            self.assertEqual(self.play(chat()).told[0], 503)
        self.assertEqual(self.play(chat()).told[0], 429)

    def test_room_that_others_hold_is_worth_waiting_for(self) -> None:
        """A budget that in-flight requests fill is 429, and their outcome decides."""
        self.start(CONFIG)
        self.fake({"text": "a", "latency_s": 3})
        raw_key = self.world.key(3 * (50 * OUTPUT))  # room for one prompt and cap, not for two
        first, _ = self.world.request(raw_key, chat(max_tokens=50))
        second, _ = self.world.request(raw_key, chat(max_tokens=50))
        self.world.run()
        refused = [task.error for task in (first, second) if task.error is not None]
        self.assertEqual([getattr(error, "code", error) for error in refused], ["budget_reserved"])
        self.assertEqual(sorted(row["exit"] for row in self.world.rows()), ["rejected", "routed"])


class DatedPriceTest(Stories):
    """Prices that change with the calendar."""

    config = (
        CONFIG.replace(
            "price = { input = 1, cached_input = 0.1, output = 4 }",
            'price = [{ from = "2026-01-01T00:00:00Z", input = 1, output = 4 },'
            ' { from = "2026-07-01T00:00:00Z", input = 1, output = 8 }]',
        )
        + """
[[deployments]]
name = "next"
provider = "up"
model = "gw-next"
price = [{ from = "2027-01-01T00:00:00Z", input = 1, output = 4 }]
"""
    )
    JULY_MS = 1_782_864_000_000

    def test_a_request_costs_what_was_in_force_when_it_started(self) -> None:
        """However late its answer comes; the row names the entry."""
        self.fake({"text": "noon", "usage": usage(1000, 1000), "latency_s": 5})
        self.world.clock.advance((self.JULY_MS - self.world.clock.wall_ms()) / 1000 - 1)
        for version, cost in (("2026-01-01T00:00:00Z", 5_000_000), ("2026-07-01T00:00:00Z", 9_000_000)):
            self.play(chat("x" * 1000, max_tokens=1000))
            self.assert_row(cost_nanousd=cost, price_version=version, overage_nanousd=0)
        self.assertEqual([row["cost_nanousd"] for row in self.world.rows()], [5_000_000, 9_000_000])

    def test_a_price_that_is_still_to_come_is_none(self) -> None:
        """An unknown price is never zero: nothing is sent."""
        outcome = self.play(chat() | {"model": "next"})
        self.assertEqual(outcome.told, (503, "all_providers_failed"))
        self.assert_row(exit="rejected", status=503, state="none", cost_nanousd=0)
        self.assertEqual(list(self.world.upstream.calls), [])


class SpanTest(Stories):
    """What a trace tells of a request."""

    def spans(self) -> list[SpanRecord]:
        """Every finished span."""
        sink = self.world.gateway._tracer.sink
        assert isinstance(sink, MemorySink)
        return sink.records()

    def test_a_request_is_one_span_with_one_child_per_attempt(self) -> None:
        """With names, numbers and outcomes."""
        self.fake({"text": "noon", "usage": usage(12, 34), "latency_s": 2})
        outcome = self.play(chat(stream=True, max_tokens=50))
        child, parent = self.spans()
        self.assertEqual((parent.name, parent.parent_id, parent.error), ("request", None, None))
        self.assertEqual((child.name, child.parent_id, child.trace_id), ("attempt", parent.span_id, parent.trace_id))
        self.assertEqual(dict(child.attributes), {"deployment": "mini", "provider": "up"})
        self.assertEqual(
            dict(parent.attributes),
            {
                "request_id": outcome.facts.request_id,
                "tenant": "acme",
                "key_id": self.world.keys.authenticate(ShownKey.of(self.raw_key)).id,
                "alias": "mini",
                "route": "named",
                "stream": True,
                "exit": "routed",
                "cache": "bypass",
                "tier": "cheap",
                "deployment": "mini",
                "attempts": 1,
                "cost_nanousd": 148_000,
                "ttft_ms": 2000,
            },
        )

    def test_a_failure_is_told_by_its_kind(self) -> None:
        """The attempt by the upstream's status, the request by what became of it."""
        self.fake({"status": 500}, {"timeout": True})
        self.play(chat())
        self.play(chat())
        self.assertEqual(
            [span.error for span in self.spans()], ["500", "all_providers_failed", "timeout", "upstream_timeout"]
        )

    def test_a_failure_in_the_answer_is_told_by_its_kind(self) -> None:
        """Whether the client has seen content by then, which makes it an in-band error, or not."""
        self.fake({"text": "a b c", "cut_after": 2}, {"text": "a b c", "malformed": True})
        self.play(chat(stream=True))
        self.play(chat())
        self.assertEqual(
            [span.error for span in self.spans()],
            ["malformed", "stream_truncated", "malformed", "upstream_error"],
        )

    def test_a_refused_request_has_no_attempt(self) -> None:
        """It is a span all the same."""
        self.play(chat() | {"model": "nobody"})
        [span] = self.spans()
        self.assertEqual((span.name, span.error, span.attributes["exit"]), ("request", "model_not_found", "rejected"))

    def test_no_span_row_or_error_holds_a_prompt_an_answer_or_a_key(self) -> None:
        """Whatever happened to the request."""
        canary = "CANARY-8ac1"
        entries: list[dict[str, Any]] = [
            {"text": f"{canary} a b c"},
            {"text": f"{canary} a b c", "cut_after": 2},
            {"text": canary, "malformed": True},
            {"status": 500, "error": canary},
            {"status": 401, "error": canary},
            {"timeout": True},
        ]
        for entry in entries:
            for stream in (False, True):
                self.fake(entry)
                self.play(chat(canary, stream=stream, user=canary, metadata={canary: canary}))
                self.world.clock.advance(LONG_PAUSE_S)
        self.wire(opening=KeyError(canary))
        self.play(chat(canary))
        self.play({"model": canary, "messages": [{"role": "user", "content": canary}]})
        self.play(chat(canary, max_tokens=canary))
        told = json.dumps([dict(span.attributes) | {"n": span.name, "e": span.error} for span in self.spans()])
        rows = json.dumps(self.world.rows())
        for kept in (told, rows):
            self.assertNotIn(canary, kept)
            self.assertNotIn(self.raw_key.rpartition("-")[2], kept)
        self.assertEqual(len(self.spans()), 2 * (2 * len(entries) + 1) + 2)
