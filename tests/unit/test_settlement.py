"""What a call is settled at, and how its hold and its row end."""

import contextlib
import tempfile
import unittest
from pathlib import Path
from typing import Any

from gateway.config import load
from gateway.engines.sim import SimCaller
from gateway.evidence import Evidence, Reach, assess
from gateway.ledger import Purpose, Reservation
from gateway.migrations import MAX_NANOUSD
from gateway.rows import Exit
from gateway.settlement import Ending, Settlement
from llmkit.prices import Price, PriceEntry
from llmkit.types import Usage
from tests.support.world import CONFIG, USD, SimWorld, settle_story

PRICE = PriceEntry(0, Price.parse({"input": 1, "cached_input": "0.1", "output": 4}), "1")
PROMPT_BOUND, OUTPUT_BOUND = 300, 50


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

    def test_a_usage_that_no_ledger_can_hold_is_not_believed(self) -> None:
        """It would break the book; what was seen is charged instead."""
        absurd = Usage(prompt_tokens=2**53, completion_tokens=2**53)
        self.assertGreater(PRICE.price.cost_nanousd(absurd), MAX_NANOUSD)
        self.assertEqual(self.charged(evidence(usage=absurd, output_bytes=8)), (PROMPT_BOUND, 8, True))

    def test_what_is_free_costs_nothing(self) -> None:
        """However much of it there was."""
        free = PriceEntry(0, Price.FREE, "free")
        charge = assess(evidence(usage=Usage(prompt_tokens=2**53, completion_tokens=5)), free, streamed=True)
        self.assertEqual((charge.cost_nanousd, charge.estimated), (0, False))


class CloseTest(unittest.TestCase):
    """The hold and the row, over a simulated ledger."""

    def setUp(self) -> None:
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.world = self.enterContext(contextlib.closing(SimWorld(Path(folder), config=load(CONFIG, {}))))
        self.raw_key = self.world.key(USD)

    def settlement(self, *, stream: bool = True) -> Settlement:
        """The settlement of a new request that has no hold yet."""
        world = self.world
        context = world.gateway.context(world.gateway.authenticate(self.raw_key), b"", SimCaller(world.scheduler))
        context.streams = stream
        return Settlement(world.ledger, world.clock, context)

    def hold(self, settlement: Settlement, amount_nanousd: int = 500_000, **known: Any) -> Evidence:
        """Book a hold for it."""
        facts = settlement.context.facts
        purpose = Purpose(facts.request_id, 1, "mini", "mini", "1")
        story = self.world.ledger.reserve(settlement.context.principal.account, amount_nanousd, purpose)
        reservation: Reservation = settle_story(story)
        seen = evidence(**known)
        settlement.hold(reservation, seen, PRICE)
        return seen

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
            with self.subTest(known=known, exit=ending.exit), tempfile.TemporaryDirectory() as folder:
                self.world = SimWorld(Path(folder), config=load(CONFIG, {}))
                self.addCleanup(self.world.close)
                self.raw_key = self.world.key(USD)
                settlement = self.settlement()
                self.hold(settlement, **known)
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
        self.hold(settlement, 20_000, reach=Reach.PRODUCED, usage=Usage(prompt_tokens=10, completion_tokens=5))
        self.assertEqual(settlement.overage_nanousd, 0)
        row = self.end(settlement, Ending(Exit.ROUTED, 200))
        self.assertEqual(
            (row["cost_nanousd"], row["overage_nanousd"], settlement.overage_nanousd), (30_000, 10_000, 10_000)
        )
        self.assertEqual(self.world.key_level(self.raw_key).overage_nanousd, 10_000)

    def test_a_row_tells_the_tokens_the_price_and_the_times(self) -> None:
        """Names, numbers and codes."""
        settlement = self.settlement()
        settlement.context.tags, settlement.context.ttft_ms = ("a", "b"), 3
        usage = Usage(10, 4, 1, 5, 2)
        self.hold(settlement, reach=Reach.PRODUCED, usage=usage)
        self.world.clock.advance(1.5)
        row = self.end(settlement, Ending(Exit.ROUTED, 200))
        names = ("prompt_tokens", "cached_tokens", "cache_write_tokens", "completion_tokens", "reasoning_tokens")
        self.assertEqual(tuple(row[name] for name in names), (10, 4, 1, 5, 2))
        self.assertEqual((row["price_version"], row["tags"], row["ttft_ms"], row["duration_ms"]), ("1", "a,b", 3, 1500))
        self.assertEqual(row["ended_ms"] - row["started_ms"], 1500)
        self.assertIs(row["stream"], True)
