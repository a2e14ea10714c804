"""What a soak came to, held against the bounds that were written down before, and shown.

Reads PREREGISTRATION.md, once for each judgement; all else is pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evals.gates import Gate, preregistered
from evals.soak_plan import BURST, LIMITED_PER_S, Kind, Trouble, Verdict
from evals.stats import latency, percentile

TITLE, TABLE = "A soak", "soak gate"
COMMAND = "python -m evals.soak"
PICTURES: Mapping[str, str] = {"evals/results/soak.png": "memory, threads, files and waits over time"}
FROM_REQUEST, TO_REQUEST, AROUND = 50_000, 200_000, 5_000
MIB = 1 << 20
MORE_THREADS = MORE_FDS = 16
THIRDS = 9
"""So many samples are needed to compare the first third with the last."""

Figures = Mapping[str, Any]
"""What lies in soak.json."""


def is_quiet(first: Figures, now: Figures) -> bool:
    """Whether a process without clients holds no more than it held at first."""
    return bool(now["threads"] - first["threads"] <= MORE_THREADS and now["fds"] - first["fds"] <= MORE_FDS)


def latencies(took_s: Mapping[Kind, Sequence[float]]) -> dict[str, dict[str, float]]:
    """By kind, and of all together."""
    every = {"every kind": [value for values in took_s.values() for value in values]}
    every |= {str(kind): list(took_s[kind]) for kind in Kind if kind in took_s}
    return {kind: told for kind, values in every.items() if (told := latency(values)) is not None}


def counted(names: Iterable[str]) -> dict[str, int]:
    """How often each came."""
    return dict(sorted(Counter(str(name) for name in names).items()))


def columns(samples: Sequence[Figures]) -> dict[str, list[Any]]:
    """One list for each field."""
    return {name: [sample[name] for sample in samples] for name in samples[0]}


def rss_growth_mib(samples: Mapping[str, Sequence[Any]]) -> float | None:
    """Between the medians around two requests; None if there were not so many."""
    around = [
        [rss for rss, at in zip(samples["rss"], samples["requests"], strict=True) if abs(at - request) <= AROUND]
        for request in (FROM_REQUEST, TO_REQUEST)
    ]
    if not all(around):
        return None
    before, after = (percentile(values, 0.5) for values in around)
    return round((after - before) / MIB, 2)


def wal_growth_mib(wal: Sequence[int]) -> float | None:
    """The largest in the last third of the samples against the largest in the first; None if there are too few."""
    if len(wal) < THIRDS:
        return None
    third = len(wal) // 3
    return round(max(max(wal[-third:]) - max(wal[:third]), 0) / MIB, 2)


def measured(figures: Figures) -> dict[str, float | None]:
    """What the gates look at."""
    books, samples, (first, last) = figures["books"], figures["samples"], figures["quiet"]
    verdicts: Counter[str] = Counter()
    for counts in figures["verdicts"].values():
        verdicts.update(counts)
    killed = figures["settings"]["kill"]
    starts = 1 + figures["faults"].get(Trouble.KILL, 0)
    admitted = books["limited"]["admitted"] - starts * BURST - LIMITED_PER_S * books["limited"]["seconds"] - 1
    ready = [value for value in samples["ready_s"] if value is not None]
    return {
        "soak.unserved": verdicts[Verdict.UNSERVED],
        "soak.wrong_refusals": verdicts[Verdict.WRONG],
        "soak.crossed": verdicts[Verdict.CROSSED],
        "soak.unexplained_5xx": verdicts[Verdict.UNEXPLAINED_5XX],
        "soak.misbooked": books["misbooked"],
        "soak.unmetered": books["unmetered"],
        "soak.unpaired": books["unpaired"],
        "soak.misrecorded": None if killed else books["misrecorded"],
        "soak.open_holds": books["open_holds"] + books["verify"]["open_holds"],
        "soak.differences": len(books["verify"]["differences"]),
        "soak.over_limit": books["over_limit"],
        "soak.over_admitted": max(round(admitted, 1), 0),
        "soak.overstayed": figures["hostile"]["overstayed"],
        "soak.failures": len(failures) if (failures := figures.get("failures")) is not None else None,
        "soak.ready": max(ready, default=None),
        "soak.rss_growth": None if killed else rss_growth_mib(samples),
        "soak.threads": last["threads"] - first["threads"],
        "soak.fds": last["fds"] - first["fds"],
        "soak.wal": round(max(samples["wal"]) / MIB, 2),
        "soak.wal_growth": wal_growth_mib(samples["wal"]),
        "soak.drained": figures["last"]["asked"] - figures["last"]["served"],
        "soak.exit_status": figures["exit_status"],
    }


def gates(figures: Figures) -> list[Gate]:
    """Every bound of a soak with what was measured; what a short run cannot tell is not measured."""
    return preregistered(TABLE, measured(figures))


def summary(figures: Figures) -> Iterator[str]:
    """In brief, as lines of Markdown."""
    books, settings = figures["books"], figures["settings"]
    exact, estimated, unresolved = books["exact"], books["estimated"], books["unresolved"]
    yield (
        f"{figures['n']} requests in {settings['seconds']:.0f} s at {settings['rate_per_s']:g} a second, "
        f"{sum(figures['faults'].values())} faults of {len(figures['faults'])} kinds, durability "
        f"`{settings['durability']}`. The upstreams billed {books['billed'] / 1e9:.9f} USD for {books['calls']} calls; "
        f"{exact['holds']} holds are settled at exactly what was billed for them, {exact['booked'] / 1e9:.9f} USD; "
        f"{estimated['holds']} whose answer was cut or left are bounded by an estimate "
        f"({estimated['billed'] / 1e9:.9f} billed, {estimated['booked'] / 1e9:.9f} booked), and {unresolved['holds']} "
        f"whose outcome is unknown are unresolved ({unresolved['billed'] / 1e9:.9f} billed, "
        f"{unresolved['booked'] / 1e9:.9f} counted)."
    )


def lines(figures: Figures) -> Iterator[str]:
    """For people, as lines of Markdown: how long each kind of request took, from when it was due."""
    yield from summary(figures)
    yield from ("", "| ms | n | p50 | p99 | p99.9 | without a fault: p50 | p99 |", "|---|---|---|---|---|---|---|")
    every, calm = figures["latency_ms"]["all"], figures["latency_ms"]["calm"]
    for kind, took in every.items():
        quiet = [f"{calm[kind][share]:.1f}" if kind in calm else "-" for share in ("p50", "p99")]
        waits = [f"{took[share]:.1f}" for share in ("p50", "p99", "p99.9")]
        yield f"| {kind} | {took['n']} | {' | '.join([*waits, *quiet])} |"
    yield from ("", "| fault | times |", "|---|---|")
    yield from (f"| {trouble} | {times} |" for trouble, times in figures["faults"].items())
    if failures := figures.get("failures"):
        yield from ("", "What could not be done:", "", *(f"- `{failure}`" for failure in failures))
