"""The pictures of the semantic cache's sweep, from its artifact. Needs matplotlib, which the extra [evals] brings.

python -m evals.plot_semantic ARTIFACT.json FOLDER
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from evals.semantic_report import KINDS_AT, NAME, THRESHOLDS, pooled
from evals.stats import exact_interval

COLOURS = {"none": "#c53030", "numbers-and-capitals": "#f0a33a", "closed-world": "#2f855a"}
MARKS = {"hash": "o", "use": "s"}
LINES = {"hash": "--", "use": "-"}
BUDGET = 0.02
MARKED = (0, 10, 20, 25, 29)
"""Places of the thresholds that are shown with their interval: 0.70, 0.80, 0.90, 0.95, 0.99."""


def draw(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the safety curve, the kinds and the replay into the folder; returns the files."""
    drawings = {"safety": _safety, "kinds": _kinds}
    if figures["stream"] is not None:
        drawings["replay"] = _replay
    pictures = []
    for name, drawing in drawings.items():
        picture = folder / f"{NAME}_{name}.png"
        drawing(figures).savefig(picture, dpi=110)
        pictures.append(picture)
    return pictures


def _safety(figures: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    every = pooled(figures)
    for curve in figures["curves"]:
        points = list(zip(curve["pairs"]["right"], curve["pairs"]["wrong"], strict=True))
        _draw_shares(axes, points, every["paraphrases"], curve["embedder"], curve["verifier"])
    _draw_alone(axes, every["right"], every["wrong"], every["paraphrases"])
    axes.axhline(BUDGET, color="black", linestyle=":", linewidth=1)
    axes.annotate("budget: 2 %", (0.99, BUDGET), (0, 3), ("axes fraction", "data"), "offset points", ha="right")
    axes.set_yscale("log")
    axes.set_ylim(0.002, 1.1)
    axes.set_xlabel(f"share of {every['paraphrases']} paraphrases served")
    axes.set_ylabel("wrong share of hits (exact 95 % intervals)")
    axes.set_title(
        f"Cosine from {THRESHOLDS[0]:.2f} (right) to {THRESHOLDS[-1]:.2f}; {every['near_misses']} near-misses.\n"
        "A triangle: no wrong hit was seen, drawn at the bound",
        fontsize=10,
    )
    axes.legend(fontsize=8, loc="lower right")
    return figure


def _draw_shares(axes: Axes, points: Sequence[tuple[int, int]], paraphrases: int, embedder: str, verifier: str) -> None:
    """A line through the wrong shares, with an interval at some; no wrong hit is a bound and stands on no line."""
    colour = COLOURS[verifier]
    seen = [(right / paraphrases, wrong / (right + wrong)) for right, wrong in points if wrong]
    if seen:
        axes.plot(*zip(*seen, strict=True), LINES[embedder], color=colour, linewidth=1, label=f"{embedder}, {verifier}")
    else:
        axes.plot([], [], "v", color=colour, label=f"{embedder}, {verifier}: no wrong hit")
    for place in MARKED:
        right, wrong = points[place]
        if right + wrong:
            _draw_point(axes, right, wrong, paraphrases, colour, MARKS[embedder])


def _draw_point(axes: Axes, right: int, wrong: int, paraphrases: int, colour: str, mark: str) -> None:
    x, hits = right / paraphrases, right + wrong
    low, high = exact_interval(wrong, hits)
    if wrong:
        y = wrong / hits
        axes.errorbar(x, y, [[y - low], [high - y]], color=colour, fmt=mark, markersize=4, capsize=2, linewidth=0.8)
    else:
        axes.plot(x, high, "v", color=colour, markersize=5, markerfacecolor="none")


def _draw_alone(axes: Axes, right: int, wrong: int, paraphrases: int) -> None:
    """The gateway's verifier without an embedder."""
    if right + wrong:
        y = wrong / (right + wrong) if wrong else exact_interval(0, right)[1]
        axes.plot(right / paraphrases, y, "*", color="black", markersize=12, label="closed-world, no embedder")


def _kinds(figures: Mapping[str, Any]) -> Figure:
    names = [f"{name}: {_short(kind)}" for name, kind, _ in _near_kinds(figures)]
    curves = figures["curves"]
    figure = Figure(figsize=(11, 2 + 0.34 * len(names)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(curves)
    for number, curve in enumerate(curves):
        at = [place - 0.4 + (number + 0.5) * height for place in range(len(names))]
        served = [100 * curve["kinds"][name][kind] / count for name, kind, count in _near_kinds(figures)]
        hatch = "" if curve["embedder"] == "hash" else "///"
        label = f"{curve['embedder']}, {curve['verifier']}"
        axes.barh(at, served, height, color=COLOURS[curve["verifier"]], hatch=hatch, edgecolor="white", label=label)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel(f"% of the near-misses served at a cosine of {KINDS_AT:g} or more")
    axes.legend(fontsize=8, loc="upper right")
    return figure


def _near_kinds(figures: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Set, kind and number of every kind of near-miss that is counted together."""
    sets = {name: figures["sets"][name]["kinds"] for name in figures["curves"][0]["kinds"]}
    return [
        (name, kind, one["near_misses"])
        for name, kinds in sets.items()
        for kind, one in kinds.items()
        if one["near_misses"]
    ]


def _short(kind: str) -> str:
    bare = kind.removeprefix("near_")
    return bare if len(bare) <= 48 else f"{bare[:47]}…"


def _replay(figures: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots()
    stream = figures["stream"]
    questions = stream["questions"]
    for curve in figures["curves"]:
        played = curve["replay"]
        at = [100 * hits / questions for hits in played["hits"]]
        wrong = [1000 * count / questions for count in played["wrong"]]
        embedder, verifier = curve["embedder"], curve["verifier"]
        line = f"{LINES[embedder]}{MARKS[embedder]}"
        axes.plot(at, wrong, line, color=COLOURS[verifier], markersize=3, linewidth=1, label=f"{embedder}, {verifier}")
    axes.plot(
        100 * stream["hit_rate"],
        stream["wrong_per_1000"],
        "*",
        color="black",
        markersize=12,
        label="closed-world, no embedder",
    )
    axes.axvline(100 * stream["oracle_rate"], color="black", linestyle=":", linewidth=1)
    axes.annotate(
        "all that could be served",
        (100 * stream["oracle_rate"], 0.5),
        (-12, 0),
        ("data", "axes fraction"),
        "offset points",
        rotation=90,
        va="center",
    )
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("% of the questions served")
    axes.set_ylabel("wrong by key per 1,000 questions")
    axes.set_title(
        f"{questions} distinct questions of WebQuestions; cosine from {THRESHOLDS[0]:.2f} (right) to "
        f"{THRESHOLDS[-1]:.2f} (left)",
        fontsize=10,
    )
    axes.legend(fontsize=8)
    return figure


if __name__ == "__main__":
    draw(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
