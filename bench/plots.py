"""The two pictures of a measurement, from its artifact. Needs matplotlib, which the extra [evals] brings."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#2b6cb0", "#63b3ed", "#718096", "#2f855a", "#f0a33a", "#805ad5", "#c53030")
Runs = Mapping[str, Sequence[Mapping[str, float]]]
"""By size or number of callers: a list of repetitions."""


def draw(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write what there are figures for; which files that were."""
    written = []
    curves = {name: about["curve"] for name, about in figures["subjects"].items() if "curve" in about}
    if curves:
        written.append(_save(_concurrency(curves), folder / "concurrency.png"))
    if figures["scale"]:
        written.append(_save(_scale(figures["scale"]), folder / "scale.png"))
    return written


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    return path


def _concurrency(curves: Mapping[str, Runs]) -> Figure:
    figure = Figure(figsize=(11, 8), layout="constrained")
    (median, tail), (rate, rest) = figure.subplots(2, 2)
    for axes, name, title in (
        (median, "p50_us", "latency, p50, us"),
        (tail, "p99_us", "latency, p99, us"),
        (rate, "requests_per_s", "requests/s"),
    ):
        for (subject, curve), colour in zip(curves.items(), COLOURS, strict=False):
            _line(axes, curve, name, subject, colour)
        axes.set_yscale("log")
        axes.set_xscale("log", base=2)
        callers = sorted({int(callers) for curve in curves.values() for callers in curve})
        axes.set_xticks(callers, [str(each) for each in callers])
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("callers")
    rest.axis("off")
    rest.legend(*median.get_legend_handles_labels(), loc="center", frameon=False)
    return figure


def _scale(scale: Mapping[str, Runs]) -> Figure:
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    row = figure.subplots(1, len(scale), sharey=True, squeeze=False)[0]
    for axes, (axis, runs) in zip(row, scale.items(), strict=True):
        _line(axes, runs, "p50_us", "p50", COLOURS[0])
        _line(axes, runs, "p99_us", "p99", COLOURS[-1])
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_title(f"one caller, us, over {axis}", fontsize=9)
        axes.legend(fontsize=8, frameon=False)
    return figure


def _line(axes: Axes, runs: Runs, name: str, label: str, colour: str) -> None:
    """Medians, with the least and the most of the repetitions around them."""
    sizes = sorted(runs, key=int)
    at = [int(size) for size in sizes]
    values = [[run[name] for run in runs[size]] for size in sizes]
    axes.plot(at, [statistics.median(each) for each in values], color=colour, label=label, marker="o", markersize=3)
    axes.fill_between(at, [min(each) for each in values], [max(each) for each in values], color=colour, alpha=0.15)
