"""What a call is settled at, and how its hold and its row end."""

import contextlib
import tempfile
import unittest
from pathlib import Path
from typing import Any

from gateway.config import load
from gateway.context import RequestContext
from gateway.engines.sim import SimCaller
from gateway.errors import BudgetExceeded, BudgetReserved
from gateway.evidence import Evidence, Reach, assess
from gateway.holds import AlreadyResolved, Purpose
from gateway.keys import ShownKey
from gateway.levels import CALL_MOST_NANOUSD
from gateway.rows import Exit, RequestRow
from gateway.settlement import Ending, Settlement
from llmkit.prices import Price, PriceEntry
from llmkit.types import Usage
from tests.support.twins import SharesOneHold
from tests.support.world import CONFIG, USD, SimWorld, settle_story

PRICE = PriceEntry(0, Price.parse({"input": 1, "cached_input": "0.1", "output": 4}), "1")
DEARER = PriceEntry(0, Price.parse({"input": 2, "output": 8}), "2")
PROMPT_BOUND, OUTPUT_BOUND = 300, 50
FIVE = Usage(prompt_tokens=10, completion_tokens=5)
"""30,000 nano-dollars at PRICE, twice that at DEARER."""
FAILED, ROUTED = Ending(Exit.FAILED, 503, "all_providers_failed"), Ending(Exit.ROUTED, 200)


def evidence(**known: Any) -> Evidence:
    """What is known of a call bounded by 300 prompt and 50 output tokens."""
    return Evidence(PROMPT_BOUND, OUTPUT_BOUND, **known)


