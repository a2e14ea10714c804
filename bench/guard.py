"""Counts the instructions of one request, and fails when they rise by more than a tenth above the committed baseline.

    python -m bench.guard [--write] [--runs N] [--sources DIR]

A real gateway under callgrind, pinned to one CPU, one caller, the mock upstream behind it. After a warm-up, the counts
of WINDOWS runs of REQUESTS requests are read, all threads and user space only, and the least is what a request costs:
what comes now and then, such as copying the log, is in some of them. What comes by the clock does not come at all: how
much of it there is in a request is the machine's speed and its other load. Another build of Python or SQLite matters,
so a baseline holds for the build it names.

Exit status: 0 within the bound (or written), 1 above it, 3 not measured: no valgrind, or no baseline of this build.
"""

import argparse
import json
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import LAST_CPU, machine
from bench.own import create_key, environment, prepare
from bench.tools import SOURCES, Tools, call, free_port, running, wait_for

BASELINE = Path(__file__).resolve().parent / "results" / "baseline.json"
RISE_PERCENT = 10
WINDOWS, REQUESTS, WARM_UP = 3, 60, 20
KINDS: Mapping[str, Mapping[str, Any]] = {"call": call(), "stream": call(stream=True), "hit": call(temperature=0)}
"""What is counted: requests by what they ask for. A hit is an answer of the exact cache, after the first."""
SERVE = """
import sys
from gateway import connection, janitor
connection.LINGER_S = janitor.SWEEP_EVERY_S = 3600.0
from gateway.cli import serve_main
sys.exit(serve_main(sys.argv[1:]))
"""
"""`python -m gateway.api`, but that a thread stays with its connection until the next request, and nobody sweeps."""

NOT_MEASURED = 3
CONTROL_S = 120.0


class NotMeasured(Exception):
    """Why there is no count."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one kind of request costs now and did before, in instructions."""

    kind: str
    now: int
    before: int

    @property
    def rise_percent(self) -> float:
        return (self.now / self.before - 1) * 100

    @property
    def passed(self) -> bool:
        return self.now * 100 <= self.before * (100 + RISE_PERCENT)

    @property
    def line(self) -> str:
        status = "passed" if self.passed else "FAILED"
        return (
            f"{status}  {self.kind}: {self.now:,} instructions, {self.before:,} in the baseline "
            f"({self.rise_percent:+.1f} %; bound {RISE_PERCENT:+d} %)"
        )


def verdicts(now: Mapping[str, int], before: Mapping[str, int]) -> list[Verdict]:
    """Each kind of the baseline; one that is not counted any more raises KeyError."""
    return [Verdict(kind, now[kind], count) for kind, count in before.items()]


def total(dump: str) -> int:
    """The instructions of one callgrind dump: the last line that sums up wins, none is 0."""
    found = re.findall(r"^(?:summary|totals): (\d+)", dump, re.MULTILINE)
    return int(found[-1]) if found else 0


def spread_percent(counts: Iterable[float]) -> float:
    """From the least to the most, in percent of the median."""
    known = sorted(counts)
    return (known[-1] - known[0]) / statistics.median(known) * 100


