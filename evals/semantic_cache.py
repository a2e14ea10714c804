"""What a semantic cache would serve of labelled pairs, or of a stream of questions: right, wrong, and why not the rest.

    python -m evals.semantic_cache (--pairs FILE.jsonl | --stream FILE.jsonl)... [--embedder hash|use|none|URL]
                                   [--verifier closed-world|numbers-and-capitals|none] [--threshold X] [--json]
    python -m evals.semantic_cache --sweep

A pair is {"a", "b", "same", "kind"}: `b` is asked where `a` is stored. A question is {"q", "key"}: each distinct one is
looked up, and stored if nothing was served. Without an embedder every pair is looked at, and a stream is looked up by
the verifier's key, as the gateway does it. Intervals are exact (Clopper and Pearson), two-sided, 95 %.
--sweep measures every verifier behind every embedder that is installed, and writes evals/results/semantic_cache.json
and its pictures. The exit status is 2 for input that cannot be used, with its file and line.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from evals import semantic_replay, semantic_score, semantic_show, vectors
from evals.semantic_judges import Judge, judges
from evals.semantic_sets import BadLine, read_pairs, read_stream
from llmkit.embed import Embedder, HashEmbedder
from llmkit.embed_endpoint import EndpointEmbedder
from llmkit.embed_use import EmbedderMissing, UseEmbedder
from llmkit.errors import ProviderError

THRESHOLD = 0.8
"""The cosine that is asked for where an embedder is named and none is said."""

KEY = "EMBEDDINGS_API_KEY"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit status."""
    parser = _parser()
    wanted = parser.parse_args(arguments)
    if wanted.sweep and (wanted.pairs or wanted.stream):
        parser.error("--sweep is of the committed pairs, and of no others")
    if wanted.sweep:
        from evals import semantic_sweep

        return semantic_sweep.main()
    if not wanted.pairs and not wanted.stream:
        parser.error("name a file with --pairs or --stream, or say --sweep")
    if wanted.threshold is not None and wanted.embedder == "none":
        parser.error("--threshold needs an --embedder")
    judge = judges()[wanted.verifier]
    if wanted.stream and wanted.embedder == "none" and not judge.has_key:
        parser.error("--stream without an --embedder needs a --verifier that has a key: closed-world")
    try:
        with _embedder(wanted.embedder, wanted.model) as embedder:
            found = _measure(wanted, judge, embedder)
    except (OSError, ValueError, EmbedderMissing, ProviderError) as error:
        print(f"semantic_cache: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, indent=1, ensure_ascii=False) if wanted.json else "\n".join(semantic_show.lines(found)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m evals.semantic_cache",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--pairs", type=Path, action="append", default=[], metavar="FILE.jsonl")
    parser.add_argument("--stream", type=Path, action="append", default=[], metavar="FILE.jsonl")
    parser.add_argument("--split", help="only pairs whose `split` is this")
    parser.add_argument("--embedder", default="none", metavar="hash|use|none|URL", type=_embedder_name)
    parser.add_argument("--model", default="text-embedding-3-small", help=f"at the URL; its key is read from {KEY}")
    parser.add_argument("--verifier", choices=tuple(judges()), default="closed-world")
    parser.add_argument("--threshold", type=_threshold, metavar="X", help=f"least cosine; {THRESHOLD:g} if not said")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--sweep", action="store_true", help="measure what is committed, and draw it")
    return parser


def _embedder_name(text: str) -> str:
    if text not in ("hash", "use", "none") and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError("must be hash, use, none, or the base URL of an embeddings API")
    return text


def _threshold(text: str) -> float:
    value = float(text)
    if not -1 <= value <= 1:
        raise argparse.ArgumentTypeError("must be from -1 to 1")
    return value


@contextmanager
def _embedder(name: str, model: str) -> Iterator[Embedder | None]:
    """The embedder of this name, None for `none`. Raises EmbedderMissing, ValueError and ProviderError."""
    match name:
        case "none":
            yield None
        case "hash":
            yield HashEmbedder()
        case "use":
            yield UseEmbedder()
        case _:
            with closing(EndpointEmbedder.ask(name, model, api_key=os.environ.get(KEY))) as embedder:
                yield embedder


def _measure(wanted: argparse.Namespace, judge: Judge, embedder: Embedder | None) -> dict[str, Any]:
    threshold = THRESHOLD if wanted.threshold is None else wanted.threshold
    judged = {str(path): _judged(path, wanted.split, judge, embedder) for path in wanted.pairs}
    streams = {str(path): _replayed(path, judge, embedder, threshold) for path in wanted.stream}
    sets = {name: semantic_score.told(found, threshold) for name, found in judged.items()} | streams
    every = [one for found in judged.values() for one in found]
    return {
        "embedder": embedder and {"name": embedder.name, "version": embedder.version, "dim": embedder.dim},
        "verifier": {"name": judge.name, "version": judge.version},
        "threshold": None if embedder is None else threshold,
        **(semantic_score.told(every, threshold) if every else {}),
        **_together(sets.values()),
        "sets": sets,
    }


def _together(sets: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What can be said of pairs and streams alike."""
    right, wrong, vetoes, hits = 0, 0, Counter[str](), []
    for one in sets:
        right, wrong = right + one["right"], wrong + one["wrong"]
        vetoes.update(one["vetoes"])
        hits += one["wrong_hits"]
    return {
        **semantic_score.certainty(right, wrong),
        "vetoes": dict(vetoes.most_common()),
        "wrong_hits": hits,
    }


def _judged(path: Path, split: str | None, judge: Judge, embedder: Embedder | None) -> list[semantic_score.Judged]:
    pairs = [pair for pair in read_pairs(str(path), path.read_bytes()) if split in (None, pair.split)]
    if not pairs:
        raise BadLine(f"{path}:1: no pair has the split {split}")
    near: Sequence[float | None] = [None] * len(pairs) if embedder is None else vectors.cosines(embedder, pairs)
    return semantic_score.judged(pairs, judge, near)


def _replayed(path: Path, judge: Judge, embedder: Embedder | None, threshold: float) -> dict[str, Any]:
    stream = read_stream(str(path), path.read_bytes())
    texts = [asked.text for asked in stream]
    if embedder is None:
        index: semantic_replay.Index = semantic_replay.ByKey([judge.key(text) for text in texts])
    else:
        index = semantic_replay.ByVector(vectors.neighbours(embedder.embed(texts), threshold), threshold)
    return semantic_replay.told(stream, semantic_replay.replay(stream, index, judge))


if __name__ == "__main__":
    sys.exit(main())
