"""Deployments that stand for each other: who is called after what, and what becomes of breaker, pause and money."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest import mock

from gateway.context import Answer
from gateway.errors import ClientGone, Draining
from gateway.evidence import Reach
from gateway.health import LONG_PAUSE_S
from gateway.settlement import Settlement
from gateway.verdict import judge
from tests.sim.fleet import COST, GOOD, REFUSED, SILENT, AnOutcome, Fails, FleetStories, Sends
from tests.sim.test_stories import FINISH, RESET, ROLE, At, Outcome, chunk, usage, word
from tests.support.world import chat

CUT = Sends(ROLE, RESET)
ERROR_OBJECT = b'{"error": {"message": "busy"}}'


@dataclass(frozen=True)
class Row:
    """A row of the decision table, as it is seen from outside.

    again, then  whether the deployment, if it is alone, is called again, and whether a second one is called
    state        how the deployment stands after one such failure; its breaker opens at the first
    money        what becomes of the hold of a call that was the only one
    told         status and code for the client
    """

    outcome: AnOutcome
    hop: str
    again: bool
    then: bool
    state: str
    money: str
    told: tuple[int, str]
    streams: bool = False


DOWN, LIMITED, JUNK = (503, "all_providers_failed"), (429, "rate_limit_exceeded"), (502, "upstream_error")
LATE, INVALID = (504, "upstream_timeout"), "invalid_request"


def status(number: int, kind: str, **facts: Any) -> Fails:
    return Fails(kind, status=number, **facts)


TABLE = {
    "refused": Row(REFUSED, "server", True, True, "open", "void", DOWN),
    "not connected in time": Row(
        Fails("timeout", sent=False, first_byte_seen=False, clock="connect"),
        "timeout",
        True,
        True,
        "open",
        "void",
        LATE,
    ),
    "closed without a byte": Row(
        Fails("server", first_byte_seen=False), "server", False, True, "open", "unresolved", DOWN
    ),
    "429": Row({"status": 429, "retry_after": 7}, "rate_limit", True, True, "rate_limited", "void", LIMITED),
    "429 without a time": Row({"status": 429}, "rate_limit", True, True, "rate_limited", "void", LIMITED),
    "429, quota exhausted": Row(
        status(429, "rate_limit", code="insufficient_quota"),
        "quota_exhausted",
        False,
        True,
        "quota_exhausted",
        "void",
        (429, "insufficient_quota"),
    ),
    "401": Row({"status": 401}, "auth", False, True, "refused", "void", JUNK),
    "402": Row({"status": 402}, "auth", False, True, "refused", "void", JUNK),
    "403": Row({"status": 403}, "auth", False, True, "open", "void", JUNK),
    "404 on the model": Row(
        status(404, "client", code="model_not_found"), "client", False, True, "refused", "void", JUNK
    ),
    "404 without a reason": Row({"status": 404}, "client", False, True, "closed", "void", JUNK),
    "404 with a reason": Row(
        status(404, "client", param="file_id", code="file_not_found"),
        "client",
        False,
        False,
        "closed",
        "void",
        (404, "file_not_found"),
    ),
    "400": Row({"status": 400}, "client", False, False, "closed", "void", (400, INVALID)),
    "413": Row({"status": 413}, "client", False, False, "closed", "void", (413, INVALID)),
    "422": Row({"status": 422}, "client", False, False, "closed", "void", (400, INVALID)),
    "another 4xx": Row({"status": 409}, "client", False, True, "closed", "void", JUNK),
    "408": Row({"status": 408}, "server", True, True, "open", "void", DOWN),
    "500": Row({"status": 500}, "server", True, True, "open", "void", DOWN),
    "503 that asks for time": Row({"status": 503, "retry_after": 4}, "server", True, True, "open", "void", DOWN),
    "500 with usage": Row({"status": 500, "usage": usage(12, 34)}, "server", True, True, "open", "settled", DOWN),
    "302": Row({"status": 302}, "malformed", False, True, "open", "void", JUNK),
    "silence": Row(SILENT, "timeout", False, True, "open", "unresolved", LATE),
    "the client's time": Row(
        Fails("timeout", first_byte_seen=False, clock="client"), "timeout", False, False, "closed", "unresolved", LATE
    ),
    "the client's time, before anything was sent": Row(
        Fails("timeout", sent=False, first_byte_seen=False, clock="client"),
        "timeout",
        False,
        False,
        "closed",
        "void",
        LATE,
    ),
    "junk": Row({"malformed": True}, "malformed", False, True, "open", "settled", JUNK),
    "a cut whole answer": Row({"text": "a b c", "cut_after": 1}, "malformed", False, True, "open", "settled", JUNK),
    "an error object": Row(Sends(ERROR_OBJECT), "malformed", False, True, "open", "settled", JUNK),
    "a cut before content": Row(CUT, "malformed", False, True, "open", "settled", JUNK, streams=True),
    "an error event": Row(Sends(ROLE, ERROR_OBJECT), "malformed", False, True, "open", "settled", JUNK, streams=True),
}


class TableTest(FleetStories):
    """Every row of the decision table, alone and with a second deployment."""

    def test_alone_it_is_called_again_only_where_that_can_help(self) -> None:
        """Once more at most here; what the client is told, and what the call cost."""
        self.RETRY, self.BREAKER = "max_retries = 1", "threshold = 1000"
        for fact, row in TABLE.items():
            with self.subTest(fact):
                self.fleet(one=row.outcome)
                outcome = self.ask(stream=row.streams)
                calls = 2 if row.again else 1
                self.assertEqual((outcome.told, self.order), (row.told, ["one"] * calls))
                self.assertEqual(outcome.facts.hops, [f"one={row.hop}"] * calls)
                self.assert_row(exit="failed", status=row.told[0], code=row.told[1], attempts=calls, state=row.money)
                self.assertEqual(self.hold_states()[-1], row.money)
                self.assertEqual(self.level().unresolved_nanousd > 0, row.money == "unresolved")

    def test_another_is_called_at_once_where_it_may_do_better(self) -> None:
        """The client's own fault and the client's own time are the same everywhere."""
        self.RETRY, self.BREAKER = "max_retries = 0", "threshold = 1"
        for fact, row in TABLE.items():
            with self.subTest(fact):
                self.fleet(one=row.outcome, two=GOOD)
                outcome = self.ask(stream=row.streams)
                self.assertEqual(self.state("one"), row.state)
                self.assertEqual(self.order, ["one", "two"] if row.then else ["one"])
                if row.then:
                    self.assertIsNone(outcome.error)
                    self.assertEqual(outcome.facts.hops, [f"one={row.hop}", "two=ok"])
                    self.assert_row(exit="failed_over", status=200, attempts=2, deployment="two")
                    self.assertEqual(self.state("two"), "closed")
                    self.assert_paid(row)
                else:
                    self.assertEqual((outcome.told, outcome.facts.hops), (row.told, [f"one={row.hop}"]))
                self.assert_rests(row.state)

    def assert_rests(self, state: str) -> None:
        """A pause is a minute where an operator must act, less after a limit; then the breaker was never touched."""
        if state in ("refused", "quota_exhausted", "rate_limited"):
            self.world.clock.advance(LONG_PAUSE_S - 0.1)
            self.assertEqual(self.state("one"), "closed" if state == "rate_limited" else state)
            self.world.clock.advance(0.1)
            self.assertEqual(self.state("one"), "closed")

    def assert_paid(self, row: Row) -> None:
        """The good answer, and what the first one may bill: a hold of its own."""
        level, states = self.level(), self.hold_states()
        self.assertEqual(level.unresolved_nanousd > 0, row.money == "unresolved")
        self.assertEqual(level.spent_nanousd > COST, row.money == "settled")
        self.assertEqual(states, ["settled"] if row.money == "void" else [row.money, "settled"])
        state = "unresolved" if row.money == "unresolved" else "settled"
        self.assert_row(cost_nanousd=level.spent_nanousd, state=state)

    def test_every_row_fits_the_pure_table(self) -> None:
        """What was scripted here is what the table's own docstring names."""
        for fact, row in TABLE.items():
            if isinstance(row.outcome, Fails):
                with self.subTest(fact):
                    reach = judge(row.outcome.error()).reach
                    self.assertEqual(reach is Reach.UNKNOWN, row.money == "unresolved")

    def test_a_cut_after_content_is_final(self) -> None:
        """In-band, without an end mark, and nobody else is called; the deployment is sick."""
        self.BREAKER = "threshold = 1"
        self.fleet(one=Sends(ROLE, word("Hello wor"), RESET), two=GOOD)
        outcome = self.ask(stream=True)
        self.assertEqual((outcome.text, outcome.answer, self.order), ("Hello wor", Answer(None, cut=True), ["one"]))
        self.assertEqual(outcome.events[-1]["error"]["code"], "stream_truncated")
        self.assertNotIn("[DONE]", outcome.events)
        self.assertEqual(self.state("one"), "open")
        self.assert_row(exit="failed", status=200, code="stream_truncated", state="settled", attempts=1)


