"""The bounds of speed and size, and what was measured of each. Pure.

A gate's value is the median of its repetitions, shown with the least and the most of them. What was not measured says
why. Figures are those of one artifact: what stands beside each other was measured in one run.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PORTKEY, LITELLM, FERROGW = "portkey", "litellm", "ferrogw"
NOT_MEASURED = "not measured"

Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some repetitions, the least and the most of them."""

    median: float
    least: float
    most: float

    def times(self, factor: float) -> "Spread":
        return Spread(self.median * factor, self.least * factor, self.most * factor)

    def text(self, unit: str = "") -> str:
        median = f"{number(self.median)} {unit}".rstrip()
        return median if self.least == self.most else f"{median} ({number(self.least)} to {number(self.most)})"


def number(value: float) -> str:
    """Three digits are all that such a figure is worth; whole numbers have a comma at the thousands."""
    if abs(value) >= 100 or value == round(value):
        return f"{round(value):,}"
    return f"{value:.3g}"


def spread(values: Sequence[float]) -> Spread | None:
    """None of no values."""
    return Spread(statistics.median(values), min(values), max(values)) if values else None


@dataclass(frozen=True, slots=True)
class Gate:
    """One row.

    bound, aim  what it must reach and what is hoped for, in `unit`; None: there is none
    at_least    they are lower bounds
    measured    None: it was not, and `why` says why if somebody knows
    """

    what: str
    unit: str
    bound: float
    measured: Spread | None
    aim: float | None = None
    at_least: bool = False
    why: str = ""

    @property
    def status(self) -> str:
        if self.measured is None:
            return NOT_MEASURED
        return "passed" if self.reaches(self.bound) else "failed"

    def reaches(self, bound: float) -> bool:
        """Whether the median does."""
        if self.measured is None:
            return False
        return self.measured.median >= bound if self.at_least else self.measured.median <= bound

    @property
    def row(self) -> str:
        sign = ">=" if self.at_least else "<="
        aim = "-" if self.aim is None else number(self.aim)
        measured = self.measured.text(self.unit) if self.measured else self.why or "-"
        return f"| {self.what} | {sign} {number(self.bound)} {self.unit} | {aim} | {measured} | {self.status} |"


def of(figures: Figures, subject: str, name: str, part: str = "runs") -> Spread | None:
    """A figure of a subject over its repetitions; None if it was not measured."""
    about = figures["subjects"].get(subject, {})
    return spread([run[name] for run in about.get(part, ()) if name in run])


def ratio(figures: Figures, ours: str, peer: str, name: str) -> Spread | None:
    """What ours reached over what the peer reached, repetition by repetition; None if one was not measured."""
    of_ours, of_peer = (figures["subjects"].get(each, {}).get("runs", ()) for each in (ours, peer))
    pairs = zip(of_ours, of_peer, strict=False)
    return spread([run[name] / against[name] for run, against in pairs if name in run and name in against])


def missing(figures: Figures, peer: str) -> str:
    """Why there is nothing to compare with."""
    about = figures["subjects"].get(peer, {})
    return f"{peer}: {about.get('missing', 'no good answer' if 'runs' in about else 'not run')}"


def growth_ratio(runs: Mapping[str, Sequence[Figures]], name: str) -> Spread | None:
    """A figure at the largest size over the same at the smallest, repetition by repetition."""
    if len(runs) < 2:
        return None
    sizes = sorted(runs, key=int)
    pairs = zip(runs[sizes[-1]], runs[sizes[0]], strict=True)
    return spread([large[name] / small[name] for large, small in pairs if small[name] > 0])


def gates(figures: Figures) -> list[Gate]:
    """Every gate, in the order in which they are shown."""
    return [*_one_caller(figures), *_many_callers(figures), *_sizes(figures), *_flat(figures)]


