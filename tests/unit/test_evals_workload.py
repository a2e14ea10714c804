"""The synthetic questions and requests are what the preregistration says, and their judges see what is wrong."""

import unittest
from collections import Counter
from typing import Any

from evals import waterfall
from evals.gates import PREREGISTRATION
from evals.items import MASTERS, SIGNS, Difficulty, Form, answer, is_right, make, near_duplicates
from gateway.types import Tier
from gateway.validators import refusal

SEED = 7


class ItemsTest(unittest.TestCase):
    """Questions with a hidden difficulty."""

    def test_a_seed_gives_the_same_items(self) -> None:
        """And another one gives others; a longer list begins with the shorter."""
        self.assertEqual(make(50, SEED), make(80, SEED)[:50])
        self.assertNotEqual(make(50, SEED), make(50, SEED + 1))

    def test_the_shares_are_those_that_were_written_down(self) -> None:
        """The table of the preregistration, and within two points what is drawn."""
        document = PREREGISTRATION.read_text(encoding="utf-8")
        items = make(20_000, SEED)
        for difficulty, signs in SIGNS.items():
            shares = (signs.share, signs.long, signs.tools, signs.tagged)
            row = " | ".join([difficulty, *(f"{100 * share:.0f} %" for share in shares)])
            self.assertIn(f"| {row} |", document)
            drawn = [item for item in items if item.difficulty is difficulty]
            seen = (
                len(drawn) / len(items),
                sum(len(item.text) > 800 for item in drawn) / len(drawn),
                sum(item.tools for item in drawn) / len(drawn),
                sum(item.tag is not None for item in drawn) / len(drawn),
            )
            for share, value in zip(shares, seen, strict=True):
                self.assertAlmostEqual(share, value, delta=0.02)

    def test_texts_are_told_apart(self) -> None:
        """A model finds its question by the text."""
        items = make(150, SEED)
        every = [*items, *near_duplicates(items, 50, SEED)]
        self.assertEqual(len({item.text for item in every}), len(every))

    def test_a_near_duplicate_is_another_question(self) -> None:
        """One word or number apart, of the same difficulty, with another right answer."""
        items = make(30, SEED)
        for item, twin in zip(items, near_duplicates(items, 30, SEED), strict=True):
            before, after = item.text.split(), twin.text.split()
            self.assertLessEqual(sum((Counter(after) - Counter(before)).values()), 1)
            self.assertEqual(item.difficulty, twin.difficulty)
            self.assertFalse(is_right(twin, answer(item, Tier.STRONG, seed=SEED, invalid_share=0)))

    def test_models_master_what_they_should(self) -> None:
        """The strong one all, the cheap one only what is easy."""
        for item in make(60, SEED):
            for tier in Tier:
                said = answer(item, tier, seed=SEED, invalid_share=0.0)
                self.assertEqual(is_right(item, said), item.difficulty in MASTERS[tier])

    def test_an_invalid_answer_is_what_a_validator_refuses_and_a_wrong_one_is_not(self) -> None:
        """So the escalated run measures the gateway's validators, not the generator's."""
        for item in make(100, SEED):
            if item.difficulty is Difficulty.EASY:
                continue
            wanted = item.body("auto").get("response_format")
            for share, refused in ((0.0, False), (1.0, True)):
                said = answer(item, Tier.CHEAP, seed=SEED, invalid_share=share)
                completion = {"choices": [{"message": {"role": "assistant", "content": said}}]}
                self.assertIs(refusal(completion, wanted) is not None, refused, item)
        self.assertEqual({item.form for item in make(100, SEED)}, set(Form))


class WorkloadTest(unittest.TestCase):
    """Which questions are asked how often."""

    def test_it_is_zipfs(self) -> None:
        """Rank r gets 1 / (r * H) of the requests, within a point."""
        items = waterfall.questions()
        asked = Counter(ask.item.number for ask in waterfall.workload(items, 50_000, SEED))
        harmonic = sum(1 / rank for rank in range(1, len(items) + 1))
        for rank, (_, count) in enumerate(asked.most_common(5), 1):
            self.assertAlmostEqual(count / 50_000, 1 / (rank * harmonic), delta=0.01)
        self.assertEqual(len(asked), 42)

    def test_tenants_prompts_and_twins_are_in_the_mix(self) -> None:
        """Every combination is asked in the workload that is played."""
        asks = waterfall.workload(waterfall.questions(), waterfall.REQUESTS, waterfall.SEED)
        self.assertEqual(len({(ask.tenant, ask.system) for ask in asks}), 4)
        self.assertTrue(any(ask.item.number >= waterfall.QUESTIONS for ask in asks))
        self.assertEqual({ask.temperature for ask in asks}, {0.0, 0.7})


class JudgeTest(unittest.TestCase):
    """Hits that are none are seen."""

    def setUp(self) -> None:
        items = waterfall.questions()
        self.first, self.twin = items[0], items[waterfall.QUESTIONS]
        self.ask = waterfall.Ask("acme", waterfall.SYSTEMS[0], self.first, 0.0)

    def said(self, ask: waterfall.Ask, cache: str) -> dict[str, Any]:
        """What the strong model says to `ask`, and where it came from."""
        text = answer(ask.item, Tier.STRONG, system=ask.system, seed=waterfall.SEED, invalid_share=0.0)
        return {"text": text, "cache": cache, "tier": "strong"}

    def judge(self, second: waterfall.Ask, said: dict[str, Any]) -> tuple[int, int, int]:
        """Hits, wrong ones and crossed ones of a first answer and a second one."""
        result = waterfall.judge([self.ask, second], [self.said(self.ask, "miss"), said])
        return result["hits"], result["wrong_hits"], result["crossed_tenants"]

    def test_a_true_hit(self) -> None:
        """The same question of the same tenant."""
        self.assertEqual(self.judge(self.ask, self.said(self.ask, "hit")), (1, 0, 0))

    def test_the_answer_to_a_near_duplicate_is_wrong(self) -> None:
        """Also when that question was asked before."""
        other = waterfall.Ask("acme", waterfall.SYSTEMS[0], self.twin, 0.0)
        self.assertEqual(self.judge(self.ask, self.said(other, "hit")), (1, 1, 0))

    def test_the_answer_under_another_system_prompt_is_wrong(self) -> None:
        """What was asked includes it."""
        other = waterfall.Ask("acme", waterfall.SYSTEMS[1], self.first, 0.0)
        self.assertEqual(self.judge(other, self.said(self.ask, "hit")), (1, 1, 1))

    def test_a_hit_before_the_tenant_asked_has_crossed(self) -> None:
        """Even if the answer is right."""
        other = waterfall.Ask("globex", waterfall.SYSTEMS[0], self.first, 0.0)
        self.assertEqual(self.judge(other, self.said(other, "hit")), (1, 0, 1))
