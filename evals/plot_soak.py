"""The picture of a soak, from its artifact. Needs matplotlib, which the extra [evals] brings.

python -m evals.plot_soak ARTIFACT.json PICTURE.png
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

MIB = 1 << 20
BLUE, ORANGE, GREEN, RED = "#2b6cb0", "#f0a33a", "#2f855a", "#c53030"


def draw(figures: Mapping[str, Any], picture: Path) -> None:
    """Draw memory, threads and files, the ledger's files and waiting over one axis of time."""
    figure = Figure(figsize=(11, 8), layout="constrained")
    memory, counts, files, waits = figure.subplots(4, 1, sharex=True)
    samples = figures["samples"]
    at = samples["at_s"]
    _draw(memory, at, {"RSS, MiB": ([rss / MIB for rss in samples["rss"]], BLUE)})
    _draw(
        counts,
        at,
        {
            "threads": (samples["threads"], ORANGE),
            "open files": (samples["fds"], GREEN),
            "in flight": (samples["waiting"], BLUE),
        },
    )
    _draw(
        files,
        at,
        {
            "write-ahead log, MiB": ([size / MIB for size in samples["wal"]], RED),
            "ledger, MiB": ([size / MIB for size in samples["ledger"]], GREEN),
        },
    )
    _draw(waits, at, {"p50, ms": (samples["p50_ms"], BLUE), "p99, ms": (samples["p99_ms"], RED)})
    waits.set_yscale("log")
    for axes in (memory, counts, files):
        axes.set_ylim(bottom=0)
    waits.set_xlabel("seconds")
    memory.set_title(
        f"{figures['n']} requests with {sum(figures['faults'].values())} faults of {len(figures['faults'])} kinds",
        fontsize=11,
    )
    figure.savefig(picture, dpi=110)


def _draw(axes: Axes, at: Sequence[float], lines: Mapping[str, tuple[Sequence[float | None], str]]) -> None:
    for name, (values, colour) in lines.items():
        known = [(when, value) for when, value in zip(at, values, strict=True) if value is not None]
        axes.plot(*zip(*known, strict=True), color=colour, label=name, linewidth=0.9)
    axes.legend(loc="upper left", ncols=3, fontsize=8, frameon=False)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
