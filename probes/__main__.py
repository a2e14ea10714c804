"""`python -m probes`: one verdict line for each probe; exit status 1 if anything was found."""

import argparse
import json
import sys
from collections.abc import Sequence

from probes.catalog import PROBES
from probes.lab import Lab, Probe, run
from probes.target import Targets


def main(arguments: Sequence[str] | None = None, probes: Sequence[Probe] = PROBES) -> int:
    """Run the probes that were asked for, in order; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m probes", description="Try to break the gateway.")
    parser.add_argument("--only", action="append", metavar="NAME", help="a probe or an area; may be given again")
    parser.add_argument("--list", action="store_true", help="what there is, without running it")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    parser.add_argument("--seconds", type=float, default=6.0, metavar="S", help="bound for each load; default: 6")
    options = parser.parse_args(arguments)
    wanted = set(options.only or ())
    chosen = [probe for probe in probes if not wanted or {probe.name, probe.area} & wanted]
    if unknown := wanted - {name for probe in probes for name in (probe.name, probe.area)}:
        parser.error(f"there is no probe or area {', '.join(sorted(unknown))}; see --list")
    if options.list:
        for probe in chosen:
            print(f"{probe.area:<17} {probe.name:<28} {probe.aim}")
        return 0
    found = 0
    with Targets() as targets:
        for probe in chosen:
            verdict = run(probe, Lab(seconds=options.seconds, targets=targets))
            found += verdict.found
            print(json.dumps(verdict.as_json()) if options.json else verdict.line, flush=True)
    if not options.json:
        print(f"{len(chosen)} probes, {found} found something")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
