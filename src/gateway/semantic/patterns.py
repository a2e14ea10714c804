"""Phrases as data: `how do|can i|we|one` is four phrases, and `[the|a]` may be missing.

A table of patterns becomes a tree of words, so that finding the longest phrase at a place costs one look-up for each
word of it, however long the table and the text are.
"""

from collections.abc import Iterable, Sequence, Set
from itertools import compress, product
from typing import Any, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

REMEMBERED: Final = 2048
"""Words of which it is remembered what was found out about each: a question is made of few, and each is met often."""

_FOUND: Final = ""
"""Where a node of the tree keeps what is found of the phrase that ends there: no word is empty."""


class Found(NamedTuple, Generic[T]):
    """A phrase of the table: how many words it has, and what the table says of it."""

    length: int
    value: T


class Phrases(Generic[T]):
    """A table of patterns, each with a value. Never changed after it was made."""

    __slots__ = ("_most_words", "_tree")

    def __init__(self, rows: Iterable[tuple[str, T]]) -> None:
        """rows  (pattern, value); of two rows for the same phrase the first wins"""
        self._tree: dict[str, Any] = {}
        self._most_words = 0
        for pattern, value in rows:
            for phrase in expand(pattern):
                node = self._tree
                for word in phrase:
                    node = node.setdefault(word, {})
                node.setdefault(_FOUND, Found(len(phrase), value))
                self._most_words = max(self._most_words, len(phrase))

    def at(self, words: Sequence[str], place: int) -> Found[T] | None:
        """The longest phrase that begins at `place`."""
        node: Any = self._tree
        longest: Found[T] | None = None
        for word in words[place : place + self._most_words]:
            node = node.get(word)
            if node is None:
                break
            longest = node.get(_FOUND, longest)
        return longest

    @property
    def starts(self) -> Set[str]:
        """The words with which a phrase begins."""
        return self._tree.keys()

    def within(self, words: Sequence[str]) -> list[tuple[int, Found[T]]]:
        """Each place where a phrase begins, and the longest one there."""
        places = compress(range(len(words)), map(self._tree.__contains__, words))
        return [(place, found) for place in places if (found := self.at(words, place)) is not None]


def word_set(words: str) -> frozenset[str]:
    """The words of a text that is a list of them."""
    return frozenset(words.split())


def expand(pattern: str) -> list[tuple[str, ...]]:
    """Every phrase that a pattern stands for. ValueError if a bracket does not begin and end one part."""
    return [tuple(filter(None, phrase)) for phrase in product(*map(_choices, pattern.split()))]


def _choices(part: str) -> list[str]:
    if (part[0] == "[") != (part[-1] == "]"):
        raise ValueError(f"{part!r}: what may be missing is one word")
    return ["", *part[1:-1].split("|")] if part[0] == "[" else part.split("|")