class PrimaryDownTest(FleetStories):
    """A deployment that is gone for good, and one that is not."""

    KINDS: tuple[AnOutcome, ...] = (REFUSED, {"status": 500}, SILENT)

    def test_nobody_notices(self) -> None:
        """200 requests, 200 answers; the third failure of several requests keeps every other call off the first."""
        for kind, calls in zip(self.KINDS, (3, 4, 3), strict=True):
            with self.subTest(str(kind)):
                self.fleet(one=kind, two=GOOD)
                self.many(200, lambda: self.assertIsNone(self.ask().error))
                self.assertEqual((self.order.count("one"), self.order.count("two")), (calls, 200))
                self.assertEqual(self.level().spent_nanousd, 200 * COST)
                self.assertEqual({row["exit"] for row in self.world.rows()}, {"failed_over"})
                self.assertEqual(self.state("one"), "open")

    def test_a_skipped_deployment_is_on_the_route(self) -> None:
        """With why."""
        self.fleet(one=REFUSED, two=GOOD)
        self.many(3, self.ask)
        self.assertEqual(self.ask().facts.hops, ["one=open", "two=ok"])
        self.assert_row(exit="failed_over", attempts=1)

    def open(self, probe: AnOutcome) -> None:
        """The breaker of `one` is open, and its cooldown just over."""
        self.RETRY = "max_retries = 0"
        self.fleet(one=[*[{"status": 500}] * 3, probe, GOOD], two=GOOD)
        self.many(3, self.ask)
        self.assertEqual(self.state("one"), "open")
        self.world.clock.advance(29.9)
        self.ask()
        self.assertEqual(self.order.count("one"), 3)
        self.world.clock.advance(0.1)
        self.assertEqual(self.state("one"), "half_open")

    def test_one_of_fifty_is_the_probe(self) -> None:
        """The others are served by the second at once; a good probe lets everybody in again."""
        self.open({**GOOD, "latency_s": 2})
        self.at_once(50)
        self.assertEqual((self.order.count("one"), self.order.count("two")), (4, 4 + 49))
        self.assertEqual(self.state("one"), "closed")
        self.at_once(10)
        self.assertEqual(self.order.count("one"), 14)

    def test_a_failed_probe_opens_again_for_a_full_cooldown(self) -> None:
        """Its own request is served by the second."""
        self.open({"status": 500, "latency_s": 2})
        self.at_once(50)
        self.assertEqual((self.order.count("one"), self.order.count("two")), (4, 4 + 50))
        self.assertEqual(self.state("one"), "open")
        self.world.clock.advance(29.9)
        self.at_once(10)
        self.assertEqual(self.order.count("one"), 4)
        self.world.clock.advance(0.1)
        self.at_once(10)
        self.assertEqual(self.state("one"), "closed")

    def test_a_probe_whose_client_leaves_makes_room_for_the_next(self) -> None:
        """Nothing was learnt."""
        self.open({**GOOD, "latency_s": 2})
        outcome = self.play(chat(max_tokens=50) | {"model": "all"}, at=At("sleep"))
        self.assertIsInstance(outcome.error, ClientGone)
        self.assertEqual(self.state("one"), "half_open")
        self.assertEqual(self.ask().facts.deployment, "one")
        self.assertEqual(self.state("one"), "closed")

    def test_everything_is_down(self) -> None:
        """503 with the time of the next probe; nothing is called, nothing is held."""
        self.RETRY = "max_retries = 0"
        self.fleet(one={"status": 500}, two={"status": 500})
        self.many(3, self.ask)
        self.order.clear()
        self.world.clock.advance(10)
        outcome = self.ask()
        self.assertEqual((outcome.told, self.order), (DOWN, []))
        self.assertEqual(getattr(outcome.error, "retry_after_s", None), 20)
        self.assertEqual(outcome.facts.hops, ["one=open", "two=open"])
        self.assert_row(exit="failed", attempts=0, state="none", cost_nanousd=0)


