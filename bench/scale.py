"""Whether a request costs more as the gateway grows: ledger rows, keys, tenants, cached answers.

Of each axis, gateways of every size run at once and are measured with one caller on one CPU, in turns so short that
what changes on the machine hits all alike; another begins each time. A figure of a repetition is the median of its
turns. With many keys or tenants the requests take them in turn, up to MOST_KEYS. No head is like another, also where
there is one key: else the gateway would know that one's head again, and keys seemed to cost what reading a head does.
"""

import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench import own
from bench.machine import one_cpu
from bench.measure import Bench, Figures, bad, costing, warm_up
from bench.subject import Subject
from bench.tools import ROOT, SOURCES

MOST_KEYS = 1000
TURNS = 6
"""In a repetition, for each size."""


@dataclass(frozen=True, slots=True)
class Axis:
    """What grows, how far, and what is asked meanwhile."""

    name: str
    sizes: tuple[int, ...]
    prepare: Callable[[Bench, Path, int], list[str]]
    hits: bool = False


def fill(folder: Path, *options: str, tenants: list[str] | None = None) -> list[str]:
    """Run bench.fill on a prepared folder; the keys that it made."""
    command = [sys.executable, "-m", "bench.fill", str(folder), *options]
    env = own.environment() | {"PYTHONPATH": f"{SOURCES}:{ROOT}"}
    asked = "\n".join(tenants or [])
    done = subprocess.run(command, env=env, cwd=folder, input=asked, check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout)) if tenants else []


def _with_copies(option: str) -> Callable[[Bench, Path, int], list[str]]:
    def prepare(bench: Bench, folder: Path, size: int) -> list[str]:
        own.prepare(folder, bench.mock.port, "normal")
        keys = fill(folder, tenants=[own.TENANT])
        with own.serving("copied", folder, keys) as (subject, _):
            subject.hit(bench.tools, callers=1, seconds=5, requests=2)
        fill(folder, option, str(size))
        return keys

    return prepare


def _with_tenants(bench: Bench, folder: Path, size: int) -> list[str]:
    names = [f"tenant-{number}" for number in range(size)]
    own.prepare(folder, bench.mock.port, "normal", names)
    return fill(folder, tenants=names)


def _with_keys(bench: Bench, folder: Path, size: int) -> list[str]:
    own.prepare(folder, bench.mock.port, "normal")
    return fill(folder, tenants=[own.TENANT] * size)[:MOST_KEYS]


AXES: tuple[Axis, ...] = (
    Axis("ledger rows", (1_000, 10_000, 100_000, 1_000_000), _with_copies("--rows")),
    Axis("cached answers", (1_000, 10_000, 100_000, 1_000_000), _with_copies("--entries"), hits=True),
    Axis("keys", (1, 100, 1_000, 10_000), _with_keys),
    Axis("tenants", (1, 10, 100, 1_000), _with_tenants),
)


def measure(bench: Bench, axis: Axis, folder: Path, repetitions: int, most: int) -> Mapping[str, list[Figures]]:
    """Each size up to `most`, by its number as text: one entry for each repetition."""
    runs: dict[str, list[Figures]] = {}
    with ExitStack() as stack:
        subjects: dict[str, Subject] = {}
        for size in (size for size in axis.sizes if size <= most):
            place = folder / f"{axis.name}-{size}".replace(" ", "-")
            keys = axis.prepare(bench, place, size)
            subjects[str(size)], _ = stack.enter_context(own.serving(f"{size}", place, keys))
        for subject in subjects.values():
            warm_up(bench, subject)
        for _ in range(repetitions):
            for size_text, figures in repetition(bench, subjects, axis.hits).items():
                runs.setdefault(size_text, []).append(figures)
    return runs


def repetition(bench: Bench, subjects: Mapping[str, Subject], hits: bool) -> dict[str, Figures]:
    """As many seconds of each as a load lasts."""
    short, turns = replace(bench, seconds=bench.seconds / TURNS), defaultdict[str, list[Figures]](list)
    order = list(subjects.items())
    for number in range(TURNS):
        for size, subject in order:
            turns[size].append(once(short, begun_at(subject, number / TURNS), hits))
        order.append(order.pop(0))
    return {size: median_of(turns[size]) for size in subjects}


def begun_at(subject: Subject, share: float) -> Subject:
    """The subject with its keys taken from another one on, so that short turns meet all of them."""
    first = int(len(subject.keys) * share)
    return replace(subject, keys=subject.keys[first:] + subject.keys[:first])


def median_of(turns: Sequence[Figures]) -> Figures:
    """Of each figure; what went wrong is summed."""
    figures = {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    return figures | {"bad": bad(turns)}


def once(bench: Bench, subject: Subject, hits: bool) -> Figures:
    """One turn."""
    ask = subject.hit if hits else subject.load
    with one_cpu(subject.pid, bench.mock.pid):
        done, cost_us = costing(subject, lambda: ask(bench.tools, callers=1, seconds=bench.seconds, varied=True))
    return {"p50_us": done["p50"], "p99_us": done["p99"], "cpu_us_per_request": cost_us, "bad": done["bad"]}
