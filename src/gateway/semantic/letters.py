"""Letters whose case tells, whatever the rest of a text looks like: 5 mW is not 5 MW, nor `-d` what `-D` is.

Decides which words are compared as they are written. Rules:
- one letter by itself, and any word behind a sign of commands: vim's d and D, vitamin C, -rf, %M, \\d
- the symbol of a unit, and any short word behind a number or joined to it: 5 mW, 5mW; not 3rd, 2FA, or 5 June
- where capitals tell anything: a short name, such as Co and CO, or MBps and Mbps
- of a word that is written in one way only, nothing is compared: a synonym stands in its place elsewhere
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import compress, count
from typing import Final

from gateway.semantic import lexicon
from gateway.semantic.grammar import CLOSED
from gateway.semantic.patterns import REMEMBERED, word_set

_COMMAND_SIGNS: Final = frozenset("-%\\$@")
_SYMBOLS: Final = word_set("kg mg km cm mm ml mb gb tb")
"""Those units of the lexicon that another unit differs from by its capitals alone, but for single letters."""
_LONGEST_SYMBOL: Final = 4
_LONGEST_NAME: Final = 5
_LONGEST_ORDINARY_START: Final = 3
"""A longer word with one capital, where a sentence begins, is any word."""
_NO_SYMBOLS: Final = CLOSED | lexicon.ANY_CASE | word_set("st nd rd th fa")
_SAME_IN_BOTH: Final = frozenset("aAiI")
"""An article and a pronoun, which are told apart elsewhere from names such as vitamin A."""
_DIGITS: Final = "0123456789.,"


def exact(written: Sequence[str], starts: Sequence[bool] | None) -> frozenset[str]:
    """The words of a text of which each letter's case tells, as they are written.

    written  every word and sign, in order
    starts   which of them begin a sentence; None where capitals tell nothing
    """
    places = set(compress(count(), map(_may_tell, written)))
    behind = {place + 1 for place in places} - {len(written)}
    told = {form for place in places | behind if (form := _symbol(written[place], written[place - 1] if place else ""))}
    if starts is not None:
        pieces = zip(written, starts, strict=True)
        told.update([name for piece, start in pieces if not piece.islower() and (name := _short_name(piece, start))])
    return frozenset(told)


def written_otherwise(one: frozenset[str], other: frozenset[str]) -> str | None:
    """A word that both have, in other letters; None if there is none."""
    if one == other:
        return None
    differing = one ^ other
    for word in sorted({form.lower() for form in differing}):
        forms = [sorted(form for form in forms if form.lower() == word) for forms in (one, other)]
        if all(forms):
            return " / ".join(map(" ".join, forms))
    return None


@lru_cache(REMEMBERED)
def _may_tell(piece: str) -> bool:
    """Whether its case may tell, or that of what stands behind it: most words are no letters, signs or numbers."""
    if len(piece) == 1 and piece.isalpha():
        return piece not in _SAME_IN_BOTH
    return piece in _COMMAND_SIGNS or piece[0].isdigit() or piece[-1].isdigit() or piece.lower() in _SYMBOLS


def _symbol(piece: str, before: str) -> str:
    """The word as it is compared; "" if it is not."""
    if before in _COMMAND_SIGNS:
        return piece
    if len(piece) == 1:
        return piece if piece.isalpha() and piece not in _SAME_IN_BOTH else ""
    if piece[0].isdigit():
        piece = piece.lstrip(_DIGITS)
        is_measured = piece.isalpha() and len(piece) <= _LONGEST_SYMBOL
    else:
        is_measured = (before[-1:].isdigit() and len(piece) <= _LONGEST_SYMBOL) or piece.lower() in _SYMBOLS
    return piece if is_measured and piece.lower() not in _NO_SYMBOLS else ""


def _short_name(piece: str, start: bool) -> str:
    """A name of few letters, without a possessive ending; "" if it is none."""
    name = piece.split("'", 1)[0]
    if not 1 < len(name) <= _LONGEST_NAME or name.islower() or name.lower() in _NO_SYMBOLS:
        return ""
    return "" if start and name.istitle() and len(name) > _LONGEST_ORDINARY_START else name
