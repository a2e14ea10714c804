"""What an overload asks for and when: a calm, many times the capacity, a calm again. Pure: a seed in."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

IN_FLIGHT, LATENCY_S = 32, 0.1
CAPACITY_PER_S = IN_FLIGHT / LATENCY_S
CALM_SHARE, CALM_S = 0.5, 15


@dataclass(frozen=True, slots=True)
class Phase:
    """From one second of the run to another, and the requests per second in it."""

    name: str
    start_s: float
    end_s: float
    rate_per_s: float

    def holds(self, at_s: float) -> bool:
        """Whether this moment is in it."""
        return self.start_s <= at_s < self.end_s


def phases(seconds: float, times: float) -> tuple[Phase, Phase, Phase]:
    """Before, during and after `seconds` of `times` the capacity."""
    calm = CALM_SHARE * CAPACITY_PER_S
    over_s, after_s = CALM_S, CALM_S + seconds
    return (
        Phase("before", 0, over_s, calm),
        Phase("overload", over_s, after_s, times * CAPACITY_PER_S),
        Phase("after", after_s, after_s + CALM_S, calm),
    )


def moments(plan: Sequence[Phase], seed: int) -> Iterator[float]:
    """When requests are due, in seconds from the start."""
    chance = random.Random(f"overload {seed}")
    for phase in plan:
        at_s = phase.start_s + chance.expovariate(phase.rate_per_s)
        while at_s < phase.end_s:
            yield at_s
            at_s += chance.expovariate(phase.rate_per_s)
