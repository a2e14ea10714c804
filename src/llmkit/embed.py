"""Texts to vectors.

Decides how a text becomes float[dim] of unit length. Knows nothing of what the vectors are compared for.

Rules. The same text gives the same vector in every process and on every machine; an embedder that needs no download is
always at hand.
"""

import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Protocol

_WORD = re.compile(r"\w+|[^\w\s]")
_GRAM = 3  # characters: shorter ones are in every text, longer ones miss an inflected word


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def dim(self) -> int:
        """The length of every vector."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order: float[dim], unit length."""


class HashEmbedder:
    """Feature hashing of words, pairs of words and character trigrams, each with a sign.

    Sees shared wording, not meaning: a baseline for tests and measurements, never a judge of equivalence. The text is
    compared without case and in Unicode's compatible form. A text without features, such as the empty one, gives the
    first unit vector. Immutable: safe from any thread.
    """

    def __init__(self, dim: int = 256) -> None:
        """Make vectors of `dim` numbers, 1 or more; ValueError otherwise."""
        if dim < 1:
            raise ValueError("dim must be at least 1")
        self.dim = dim

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order: float[dim], unit length."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dim
        for feature, weight in _features(text):
            digest = int.from_bytes(blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
            vector[(digest >> 1) % self.dim] += weight if digest & 1 else -weight
        length = math.hypot(*vector)
        if length == 0:
            return [1.0] + [0.0] * (self.dim - 1)
        return [value / length for value in vector]


def _features(text: str) -> Iterator[tuple[str, float]]:
    """Named features and their weights: a word has many trigrams, so each counts for less than the word itself."""
    words = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    for word in words:
        yield f"word {word}", 1.0
        padded = f"<{word}>"
        for start in range(len(padded) - _GRAM + 1):
            yield f"gram {padded[start : start + _GRAM]}", 0.5
    for first, second in pairwise(words):
        yield f"pair {first} {second}", 1.0
