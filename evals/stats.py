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


def exact_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """The two-sided Clopper-Pearson interval of a rate; (0.0, 1.0) if nothing was tried."""
    one_sided = (1 + confidence) / 2
    return (
        1 - most_failures(trials - successes, trials, one_sided),
        most_failures(successes, trials, one_sided),
    )


def _at_most(failures: int, trials: int, rate: float) -> float:
    """The chance of at most `failures` in `trials`, where `rate` is above failures / trials and below 1.

    Each term is smaller than the one above it, so the sum begins at the largest and ends where nothing is added.
    """
    ways = math.lgamma(trials + 1) - math.lgamma(failures + 1) - math.lgamma(trials - failures + 1)
    term = math.exp(ways + failures * math.log(rate) + (trials - failures) * math.log1p(-rate))
    total = 0.0
    for count in range(failures, -1, -1):
        if total + term == total:
            break
        total += term
        term *= count / (trials - count + 1) * (1 - rate) / rate
    return total


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
