"""`python -W error -m tests [--jobs N] [MODULE ...]`: what `python -m unittest` runs, or the modules that are named, as
many at a time as there are CPUs.

Each process takes the next module when it has done one; those of ALONE come last, one at a time. A module that fails is
printed whole, once it is over. The status is 1 if a test failed, if a process died, if a module had no test, if an
error was ignored because nobody could be told (a file or a ledger that was left open), or if of all modules fewer than
FLOOR tests were run.
"""

import argparse
import contextlib
import gc
import io
import os
import sys
import time
import unittest
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests import FLOOR, SUITES, _paths

ALONE = frozenset(("tests.socket.test_hostile_crowd",))
"""They promise answers within seconds of a gateway that thousands attack, and another process would be one more."""

SHOWN = 5
"""So many of the slowest modules are named at the end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a module: tests that were run and skipped, what the runner said, and for how long it went."""

    module: str
    run: int
    skipped: int
    passed: bool
    said: str
    took_s: float


def modules(root: Path) -> list[str]:
    """Every module of tests in the suites below `root`, those first that take long: they wait, or start processes."""
    files = [file for suite in reversed(SUITES) for file in sorted((root / suite).rglob("test*.py"))]
    return [".".join(("tests", *file.relative_to(root).with_suffix("").parts)) for file in files]


def run_module(module: str) -> Outcome:
    """Run it here."""
    said, began_s = io.StringIO(), time.monotonic()
    tests = unittest.defaultTestLoader.loadTestsFromName(module)
    count = tests.countTestCases()  # a result of Python 3.12.1 counts none that was skipped
    with _noting_ignored() as ignored:
        result = unittest.TextTestRunner(said).run(tests)
        gc.collect()
    said.writelines(f"{error}\n" for error in ignored)
    passed = result.wasSuccessful() and count > 0 and not ignored
    return Outcome(module, count, len(result.skipped), passed, said.getvalue(), time.monotonic() - began_s)


@contextlib.contextmanager
def _noting_ignored() -> Iterator[list[str]]:
    """What is raised in this block where nobody can be told, as by a finaliser in which a warning becomes an error."""
    ignored: list[str] = []

    def note(event: "sys.UnraisableHookArgs") -> None:
        ignored.append(f"{event.err_msg or 'Exception ignored in'}: {event.object!r}: {event.exc_value!r}")

    former, sys.unraisablehook = sys.unraisablehook, note
    try:
        yield ignored
    finally:
        sys.unraisablehook = former


def run_all(names: Sequence[str], jobs: int) -> list[Outcome]:
    """Run them, so many at a time; each that fails is printed at once. What a dead process did not tell has failed."""
    done: list[Outcome] = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        asked = {pool.submit(run_module, name): name for name in names}
        for future in as_completed(asked):
            try:
                outcome = future.result()
            except BrokenProcessPool:
                outcome = Outcome(asked[future], 0, 0, passed=False, said="a process died", took_s=0)
            done.append(outcome)
            if not outcome.passed:
                print(f"--- {outcome.module}\n{outcome.said}", flush=True)
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every test; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests", description="Run every test, several modules at a time.")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes; default: CPUs")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="as tests.unit.test_money; default: all")
    wanted = parser.parse_args(arguments)
    began_s = time.monotonic()
    names = wanted.modules or modules(Path(_paths.ROOT) / "tests")
    outcomes = run_all([name for name in names if name not in ALONE], wanted.jobs)
    outcomes += run_all([name for name in names if name in ALONE], 1)
    return conclude(outcomes, 0 if wanted.modules else FLOOR, time.monotonic() - began_s)


def conclude(outcomes: Sequence[Outcome], floor: int, took_s: float) -> int:
    """Say what was run; returns the exit status."""
    slowest = sorted(outcomes, key=lambda outcome: outcome.took_s, reverse=True)[:SHOWN]
    print("longest:", ", ".join(f"{outcome.module} {outcome.took_s:.1f} s" for outcome in slowest))
    run, skipped = sum(outcome.run for outcome in outcomes), sum(outcome.skipped for outcome in outcomes)
    print(f"Ran {run} tests of {len(outcomes)} modules in {took_s:.1f} s ({skipped} skipped)")
    failed = sorted(outcome.module for outcome in outcomes if not outcome.passed)
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    elif run < floor:
        print(f"FAILED: at least {floor} tests were expected")
    else:
        print("OK")
    return 1 if failed or run < floor else 0