class AssessTest(unittest.TestCase):
    """Usage where it makes sense, bounds where not."""

    def charged(self, known: Evidence, *, streamed: bool = True) -> tuple[int, int, bool]:
        """Prompt and completion tokens that are paid for, and whether they are an estimate."""
        charge = assess(known, PRICE, streamed=streamed)
        self.assertEqual(charge.cost_nanousd, PRICE.price.cost_nanousd(charge.usage))
        return charge.usage.prompt_tokens, charge.usage.completion_tokens, charge.estimated

    def test_reported_usage_is_taken_as_it_is(self) -> None:
        """By class, and also above the bounds: it is booked whole."""
        usage = Usage(prompt_tokens=2000, cached_tokens=1500, completion_tokens=100, reasoning_tokens=60)
        charge = assess(evidence(usage=usage, deltas=3, output_bytes=9), PRICE, streamed=True)
        self.assertEqual((charge.usage, charge.estimated, charge.cost_nanousd), (usage, False, 1_050_000))

    def test_more_cached_than_prompt_tokens_pays_for_all_it_names(self) -> None:
        """The plain part is nothing then, never negative."""
        usage = Usage(prompt_tokens=10, cached_tokens=1000, completion_tokens=1)
        self.assertEqual(assess(evidence(usage=usage), PRICE, streamed=False).cost_nanousd, 104_000)

    def test_without_usage_bytes_bound_tokens(self) -> None:
        """At most the cap, unless more deltas than that were seen."""
        for known, completion in (
            (evidence(output_bytes=20, deltas=5), 20),
            (evidence(output_bytes=900, deltas=5), OUTPUT_BOUND),
            (evidence(output_bytes=900, deltas=70), 70),
            (evidence(output_bytes=0, deltas=0), 0),
        ):
            with self.subTest(known):
                self.assertEqual(self.charged(known), (PROMPT_BOUND, completion, True))

    def test_a_whole_answer_that_was_not_seen_may_have_been_written_to_its_end(self) -> None:
        """Of a stream what was not seen is not charged for."""
        self.assertEqual(self.charged(evidence(), streamed=False), (PROMPT_BOUND, OUTPUT_BOUND, True))
        self.assertEqual(self.charged(evidence(), streamed=True), (PROMPT_BOUND, 0, True))

    def test_a_class_that_was_reported_as_nothing_is_estimated(self) -> None:
        """A prompt always has tokens, and so has an output that was seen."""
        reported = Usage(completion_tokens=7)
        self.assertEqual(self.charged(evidence(usage=reported)), (PROMPT_BOUND, 7, True))
        reported = Usage(prompt_tokens=9)
        self.assertEqual(self.charged(evidence(usage=reported, output_bytes=20, deltas=4)), (9, 20, True))
        self.assertEqual(self.charged(evidence(usage=reported, output_bytes=0)), (9, 0, False))
        self.assertEqual(self.charged(evidence(usage=reported), streamed=False), (9, 0, False))

    def test_a_usage_that_no_call_can_have_is_not_believed(self) -> None:
        """A few of them would break the book; what was seen is charged instead."""
        most = Usage(prompt_tokens=5, completion_tokens=(CALL_MOST_NANOUSD - 5_000) // 4_000)
        self.assertEqual(self.charged(evidence(usage=most)), (5, most.completion_tokens, False))
        absurd = Usage(prompt_tokens=5, completion_tokens=most.completion_tokens + 2)
        self.assertEqual(self.charged(evidence(usage=absurd, output_bytes=8)), (PROMPT_BOUND, 8, True))

    def test_what_is_free_costs_nothing(self) -> None:
        """However much of it there was."""
        free = PriceEntry(0, Price.FREE, "free")
        charge = assess(evidence(usage=Usage(prompt_tokens=2**53, completion_tokens=5)), free, streamed=True)
        self.assertEqual((charge.cost_nanousd, charge.estimated), (0, False))


class SettlementCase(unittest.TestCase):
    """Settlements over a simulated ledger."""

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.world = self.enterContext(contextlib.closing(SimWorld(Path(folder), config=load(CONFIG, {}))))
        self.raw_key = self.world.key(USD)

    def settlement(
        self, *, stream: bool = True, kind: type[Settlement] = Settlement, limit_nanousd: int | None = None
    ) -> Settlement:
        """The settlement of a new request that has no hold yet."""
        world = self.world
        if limit_nanousd is not None:
            self.raw_key = world.key(limit_nanousd)
        context = world.gateway.context(
            world.gateway.authenticate(ShownKey.of(self.raw_key)), b"", SimCaller(world.scheduler)
        )
        context.streams = stream
        self.overbilled: set[tuple[str, int, int]] = set()
        return kind(world.ledger, world.clock, context, lambda *told: self.overbilled.add(told))

    def cover(
        self,
        settlement: Settlement,
        amount_nanousd: int = 500_000,
        *,
        deployment: str = "mini",
        price: PriceEntry = PRICE,
        former: str = "unknown",
        **known: Any,
    ) -> Evidence:
        """Put money behind its next call, of which this will be known."""
        facts = settlement.context.facts
        facts.attempts += 1
        purpose = Purpose(facts.request_id, facts.attempts, "mini", deployment, price.version)
        seen = evidence()
        settle_story(settlement.cover(purpose, amount_nanousd, seen, price, former=former))
        for name, value in known.items():
            setattr(seen, name, value)
        return seen

    def money(self) -> tuple[int, int, int]:
        """What the key has spent, held and unresolved."""
        level = self.world.key_level(self.raw_key)
        return level.spent_nanousd, level.held_nanousd, level.unresolved_nanousd

    def holds(self) -> list[tuple[Any, ...]]:
        """State, amount, attempt and deployment of every hold, oldest first."""
        settle_story(self.world.store.flush())
        return settle_story(
            self.world.store.read("SELECT state, amount_nanousd, attempt, deployment FROM holds ORDER BY id")
        )

    def end(self, settlement: Settlement, ending: Ending) -> dict[str, Any]:
        """Close it, twice, and return the one row."""
        settle_story(settlement.close(ending))
        settle_story(settlement.close(Ending(Exit.FAILED, 500, "too_late")))
        settle_story(self.world.store.flush())
        [row] = self.world.rows()
        self.assertTrue(self.world.verify().ok, self.world.verify().differences)
        self.assertEqual(self.world.key_level(self.raw_key).held_nanousd, 0)
        self.assertEqual((row["exit"], row["status"]), (ending.exit, ending.status))
        return row

    def another_world(self) -> None:
        """Begin again with an empty book."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.world = self.enterContext(contextlib.closing(SimWorld(Path(folder), config=load(CONFIG, {}))))
        self.raw_key = self.world.key(USD)


class CloseTest(SettlementCase):
    """How the hold and the row end."""

    def test_a_refused_request_has_a_row_and_costs_nothing(self) -> None:
        """There was no hold."""
        settlement = self.settlement()
        row = self.end(settlement, Ending(Exit.REJECTED, 402, "budget_exceeded"))
        self.assertEqual((row["state"], row["cost_nanousd"], row["code"]), ("none", 0, "budget_exceeded"))
        self.assertEqual((settlement.context.facts.exit, settlement.context.facts.cost_nanousd), ("rejected", 0))

    def test_how_far_the_call_got_decides_what_becomes_of_the_hold(self) -> None:
        """One row per reach and way out."""
        gone, failed = Ending(Exit.CLIENT_GONE, 499), Ending(Exit.FAILED, 503, "all_providers_failed")
        usage = Usage(prompt_tokens=10, completion_tokens=5)
        seen = {"output_bytes": 8, "deltas": 2}
        table: list[tuple[dict[str, Any], Ending, str, int | None]] = [
            ({"reach": Reach.NOT_SENT}, failed, "void", 0),
            ({"reach": Reach.NOT_SENT}, gone, "void", 0),
            ({"reach": Reach.UNBILLED}, failed, "void", 0),
            ({"reach": Reach.UNBILLED, "usage": usage}, failed, "settled", 30_000),
            ({"reach": Reach.UNKNOWN}, failed, "unresolved", None),
            ({"reach": Reach.UNKNOWN, "usage": usage}, failed, "settled", 30_000),
            ({"reach": Reach.UNKNOWN}, gone, "settled", 300_000),
            ({"reach": Reach.PRODUCED, **seen}, failed, "settled", 332_000),
            ({"reach": Reach.PRODUCED, **seen}, gone, "settled", 332_000),
            ({"reach": Reach.PRODUCED, "usage": usage}, Ending(Exit.ROUTED, 200), "settled", 30_000),
        ]
        for known, ending, state, cost in table:
            with self.subTest(known=known, exit=ending.exit):
                self.another_world()
                settlement = self.settlement()
                self.cover(settlement, **known)
                row = self.end(settlement, ending)
                level = self.world.key_level(self.raw_key)
                self.assertEqual(row["state"], state)
                self.assertEqual(settlement.context.facts.cost_nanousd, cost)
                self.assertEqual(
                    (level.spent_nanousd, level.unresolved_nanousd), (cost or 0, 0 if cost is not None else 500_000)
                )
                self.assertEqual(row["estimated"], state == "settled" and "usage" not in known)

    def test_what_lies_above_the_hold_is_overage(self) -> None:
        """Booked whole, and told to whoever watches deployments."""
        settlement = self.settlement()
        self.cover(settlement, 20_000, reach=Reach.PRODUCED, usage=FIVE)
        self.assertEqual(self.overbilled, set())
        row = self.end(settlement, Ending(Exit.ROUTED, 200))
        self.assertEqual((row["cost_nanousd"], row["overage_nanousd"]), (30_000, 10_000))
        self.assertEqual(self.overbilled, {("mini", 20_000, 30_000)})
        self.assertEqual(self.world.key_level(self.raw_key).overage_nanousd, 10_000)

    def test_a_row_tells_whose_it_is_and_who_answered(self) -> None:
        """Each under its own name."""
        settlement = self.settlement()
        context = settlement.context
        context.tags = ("nightly", "batch")
        facts = context.facts
        facts.served_by("mini-eu", "mock", "cheap")
        facts.alias, facts.cache, facts.attempts = "fast", "miss", 3
        self.cover(settlement, reach=Reach.PRODUCED, usage=FIVE)
        row = self.end(settlement, FAILED)
        told = {
            "request_id": facts.request_id,
            "tenant": context.principal.tenant,
            "key_id": context.principal.key_id,
            "alias": "fast",
            "stream": True,
            "exit": "failed",
            "status": 503,
            "code": "all_providers_failed",
            "cache": "miss",
            "tier": "cheap",
            "deployment": "mini-eu",
            "provider": "mock",
            "attempts": 4,
            "estimated": False,
            "tags": "nightly,batch",
        }
        self.assertEqual({name: row[name] for name in told}, told)

    def test_a_row_tells_the_tokens_the_price_and_the_times(self) -> None:
        """Names, numbers and codes."""
        settlement = self.settlement()
        settlement.context.tags, settlement.context.ttft_ms = ("a", "b"), 3
        usage = Usage(10, 4, 1, 5, 2)
        self.cover(settlement, reach=Reach.PRODUCED, usage=usage)
        self.world.clock.advance(1.5)
        row = self.end(settlement, Ending(Exit.ROUTED, 200))
        names = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens")
        self.assertEqual(tuple(row[name] for name in names), (10, 4, 1, 5, 2))
        self.assertEqual((row["price_version"], row["tags"], row["ttft_ms"], row["duration_ms"]), ("1", "a,b", 3, 1500))
        self.assertEqual(row["ended_ms"] - row["started_ms"], 1500)
        self.assertIs(row["stream"], True)


class CoverTest(SettlementCase):
    """cover(): what becomes of one call's hold when the next call needs one."""

    def test_the_first_call_reserves(self) -> None:
        """Its whole bound, for the call that it names."""
        settlement = self.settlement()
        self.cover(settlement, 500_000)
        self.assertEqual((self.money(), self.holds()), ((0, 500_000, 0), [("open", 500_000, 1, "mini")]))
        self.end(settlement, FAILED)

    def test_how_far_a_call_got_decides_what_the_next_one_finds(self) -> None:
        """One row per reach: the hold is carried, or it is resolved and another one is booked."""
        seen = {"reach": Reach.PRODUCED, "output_bytes": 8, "deltas": 2}
        table: list[tuple[dict[str, Any], tuple[int, int, int], list[str]]] = [
            ({"reach": Reach.NOT_SENT}, (0, 500_000, 0), ["open"]),
            ({"reach": Reach.UNBILLED}, (0, 500_000, 0), ["open"]),
            ({"reach": Reach.UNBILLED, "usage": FIVE}, (30_000, 500_000, 0), ["settled", "open"]),
            ({"reach": Reach.UNKNOWN}, (0, 500_000, 500_000), ["unresolved", "open"]),
            ({"reach": Reach.UNKNOWN, "usage": FIVE}, (30_000, 500_000, 0), ["settled", "open"]),
            ({"reach": Reach.PRODUCED, "usage": FIVE}, (30_000, 500_000, 0), ["settled", "open"]),
            (seen, (332_000, 500_000, 0), ["settled", "open"]),
        ]
        for known, money, states in table:
            with self.subTest(known):
                self.another_world()
                settlement = self.settlement()
                self.cover(settlement, **known)
                self.cover(settlement, deployment="other", reach=Reach.UNBILLED)
                self.assertEqual((self.money(), [state for state, *_ in self.holds()]), (money, states))
                self.assertEqual(self.holds()[-1], ("open", 500_000, 2, "other"))
                self.assertTrue(self.world.verify().ok)
                row = self.end(settlement, FAILED)
                self.assertEqual(row["state"], "void" if states == ["open"] else states[0])
                self.assertEqual((row["cost_nanousd"], row["attempts"]), (money[0], 2))

    def test_a_carried_hold_is_raised_if_the_next_call_can_cost_more(self) -> None:
        """And never lowered: it is one hold still."""
        settlement = self.settlement()
        self.cover(settlement, 500_000, reach=Reach.UNBILLED)
        self.cover(settlement, 700_000, deployment="dear", reach=Reach.UNBILLED)
        self.assertEqual((self.money(), self.holds()), ((0, 700_000, 0), [("open", 700_000, 2, "dear")]))
        self.cover(settlement, 100_000, deployment="mini", reach=Reach.PRODUCED, usage=FIVE)
        self.assertEqual((self.money(), self.holds()), ((0, 700_000, 0), [("open", 700_000, 3, "mini")]))
        self.assertEqual(self.end(settlement, ROUTED)["cost_nanousd"], 30_000)

    def test_why_a_call_is_unresolved_is_kept(self) -> None:
        """In the word of its verdict."""
        settlement = self.settlement()
        self.cover(settlement, reach=Reach.UNKNOWN)
        self.cover(settlement, former="timeout", reach=Reach.UNBILLED)
        [hold, _] = settle_story(self.world.store.read("SELECT state, unresolved_why FROM holds ORDER BY id"))
        self.assertEqual(hold, ("unresolved", "timeout"))
        self.end(settlement, FAILED)

    def test_the_row_sums_what_all_calls_cost(self) -> None:
        """Tokens by class and money, each call at its own price; an estimate of one makes the row one."""
        settlement = self.settlement()
        self.cover(settlement, reach=Reach.PRODUCED, usage=Usage(10, 4, 1, 5, 2), price=PRICE)
        self.cover(settlement, reach=Reach.UNBILLED)
        self.cover(settlement, reach=Reach.PRODUCED, usage=Usage(20, 0, 0, 7, 1), price=DEARER)
        row = self.end(settlement, ROUTED)
        names = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens")
        self.assertEqual(tuple(row[name] for name in names), (30, 4, 1, 12, 3))
        first = PRICE.price.cost_nanousd(Usage(10, 4, 1, 5, 2))
        self.assertEqual((row["cost_nanousd"], settlement.context.facts.cost_nanousd), (first + 96_000,) * 2)
        self.assertEqual((row["state"], row["estimated"], row["price_version"]), ("settled", False, "2"))
        self.another_world()
        settlement = self.settlement()
        self.cover(settlement, reach=Reach.PRODUCED, output_bytes=8)
        self.cover(settlement, reach=Reach.PRODUCED, usage=FIVE)
        row = self.end(settlement, ROUTED)
        self.assertEqual((row["estimated"], row["completion_tokens"]), (True, 8 + 5))

    def test_a_row_is_unresolved_if_any_part_of_it_is(self) -> None:
        """The first call or the last; what is known to have been spent is told beside it."""
        silent: dict[str, Any] = {"reach": Reach.UNKNOWN}
        paid: dict[str, Any] = {"reach": Reach.PRODUCED, "usage": FIVE}
        for first, last in ((silent, paid), (paid, silent)):
            with self.subTest(first):
                self.another_world()
                settlement = self.settlement()
                self.cover(settlement, **first)
                self.cover(settlement, **last)
                row = self.end(settlement, FAILED)
                self.assertEqual(
                    (row["state"], row["cost_nanousd"], self.money()), ("unresolved", 30_000, (30_000, 0, 500_000))
                )
                self.assertEqual(settlement.context.facts.cost_nanousd, 30_000)

    def test_what_one_call_was_settled_at_is_known_by_its_sheet(self) -> None:
        """Once it is settled; none of another call's."""
        settlement = self.settlement()
        first = self.cover(settlement, reach=Reach.PRODUCED, usage=FIVE)
        self.assertIsNone(settlement.charge_of(first))
        second = self.cover(settlement, reach=Reach.PRODUCED, usage=Usage(1, completion_tokens=1), price=DEARER)
        self.end(settlement, ROUTED)
        costs = [charge.cost_nanousd for sheet in (first, second) if (charge := settlement.charge_of(sheet))]
        self.assertEqual(costs, [30_000, 10_000])
        self.assertIsNone(settlement.charge_of(evidence()))

    def test_who_billed_more_than_its_hold_is_named(self) -> None:
        """And nobody else of the same request, whether it was called before or after."""
        over: dict[str, Any] = {"amount_nanousd": 20_000, "reach": Reach.PRODUCED, "usage": FIVE}
        within: dict[str, Any] = {"reach": Reach.PRODUCED, "usage": FIVE}
        for first, last, named in ((over, within, {"a"}), (within, over, {"b"}), (over, over, {"a", "b"})):
            with self.subTest(named):
                self.another_world()
                settlement = self.settlement()
                self.cover(settlement, deployment="a", **first)
                self.cover(settlement, deployment="b", **last)
                row = self.end(settlement, ROUTED)
                self.assertEqual({name for name, *_ in self.overbilled}, named)
                self.assertEqual(row["overage_nanousd"], 10_000 * len(named))

    def test_the_end_is_told_once_and_after_the_money(self) -> None:
        """With the row as it was written, the facts as they are by then, and the time; without a hold too."""
        told: list[tuple[str, str, int | None, float, int]] = []

        def on_ended(row: RequestRow, context: RequestContext, ended_s: float) -> None:
            held = self.world.key_level(self.raw_key).held_nanousd
            told.append((row.request_id, row.exit, context.facts.cost_nanousd, ended_s, held))

        produced: dict[str, Any] = {"reach": Reach.PRODUCED, "usage": FIVE}
        for known, ending, cost in (({}, FAILED, 0), (produced, ROUTED, 30_000)):
            with self.subTest(ending):
                self.another_world()
                settlement = self.settlement()
                settlement.on_ended = on_ended
                if known:
                    self.cover(settlement, **known)
                self.world.clock.advance(1.5)
                row = self.end(settlement, ending)
                self.assertEqual(told.pop(), (row["request_id"], row["exit"], cost, self.world.clock.now_s(), 0))
                self.assertEqual(told, [])

    def test_a_hold_that_was_carried_is_judged_by_the_call_that_has_it(self) -> None:
        """Its deployment, its price."""
        settlement = self.settlement()
        self.cover(settlement, 50_000, deployment="a", reach=Reach.UNBILLED)
        self.cover(settlement, 50_000, deployment="b", price=DEARER, reach=Reach.PRODUCED, usage=FIVE)
        row = self.end(settlement, ROUTED)
        self.assertEqual(self.overbilled, {("b", 50_000, 60_000)})
        self.assertEqual((row["cost_nanousd"], row["price_version"]), (60_000, "2"))

    def test_an_unknown_outcome_counts_for_what_its_call_can_cost(self) -> None:
        """Not for what was held for the dearest of its stage; in mid-request and at the end."""
        worst = PRICE.price.bound_nanousd(PROMPT_BOUND, OUTPUT_BOUND)
        settlement = self.settlement()
        self.cover(settlement, worst * 10, reach=Reach.UNKNOWN)
        self.assertEqual(self.money(), (0, worst * 10, 0))
        self.cover(settlement, worst * 10, reach=Reach.UNKNOWN)
        self.assertEqual(self.money(), (0, worst * 10, worst))
        self.end(settlement, Ending(Exit.FAILED, 504, "upstream_timeout"))
        self.assertEqual(self.money(), (0, 0, worst * 2))

    def test_a_refused_next_hold_leaves_the_former_one_to_the_end(self) -> None:
        """Unresolved, settled or void as if nobody had asked; once."""
        for known, refusal, state, money in (
            ({"reach": Reach.UNKNOWN}, BudgetExceeded, "unresolved", (0, 0, 500_000)),
            ({"reach": Reach.PRODUCED, "output_bytes": 8}, BudgetExceeded, "settled", (332_000, 0, 0)),
            ({"reach": Reach.UNBILLED}, BudgetReserved, "void", (0, 0, 0)),
        ):
            with self.subTest(known):
                self.another_world()
                settlement = self.settlement(limit_nanousd=600_000)
                self.cover(settlement, **known)
                settlement.context.facts.attempts = 0
                with self.assertRaises(refusal):
                    self.cover(settlement, 700_000, deployment="dear")
                self.assertEqual((self.money(), self.holds()), ((0, 500_000, 0), [("open", 500_000, 1, "mini")]))
                row = self.end(settlement, FAILED)
                self.assertEqual((row["state"], row["cost_nanousd"], self.money()), (state, money[0], money))
                self.assertEqual(row["completion_tokens"], 8 if state == "settled" else 0)

    def test_others_holds_in_the_way_are_told_as_such(self) -> None:
        """The next hold could be had later; the former one is untouched."""
        settlement = self.settlement(limit_nanousd=1_200_000)
        other = self.settlement()
        self.cover(other, 500_000)
        self.cover(settlement, 500_000, reach=Reach.PRODUCED, usage=FIVE)
        with self.assertRaises(BudgetReserved):
            self.cover(settlement, 900_000)
        self.assertEqual(self.money(), (0, 1_000_000, 0))
        settle_story(settlement.close(ROUTED))
        settle_story(other.close(FAILED))
        self.assertEqual(self.money(), (30_000, 0, 0))
        self.assertTrue(self.world.verify().ok)

    def test_a_hold_that_an_operator_ended_meanwhile_serves_no_other_call(self) -> None:
        """Nor carried: no call goes out without money behind it, and the request ends with what was decided."""
        for next_bound in (500_000, 600_000):
            self.another_world()
            settlement = self.settlement()
            self.cover(settlement, 500_000, reach=Reach.UNBILLED)
            [(hold,)] = settle_story(self.world.store.read("SELECT id FROM holds"))
            settle_story(self.world.ledger.resolve_by_admin(hold, 7))
            with self.assertRaises(AlreadyResolved):
                self.cover(settlement, next_bound)
            row = self.end(settlement, FAILED)
            self.assertEqual((row["state"], row["cost_nanousd"], self.money()), ("settled", 7, (7, 0, 0)))

    def check_two_billed_calls(self, kind: type[Settlement]) -> None:
        """Two calls that may both have been billed have money of their own, each up to its whole bound."""
        first: dict[str, Any]
        for first in ({"reach": Reach.UNKNOWN}, {"reach": Reach.PRODUCED, "output_bytes": OUTPUT_BOUND}):
            self.another_world()
            settlement = self.settlement(kind=kind)
            self.cover(settlement, 500_000, **first)
            self.cover(settlement, 500_000, reach=Reach.PRODUCED, output_bytes=OUTPUT_BOUND)
            settle_story(settlement.close(ROUTED))
            self.assertGreaterEqual(sum(self.money()), 2 * 500_000)

    def test_a_retry_has_a_hold_of_its_own(self) -> None:
        """Unless the last call is proven to be unbilled; a settlement that shares one hold is caught."""
        self.check_two_billed_calls(Settlement)
        with self.assertRaises(AssertionError):
            self.check_two_billed_calls(SharesOneHold)