def _one_caller(figures: Figures) -> Iterable[Gate]:
    def normal(name: str, factor: float = 1) -> Spread | None:
        return _scaled(of(figures, "normal", name), factor)

    added = normal("added_p50_us")
    fsync_us = statistics.median(figures["fsync_us"])
    base_us = added.median if added else 0.0
    yield Gate("added latency, one caller, p50, `normal`", "us", 150, added, 100)
    yield Gate("added latency, one caller, p99, `normal`", "us", 400, normal("added_p99_us"), 250)
    full = of(figures, "full", "added_p50_us")
    full_what = "added latency, one caller, p50, `full` (`normal` + 2 fsync + 50)"
    yield Gate(full_what, "us", base_us + 2 * fsync_us + 50, full, base_us + fsync_us)
    yield Gate("CPU per request, one caller", "us", 200, normal("cpu_us_per_request"), 130)
    yield Gate("CPU per request, 32 callers, one CPU", "us", 250, normal("c32_cpu_us_per_request"), 150)
    stream = normal("stream_added_ttfb_p50_us")
    yield Gate("added time to a stream's first byte, one caller, p50", "us", 250, stream, 150)
    hit = normal("hit_added_p50_us")
    yield Gate("exact-cache hit, against a direct call, one caller, p50", "us", 120, hit, 80)
    failover = normal("failover_added_p50_us", 1e-3)
    yield Gate("failover after a refused connection, added, one caller, p50", "ms", 1, failover, 0.5)


def _many_callers(figures: Figures) -> Iterable[Gate]:
    for durability, over_portkey in (("normal", 2.0), ("full", 1.5)):
        for peer, times in ((PORTKEY, over_portkey), (LITELLM, 25.0)):
            yield Gate(
                f"requests/s, 32 callers, one CPU, `{durability}`, over {peer}'s",
                "x",
                times,
                ratio(figures, durability, peer, "c32_requests_per_s"),
                at_least=True,
                why=missing(figures, peer),
            )
        p99 = _scaled(of(figures, durability, "c32_p99_us"), 1e-3)
        yield Gate(f"p99 with 32 callers, `{durability}`", "ms", 20, p99)
        wrong = _total(figures, durability, "bad")
        yield Gate(f"requests that went wrong in all of this, `{durability}`", "requests", 0, wrong)
    yield Gate(
        "20-event streams/s, 32 callers, over portkey's",
        "x",
        2,
        ratio(figures, "normal", PORTKEY, "c32_streams_per_s"),
        _aim_of_streams(figures),
        at_least=True,
        why=missing(figures, PORTKEY),
    )
    complete = of(figures, "normal", "streams_complete", "streams")
    yield Gate("500 slow streams at once, complete", "streams", 500, complete, at_least=True)
    first = _scaled(of(figures, "normal", "streams_ttfb_p99_us", "streams"), 1e-3)
    yield Gate("500 slow streams at once, time to the first byte, p99", "ms", 400, first, 200)


def _aim_of_streams(figures: Figures) -> float | None:
    """To be ahead of ferrogw, as a multiple of portkey's."""
    known = ratio(figures, FERROGW, PORTKEY, "c32_streams_per_s")
    return known.median if known else None


def _sizes(figures: Figures) -> Iterable[Gate]:
    normal = figures["subjects"]["normal"]
    yield Gate("memory, idle", "MiB", 45, spread([normal["rss_mib"]]), 35)
    streams = of(figures, "normal", "streams_rss_mib", "streams")
    yield Gate("memory with 500 streams", "MiB", 90, streams, 70)
    grown = figures["growth"]
    what = "memory growth, from request 50,000 to 200,000"
    if grown["mib"] is None:
        yield Gate(what, "MiB", 5, None, why="no soak was so long")
    else:
        yield Gate(f"{what} (soak of {grown['commit']})", "MiB", 5, spread([grown["mib"]]))
    yield Gate("start to first answer", "s", 0.35, spread(normal["start_s"]), 0.2)
    size = figures["install_mb"]
    installed = spread([size]) if isinstance(size, float) else None
    yield Gate("installation, beyond an empty environment", "MB", 6, installed, 4, why=str(size))


def _flat(figures: Figures) -> Iterable[Gate]:
    for axis, runs in figures["scale"].items():
        sizes = sorted(runs, key=int)
        what = f"cost of a request, {int(sizes[-1]):,} {axis} against {int(sizes[0]):,}, one caller, p50"
        yield Gate(what, "x", 1.1, growth_ratio(runs, "p50_us"))
    if not figures["scale"]:
        yield Gate("cost of a request as the gateway grows, one caller, p50", "x", 1.1, None)


def _scaled(known: Spread | None, factor: float) -> Spread | None:
    return known.times(factor) if known else None


def _total(figures: Figures, subject: str, name: str) -> Spread | None:
    runs = figures["subjects"].get(subject, {}).get("runs", ())
    return spread([sum(run[name] for run in runs)]) if runs else None
