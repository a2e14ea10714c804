"""A stream of questions through a cache: each is looked up, and stored if nothing was served. Pure.

What is tried for a question is either what has its canonical key, the newest first, or the one nearest stored question
by cosine. A hit is wrong if the keys of the two answers differ, which may be the fault of the keys: whoever counts it
reads it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from evals.semantic_judges import Judge
from evals.semantic_score import certainty
from evals.semantic_sets import Asked

MOST_TRIED = 8
"""Stored questions of one canonical key that are tried: as many as the cache keeps."""

Neighbours = Sequence[Sequence[tuple[float, int]]]
"""For each question the earlier ones, by cosine and place in the stream, the nearest first."""


class Index(Protocol):
    """Where stored questions are found, all by their place in the stream."""

    def find(self, place: int) -> Sequence[int]:
        """What is tried, in order."""

    def add(self, place: int) -> None:
        """Store one."""


class ByKey:
    """By equal keys."""

    def __init__(self, keys: Sequence[bytes | None]) -> None:
        """The key of each question; one without a key finds nothing and is not found."""
        self._keys = keys
        self._stored: dict[bytes, list[int]] = {}

    def find(self, place: int) -> Sequence[int]:
        """Those of the same key, the newest first."""
        key = self._keys[place]
        return [] if key is None else self._stored.get(key, [])[: -MOST_TRIED - 1 : -1]

    def add(self, place: int) -> None:
        """Store one."""
        key = self._keys[place]
        if key is not None:
            self._stored.setdefault(key, []).append(place)


class ByVector:
    """By cosine."""

    def __init__(self, neighbours: Neighbours, threshold: float) -> None:
        self._neighbours = neighbours
        self._threshold = threshold
        self._stored: set[int] = set()

    def find(self, place: int) -> Sequence[int]:
        """The nearest that is stored and near enough."""
        for cosine, other in self._neighbours[place]:
            if cosine < self._threshold:
                break
            if other in self._stored:
                return [other]
        return []

    def add(self, place: int) -> None:
        """Store one."""
        self._stored.add(place)


@dataclass(frozen=True, slots=True)
class Replay:
    """What became of a stream.

    answerable  questions of which an earlier one has the answer: what a perfect cache would serve
    hits        the served question and the stored one, by place
    wrong       those of the hits whose keys differ
    """

    asked: int
    answerable: int
    hits: tuple[tuple[int, int], ...]
    wrong: tuple[tuple[int, int], ...]
    vetoes: Counter[str]


def replay(stream: Sequence[Asked], index: Index, judge: Judge) -> Replay:
    """Play the stream once; the index is filled by it."""
    hits: list[tuple[int, int]] = []
    vetoes: Counter[str] = Counter()
    for place, asked in enumerate(stream):
        if why := judge.refusal(asked.text):
            vetoes[why] += 1
            continue
        for stored in index.find(place):
            if why := judge.difference(asked.text, stream[stored].text):
                vetoes[why] += 1
                continue
            hits.append((place, stored))
            break
        else:
            index.add(place)
    wrong = tuple((place, stored) for place, stored in hits if stream[place].key != stream[stored].key)
    answerable = len(stream) - len({asked.key for asked in stream})
    return Replay(len(stream), answerable, tuple(hits), wrong, vetoes)


def told(stream: Sequence[Asked], played: Replay) -> dict[str, Any]:
    """Everything that is to be said of one stream."""
    hits, wrong = len(played.hits), len(played.wrong)
    return {
        "questions": played.asked,
        "answerable": played.answerable,
        **certainty(hits - wrong, wrong),
        "hit_rate": hits / played.asked,
        "oracle_rate": played.answerable / played.asked,
        "wrong_per_1000": 1000 * wrong / played.asked,
        "vetoes": dict(played.vetoes.most_common()),
        "wrong_hits": [
            {
                "id": stream[place].id,
                "stored_id": stream[stored].id,
                "asked": stream[place].text,
                "stored": stream[stored].text,
            }
            for place, stored in played.wrong
        ],
    }