def build() -> dict[str, str]:
    """What a count depends on besides the code that is measured."""
    valgrind = shutil.which("valgrind")
    if valgrind is None or shutil.which("callgrind_control") is None:
        raise NotMeasured("valgrind is not installed")
    version = subprocess.run([valgrind, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    return {"python": sys.version, "sqlite": sqlite3.sqlite_version, "valgrind": version}


class Counter:
    """A running process under callgrind, whose counts are read and set to zero by each look."""

    def __init__(self, pid: int, output: Path) -> None:
        self._pid = pid
        self._output = output

    def begin(self) -> None:
        """Count from now on; until then, the process ran several times as fast."""
        self._control("--instr=on")

    def take(self) -> int:
        """Instructions of all threads since the last look."""
        self._control("--dump")
        dumps = sorted(self._output.parent.glob(f"{self._output.name}*"))
        count = sum(total(dump.read_text(encoding="utf-8", errors="replace")) for dump in dumps)
        for dump in dumps:
            dump.unlink()
        return count

    def _control(self, option: str) -> None:
        command = ["callgrind_control", option, str(self._pid)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=CONTROL_S)
        except (subprocess.SubprocessError, OSError) as error:
            raise NotMeasured(f"callgrind cannot be controlled here: {error}") from error


def count(sources: Path, folder: Path) -> dict[str, list[float]]:
    """Instructions per request of each kind, one number for each window. `folder` is for what the run needs."""
    tools, upstream, port = Tools(folder), free_port(), free_port()
    place, env = folder / "gateway", environment(sources) | {"PYTHONHASHSEED": "0"}
    prepare(place, upstream, "normal")
    key = create_key(place, env)
    dump = place / "counts"
    command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={dump}"]
    command += [sys.executable, "-c", SERVE, "--port", str(port)]
    with (
        running([str(folder / "mock"), str(upstream)], folder / "mock.log"),
        running(command, place / "log", env) as gateway,
    ):
        os.sched_setaffinity(gateway.pid, {LAST_CPU})
        wait_for(port)
        counter = Counter(gateway.pid, dump)
        for body in KINDS.values():
            _ask(tools, port, key, WARM_UP, body)
        counter.begin()
        counts: dict[str, list[float]] = {}
        for kind, body in KINDS.items():
            _ask(tools, port, key, WARM_UP, body)
            counter.take()
            counts[kind] = []
            for _ in range(WINDOWS):
                _ask(tools, port, key, REQUESTS, body)
                counts[kind].append(counter.take() / REQUESTS)
        return counts


def _ask(tools: Tools, port: int, key: str, requests: int, body: Mapping[str, Any]) -> None:
    answered = tools.load(port, key, body=body, requests=requests, callers=1, seconds=300)
    if answered["ok"] != requests:
        raise NotMeasured(f"{requests} requests were sent and {answered['ok']} answered: {answered['badbody']}")


def measure(sources: Path) -> dict[str, Any]:
    """What a baseline holds."""
    with tempfile.TemporaryDirectory() as name:
        counts = count(sources, Path(name))
    return {
        "build": build(),
        "commit": machine()["commit"],
        "requests": REQUESTS,
        "windows": counts,
        "instructions_per_request": {kind: round(min(each)) for kind, each in counts.items()},
    }


def compare(found: Mapping[str, Any], baseline: Path) -> bool:
    """Print a line for each kind; whether all are within the bound. Raises NotMeasured without such a baseline."""
    if not baseline.exists():
        raise NotMeasured(f"there is no {baseline.name}: --write makes one")
    former = json.loads(baseline.read_text(encoding="utf-8"))
    if former["build"] != found["build"]:
        raise NotMeasured(f"the baseline is of another build: {former['build']}")
    judged = verdicts(found["instructions_per_request"], former["instructions_per_request"])
    print("\n".join(verdict.line for verdict in judged))
    return all(verdict.passed for verdict in judged)


def main() -> int:
    """Count, and compare or write."""
    parser = argparse.ArgumentParser(prog="bench.guard", description=__doc__)
    parser.add_argument("--write", action="store_true", help="this is the new baseline")
    parser.add_argument("--runs", type=int, default=1, help="count so often, and print how far the runs differ")
    parser.add_argument("--sources", type=Path, default=SOURCES, help="folder of the packages that are measured")
    arguments = parser.parse_args()
    try:
        build()
        runs = [measure(arguments.sources.resolve()) for _ in range(arguments.runs)]
        for kind in KINDS if len(runs) > 1 else ():
            counts = [run["instructions_per_request"][kind] for run in runs]
            print(f"{kind}: {', '.join(f'{each:,}' for each in counts)}; spread {spread_percent(counts):.2f} %")
        if arguments.write:
            BASELINE.write_text(json.dumps(runs[-1], indent=1) + "\n", encoding="utf-8")
            return 0
        return 0 if compare(runs[-1], BASELINE) else 1
    except NotMeasured as why:
        print(f"not measured: {why}")
        return NOT_MEASURED


if __name__ == "__main__":
    sys.exit(main())
