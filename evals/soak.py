"""A long mixed load with a fault every few seconds, and the upstream's own bill as the oracle of the books.

    python -m evals.soak [--seconds S | --requests N] [--rate R] [--seed S] [--kill] [--require] [--results DIR]

A real gateway in a process of its own; clients and two upstreams on one loop in this one. What is asked and what fails
when is drawn from the seed (`soak_plan`). At the end the gateway is drained under load, and every call that an upstream
has billed is compared with its hold (`oracle`). The bounds stand in PREREGISTRATION.md. Writes soak.json
(soak_full.json with durability `full`) and, if matplotlib is there, a picture; with --require the exit status is 1 if a
gate that applies failed.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.machine import machine
from evals import soak_report
from evals.long_run import conclude, new_parser, publish
from evals.soak_run import LAST, Plan, Soak
from evals.stats import latency

RATE_PER_S, EVERY_S, SAMPLE_S = 60.0, 5.0, 5.0
FULL_REQUESTS = 210_000


def report(plan: Plan, soak: Soak, seen: Mapping[str, Any]) -> dict[str, Any]:
    """The artifact: what was run and seen; the gates follow from it."""
    tally = soak.tally
    return {
        "machine": {**machine(), "load_average": round(os.getloadavg()[0], 1)},
        "n": sum(sum(counts.values()) for counts in tally.verdicts.values()),
        "seed": plan.seed,
        "settings": asdict(plan),
        "exit_status": seen["exit_status"],
        "last": {"asked": LAST, "served": seen["drained"]},
        "verdicts": {kind: dict(counts) for kind, counts in sorted(tally.verdicts.items())},
        "latency_ms": {
            "all": soak_report.latencies(tally.took_s),
            "calm": soak_report.latencies(tally.calm_s),
            "client_late": latency(tally.late_s),
        },
        "faults": soak_report.counted(fault.trouble for fault in seen["faults"]),
        "hostile": {"sent": soak.faults.hostile, "overstayed": soak.faults.overstayed},
        "failures": soak.faults.failures,
        "books": {
            **asdict(seen["audit"]),
            "rows": seen["rows"],
            "misrecorded": seen["misrecorded"],
            "calls": len(soak.meter.calls),
            "verify": seen["verify"],
            "over_limit": soak.over_limit,
            "limited": {"admitted": seen["limited"], "seconds": seen["limited_s"]},
        },
        "quiet": [asdict(sample) for sample in seen["quiet"]],
        "samples": soak_report.columns([asdict(sample) for sample in soak.samples]),
        "strange": tally.strange,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run, write the artifact, print the gates; returns the exit status."""
    arguments = _parser().parse_args(argv)
    seconds = arguments.seconds or arguments.requests / arguments.rate
    plan = Plan(
        seconds, arguments.rate, arguments.every, arguments.sample, arguments.seed, arguments.durability, arguments.kill
    )
    work = Path(tempfile.mkdtemp(prefix="soak-"))
    soak = Soak(plan, work)
    figures = report(plan, soak, soak.run())
    name = "soak" if plan.durability == "normal" else "soak_full"
    artifact = publish(
        name, figures, arguments.results, [*figures["strange"], *figures["failures"], *figures["books"]["faults"]]
    )
    print(draw_beside(artifact, figures))
    return conclude(soak_report.gates(figures), work, require=arguments.require)


def draw_beside(artifact: Path, figures: Mapping[str, Any]) -> str:
    """Draw the picture beside the artifact; returns what to tell about it."""
    try:
        from evals.plot_soak import draw
    except ImportError:
        return "matplotlib is not installed (the extra [evals]): no picture"
    picture = artifact.with_suffix(".png")
    draw(figures, picture)
    return f"picture: {picture}"


def _parser() -> argparse.ArgumentParser:
    parser = new_parser("soak", __doc__, seed_of="the load and the faults")
    parser.add_argument("--seconds", type=float, help="of load; else as long as --requests take")
    parser.add_argument("--requests", type=int, default=FULL_REQUESTS)
    parser.add_argument("--rate", type=float, default=RATE_PER_S, help="requests per second")
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between two faults")
    parser.add_argument("--sample", type=float, default=SAMPLE_S, help="seconds between two looks at the process")
    parser.add_argument("--kill", action="store_true", help="kill -9 is one of the faults")
    return parser


if __name__ == "__main__":
    sys.exit(main())
