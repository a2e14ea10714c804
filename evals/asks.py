"""The two workloads of the waterfall: who asks which question when, under which system prompt. Pure: a seed in.

One is of synthetic questions that are asked in the same words each time, near-duplicates in the mix; the other of the
committed pairs, where a question has several wordings and lies among its near-misses. Questions come in families: the
family of rank r is asked with weight 1 / r, each of its texts as often as the others.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from evals.items import Item, make, near_duplicates
from evals.semantic_sets import Pair
from evals.wordings import families

SEED = 20260104
QUESTIONS = 32
TWINS = 10
TENANTS = ("acme", "globex")
SYSTEMS = ("You are terse.", "You are thorough.")
EXACT_SHARE = 0.9
"""Of the requests that set temperature 0."""

Family = Sequence[Item]
"""Texts that lie near each other; those with one number ask one question."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a workload; `family` is the place of the item's."""

    tenant: str
    system: str
    item: Item
    temperature: float
    family: int = 0

    @property
    def may_be_kept(self) -> bool:
        """Whether its answer may be given again."""
        return self.temperature == 0 and not self.item.tools


@dataclass(frozen=True, slots=True)
class Chances:
    """What a workload offers to a cache that takes each text for what it asks.

    answerable  requests whose question the tenant has an answer to, under the same system prompt and in any words
    tempting    those that have none, while another question of the family has one: only a wrong one could be given
    """

    answerable: int
    tempting: int


def workload(every: Sequence[Family], count: int, seed: int) -> list[Ask]:
    """`count` requests for texts of these families."""
    chance, wording = random.Random(seed), random.Random(f"{seed} wording")
    ranked = chance.sample(range(len(every)), len(every))
    weights = [1 / rank for rank in range(1, len(ranked) + 1)]
    return [
        Ask(
            tenant=chance.choice(TENANTS),
            system=chance.choice(SYSTEMS),
            item=wording.choice(every[family]),
            temperature=0.0 if chance.random() < EXACT_SHARE else 0.7,
            family=family,
        )
        for family in chance.choices(ranked, weights, k=count)
    ]


def synthetic() -> list[Family]:
    """The questions, and the near-duplicates of some; each by itself."""
    items = make(QUESTIONS, SEED)
    return [[item] for item in [*items, *near_duplicates(items, TWINS, SEED)]]


def in_other_words(pairs: Sequence[Pair]) -> list[Family]:
    """The families of these pairs in which a question has several wordings. Raises Contradiction.

    All texts of a family have the same hidden difficulty, form, tools and tag, so that nothing but its text keeps a
    near-miss apart.
    """
    found = [family for family in families(pairs) if len({wording.question for wording in family}) < len(family)]
    signs = make(len(found), SEED)
    return [
        [replace(sign, number=wording.question, text=wording.text) for wording in family]
        for sign, family in zip(signs, found, strict=True)
    ]


def chances(asks: Iterable[Ask]) -> Chances:
    """What these requests offer, in this order."""
    answered: dict[tuple[str, str, int], set[int]] = {}
    answerable = tempting = 0
    for ask in asks:
        if ask.may_be_kept:
            near = answered.setdefault((ask.tenant, ask.system, ask.family), set())
            answerable += ask.item.number in near
            tempting += bool(near) and ask.item.number not in near
            near.add(ask.item.number)
    return Chances(answerable, tempting)
