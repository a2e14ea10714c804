"""The synthetic questions and requests are what the preregistration says, and their judges see what is wrong."""

import unittest
from collections import Counter
from dataclasses import replace
from typing import Any

from evals import asks, semantic_corpus, waterfall
from evals.gates import PREREGISTRATION
from evals.items import MASTERS, SIGNS, Difficulty, Form, answer, is_right, make, near_duplicates
from evals.semantic_sets import Pair
from gateway.types import Tier
from gateway.validators import refusal

SEED = 7
PAIRS = [
    Pair("1", "a?", "b", True, "light", ""),
    Pair("2", "b", "c", False, "number", ""),
    Pair("3", "x", "y", True, "light", ""),
    Pair("4", "lonely", "other", False, "number", ""),
]

Said = dict[str, Any]
"""What Gateway.handle() returns."""


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
        families = asks.synthetic()
        asked = Counter(ask.item.number for ask in asks.workload(families, 50_000, SEED))
        harmonic = sum(1 / rank for rank in range(1, len(families) + 1))
        for rank, (_, count) in enumerate(asked.most_common(5), 1):
            self.assertAlmostEqual(count / 50_000, 1 / (rank * harmonic), delta=0.01)
        self.assertEqual(len(asked), 42)

    def test_tenants_prompts_and_twins_are_in_the_mix(self) -> None:
        """Every combination is asked in the workload that is played."""
        asked = asks.workload(asks.synthetic(), waterfall.WORKLOADS["synthetic"].count, asks.SEED)
        self.assertEqual(len({(ask.tenant, ask.system) for ask in asked}), 4)
        self.assertTrue(any(ask.item.number >= asks.QUESTIONS for ask in asked))
        self.assertEqual({ask.temperature for ask in asked}, {0.0, 0.7})

    def test_texts_of_a_family_are_asked_equally_often(self) -> None:
        """And under the number of their family."""
        families = asks.in_other_words(PAIRS)
        asked = asks.workload(families, 30_000, SEED)
        counts = Counter(ask.item.text for ask in asked if ask.family == 0)
        self.assertEqual(set(counts), {item.text for item in families[0]})
        for count in counts.values():
            self.assertAlmostEqual(count / counts.total(), 1 / 3, delta=0.02)

    def test_a_family_differs_in_its_texts_alone(self) -> None:
        """A question in other words has one number; one that is always asked in the same words is not asked."""
        families = asks.in_other_words(PAIRS)
        numbers = [{item.text: item.number for item in family} for family in families]
        self.assertEqual([set(texts) for texts in numbers], [{"a?", "b", "c"}, {"x", "y"}])
        self.assertEqual(numbers[0]["a?"], numbers[0]["b"])
        self.assertEqual(len(set(numbers[0].values()) | set(numbers[1].values())), 3)
        for family in families:
            self.assertEqual(len({(item.difficulty, item.form, item.tools, item.tag) for item in family}), 1)

    def test_what_was_written_down_of_the_committed_pairs_is_so(self) -> None:
        """Families, texts, questions, and what they offer to a cache."""
        written = semantic_corpus.sets(semantic_corpus.WRITTEN)
        families = asks.in_other_words([pair for pairs in written.values() for pair in pairs])
        asked = asks.workload(families, waterfall.WORKLOADS["in_other_words"].count, asks.SEED)
        self.assertEqual((len(families), sum(map(len, families))), (225, 982))
        self.assertEqual(len({item.number for family in families for item in family}), 505)
        self.assertEqual(sum(len({item.number for item in family}) > 1 for family in families), 159)
        self.assertEqual(asks.chances(asked), asks.Chances(answerable=5_915, tempting=405))

    def test_chances_are_those_of_a_cache_that_never_errs(self) -> None:
        """Within a tenant and a system prompt, of what may be kept at all."""
        (first, same, other), (apart, _) = asks.in_other_words(PAIRS)
        plain = [replace(item, tools=False) for item in (first, same, other)]
        exact = [asks.Ask("acme", "s", item, 0.0) for item in plain]
        for asked, answerable, tempting in (
            ([exact[0], exact[1], exact[1]], 2, 0),
            ([exact[0], exact[2], exact[2]], 1, 1),
            ([exact[0], replace(exact[1], tenant="globex")], 0, 0),
            ([exact[0], replace(exact[2], system="t")], 0, 0),
            ([exact[0], replace(exact[1], temperature=0.7)], 0, 0),
            ([replace(exact[0], temperature=0.7), exact[1]], 0, 0),
            ([exact[0], replace(exact[1], item=replace(same, tools=True))], 0, 0),
            ([exact[0], asks.Ask("acme", "s", replace(apart, tools=False), 0.0, family=1)], 0, 0),
        ):
            with self.subTest(asked):
                self.assertEqual(asks.chances(asked), asks.Chances(answerable, tempting))


