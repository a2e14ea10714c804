"""What the sweep over thresholds came to, held against what was written down before, and shown. Reads only that."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evals import semantic_corpus, semantic_gate, semantic_score, semantic_show
from evals.gates import PREREGISTRATION, Gate, gates_of
from evals.stats import most_failures

NAME = "semantic_cache"
TITLE, TABLE = "The semantic cache, over thresholds and verifiers", "semantic_cache gate"
COMMAND = "python -m evals.semantic_cache --sweep"
PICTURES: Mapping[str, str] = {
    "evals/results/semantic_cache_safety.png": "share of paraphrases served against the wrong share of hits",
    "evals/results/semantic_cache_kinds.png": "near-misses served, by kind",
    "evals/results/semantic_cache_replay.png": "wrong answers per 1,000 questions against hits",
}
THRESHOLDS = tuple(number / 100 for number in range(70, 100))
KINDS_AT = REPLAY_AT = 0.9
EMBEDDERS = ("hash", "use")
PRECISION = 0.98

Figures = Mapping[str, Any]
"""What lies in semantic_cache.json."""


def pooled(figures: Figures) -> dict[str, int]:
    """The sets that are counted together, with the gateway's verifier: what is in them, and what was served."""
    sets = [figures["sets"][name] for name in semantic_corpus.POOLED if name in figures["sets"]]
    return {field: sum(one[field] for one in sets) for field in ("paraphrases", "near_misses", "right", "wrong")}


def is_whole(figures: Figures) -> bool:
    """Whether every set that is counted together was there."""
    return set(semantic_corpus.POOLED) <= set(figures["sets"])


def best_recall(figures: Figures, verifier: str) -> float | None:
    """The largest share of paraphrases, in percent, that any embedder serves where its precision is PRECISION or more.

    0 if there is no such threshold; None unless every set and every embedder was there.
    """
    if not is_whole(figures) or set(EMBEDDERS) != set(figures["embedders"]):
        return None
    served: list[int] = [
        right
        for curve in figures["curves"]
        if curve["verifier"] == verifier
        for right, wrong in zip(curve["pairs"]["right"], curve["pairs"]["wrong"], strict=True)
        if right and right / (right + wrong) >= PRECISION
    ]
    return round(100 * max(served, default=0) / float(pooled(figures)["paraphrases"]), 2)


def replayed(figures: Figures, embedder: str, verifier: str) -> float | None:
    """Wrong answers per 1,000 questions at REPLAY_AT; None if that was not measured."""
    place = THRESHOLDS.index(REPLAY_AT)
    found = [one for one in figures["curves"] if (one["embedder"], one["verifier"]) == (embedder, verifier)]
    if not found or figures["stream"] is None:
        return None
    wrong: int = found[0]["replay"]["wrong"][place]
    return round(1000 * wrong / int(figures["stream"]["questions"]), 2)


def measured(figures: Figures) -> dict[str, float | None]:
    """What the gates look at."""
    whole, every, stream = is_whole(figures), pooled(figures), figures["stream"]
    kinds = figures["sets"]["generated"]["kinds"] if "generated" in figures["sets"] else {}
    hits = every["right"] + every["wrong"]
    near_miss_rate = round(100 * most_failures(every["wrong"], every["near_misses"]), 3)
    return {
        f"{NAME}.cosine_recall": best_recall(figures, "none"),
        f"{NAME}.capitals_recall": best_recall(figures, "numbers-and-capitals"),
        f"{NAME}.wrong": every["wrong"] if whole else None,
        f"{NAME}.unkeyed": len(figures["unkeyed"]) if whole else None,
        f"{NAME}.near_miss_rate": near_miss_rate if whole else None,
        f"{NAME}.precision": round(1 - most_failures(every["wrong"], hits), 4) if whole else None,
        f"{NAME}.light": kinds["para_light"]["recall"] if kinds else None,
        f"{NAME}.medium": kinds["para_medium"]["recall"] if kinds else None,
        f"{NAME}.replay_cosine": replayed(figures, "use", "none"),
        f"{NAME}.replay_wrong": None if stream is None else round(stream["wrong_per_1000"], 2),
    }


def gates(figures: Figures) -> list[Gate]:
    """Every hypothesis with what was measured."""
    return gates_of(PREREGISTRATION.read_text(encoding="utf-8"), TABLE, measured(figures))


def summary(figures: Figures) -> Iterator[str]:
    """In brief, as lines of Markdown: every set, and its kinds of paraphrases."""
    every, stream = pooled(figures), figures["stream"]
    found = semantic_score.certainty(every["right"], every["wrong"])
    yield (
        f"Without an embedder, as the gateway does it, of {every['paraphrases']} paraphrases and "
        f"{every['near_misses']} near-misses: {every['right']} right answers and {every['wrong']} wrong ones, "
        f"precision {semantic_show.precision(found)}. Recall is that of these mixes, and no forecast for other traffic."
    )
    yield ""
    yield from semantic_show.brief(figures["sets"])
    yield from (f"\n{line}" for line in semantic_gate.missing(figures["sets"]))
    if stream is not None:
        yield (
            f"\nReplayed, {stream['questions']} distinct questions of WebQuestions: {stream['hits']} hits, "
            f"{stream['wrong']} with another key, of which {len(stream['read'])} are one question when read."
        )


def lines(figures: Figures) -> Iterator[str]:
    """For people, as lines of Markdown: every curve at five thresholds."""
    yield from summary(figures)
    yield from ("", "Right / wrong of the sets counted together, by least cosine:", "")
    shown = [THRESHOLDS.index(threshold) for threshold in (0.7, 0.8, 0.9, 0.95, 0.99)]
    yield f"| embedder, verifier | {' | '.join(f'{THRESHOLDS[place]:.2f}' for place in shown)} |"
    yield f"|---|{'---|' * len(shown)}"
    yield from _rows(figures["curves"], "pairs", ("right", "wrong"), shown)
    if figures["stream"] is not None:
        yield from ("", "Hits / wrong by key of the replay, by least cosine:", "")
        yield f"| embedder, verifier | {' | '.join(f'{THRESHOLDS[place]:.2f}' for place in shown)} |"
        yield f"|---|{'---|' * len(shown)}"
        yield from _rows(figures["curves"], "replay", ("hits", "wrong"), shown)


def _rows(curves: Sequence[Figures], part: str, fields: tuple[str, str], shown: Sequence[int]) -> Iterator[str]:
    first, second = fields
    for curve in curves:
        cells = [f"{curve[part][first][place]} / {curve[part][second][place]}" for place in shown]
        yield f"| {curve['embedder']}, {curve['verifier']} | {' | '.join(cells)} |"