class CarriesTheUnknown(Settlement):
    """A broken twin: a call whose outcome is unknown shares its hold with the next one."""

    async def cover(self, *arguments: Any, **options: Any) -> None:
        if self._held is not None and self._held.evidence.reach is Reach.UNKNOWN:
            self._held.evidence.reach = Reach.UNBILLED
        await super().cover(*arguments, **options)


class UnknownMoneyTest(FleetStories):
    """A first call that timed out may be billed, and so may the second: they never share a hold."""

    def check_two_holds(self) -> None:
        """One stays, one is settled, and together they cover both meters."""
        self.fleet(one=SILENT, two=GOOD)
        self.assertIsNone(self.ask().error)
        self.assertEqual(self.hold_states(), ["unresolved", "settled"])
        level = self.level()
        self.assertEqual(level.spent_nanousd, COST)
        self.assertGreater(self.metered(), COST)
        self.assertGreaterEqual(level.spent_nanousd + level.unresolved_nanousd, self.metered())
        self.assert_row(exit="failed_over", state="unresolved", cost_nanousd=COST)

    def test_each_has_its_own_hold(self) -> None:
        """Whatever the silent one bills."""
        self.check_two_holds()

    def test_a_shared_hold_is_noticed(self) -> None:
        """The same check fails for the twin."""
        with mock.patch("gateway.gateway.Settlement", CarriesTheUnknown), self.assertRaises(AssertionError):
            self.check_two_holds()

    def test_money_for_one_call_is_not_money_for_two(self) -> None:
        """The second is not made, the first one's outcome stands, and its hold counts."""
        bound = self.bound()
        for limit, calls in ((bound, ["one"]), (2 * bound - 1, ["one"]), (2 * bound, ["one", "two"])):
            with self.subTest(limit=limit):
                self.fleet(one=SILENT, two=GOOD, limit_nanousd=limit)
                outcome = self.ask()
                self.assertEqual(self.order, calls)
                level = self.level()
                self.assertEqual((level.unresolved_nanousd, level.held_nanousd), (bound, 0))
                if len(calls) == 1:
                    self.assertEqual(outcome.told, LATE)
                    self.assert_row(exit="failed", status=504, state="unresolved", attempts=1)
                    self.assertEqual(self.hold_states(), ["unresolved"])

    def test_without_money_for_any_call_it_is_rejected(self) -> None:
        """Also if a deployment was passed over before the one that there was no money for."""
        self.fleet(one={"status": 429, "retry_after": 60}, two=GOOD, limit_nanousd=self.bound())
        self.assertIsNone(self.ask().error)
        self.ask()
        self.assertEqual(self.order, ["one", "two"])
        self.assert_row(exit="rejected", status=402, attempts=0, state="none")

    def test_a_proven_failure_needs_no_second_hold(self) -> None:
        """Money for one call is enough for as many as it takes."""
        bound = self.bound()
        self.RETRY = "max_retries = 2"
        self.fleet(one={"status": 500}, two=[REFUSED, GOOD], limit_nanousd=bound)
        self.assertIsNone(self.ask().error)
        self.assertEqual((self.order, self.hold_states()), (["one"] * 3 + ["two"] * 2, ["settled"]))

    def test_the_hold_covers_the_dearest_of_the_tier(self) -> None:
        """A second deployment that costs more is called with the same hold."""
        self.fleet(one={"status": 500}, two=GOOD, tiers={"one": ("cheap", 1), "two": ("cheap", 10)})
        self.assertIsNone(self.ask().error)
        self.assert_row(cost_nanousd=10 * COST, overage_nanousd=0)
        self.assertEqual(self.hold_states(), ["settled"])

    def test_money_for_the_cheapest_of_a_tier_is_not_enough(self) -> None:
        """Nothing is called that a failover could not pay for."""
        bound = self.bound()
        tiers = {"one": ("cheap", 1), "two": ("cheap", 10)}
        self.fleet(one=GOOD, two=GOOD, tiers=tiers, limit_nanousd=bound)
        self.assertEqual((self.ask().told, self.order), ((402, "budget_exceeded"), []))

    def test_a_stream_that_broke_off_unseen_is_paid_up_to_its_cap(self) -> None:
        """All of it may have been written."""
        self.fleet(one=CUT, two=GOOD)
        self.ask(stream=True)
        self.assert_row(completion_tokens=50 + 34, estimated=True, state="settled")