class JudgeTest(unittest.TestCase):
    """Wrong answers are seen, whoever gave them."""

    def setUp(self) -> None:
        self.first, self.twin = (asks.synthetic()[place][0] for place in (0, asks.QUESTIONS))
        self.ask = asks.Ask("acme", asks.SYSTEMS[0], self.first, 0.0)
        self.other = asks.Ask("acme", asks.SYSTEMS[0], self.twin, 0.0)

    def said(self, ask: asks.Ask, cache: str = "miss", *, ended: str = "routed", tier: Tier = Tier.STRONG) -> Said:
        """What a model says to `ask`, and where it came from."""
        text = answer(ask.item, tier, system=ask.system, seed=asks.SEED, invalid_share=0.0)
        return {"text": text, "cache": cache, "tier": str(tier), "exit": ended}

    def judge(self, *answered: tuple[asks.Ask, Said], cache: str = "hit") -> tuple[int, int, int]:
        """Hits, wrong ones and crossed ones."""
        told = waterfall.judge([ask for ask, _ in answered], [said for _, said in answered])[cache]
        return told["count"], told["wrong"], told["crossed_tenants"]

    def test_a_true_hit(self) -> None:
        """The same question of the same tenant; each cache has its own."""
        first = self.ask, self.said(self.ask)
        self.assertEqual(self.judge(first, (self.ask, self.said(self.ask, "hit"))), (1, 0, 0))
        self.assertEqual(self.judge(first, (self.ask, self.said(self.ask, "semantic"))), (0, 0, 0))
        again = self.ask, self.said(self.ask, "semantic")
        self.assertEqual(self.judge(first, again, again, cache="semantic"), (2, 0, 0))

    def test_the_answer_to_a_near_duplicate_is_wrong(self) -> None:
        """And of that tenant, if it was asked before; the hit is named."""
        first, near = (self.ask, self.said(self.ask)), (self.other, self.said(self.other))
        for cache in ("hit", "semantic"):
            wrong = self.ask, self.said(self.other, cache)
            self.assertEqual(self.judge(first, near, wrong, cache=cache), (1, 1, 0))
            self.assertEqual(self.judge(first, wrong, cache=cache), (1, 1, 1))
            told = waterfall.judge([self.other, self.ask], [near[1], wrong[1]])
            self.assertEqual(told["wrong_hits"], [[self.first.text, self.twin.text]])

    def test_the_answer_under_another_system_prompt_is_wrong(self) -> None:
        """What was asked includes it."""
        other = asks.Ask("acme", asks.SYSTEMS[1], self.first, 0.0)
        first = self.ask, self.said(self.ask)
        self.assertEqual(self.judge(first, (other, self.said(self.ask, "hit"))), (1, 1, 0))

    def test_a_hit_before_the_tenant_asked_has_crossed(self) -> None:
        """Even if the answer is right."""
        other = asks.Ask("globex", asks.SYSTEMS[0], self.first, 0.0)
        first = self.ask, self.said(self.ask)
        self.assertEqual(self.judge(first, (other, self.said(other, "hit"))), (1, 0, 1))

    def test_a_repeated_hit_is_one_of_the_different_ones(self) -> None:
        """Also under another system prompt; one that is wrong once is wrong."""
        wrong = self.ask, self.said(self.other, "semantic")
        elsewhere = asks.Ask("acme", asks.SYSTEMS[1], self.first, 0.0)
        right = [(self.ask, self.said(self.ask, "semantic")), (elsewhere, self.said(elsewhere, "semantic"))]
        begun = [(one, self.said(one)) for one in (self.ask, elsewhere, self.other)]
        told = self.told(*begun, *right, *right, wrong, wrong)["semantic"]
        self.assertEqual((told["count"], told["wrong"]), (6, 2))
        self.assertEqual((told["different"], told["different_wrong"]), (2, 1))
        crossed = elsewhere, self.said(self.ask, "semantic")
        told = self.told(*begun, crossed, *right)["semantic"]
        self.assertEqual((told["different"], told["different_wrong"]), (1, 1))

    def test_what_a_model_gets_wrong_is_counted_apart(self) -> None:
        """Of all answers, and of those that were asked again; a cache that repeats it is not wrong."""
        hard = asks.Ask("acme", asks.SYSTEMS[0], replace(self.first, difficulty=Difficulty.HARD), 0.0)
        told = self.told(
            (hard, self.said(hard, tier=Tier.CHEAP)),
            (hard, self.said(hard, "hit", ended="cache_hit", tier=Tier.CHEAP)),
            (hard, self.said(hard, ended="escalated", tier=Tier.STANDARD)),
            (hard, self.said(hard, ended="escalated", tier=Tier.STRONG)),
        )
        self.assertEqual((told["answers"]["count"], told["answers"]["wrong"]), (4, 3))
        self.assertEqual((told["asked_again"]["count"], told["asked_again"]["wrong"]), (2, 1))
        self.assertEqual((told["hit"]["count"], told["hit"]["wrong"], told["wrong_hits"]), (1, 0, []))

    def told(self, *answered: tuple[asks.Ask, Said]) -> dict[str, Any]:
        """All of it."""
        return waterfall.judge([ask for ask, _ in answered], [said for _, said in answered])
