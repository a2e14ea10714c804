"""Texts to vectors.

Decides what an embedder is, and how a text becomes float[dim] of unit length without a model. Knows nothing of what
the vectors are compared for. Others: `embed_use` (weights inside a package), `embed_endpoint` (a server).

Rules. An embedder that needs neither a download nor a server is always at hand, and gives the same vector for the same
text in every process and on every machine. Every text has a vector: one that says nothing has the first unit vector,
and a lone surrogate, which no UTF-8 can hold, is read as a question mark where an encoder needs UTF-8.
"""

import math
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Protocol

_WORD = re.compile(r"\w+|[^\w\s]")
_GRAM = 3  # characters: shorter ones are in every text, longer ones miss an inflected word


class Embedder(Protocol):
    """Turns texts into vectors. Safe from any thread.

    Two vectors may be compared if name, version and dim are the same: all three belong into the key of what is kept.
    """

    @property
    def name(self) -> str:
        """Which embedder it is, and of which model; never empty."""

    @property
    def version(self) -> str:
        """Changes whenever the vector of any text does; never empty."""

    @property
    def dim(self) -> int:
        """The length of every vector, 1 or more."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in order: float[dim], unit length. Of no texts, none.

        Raises llmkit.errors.ProviderError if a server is asked and gives no usable answer.
        """


def unit(vector: Sequence[float]) -> list[float]:
    """The vector of length 1 in the direction of this one. Raises ValueError if it has none that floats can hold."""
    length = math.hypot(*vector)
    if not sys.float_info.min <= length < math.inf:
        raise ValueError("a vector without a direction")
    return [value / length for value in vector]


def first_axis(dim: int) -> list[float]:
    """The first unit vector: that of a text which says nothing."""
    return [1.0] + [0.0] * (dim - 1)


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: each lone surrogate is a question mark."""
    return text.encode("utf-8", "replace").decode()


class HashEmbedder:
    """Feature hashing of words, pairs of words and character trigrams, each with a sign.

    Sees shared wording, not meaning: a baseline for tests and measurements, never a judge of equivalence. The text is
    compared without case and in Unicode's compatible form. A text without features, such as the empty one, gives the
    first unit vector. Immutable: safe from any thread.
    """

    name = "hash"
    version = "1"

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
        return unit(vector) if any(vector) else first_axis(self.dim)


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
