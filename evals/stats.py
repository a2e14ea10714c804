"""The few statistics that the evals use. Pure; chance is handed in as a seed."""

import math
import random
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed. Raises ValueError for none."""
    if not values:
        raise ValueError("there is no percentile of nothing")
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def latency(took_s: Sequence[float]) -> dict[str, float] | None:
    """How many there are, and percentiles in milliseconds; None of nothing."""
    if not took_s:
        return None
    told: dict[str, float] = {"n": len(took_s)}
    for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)):
        told[name] = round(percentile(took_s, share) * 1000, 2)
    return told


def most_failures(failures: int, trials: int, confidence: float = 0.95) -> float:
    """The one-sided Clopper-Pearson bound: the largest failure rate under which so few failures are not too rare.

    1.0 if nothing was tried.
    """
    if failures >= trials:
        return 1.0
    low, high = failures / trials, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(failures, trials, middle) > 1 - confidence else (low, middle)
    return high


def _at_most(failures: int, trials: int, rate: float) -> float:
    """The chance of at most `failures` in `trials`."""
    return sum(math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(failures + 1))


def paired_interval(
    better: Sequence[bool], other: Sequence[bool], *, seed: int, resamples: int = 2_000
) -> tuple[float, float]:
    """The 95 % bootstrap interval, in points, of how much `other` falls short of `better` on the same items."""
    chance, size = random.Random(seed), len(better)
    differences = [left - right for left, right in zip(better, other, strict=True)]
    losses = [100 * sum(chance.choices(differences, k=size)) / size for _ in range(resamples)]
    return percentile(losses, 0.025), percentile(losses, 0.975)


def points_lost(better: Sequence[bool], other: Sequence[bool]) -> float:
    """How much `other` falls short of `better`, in points of a hundred."""
    return 100 * (sum(better) - sum(other)) / len(better)
