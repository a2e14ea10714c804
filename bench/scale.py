"""Whether a request costs more as the gateway grows: ledger rows, keys, tenants, cached answers.

Of each axis, gateways of every size run at once and are measured in turn, with one caller on one CPU. With many keys or
tenants the requests take them in turn, up to MOST_KEYS. No head is like another, also where there is one key: else the
gateway would know that one's head again, and many keys seemed to cost what reading a head does.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench import own
from bench.machine import one_cpu
from bench.measure import Bench, Figures, costing, warm_up
from bench.subject import Subject
from bench.tools import ROOT, SOURCES

MOST_KEYS = 1000


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
            for size_text, subject in subjects.items():
                runs.setdefault(size_text, []).append(_once(bench, subject, axis.hits))
    return runs


def _once(bench: Bench, subject: Subject, hits: bool) -> Figures:
    ask = subject.hit if hits else subject.load
    with one_cpu(subject.pid, bench.mock.pid):
        done, cost_us = costing(subject, lambda: ask(bench.tools, callers=1, seconds=bench.seconds, varied=True))
    return {"p50_us": done["p50"], "p99_us": done["p99"], "cpu_us_per_request": cost_us, "bad": done["bad"]}
