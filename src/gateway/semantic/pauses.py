"""Signs between words: which of them only part words, and which are what is asked about.

Rules:
- a pause right behind a word, or at the end, says nothing, but stays as what parts two words
- one that stands apart, or behind a sign that says something, is marked; at the end only if it ends no sentence
- an exclamation mark behind a number or a single letter is a factorial
- beside a term of programming the signs within a question are marked, but for commas, full stops, a colon between two
  words, and a mark behind the first words, which may greet
- quotes in pairs go: what they quote is compared elsewhere
"""

from collections.abc import Iterable, Set
from itertools import filterfalse
from typing import Final

from gateway.semantic import lexicon

PAUSES: Final = frozenset(",.?!;:")
MARK: Final = "^"
"""Ends a sign that says something, and a small word that is a name; no word of a text has one."""
_QUOTES: Final = ("'", '"')
_LOUD: Final = frozenset("!\"'")
"""Signs that may have to go, or to be marked, even right behind a word."""
_ENDS: Final = frozenset(".?!")
_PARTING: Final = frozenset(",.")
_GREETING: Final = 2
"""Words of a greeting."""


def without_silent(pieces: list[str], apart: Set[int]) -> list[str]:
    """The pieces of a text without quotes in pairs, with each sign marked that says something.

    apart  where a pause stands behind white space, or first
    """
    of_terms = not lexicon.TERMS.isdisjoint(pieces)
    if not apart and not of_terms and _LOUD.isdisjoint(pieces):
        return pieces
    paired = [quote for quote in _QUOTES if pieces.count(quote) % 2 == 0]
    last_word = max((place for place, piece in enumerate(pieces) if piece[0].isalnum()), default=-1)
    kept: list[str] = []
    for place, piece in enumerate(pieces):
        if piece in PAUSES:
            before, is_within = kept[-1] if kept else "", place < last_word
            if place in apart:
                says = is_within or piece not in _ENDS
            elif is_within and (
                _is_marked_sign(before) or (of_terms and _is_code(piece, before, pieces[place + 1], place))
            ):
                says = True
            else:
                says = _is_factorial(piece, before)
            kept.append(piece + MARK if says else piece)
        elif piece not in paired:
            kept.append(piece)
    return kept


def without_pauses(words: Iterable[str]) -> list[str]:
    """The words alone, where it does not matter how they are parted."""
    return list(filterfalse(PAUSES.__contains__, words))


def _is_marked_sign(before: str) -> bool:
    """Whether a sign that says something stands there: a small word that is a name has a mark, too."""
    return before.endswith(MARK) and not before[0].isalnum()


def _is_factorial(piece: str, before: str) -> bool:
    return piece == "!" and (before[-1:].isdigit() or (len(before) == 1 and before.isalpha()))


def _is_code(piece: str, before: str, following: str, place: int) -> bool:
    """Whether a sign between two pieces of a question about programming is part of what is asked."""
    if piece == ":":
        return not (before.isalpha() and following.isalpha())
    return piece not in _PARTING and place > _GREETING
