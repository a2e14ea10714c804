"""Every verifier behind every embedder that is there, at each threshold: the figures of semantic_cache.json."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.machine import machine
from evals import semantic_corpus, semantic_gate, semantic_report, vectors
from evals.report import RESULTS, failed_firmly, long_lines, write
from evals.semantic_judges import ClosedWorld, judges
from evals.semantic_replay import ByVector, replay
from evals.semantic_report import KINDS_AT, NAME, THRESHOLDS
from evals.semantic_score import Judged, by_kind, judged, tally
from evals.semantic_sets import Asked, Pair
from llmkit.embed import Embedder, HashEmbedder
from llmkit.embed_use import EmbedderMissing, UseEmbedder

Sets = Mapping[str, Sequence[Pair]]


def main(results: Path = RESULTS) -> int:
    """Measure, write the artifact and its pictures, print everything; returns the exit status."""
    figures = run(semantic_corpus.sets(), semantic_corpus.stream(), embedders())
    results.mkdir(parents=True, exist_ok=True)
    write(results / f"{NAME}.json", figures)
    print("\n".join([*long_lines(NAME, figures), *_drawn(figures, results)]))
    failed = failed_firmly(semantic_report.gates(figures))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 0


def embedders() -> dict[str, Embedder]:
    """Those that are installed, by the names of the command line."""
    found: dict[str, Embedder] = {"hash": HashEmbedder()}
    try:
        found["use"] = UseEmbedder()
    except EmbedderMissing as error:
        print(error, file=sys.stderr)
    return found


def run(sets: Sets, stream: Sequence[Asked] | None, every: Mapping[str, Embedder]) -> dict[str, Any]:
    """The figures of these sets, this stream and these embedders."""
    pooled = {name: sets[name] for name in semantic_corpus.POOLED if name in sets}
    return {
        "machine": {**machine(), "load_average": round(os.getloadavg()[0], 1)},
        **semantic_gate.scored(sets, stream, semantic_corpus.readings()),
        "unkeyed": _unkeyed([pair for pairs in sets.values() for pair in pairs]),
        "embedders": {
            name: {"name": embedder.name, "version": embedder.version, "dim": embedder.dim}
            for name, embedder in every.items()
        },
        "curves": [curve for name, embedder in every.items() for curve in _curves(name, embedder, pooled, stream)],
    }


def _unkeyed(pairs: Sequence[Pair]) -> list[str]:
    """Pairs that the verifier passes although their keys differ."""
    bare = ClosedWorld(every_text=True)
    return [
        pair.id for pair in pairs if bare.key(pair.a) != bare.key(pair.b) and bare.difference(pair.b, pair.a) is None
    ]


def _curves(name: str, embedder: Embedder, pooled: Sets, stream: Sequence[Asked] | None) -> list[dict[str, Any]]:
    """One for each verifier behind this embedder."""
    near = {set_name: vectors.cosines(embedder, pairs) for set_name, pairs in pooled.items()}
    asked = stream or ()
    neighbours = vectors.neighbours(embedder.embed([one.text for one in asked]), THRESHOLDS[0])
    curves = []
    for judge in judges().values():
        found = {set_name: judged(pairs, judge, near[set_name]) for set_name, pairs in pooled.items()}
        played = [replay(asked, ByVector(neighbours, threshold), judge) for threshold in THRESHOLDS]
        curves.append(
            {
                "embedder": name,
                "verifier": judge.name,
                "pairs": _counted(found),
                "kinds": {set_name: _wrong_kinds(ones) for set_name, ones in found.items()},
                "replay": {
                    "hits": [len(one.hits) for one in played],
                    "wrong": [len(one.wrong) for one in played],
                },
            }
        )
    return curves


def _counted(found: Mapping[str, Sequence[Judged]]) -> dict[str, list[int]]:
    """Right and wrong of all sets together, at each threshold."""
    every = [one for ones in found.values() for one in ones]
    tallies = [tally(every, threshold) for threshold in THRESHOLDS]
    return {"right": [one.right for one in tallies], "wrong": [one.wrong for one in tallies]}


def _wrong_kinds(found: Sequence[Judged]) -> dict[str, int]:
    """How many near-misses of each kind are served at KINDS_AT."""
    return {kind: one.wrong for kind, one in by_kind(found, KINDS_AT).items() if one.near_misses}


def _drawn(figures: Mapping[str, Any], results: Path) -> list[str]:
    """Draw the pictures beside the artifact; returns what to tell about it."""
    try:
        from evals.plot_semantic import draw
    except ImportError:
        return ["matplotlib is not installed (the extra [evals]): no pictures"]
    return [f"picture: {picture}" for picture in draw(figures, results)]
