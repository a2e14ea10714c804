"""What is near what. Pure arithmetic; numpy does it where it is installed, as it is with either extra."""

import math
from collections.abc import Iterator, Sequence

from evals.semantic_replay import Neighbours
from evals.semantic_sets import Pair
from llmkit.embed import Embedder

Vectors = Sequence[Sequence[float]]
"""float[n][dim], unit length."""

_ROWS = 256  # at a time: 6,000 cosines each are 12 MB


def cosines(embedder: Embedder, pairs: Sequence[Pair]) -> list[float]:
    """How near the two questions of each pair are. Raises what the embedder does."""
    vectors = embedder.embed([text for pair in pairs for text in (pair.a, pair.b)])
    return [cosine(one, other) for one, other in zip(vectors[::2], vectors[1::2], strict=True)]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Of two vectors of unit length."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


def neighbours(vectors: Vectors, floor: float) -> Neighbours:
    """For each vector the earlier ones at or above `floor`, the nearest first; of equals, the earlier."""
    return [
        sorted(((near, place) for place, near in enumerate(row) if near >= floor), key=lambda one: (-one[0], one[1]))
        for row in _rows(vectors)
    ]


def _rows(vectors: Vectors) -> Iterator[Sequence[float]]:
    """The cosines of each vector with all earlier ones."""
    try:
        import numpy as np
    except ImportError:
        for place, vector in enumerate(vectors):
            yield [cosine(vector, other) for other in vectors[:place]]
        return
    matrix = np.array(vectors)
    for start in range(0, len(vectors), _ROWS):
        block = matrix[start : start + _ROWS] @ matrix.T
        for number, row in enumerate(block):
            yield row[: start + number].tolist()