class StreamTest(FleetStories):
    """Streams fail over unseen, until content has gone out."""

    SECOND = Sends(
        chunk({"role": "assistant", "content": ""}, id="second"),
        word("Hello world", id="second"),
        chunk({}, "stop", id="second"),
        chunk(choices=[], usage=usage(5, 2), id="second"),
        b"[DONE]",
    )

    def assert_second_alone(self, outcome: Outcome, events: list[Any]) -> None:
        """One role, one id, one finish reason, one end mark, and the text once."""
        *chunks, done = events
        self.assertEqual((done, {each["id"] for each in chunks}), ("[DONE]", {"second"}))
        choices = [choice for each in chunks for choice in each["choices"]]
        self.assertEqual([choice["delta"]["role"] for choice in choices if "role" in choice["delta"]], ["assistant"])
        self.assertEqual([choice["finish_reason"] for choice in choices if choice["finish_reason"]], ["stop"])
        self.assertEqual("".join(choice["delta"].get("content") or "" for choice in choices), "Hello world")
        self.assertTrue(outcome.caller.finished)

    def test_a_first_upstream_without_content_leaves_no_trace(self) -> None:
        """A role, an empty delta, a cut, an error or an early end: none of it was ever said."""
        firsts: list[AnOutcome] = [
            CUT,
            Sends(ROLE, chunk({"content": ""}), RESET),
            Sends(ROLE, ERROR_OBJECT),
            Sends(ROLE, None),
            Sends(ROLE, b"[DONE]"),
            Sends(ROLE, b"{junk"),
            Sends(),
            {"status": 500},
            SILENT,
        ]
        for first in firsts:
            with self.subTest(str(first)):
                self.RETRY = "max_retries = 0"
                self.fleet(one=first, two=self.SECOND)
                outcome = self.ask(stream=True)
                self.assert_second_alone(outcome, outcome.events)
                self.assertEqual(outcome.facts.exit, "failed_over")
                self.assert_row(exit="failed_over", status=200, deployment="two")

    def test_a_finish_without_content_is_an_answer(self) -> None:
        """By name, an empty stream is delivered as it came: nobody asked for a better one."""
        self.fleet(one=Sends(ROLE, FINISH, b"[DONE]"), two=self.SECOND)
        outcome = self.ask(stream=True)
        self.assertEqual((outcome.text, outcome.events[-1], self.order), ("", "[DONE]", ["one"]))

    SLOW: ClassVar[AnOutcome] = {"timeout": True, "latency_s": 5}

    def test_failover_goes_on_after_the_head(self) -> None:
        """The head and a comment went out in time; what comes then is the second's alone."""
        self.fleet(one=self.SLOW, two=self.SECOND, more="[server]\nhead_hold_s = 2")
        outcome = self.ask(stream=True)
        comment, _, rest = outcome.caller.received.partition(b"\n\n")
        self.assertEqual(comment, b": ping")
        payloads = [part.removeprefix(b"data: ") for part in rest.split(b"\n\n") if part]
        self.assert_second_alone(
            outcome, [each.decode() if each == b"[DONE]" else json.loads(each) for each in payloads]
        )
        self.assert_row(exit="failed_over", status=200, ttft_ms=5000)

    def test_everything_down_after_the_head_is_the_error_itself(self) -> None:
        """The front tells it in-band; the row has its status."""
        self.fleet(one=self.SLOW, two=REFUSED, more="[server]\nhead_hold_s = 2")
        outcome = self.ask(stream=True)
        self.assertEqual((outcome.told, outcome.caller.started, outcome.caller.finished), (DOWN, True, False))
        self.assertEqual(outcome.caller.received, b": ping\n\n")
        self.assert_row(exit="failed", status=503)

    def test_the_head_waits_without_need(self) -> None:
        """An error within the time keeps its status."""
        self.fleet(one=self.SLOW, more="[server]\nhead_hold_s = 6")
        outcome = self.ask(stream=True)
        self.assertEqual((outcome.told, outcome.caller.started, outcome.caller.received), (LATE, False, b""))


