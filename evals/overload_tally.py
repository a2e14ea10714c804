"""What became of an overload's requests. Filled while it runs, by the loop's thread.

A request is counted in the second in which it was due, its answer in the second in which it came; seconds are those of
the run, so a phase is a slice of them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evals.overload_plan import Phase
from evals.stats import latency


@dataclass(slots=True)
class Tally:
    """What became of the requests, by phase in which they were due. Seconds of the run.

    served, refused  how long each took; `given` counts whole right answers by the phase in which they came
    errors           in the second after the overload: what was not served; `first` and `second` are how long those took
                     that were due in the first second after it and in the one after that
    """

    plan: Sequence[Phase]
    served: dict[str, list[float]] = field(default_factory=dict)
    refused: dict[str, list[float]] = field(default_factory=dict)
    given: Counter[str] = field(default_factory=Counter)
    dishonest: Counter[str] = field(default_factory=Counter)
    late_s: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    first_errors: int = 0

    def add(self, due_s: float, took_s: float, outcome: str) -> None:
        """One more; `outcome` is "served", "refused", or what it was instead."""
        name = _phase(self.plan, due_s)
        if outcome == "served":
            self.served.setdefault(name, []).append(took_s)
            self.given[_phase(self.plan, due_s + took_s)] += 1
        elif outcome == "refused":
            self.refused.setdefault(name, []).append(took_s)
        else:
            self.dishonest[outcome] += 1
        since_s = due_s - self.plan[-1].start_s
        if 0 <= since_s < 1:
            self.first.append(took_s)
            self.first_errors += outcome != "served"
        elif 1 <= since_s < 2:
            self.second.append(took_s)


def _phase(plan: Sequence[Phase], at_s: float) -> str:
    return next((phase.name for phase in plan if phase.holds(at_s)), "later")


def told(tally: Tally) -> dict[str, Any]:
    """The tally for the artifact."""
    return {
        "phases": [
            {
                "name": phase.name,
                "seconds": phase.end_s - phase.start_s,
                "offered_per_s": phase.rate_per_s,
                "given_per_s": round(tally.given[phase.name] / (phase.end_s - phase.start_s), 1),
                "served_ms": latency(tally.served.get(phase.name, [])),
                "refused_ms": latency(tally.refused.get(phase.name, [])),
            }
            for phase in tally.plan
        ],
        "dishonest": dict(tally.dishonest),
        "client_late_ms": latency(tally.late_s),
        "first_second_ms": latency(tally.first),
        "first_second_errors": tally.first_errors,
        "second_second_ms": latency(tally.second),
    }
