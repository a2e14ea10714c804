"""Whether waits are spread evenly, as a check that raises AssertionError, and backoffs that must fail it."""

import math
import random
from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.retry import backoff_s

SAMPLES = 4000
_CRITICAL = 1.95
"""Times 1/sqrt(n): a uniform sample strays further from its line once in a thousand seeds (Kolmogorov)."""


class Backoff(Protocol):
    """The wait before a retry."""

    def __call__(self, retry: int, *, base_s: float, cap_s: float, draw: Callable[[], float]) -> float: ...


def check_full_jitter(backoff: Backoff, retry: int, most_s: float, seed: int) -> None:
    """Waits at base 0.25 s and cap 8 s are uniform between 0 and `most_s`."""
    draw = random.Random(seed).random
    waits = [backoff(retry, base_s=0.25, cap_s=8.0, draw=draw) / most_s for _ in range(SAMPLES)]
    strays = distance_from_uniform(waits)
    if strays > _CRITICAL / math.sqrt(SAMPLES):
        raise AssertionError(f"waits of retry {retry} stray by {strays:.3f} from uniform in [0, {most_s}), seed {seed}")


def distance_from_uniform(samples: Sequence[float]) -> float:
    """The Kolmogorov-Smirnov statistic against uniform in [0, 1): 0 is a perfect fit, 1 none at all."""
    count = len(samples)
    return max(
        max((rank + 1) / count - min(max(sample, 0.0), 1.0), min(max(sample, 0.0), 1.0) - rank / count)
        for rank, sample in enumerate(sorted(samples))
    )


# --- broken twins -------------------------------------------------------------------------------------------------


def no_jitter(retry: int, *, base_s: float, cap_s: float, draw: Callable[[], float]) -> float:
    """Everybody comes back at the same instant."""
    return min(cap_s, base_s * 2.0**retry)


def equal_jitter(retry: int, *, base_s: float, cap_s: float, draw: Callable[[], float]) -> float:
    """Half of the wait is fixed, so half of the time nobody comes."""
    return (min(cap_s, base_s * 2.0**retry) + backoff_s(retry, base_s=base_s, cap_s=cap_s, draw=draw)) / 2


def capped_after_the_draw(retry: int, *, base_s: float, cap_s: float, draw: Callable[[], float]) -> float:
    """Whoever draws beyond the cap comes back exactly at it, together with all others who did."""
    return min(cap_s, draw() * base_s * 2.0**retry)
