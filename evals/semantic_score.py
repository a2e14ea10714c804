"""What a cache would have served of labelled pairs: right, wrong, and why the rest was not. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evals.semantic_judges import Judge
from evals.semantic_sets import Pair
from evals.stats import exact_interval


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair: `b` is asked where `a` is stored.

    cosine  between the two; None: without an embedder every pair is looked at
    veto    why `b` would not be served; None if nothing speaks against it
    """

    pair: Pair
    cosine: float | None
    veto: str | None

    def is_near(self, threshold: float) -> bool:
        """Whether it is looked at."""
        return self.cosine is None or self.cosine >= threshold

    def is_served(self, threshold: float) -> bool:
        """Whether it is near enough and not refused."""
        return self.veto is None and self.is_near(threshold)


@dataclass(frozen=True, slots=True)
class Tally:
    """Pairs, and how many of them were served: `right` of the paraphrases, `wrong` of the near-misses."""

    paraphrases: int = 0
    near_misses: int = 0
    right: int = 0
    wrong: int = 0

    @property
    def recall(self) -> float | None:
        """The served share of the paraphrases; None of none."""
        return self.right / self.paraphrases if self.paraphrases else None


def judged(pairs: Iterable[Pair], judge: Judge, cosines: Iterable[float | None]) -> list[Judged]:
    """Each pair with its cosine, and what the judge says of it, near or not."""
    return [Judged(pair, cosine, _veto(pair, judge)) for pair, cosine in zip(pairs, cosines, strict=True)]


def _veto(pair: Pair, judge: Judge) -> str | None:
    return judge.refusal(pair.a) or judge.refusal(pair.b) or judge.difference(pair.b, pair.a)


def tally(found: Iterable[Judged], threshold: float) -> Tally:
    """All of them counted."""
    same: Counter[bool] = Counter()
    served: Counter[bool] = Counter()
    for one in found:
        same[one.pair.same] += 1
        served[one.pair.same] += one.is_served(threshold)
    return Tally(same[True], same[False], served[True], served[False])


def by_kind(found: Sequence[Judged], threshold: float) -> dict[str, Tally]:
    """The same by kind, in the order in which kinds come."""
    kinds = dict.fromkeys(one.pair.kind for one in found)
    return {kind: tally((one for one in found if one.pair.kind == kind), threshold) for kind in kinds}


def vetoes(found: Iterable[Judged], threshold: float) -> dict[str, int]:
    """How often each reason kept apart what was near enough, the most frequent first."""
    return dict(Counter(one.veto for one in found if one.veto and one.is_near(threshold)).most_common())


def wrong_hits(found: Iterable[Judged], threshold: float) -> Iterator[Pair]:
    """The near-misses that were served."""
    return (one.pair for one in found if one.is_served(threshold) and not one.pair.same)


def certainty(right: int, wrong: int) -> dict[str, Any]:
    """Hits and their precision, with its exact two-sided 95 % interval; no precision of no hits."""
    hits = right + wrong
    return {
        "hits": hits,
        "right": right,
        "wrong": wrong,
        "precision": right / hits if hits else None,
        "precision_95": exact_interval(right, hits),
    }


def told(found: Sequence[Judged], threshold: float) -> dict[str, Any]:
    """Everything that is to be said of one set."""
    whole = tally(found, threshold)
    return {
        "paraphrases": whole.paraphrases,
        "near_misses": whole.near_misses,
        **certainty(whole.right, whole.wrong),
        "recall": whole.recall,
        "recall_95": exact_interval(whole.right, whole.paraphrases),
        "kinds": {
            kind: {
                "paraphrases": one.paraphrases,
                "near_misses": one.near_misses,
                "right": one.right,
                "wrong": one.wrong,
                "recall": one.recall,
            }
            for kind, one in by_kind(found, threshold).items()
        },
        "too_far": sum(not one.is_near(threshold) for one in found),
        "vetoes": vetoes(found, threshold),
        "wrong_hits": [
            {"id": pair.id, "kind": pair.kind, "asked": pair.b, "stored": pair.a}
            for pair in wrong_hits(found, threshold)
        ],
    }
