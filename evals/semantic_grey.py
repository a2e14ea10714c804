"""What a judge of the semantic cache would be shown, pair by pair: how far it helps, and how far it must be trusted.

    python -m evals.semantic_grey [--pairs FILE ...] [--least 0.4 0.5 0.6 0.7 0.8] [--results DIR]

Of each pair of questions: whether the cache would look either up at all, whether its verifier passes it, whether
anything bars a judge, and whether it is near enough by the embedder that needs no download. What is left is shown to
the judge. Of paraphrases that is what a judge can add; of near-misses, what a judge that says yes to everything would
serve wrongly. No judge is asked here.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evals import ROOT
from evals.report import RESULTS, write
from evals.semantic_sets import Pair, read_pairs
from gateway.semantic.eligible import refusal
from gateway.semantic.grey import bar
from gateway.semantic.verifier import read, verify
from llmkit.embed import HashEmbedder

COMMITTED = tuple(
    ROOT / "evals" / "data" / "semantic" / f"{name}.jsonl" for name in ("near_misses", "rewordings", "generated_pairs")
)
LEAST = (0.4, 0.5, 0.6, 0.7, 0.8)


def course(pair: Pair, embedder: HashEmbedder) -> tuple[str, float]:
    """What becomes of a pair before a judge is asked, and its cosine."""
    if refusal(pair.a) or refusal(pair.b):
        return "not looked up", 0.0
    one, other = read(pair.a), read(pair.b)
    if verify(one, other) is None:
        return "verified", 1.0
    if reason := bar(one, other):
        return f"barred: {reason}", 0.0
    left, right = embedder.embed([pair.a, pair.b])
    return "open", sum(a * b for a, b in zip(left, right, strict=True))


def measure(pairs: Iterable[Pair], least: Sequence[float]) -> dict[str, dict[str, Any]]:
    """By kind: what became of its pairs, and how many a judge is shown from each cosine on."""
    embedder = HashEmbedder()
    courses: dict[str, Counter[str]] = {}
    shown: dict[str, Counter[str]] = {}
    for pair in pairs:
        kind = f"{'paraphrase' if pair.same else 'near-miss'} {pair.kind}"
        told, cosine = course(pair, embedder)
        courses.setdefault(kind, Counter())[told] += 1
        shown.setdefault(kind, Counter()).update(f"{each:g}" for each in least if told == "open" and cosine >= each)
    return {
        kind: {
            "pairs": counts.total(),
            "courses": dict(sorted(counts.items())),
            "shown": {f"{each:g}": shown[kind][f"{each:g}"] for each in least},
        }
        for kind, counts in sorted(courses.items())
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write the artifact, print it; returns the exit status."""
    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m evals.semantic_grey", description=about)
    parser.add_argument("--pairs", type=Path, action="append", help="a file of pairs; default: the committed ones")
    parser.add_argument("--least", type=float, nargs="+", default=list(LEAST), help="cosines")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the artifact goes")
    arguments = parser.parse_args(argv)
    figures = {
        path.name: measure(read_pairs(path.name, path.read_bytes()), arguments.least)
        for path in arguments.pairs or COMMITTED
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    write(arguments.results / "semantic_grey.json", figures)
    for name, kinds in figures.items():
        print(name)
        for kind, told in kinds.items():
            shown = ", ".join(f"{count} >= {least}" for least, count in told["shown"].items())
            print(f"  {kind:<28} {told['pairs']:>4} pairs; shown: {shown}; {told['courses']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
