"""What routing and then the exact cache save, request by request of one workload, and whether a hit is ever wrong.

A thousand requests over 42 questions, by Zipf's law, of two tenants and under two system prompts, near-duplicates in
the mix. A hit is wrong if it is not what the same model says to the same question under the same system prompt; it has
crossed tenants if this tenant had not asked before.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.experiment import Artifact, Options
from evals.items import Item, answer, is_right, make, near_duplicates
from evals.models import PRICES, bill_nanousd, config, models
from evals.stats import most_failures
from evals.world import World
from gateway.clock import FakeClock
from gateway.types import Tier

NAME = "waterfall"
REQUESTS = 1_000
QUESTIONS = 32
TWINS = 10
SEED = 20260104
EVERY_S = 3.0
"""No entry of an hour expires meanwhile: when one does is left to chance, and this must come out the same each time."""
TENANTS = ("acme", "globex")
SYSTEMS = ("You are terse.", "You are thorough.")
EXACT_SHARE = 0.9
"""Of the requests that set temperature 0."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of the workload."""

    tenant: str
    system: str
    item: Item
    temperature: float

    @property
    def question(self) -> tuple[str, str, int]:
        """What must be the same for a remembered answer to be given."""
        return (self.tenant, self.system, self.item.number)


def workload(items: Sequence[Item], count: int, seed: int) -> list[Ask]:
    """`count` requests; the question of rank r is asked with weight 1 / r."""
    chance = random.Random(seed)
    ranked = chance.sample(items, len(items))
    weights = [1 / rank for rank in range(1, len(ranked) + 1)]
    return [
        Ask(
            tenant=chance.choice(TENANTS),
            system=chance.choice(SYSTEMS),
            item=item,
            temperature=0.0 if chance.random() < EXACT_SHARE else 0.7,
        )
        for item in chance.choices(ranked, weights, k=count)
    ]


def questions() -> list[Item]:
    """The questions, and the near-duplicates of some."""
    items = make(QUESTIONS, SEED)
    return [*items, *near_duplicates(items, TWINS, SEED)]


def run(options: Options) -> Artifact:
    """The same workload in three ways; a quick run plays the first fifth of it."""
    items = questions()
    asks = workload(items, REQUESTS, SEED)[: REQUESTS // 5 if options.quick else REQUESTS]
    return {
        "n": len(asks),
        "seed": SEED,
        "questions": len(items),
        "prices_usd_per_million": {tier: dict(price) for tier, price in PRICES.items()},
        "always_strong": _play(items, asks, "strong", cache_ttl_s=0),
        "routed": _play(items, asks, "auto", cache_ttl_s=0),
        "routed_and_cached": _play(items, asks, "auto", cache_ttl_s=3600),
    }


def _play(items: Sequence[Item], asks: Sequence[Ask], model: str, *, cache_ttl_s: float) -> dict[str, Any]:
    clock = FakeClock()
    providers = models(items, seed=SEED, invalid_share=0.0)
    with World(config(cache_ttl_s=cache_ttl_s), providers=providers, clock=clock, seed=SEED) as world:
        keys = {tenant: world.key(tenant=tenant) for tenant in TENANTS}
        answers = []
        for ask in asks:
            body = ask.item.body(model, system=ask.system, temperature=ask.temperature)
            answers.append(world.gateway.handle(keys[ask.tenant], body))
            clock.advance(EVERY_S)
        return {
            **judge(asks, answers),
            "cost_nanousd": world.spent_nanousd(),
            "tokens": tokens(world.rows()),
        }


def judge(asks: Sequence[Ask], answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the clients got: right answers, hits, and hits that are none."""
    hits = wrong = crossed = right = 0
    asked: set[tuple[str, str, int]] = set()
    for ask, said in zip(asks, answers, strict=True):
        right += is_right(ask.item, said["text"], ask.system)
        if said["cache"] == "hit":
            hits += 1
            fresh = answer(ask.item, Tier(said["tier"]), system=ask.system, seed=SEED, invalid_share=0.0)
            wrong += said["text"] != fresh
            crossed += ask.question not in asked
        asked.add(ask.question)
    return {"right": right, "hits": hits, "wrong_hits": wrong, "crossed_tenants": crossed}


def tokens(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Tokens that were paid for, by deployment."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        if row["attempts"]:
            of = counts.setdefault(str(row["deployment"]), Counter())
            of.update(prompt=row["prompt_tokens"], completion=row["completion_tokens"], calls=row["attempts"])
    return {deployment: dict(of) for deployment, of in sorted(counts.items())}


STEPS = {"always_strong": "always strong", "routed": "+ routing", "routed_and_cached": "+ exact cache"}


def cost_nanousd(artifact: Artifact, step: str) -> int:
    """What a step cost by its tokens and the price book."""
    return bill_nanousd(artifact[step]["tokens"], artifact["prices_usd_per_million"])


def saved_percent(artifact: Artifact, step: str) -> float:
    """What a step saves of the cost of always asking the strong model."""
    return 100 * (1 - cost_nanousd(artifact, step) / cost_nanousd(artifact, "always_strong"))


def measured(artifact: Artifact) -> dict[str, float | None]:
    """What the gates look at."""
    cached = artifact["routed_and_cached"]
    return {
        "waterfall.wrong_hits": cached["wrong_hits"],
        "waterfall.crossed_tenants": cached["crossed_tenants"],
        "waterfall.unexplained": sum(
            abs(artifact[step]["cost_nanousd"] - cost_nanousd(artifact, step)) for step in STEPS
        ),
        "waterfall.saved": round(saved_percent(artifact, "routed_and_cached"), 1),
    }


def lines(artifact: Artifact) -> list[str]:
    """A Markdown table of the steps."""
    rows = ["| step | cost, USD | saved | hits | right answers |", "|---|---|---|---|---|"]
    for step, name in STEPS.items():
        one = artifact[step]
        rows.append(
            f"| {name} | {cost_nanousd(artifact, step) / 1e9:.6f} | {saved_percent(artifact, step):.1f} % "
            f"| {100 * one['hits'] / artifact['n']:.1f} % | {100 * one['right'] / artifact['n']:.1f} % |"
        )
    cached = artifact["routed_and_cached"]
    most = 100 * most_failures(cached["wrong_hits"], cached["hits"])
    rows += [
        "",
        f"{cached['wrong_hits']} of {cached['hits']} hits were wrong: with 95 % confidence, fewer than {most:.2f} %.",
    ]
    return rows
