"""One repetition of everything that is measured of a subject. The mock is measured beside it, in turn.

With one caller, client, subject and mock share one CPU: what is left is the length of the path, which other load on the
machine hardly moves. "Added" is the difference of the quantiles through the subject and of the mock alone. With many
callers, our gateway is pinned to one CPU, and everybody else runs where the system puts them.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.machine import Foreign, cpu_s, one_cpu, rss_mib
from bench.own import FAILING_OVER, pin_down
from bench.subject import Subject
from bench.tools import SLOW, Tools

MANY = 32
STREAMS_AT_ONCE = 500
LOOK_S = 0.25

Figures = dict[str, float]
"""By name, which ends in the unit. What got no good answer has none."""

NOTHING: Mapping[str, Any] = {"ok": 0, "bad": 0}
"""What a load that is not made comes to."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a measurement needs. `seconds` is how long one load lasts; `watched` is every process of ours."""

    tools: Tools
    mock: Subject
    seconds: float
    watched: tuple[int, ...]

    def foreign(self) -> Foreign:
        """What others use from now on."""
        return Foreign(self.mock.pid, *self.watched)


def warm_up(bench: Bench, subject: Subject) -> None:
    """So that nothing is done for the first time while it is measured."""
    for stream in (False, True):
        subject.load(bench.tools, stream=stream, callers=8, seconds=min(bench.seconds, 1.0), requests=1500)


def repetition(bench: Bench, subject: Subject) -> Figures:
    """One of each load, and how much of the machine others used meanwhile."""
    foreign = bench.foreign()
    figures, bad = one_caller(bench, subject)
    more, more_bad = many_callers(bench, subject)
    return {**figures, **more, "bad": bad + more_bad, "foreign_cpus": foreign.cpus()}


def one_caller(bench: Bench, subject: Subject) -> tuple[Figures, float]:
    """The length of the path, and how many requests went wrong."""
    ask_mock = partial(bench.mock.load, bench.tools, callers=1, seconds=bench.seconds / 3)
    ask = partial(subject.load, bench.tools, callers=1, seconds=bench.seconds)
    with one_cpu(subject.pid, bench.mock.pid):
        direct = ask_mock()
        through, cost_us = costing(subject, ask)
        direct_stream = ask_mock(stream=True)
        stream = ask(stream=True)
        hit = subject.hit(bench.tools, callers=1, seconds=bench.seconds) if subject.ours else NOTHING
        failover = ask(model=FAILING_OVER) if subject.ours else NOTHING
    figures: Figures = {}
    if through["ok"]:
        figures |= {
            "p50_us": through["p50"],
            "p99_us": through["p99"],
            "added_p50_us": through["p50"] - direct["p50"],
            "added_p99_us": through["p99"] - direct["p99"],
            "cpu_us_per_request": cost_us,
        }
    if stream["ok"]:
        figures["stream_added_ttfb_p50_us"] = stream["ttfb50"] - direct_stream["ttfb50"]
    if hit["ok"]:
        figures["hit_added_p50_us"] = hit["p50"] - direct["p50"]
    if failover["ok"]:
        figures["failover_added_p50_us"] = failover["p50"] - through["p50"]
    return figures, bad([through, stream, hit, failover])


def many_callers(bench: Bench, subject: Subject) -> tuple[Figures, float]:
    """What the box can do, and how many requests went wrong."""
    pin_down(subject)
    ask = partial(subject.load, bench.tools, callers=MANY, seconds=bench.seconds)
    calls, cost_us = costing(subject, ask)
    streams = ask(stream=True)
    figures: Figures = {}
    if calls["ok"]:
        figures |= {
            "c32_requests_per_s": calls["rps"],
            "c32_p99_us": calls["p99"],
            "c32_cpu_us_per_request": cost_us,
        }
    if streams["ok"]:
        figures |= {"c32_streams_per_s": streams["rps"], "c32_stream_ttfb_p99_us": streams["ttfb99"]}
    return figures, bad([calls, streams])


def costing(subject: Subject, load: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], float]:
    """What a load came to, and the CPU that the subject took for one good answer, in microseconds."""
    before_s = cpu_s(subject.pid)
    done = load()
    return done, round((cpu_s(subject.pid) - before_s) * 1e6 / max(done["ok"], 1), 1)


def bad(loads: Iterable[Mapping[str, Any]]) -> float:
    """How many requests had no whole and good answer."""
    return float(sum(load["bad"] for load in loads))


def many_streams(bench: Bench, subject: Subject) -> Figures:
    """Streams of five seconds, all at once, and the most memory the subject held meanwhile."""
    pin_down(subject)
    most, over = [rss_mib(subject.pid)], threading.Event()

    def look() -> None:
        while not over.wait(LOOK_S):
            most[0] = max(most[0], rss_mib(subject.pid))

    foreign = bench.foreign()
    looking = threading.Thread(target=look)
    looking.start()
    done = subject.load(
        bench.tools, model=SLOW, stream=True, callers=STREAMS_AT_ONCE, requests=STREAMS_AT_ONCE, seconds=30
    )
    over.set()
    looking.join()
    figures = {"streams_complete": done["ok"], "streams_rss_mib": most[0], "foreign_cpus": foreign.cpus()}
    if done["ok"]:
        figures |= {"streams_ttfb_p50_us": done["ttfb50"], "streams_ttfb_p99_us": done["ttfb99"]}
    return figures


def at_once(bench: Bench, subject: Subject, callers: int) -> Figures:
    """One point of the curve over the number of callers."""
    pin_down(subject)
    done = subject.load(bench.tools, callers=callers, seconds=bench.seconds / 2)
    return {"requests_per_s": done["rps"], "p50_us": done["p50"], "p99_us": done["p99"], "bad": done["bad"]}
