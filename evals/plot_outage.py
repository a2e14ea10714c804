"""The picture of an outage, from its artifact. Needs matplotlib, which the extra [evals] brings.

python -m evals.plot_outage ARTIFACT.json PICTURE.png
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

PRIMARY, BACKUP, CUT, FAILED = "#2b6cb0", "#f0a33a", "#c53030", "#1a202c"
BREAKER = {"closed": "#9ad0a5", "open": "#e58c8c", "half_open": "#f5dc8a"}
OTHER = "#cbd5e0"


def draw(figures: Mapping[str, Any], picture: Path) -> None:
    """Draw requests per deployment, waits for first content and the breaker's state over one axis of time."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": [6, 3, 0.6]})
    width, line, outage = figures["bucket_s"], figures["timeline"], figures["outage"]
    at = [number * width for number in range(len(line["breaker"]))]
    _draw_requests(top, at, width, line, outage)
    _draw_waits(middle, at, width, line["first_content_max_ms"])
    _draw_breaker(bottom, at, width, line["breaker"])
    for axes in (top, middle, bottom):
        axes.axvline(outage["killed_s"], color=FAILED, linestyle="--", linewidth=1)
        axes.axvline(outage["restarted_s"], color=FAILED, linestyle=":", linewidth=1)
    for name, instant in (("SIGKILL", "killed_s"), ("started again", "restarted_s")):
        top.annotate(
            name, (outage[instant], 0.88), (4, 0), ("data", "axes fraction"), textcoords="offset points", va="top"
        )
    outcomes = figures["outcomes"]
    top.set_title(
        f"A llama.cpp server killed under load: {figures['n']} streams, {outcomes.get('whole', 0)} whole, "
        f"{outcomes.get('in_band', 0)} cut with an in-band error, {outcomes.get('http_error', 0)} HTTP errors, "
        f"{outcomes.get('lost', 0)} lost",
        fontsize=11,
    )
    figure.savefig(picture, dpi=110)


def _draw_requests(
    axes: Axes, at: Sequence[float], width: float, line: Mapping[str, Any], outage: Mapping[str, Any]
) -> None:
    bars = {
        "whole, by the primary": (line[outage["primary"]], PRIMARY),
        "whole, by the backup": (line[outage["backup"]], BACKUP),
        "cut, told in-band": (line["in_band"], CUT),
        "HTTP error or lost": ([a + b for a, b in zip(line["http_error"], line["lost"], strict=True)], FAILED),
    }
    floor = [0] * len(at)
    for name, (counts, colour) in bars.items():
        axes.bar(at, counts, width, bottom=floor, align="edge", color=colour, label=name)
        floor = [below + count for below, count in zip(floor, counts, strict=True)]
    axes.set_ylim(0, max(floor, default=1) * 1.3 + 1)
    axes.set_ylabel(f"streams ended per {width:g} s")
    axes.legend(loc="upper right", ncols=4, fontsize=8, framealpha=1, edgecolor="none")


def _draw_waits(axes: Axes, at: Sequence[float], width: float, waits: Sequence[int | None]) -> None:
    shown = [(start + width / 2, wait) for start, wait in zip(at, waits, strict=True) if wait is not None]
    axes.plot(*zip(*shown, strict=True), color=PRIMARY, marker=".", markersize=3, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("longest wait for\nfirst content, ms")


def _draw_breaker(axes: Axes, at: Sequence[float], width: float, states: Sequence[str | None]) -> None:
    colours = [BREAKER.get(state or "", OTHER) for state in states]
    axes.bar(at, [1] * len(at), width, align="edge", color=colours)
    axes.set_yticks([])
    axes.set_ylabel("breaker", rotation=0, ha="right", va="center")
    axes.set_xlabel("seconds")
    patches = [Patch(color=colour, label=state.replace("_", "-")) for state, colour in BREAKER.items()]
    axes.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.5, -1.6), ncols=3, fontsize=8, frameon=False)
    axes.set_xlim(0, len(at) * width)


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
