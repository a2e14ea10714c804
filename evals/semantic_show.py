"""What was measured of pairs and streams, as lines of Markdown for people. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Told = Mapping[str, Any]
"""What semantic_score.told and semantic_replay.told say of a set or a stream."""


def lines(found: Told) -> Iterator[str]:
    """Everything that `python -m evals.semantic_cache` measured."""
    yield _head(found)
    yield from ("", *table(found["sets"]))
    yield from ("", f"All together: {found['hits']} hits, {found['wrong']} wrong, precision {precision(found)}.")
    if found["vetoes"]:
        yield "Refused: " + ", ".join(f"{why} {count}" for why, count in found["vetoes"].items()) + "."
    for hit in found["wrong_hits"]:
        yield f"wrong: {hit['id']}: {hit['asked']!r} was given the answer to {hit['stored']!r}"


def table(sets: Mapping[str, Told]) -> Iterator[str]:
    """A table of the sets of pairs, each with its kinds, and one of the streams."""
    pairs = {name: told for name, told in sets.items() if "kinds" in told}
    streams = {name: told for name, told in sets.items() if "kinds" not in told}
    if pairs:
        yield "| set and kind | paraphrases served | near-misses served | precision (95 %) | recall (95 %) |"
        yield "|---|---|---|---|---|"
        for name, told in pairs.items():
            yield _row(f"**{name}**", told)
            for kind, one in told["kinds"].items():
                yield f"| {kind} | {_served(one)} | | {share(one['recall'])} |"
    if pairs and streams:
        yield ""
    if streams:
        yield "| stream | questions | hits | could be | wrong by key | precision (95 %) | wrong per 1,000 questions |"
        yield "|---|---|---|---|---|---|---|"
        for name, told in streams.items():
            yield (
                f"| {name} | {told['questions']} | {told['hits']} | {told['answerable']} | {told['wrong']} "
                f"| {precision(told)} | {told['wrong_per_1000']:.2f} |"
            )


def brief(sets: Mapping[str, Told]) -> Iterator[str]:
    """The sets of pairs, each with its kinds of paraphrases; near-misses of all kinds together."""
    yield "| set and kind | paraphrases served | near-misses served | precision (95 %) | recall (95 %) |"
    yield "|---|---|---|---|---|"
    for name, told in sets.items():
        yield _row(f"**{name}**", told)
        kinds = {kind: one for kind, one in told["kinds"].items() if one["paraphrases"]}
        yield from (f"| {kind} | {_served(one)} | | {share(one['recall'])} |" for kind, one in kinds.items())


def precision(told: Told) -> str:
    """With its interval."""
    return share(told["precision"], told["precision_95"])


def share(value: float | None, interval: Sequence[float] | None = None) -> str:
    """Three digits, and the interval behind it; `-` of nothing."""
    if value is None:
        return "-"
    return f"{value:.3f}" if interval is None else f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def _head(found: Told) -> str:
    embedder, verifier = found["embedder"], found["verifier"]
    near = "no embedder"
    if embedder is not None:
        near = (
            f"embedder {embedder['name']} {embedder['version']} ({embedder['dim']}), cosine >= {found['threshold']:g}"
        )
    return f"Verifier {verifier['name']} {verifier['version']}; {near}."


def _row(name: str, told: Told) -> str:
    """Precision is shown only where a hit could be either right or wrong."""
    sure = precision(told) if told["paraphrases"] and told["near_misses"] else ""
    return f"| {name} | {_served(told)} | {sure} | {share(told['recall'], told['recall_95'])} |"


def _served(told: Told) -> str:
    """Right of the paraphrases, wrong of the near-misses."""
    right = f"{told['right']} of {told['paraphrases']}" if told["paraphrases"] else ""
    wrong = f"{told['wrong']} of {told['near_misses']}" if told["near_misses"] else ""
    return f"{right} | {wrong}"
