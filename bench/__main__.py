"""What the gateway adds to a call, and how it stands beside other gateways, measured on this machine.

    python -m bench                the gateway alone, in less than two minutes
    python -m bench --peers DIR    beside the peers that are installed in DIR (see bench/README.md), with the curve over
                                   the number of callers and the cost as the gateway grows, in a quarter of an hour

A mock upstream in C, a load client in C, and everything that is compared as people run it, all on 127.0.0.1. Writes
latest.json and, if matplotlib is there, two pictures into --results; with --readme into bench/results, and the figures
into the README and the notes. --render only does the latter, from the artifact that is there.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import report
from bench.run import Plan, measure
from bench.tools import ROOT

ALONE = Plan(seconds=1.5, repetitions=3, passes=1, starts=3)
BESIDE = Plan(seconds=1.5, repetitions=5, passes=2, starts=5)
QUICK = Plan(seconds=0.6, repetitions=1, passes=1, starts=1, most=10_000)


def plan(quick: bool, peers: Path | None) -> Plan:
    """How much is measured in which case."""
    if quick:
        return replace(QUICK, peers=peers)
    return replace(BESIDE, peers=peers) if peers else ALONE


def draw(figures: Mapping[str, Any], folder: Path) -> None:
    """The pictures, if there is something to draw and matplotlib to draw it with."""
    try:
        from bench import plots
    except ImportError:
        print("no pictures: matplotlib is not installed")
        return
    for path in plots.draw(figures, folder):
        print(f"wrote {path}")


def main() -> None:
    """Measure, write, and show."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peers", type=Path, help="folder with installed peers")
    parser.add_argument("--quick", action="store_true", help="short runs, for a look")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "bench", help="folder for what is written")
    parser.add_argument("--readme", action="store_true", help="keep the result: in bench/results and in the documents")
    parser.add_argument("--render", action="store_true", help="measure nothing; write the documents from the artifact")
    arguments = parser.parse_args()
    if arguments.quick and arguments.readme:
        parser.error("a quick run is not kept")
    if arguments.render:
        report.write_documents(report.load())
        return
    peers = arguments.peers.resolve() if arguments.peers else None
    figures = measure(plan(arguments.quick, peers))
    figures["growth"] = report.growth()
    folder = report.RESULTS.parent if arguments.readme else arguments.results
    folder.mkdir(parents=True, exist_ok=True)
    report.write(folder / report.RESULTS.name, figures)
    draw(figures, folder)
    if arguments.readme:
        report.write_documents(figures)
    print("\n".join(report.lines(figures)))


if __name__ == "__main__":
    main()
