"""Climbing to a stronger tier: who may, after what, and that both answers are paid for."""

from typing import Any, ClassVar

from gateway.errors import ClientGone
from tests.sim.fleet import COST, GOOD, REFUSED, SILENT, AnOutcome, FleetStories, Sends
from tests.sim.test_stories import FINISH, ROLE, At, usage
from tests.support.world import USD, chat

SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        },
    },
}
JSON_MODE = {"type": "json_object"}
USED = usage(12, 34)


def says(text: str) -> dict[str, Any]:
    """An answer that is billed as a GOOD one."""
    return {"text": text, "usage": USED}


EMPTY = says("")


class Climbing(FleetStories):
    """One deployment of each tier: one, two, three at 1, 10 and 100 times the price."""

    TIERS: ClassVar = {"one": ("cheap", 1), "two": ("standard", 10), "three": ("strong", 100)}
    RETRY = "max_retries = 0"

    def auto(self, **fields: Any) -> Any:
        """One request that leaves the choice to the gateway."""
        return self.ask(model="auto", **fields)


class RefusedAnswerTest(Climbing):
    """An answer that is not what was asked for."""

    TABLE: tuple[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
        ("empty", EMPTY, {}, GOOD),
        ("empty", says("  "), {}, GOOD),
        ("not_json", says("sure: {"), {"response_format": JSON_MODE}, says("{}")),
        ("schema", says('{"n": "1"}'), {"response_format": SCHEMA}, says('{"n": 1}')),
    )

    def test_the_next_tier_is_asked_and_both_are_paid(self) -> None:
        """Each at its own price, each by a hold of its own; the exit says so."""
        for reason, answer, fields, better in self.TABLE:
            with self.subTest(reason=reason, answer=answer):
                self.fleet(one=answer, two=better, three=GOOD)
                outcome = self.auto(**fields)
                self.assertIsNone(outcome.error)
                self.assertEqual(outcome.facts.hops, [f"one={reason}", "two=ok"])
                self.assert_row(exit="escalated", tier="standard", attempts=2, cost_nanousd=11 * COST, state="settled")
                self.assertEqual((self.level().spent_nanousd, self.hold_states()), (11 * COST, ["settled", "settled"]))
                self.assertEqual((self.state("one"), self.state("two")), ("closed", "closed"))

    def test_it_climbs_as_far_as_it_must(self) -> None:
        """Three answers, three prices."""
        self.fleet(one=EMPTY, two=EMPTY, three=GOOD)
        self.assertEqual(self.auto().facts.hops, ["one=empty", "two=empty", "three=ok"])
        self.assert_row(exit="escalated", tier="strong", cost_nanousd=111 * COST)

    def test_the_strongest_answer_is_given_as_it_is(self) -> None:
        """There is nobody left to ask."""
        self.fleet(one=EMPTY, two=EMPTY, three=EMPTY)
        outcome = self.auto()
        self.assertIsNotNone(outcome.answer)
        self.assert_row(exit="escalated", tier="strong", status=200)

    def test_a_stronger_tier_that_fails_leaves_the_refused_answer(self) -> None:
        """It was paid for, and is better than an error; the facts are its own."""
        for two in (REFUSED, {"status": 400}, SILENT):
            with self.subTest(str(two)):
                self.fleet(one=EMPTY, two=two)
                outcome = self.auto()
                self.assertIsNone(outcome.error)
                self.assertEqual((outcome.facts.deployment, outcome.facts.tier), ("one", "cheap"))
                self.assert_row(exit="routed", status=200, tier="cheap", attempts=2, cost_nanousd=COST)

    def test_a_stream_is_judged_only_by_being_empty(self) -> None:
        """Nothing of the empty one was seen; text is delivered, whatever it was to be."""
        self.fleet(one=Sends(ROLE, FINISH, b"[DONE]"), two=GOOD)
        outcome = self.auto(stream=True)
        self.assertEqual((outcome.text, outcome.facts.hops), ("noon", ["one=empty", "two=ok"]))
        self.assertEqual(outcome.caller.received.count(b'"role"'), 1)
        self.assert_row(exit="escalated")
        self.fleet(one=says("no json"), two=GOOD)
        self.assertEqual(self.auto(stream=True, response_format=JSON_MODE).text, "no json")
        self.assert_row(exit="routed")

    def test_an_empty_stream_that_nobody_beats_is_delivered(self) -> None:
        """Well-formed, after all."""
        self.fleet(one=Sends(ROLE, FINISH, b"[DONE]"), two=REFUSED)
        outcome = self.auto(stream=True)
        self.assertEqual((outcome.events[-1], outcome.text, outcome.caller.finished), ("[DONE]", "", True))
        self.assert_row(exit="routed", status=200)

    def test_too_little_money_for_the_climb_delivers_the_cheap_answer(self) -> None:
        """Nothing is called without money, and nothing leaks."""
        self.fleet(one=EMPTY, two=GOOD, limit_nanousd=USD // 1000)
        outcome = self.auto()
        self.assertIsNone(outcome.error)
        self.assertEqual(self.order, ["one"])
        self.assert_row(exit="routed", status=200, cost_nanousd=COST, attempts=1)
        level = self.level()
        self.assertEqual((level.spent_nanousd, level.held_nanousd, level.unresolved_nanousd), (COST, 0, 0))

    def test_by_name_an_answer_is_what_it_is(self) -> None:
        """A model id, a deployment, an alias: the client chose."""
        for name in ("gw-one", "one", "all"):
            self.fleet(one=EMPTY, two=GOOD)
            self.assertIsNone(self.ask(model=name).error)
            self.assertEqual(self.order, ["one"])
            self.assert_row(exit="routed")

    def test_an_alias_may_climb_if_it_says_so(self) -> None:
        """`escalate = true`: through its own deployments, tier by tier."""
        self.ALIAS = "escalate = true"
        self.fleet(one=EMPTY, two=GOOD)
        self.assertEqual(self.ask().facts.hops, ["one=empty", "two=ok"])
        self.assert_row(exit="escalated", alias="all")

    def test_a_client_that_leaves_in_the_second_tier_pays_for_both(self) -> None:
        """What was written, and what may have been."""
        self.fleet(one=EMPTY, two={**GOOD, "latency_s": 5})
        body = chat(max_tokens=50) | {"model": "auto"}
        outcome = self.play(body, at=At("sleep"))
        self.assertIsInstance(outcome.error, ClientGone)
        self.assert_row(exit="client_gone", attempts=2, state="settled", estimated=True)
        self.assertGreater(self.level().spent_nanousd, COST)


class TierDownTest(Climbing):
    """A tier without an answer."""

    def test_a_whole_tier_down_climbs(self) -> None:
        """Every failure that another deployment may not have; at the price of the one that answered."""
        downs: tuple[AnOutcome, ...] = (REFUSED, {"status": 500}, {"status": 429}, {"status": 401}, {"malformed": True})
        for down in downs:
            with self.subTest(str(down)):
                self.fleet(one=down, two=GOOD, three=GOOD)
                self.assertIsNone(self.auto().error)
                self.assertEqual(self.order, ["one", "two"])
                self.assert_row(exit="escalated", tier="standard", status=200)
                self.assertGreaterEqual(self.row()["cost_nanousd"], 10 * COST)

    def test_only_the_strongest_down_is_503(self) -> None:
        """After every tier was asked."""
        self.fleet(one=REFUSED, two={"status": 500}, three=REFUSED)
        self.assertEqual(self.auto().told, (503, "all_providers_failed"))
        self.assertEqual(self.order, ["one", "two", "three"])
        self.assert_row(exit="failed", status=503, state="void", cost_nanousd=0)

    def test_a_request_begins_in_its_own_tier(self) -> None:
        """What needs the strongest never descends."""
        self.fleet(one=GOOD, two=GOOD, three=REFUSED)
        self.assertEqual(self.auto(tags=["math"]).told, (503, "all_providers_failed"))
        self.assertEqual(self.order, ["three"])

    def test_the_clients_fault_never_climbs(self) -> None:
        """It would be the same there, and dearer."""
        for status in (400, 413, 422):
            self.fleet(one={"status": status}, two=GOOD, three=GOOD)
            self.assertEqual(self.auto().told[1], "invalid_request")
            self.assertEqual(self.order, ["one"])

    def test_a_failure_needs_money_for_the_dearer_tier(self) -> None:
        """Else its own outcome stands, and the hold is gone."""
        self.fleet(one={"status": 500}, two=GOOD, limit_nanousd=USD // 1000)
        self.assertEqual(self.auto().told, (503, "all_providers_failed"))
        self.assertEqual((self.order, self.hold_states()), (["one"], ["void"]))
        self.assertEqual(self.level().spent_nanousd, 0)

    def test_a_hold_is_topped_up_for_the_dearer_tier(self) -> None:
        """One hold, at the price of the one that answered, never above it."""
        self.fleet(one={"status": 500}, two=GOOD)
        self.auto()
        self.assertEqual(self.hold_states(), ["settled"])
        self.assert_row(cost_nanousd=10 * COST, overage_nanousd=0)
