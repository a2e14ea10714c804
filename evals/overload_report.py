"""What an overload came to, held against the bounds that were written down before, and shown. Reads nothing but those.

A request is counted in the second in which it was due, its answer in the second in which it came; seconds are those of
the run, so a phase is a slice of them.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evals.gates import PREREGISTRATION, Gate, gates_of
from evals.soak_report import latency

TITLE, TABLE = "An overload", "overload gate"
COMMAND = "python -m evals.overload"
PICTURES: Mapping[str, str] = {}
IN_FLIGHT, LATENCY_S = 32, 0.1
CAPACITY_PER_S = IN_FLIGHT / LATENCY_S
CALM_SHARE, CALM_S = 0.5, 15

Figures = Mapping[str, Any]
"""What lies in overload.json."""


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


def measured(figures: Figures) -> dict[str, float | None]:
    """What the gates look at."""
    before, overload, _ = figures["phases"]
    books, health = figures["books"], figures["health"]
    refused, second, calm = overload["refused_ms"], figures["second_second_ms"], before["served_ms"]
    return {
        "overload.goodput": round(100 * overload["given_per_s"] / CAPACITY_PER_S, 1),
        "overload.refused_p99": refused and round(refused["p99"] / 1000, 3),
        "overload.dishonest": sum(figures["dishonest"].values()),
        "overload.health": round(max(health["took_s"]), 3) if health["took_s"] else None,
        "overload.health_failures": health["failures"],
        "overload.recovered_errors": figures["first_second_errors"],
        "overload.recovered_p50": round(second["p50"] / calm["p50"], 2) if second and calm else None,
        "overload.at_once": figures["most_at_once"],
        "overload.open_holds": books["open_holds"] + books["verify"]["open_holds"],
        "overload.misbooked": books["misbooked"],
        "overload.unmetered": books["unmetered"],
        "overload.unpaired": books["unpaired"],
        "overload.differences": len(books["verify"]["differences"]),
        "overload.client_late": figures["client_late_ms"] and figures["client_late_ms"]["p99"],
    }


def gates(figures: Figures) -> list[Gate]:
    """Every bound of an overload with what was measured."""
    return gates_of(PREREGISTRATION.read_text(encoding="utf-8"), TABLE, measured(figures))


def summary(figures: Figures) -> Iterator[str]:
    """In brief, as lines of Markdown."""
    yield (
        f"{figures['n']} requests on a timetable, {figures['settings']['times']:g} times the capacity of "
        f"{CAPACITY_PER_S:g} a second for {figures['settings']['seconds']:g} s:"
    )
    yield from ("", "| phase | offered per s | served per s | served: p50, ms | p99 | refused: p50, ms | p99 |")
    yield "|---|---|---|---|---|---|---|"
    for phase in figures["phases"]:
        waits = [
            "-" if took is None else f"{took[share]:.0f}"
            for took in (phase["served_ms"], phase["refused_ms"])
            for share in ("p50", "p99")
        ]
        yield f"| {phase['name']} | {phase['offered_per_s']:g} | {phase['given_per_s']:g} | {' | '.join(waits)} |"


def lines(figures: Figures) -> Iterator[str]:
    """For people, as lines of Markdown."""
    yield from summary(figures)
    most = figures["most"]
    yield from (
        "",
        f"At the most the gateway had {most['threads']} threads, {most['fds']} open files and "
        f"{most['rss'] / (1 << 20):.0f} MiB.",
    )
