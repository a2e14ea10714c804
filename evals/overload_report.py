"""What an overload came to, held against the bounds that were written down before, and shown.

Reads PREREGISTRATION.md, once for each judgement; all else is pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from evals.gates import Gate, preregistered
from evals.overload_plan import CAPACITY_PER_S

TITLE, TABLE = "An overload", "overload gate"
COMMAND = "python -m evals.overload"
PICTURES: Mapping[str, str] = {}

Figures = Mapping[str, Any]
"""What lies in overload.json."""


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
    return preregistered(TABLE, measured(figures))


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
