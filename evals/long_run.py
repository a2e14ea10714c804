"""What every run by itself has in common: its options, and how it ends."""

import argparse
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evals.gates import Gate
from evals.report import RESULTS, failed_firmly, long_lines, write


def new_parser(name: str, doc: str | None, *, seed_of: str) -> argparse.ArgumentParser:
    """The options of all of them; `doc` is the module's, `seed_of` what is drawn from the seed."""
    parser = argparse.ArgumentParser(prog=f"python -m evals.{name}", description=(doc or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=7, help=f"of {seed_of}")
    parser.add_argument("--durability", choices=("full", "normal"), default="normal")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the artifact goes")
    parser.add_argument(
        "--require",
        action="store_true",
        help="exit 1 if a gate fails, but for those that a busy machine alone can change",
    )
    return parser


def publish(name: str, figures: dict[str, Any], results: Path, faults: Iterable[str]) -> Path:
    """Write the artifact, and print it for people with these faults below; returns where it lies."""
    results.mkdir(parents=True, exist_ok=True)
    artifact = results / f"{name}.json"
    write(artifact, figures)
    print("\n".join([*long_lines(name, figures), *faults]))
    return artifact


def conclude(judgements: Sequence[Gate], work: Path, *, require: bool) -> int:
    """The exit status; `work`, with logs and books, is kept only if a gate failed."""
    failed = failed_firmly(judgements)
    if not failed:
        shutil.rmtree(work)
        return 0
    print(f"failed: {', '.join(failed)}; logs and books: {work}", file=sys.stderr)
    return 1 if require else 0
