"""What the rule router loses in right answers, and saves in money, against always asking the strong model.

Real requests through the gateway to models of known strength. Once as the router decides, with wrong answers that look
like answers; and once where half of the wrong ones can be recognised, so that validators send them up a tier.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from evals.experiment import Artifact, Options
from evals.items import INVALID_SHARE, Item, is_right, make
from evals.models import config, models
from evals.stats import paired_interval, points_lost
from evals.world import World
from gateway.clock import FakeClock

NAME = "router"
ITEMS = 150
SEED = 20260103


def run(options: Options) -> Artifact:
    """All three ways over the same items; a quick run is the whole run."""
    del options
    items = make(ITEMS, SEED)
    return {
        "n": ITEMS,
        "seed": SEED,
        "difficulties": dict(sorted(Counter(str(item.difficulty) for item in items).items())),
        "always_strong": _ask_all(items, "strong", invalid_share=0.0),
        "rules": _ask_all(items, "auto", invalid_share=0.0),
        "rules_and_validators": _ask_all(items, "auto", invalid_share=INVALID_SHARE),
    }


def _ask_all(items: Sequence[Item], model: str, *, invalid_share: float) -> dict[str, Any]:
    providers = models(items, seed=SEED, invalid_share=invalid_share)
    with World(config(cache_ttl_s=0), providers=providers, clock=FakeClock(), seed=SEED) as world:
        raw_key = world.key()
        answers = [world.gateway.handle(raw_key, item.body(model)) for item in items]
        return {
            "right": [is_right(item, said["text"]) for item, said in zip(items, answers, strict=True)],
            "cost_nanousd": world.spent_nanousd(),
            "tiers": dict(sorted(Counter(said["tier"] for said in answers).items())),
            "escalated": sum(said["exit"] == "escalated" for said in answers),
        }


WAYS = {"rules": "router.loss", "rules_and_validators": "router.escalated_loss"}
"""The gate of each way."""


def measured(artifact: Artifact) -> dict[str, float | None]:
    """What the gates look at."""
    strong = artifact["always_strong"]["right"]
    return {gate: round(points_lost(strong, artifact[way]["right"]), 2) for way, gate in WAYS.items()}


def lines(artifact: Artifact) -> list[str]:
    """A Markdown table of the three ways."""
    strong = artifact["always_strong"]
    rows = [
        "| answered by | right | points lost (95 %) | cost, USD | saved | asked twice |",
        "|---|---|---|---|---|---|",
    ]
    for way in ("always_strong", *WAYS):
        one = artifact[way]
        low, high = paired_interval(strong["right"], one["right"], seed=artifact["seed"])
        lost = points_lost(strong["right"], one["right"])
        cost_usd, saved = one["cost_nanousd"] / 1e9, 100 * (1 - one["cost_nanousd"] / strong["cost_nanousd"])
        rows.append(
            f"| {way.replace('_', ' ')} | {sum(one['right'])} of {artifact['n']} "
            f"| {lost:.1f} ({low:.1f} to {high:.1f}) | {cost_usd:.6f} | {saved:.1f} % | {one['escalated']} |"
        )
    return rows