class LeavingTest(FleetStories):
    """A client that leaves, or a process that ends, at every moment of a request that fails over."""

    def test_the_books_balance_whenever_it_ends(self) -> None:
        """At every wait and every event: one row, nothing held, both meters covered."""
        for error in (ClientGone, Draining):
            for stream in (False, True):
                moments = 0
                for label in ("sleep", "step", "start", "send", "finish"):
                    nth = 1
                    while self.interrupted(At(label, nth), error, stream=stream):
                        nth += 1
                    moments += nth - 1
                self.assertGreater(moments, 12 if stream else 4)

    def interrupted(self, moment: At, error: type[Exception], *, stream: bool) -> bool:
        """End at one moment of: silence, a retried failure elsewhere, an answer. False if the moment never came."""
        with self.subTest(moment=moment, error=error.__name__, stream=stream):
            self.RETRY = "max_retries = 1"
            slow_failure = {"status": 500, "latency_s": 1}
            self.fleet(one={**SILENT, "latency_s": 3}, two=[slow_failure, GOOD])
            outcome = self.play(chat(stream=stream, max_tokens=50) | {"model": "all"}, at=moment, error=error)
            self.assertEqual(self.row()["attempts"], len(self.order))
            if outcome.interrupted and self.row()["status"] != 200:
                self.assert_row(exit="client_gone" if error is ClientGone else "failed")
            return outcome.interrupted
