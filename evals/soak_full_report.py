"""The same soak with durability `full`: a settlement is on the disk before its answer ends."""

from collections.abc import Mapping

from evals import soak_report

TITLE = "A soak in `full`"
COMMAND = f"{soak_report.COMMAND} --durability full"
PICTURES: Mapping[str, str] = {}
gates, summary, lines = soak_report.gates, soak_report.summary, soak_report.lines
