"""Measures what the gateway claims, holds it against what was written down before, and prints one summary.

    python -m evals [--only NAME,...] [--quick] [--json] [--readme] [--seconds S]
    python -m evals --render

A full run writes evals/results/NAME.json; --readme renders README.md and evals/results/RESULTS.md from what lies there,
and --render does nothing else: for what is run by itself (`python -m evals.soak`, `.overload`, `.outage_live`,
`.semantic_cache --sweep`).
A failed gate is shown as failed. The exit status is 1 if a gate fails that passed in the committed results, unless a
busy machine alone can change it.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from bench.machine import machine
from evals import ROOT, report
from evals.experiment import Artifact, Experiment, Options
from evals.runaway import MOST_SECONDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; returns the exit status."""
    parser = _parser()
    wanted = parser.parse_args(arguments)
    if wanted.quick and wanted.readme:
        parser.error("a quick run is not for the README")
    committed = report.load()
    if wanted.render:
        _render(committed)
        return 0
    artifacts = {
        experiment.NAME: _run(experiment, Options(wanted.quick, wanted.seconds))
        for experiment in report.EXPERIMENTS
        if wanted.only is None or experiment.NAME in wanted.only
    }
    if not wanted.quick:
        _write(artifacts)
    if wanted.readme:
        _render(report.load())
    print(report.as_json(artifacts) if wanted.json else report.summary(artifacts))
    worse = report.regressions(committed, artifacts)
    if worse:
        print("These passed before: " + ", ".join(worse), file=sys.stderr)
    return 1 if worse else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="evals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=_names, metavar="NAME,...", help=", ".join(report.TITLES))
    parser.add_argument("--quick", action="store_true", help="smaller runs, under a minute in all; nothing is kept")
    parser.add_argument("--json", action="store_true", help="print gates and artifacts as JSON instead")
    parser.add_argument(
        "--readme", action="store_true", help="render README.md and RESULTS.md from the artifacts afterwards"
    )
    parser.add_argument("--render", action="store_true", help="measure nothing; render what lies there")
    parser.add_argument("--seconds", type=_seconds, help="how long the loop that runs away does so")
    return parser


def _names(text: str) -> frozenset[str]:
    names = frozenset(text.split(","))
    if unknown := names - set(report.TITLES):
        raise argparse.ArgumentTypeError(f"there is no eval {', '.join(sorted(unknown))}")
    return names


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 1 <= seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"must be from 1 to {MOST_SECONDS:g}")
    return seconds


def _run(experiment: Experiment, options: Options) -> Artifact:
    print(f"{experiment.NAME} ...", file=sys.stderr, flush=True)
    about: dict[str, Any] = {"machine": {**machine(), "load_average": round(os.getloadavg()[0], 1)}}
    return {**about, "quick": options.quick, **experiment.run(options)}


def _write(artifacts: report.Artifacts) -> None:
    report.RESULTS.mkdir(exist_ok=True)
    for name, artifact in artifacts.items():
        (report.RESULTS / f"{name}.json").write_text(json.dumps(artifact, indent=1) + "\n", encoding="utf-8")


def _render(artifacts: report.Artifacts) -> None:
    readme = ROOT / "README.md"
    long_runs = report.load_long()
    text = report.render(readme.read_text(encoding="utf-8"), artifacts, long_runs)
    live = json.loads(report.LIVE.read_text(encoding="utf-8"))
    readme.write_text(report.render_live(text, live), encoding="utf-8")
    report.DETAILS.write_text(report.render_details(artifacts, long_runs), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
