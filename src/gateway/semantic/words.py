"""Words and signs: a plain text in pieces, and which of them are written with a capital.

Rules:
- everything that is not white space is a word or a sign; the only signs that say nothing are PAUSES right behind a word
  or at the end, and quotes in pairs (what they quote is compared elsewhere)
- a hyphen, dot, apostrophe or ampersand inside a word is part of it; between two digits a hyphen is a sign
- a capital tells where the text has both: not where only I has one, in capitals, or in a Title Like This One
- a small word in capitals is a name: US, IT, WHO, and vitamin A
"""

import re
from typing import Final

from msgspec import Struct

from gateway.semantic import lexicon
from gateway.semantic.grammar import CLOSED

_PIECE: Final = re.compile(
    r"\w+(?:(?:[.'&]|-(?!\d)|(?<!\d)-(?=\d)|(?<=\d)[,:/](?=\d))\w+)*(?:(?<=[^\W\d_])(?:\+\+|#))?|[^\w\s]"
)
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")

PAUSES: Final = frozenset(",.?!;:")
_SENTENCE_ENDS: Final = frozenset(".?!:")
_SIGNS: Final = PAUSES | frozenset("\"'")

NAME_MARK: Final = "^"
"""Ends a small word that is a name; no word of a text has one."""


class Capitals(Struct, frozen=True, array_like=True):
    """Which words of a text have a capital, and which have not; both empty where capitals tell nothing."""

    upper: frozenset[str]
    lower: frozenset[str]


_TELLS_NOTHING: Final = CLOSED | lexicon.ANY_CASE | frozenset(name for names in lexicon.UNITS for name in names.split())
_I: Final = frozenset({"I", "I'm", "I've", "I'd", "I'll"})
_NO_CAPITALS: Final = Capitals(frozenset(), frozenset())


class Words(Struct, frozen=True):
    """Lower-case words and signs in order, pauses included, and what the capitals said."""

    pieces: list[str]
    capitals: Capitals


def scan(text: str) -> Words:
    """The words of a plain text, in time proportional to its length."""
    matches = list(_PIECE.finditer(text))
    written = [match[0] for match in matches]
    if text.isascii() and text.islower():
        return Words(_without_silent_signs([_lower(piece, named=False) for piece in written], matches), _NO_CAPITALS)
    starts = _starts(written)
    mixed = not text.isupper() and not all(piece.islower() or piece in _I for piece in written if piece[0].isalpha())
    titled = mixed and any(map(_is_titled, written, starts))
    lower = [
        _lower(piece, named=mixed and not start and (not titled or len(piece) > 1))
        for piece, start in zip(written, starts, strict=True)
    ]
    capitals = _capitals(written, starts) if mixed and not titled else _NO_CAPITALS
    return Words(_without_silent_signs(lower, matches), capitals)


def _starts(written: list[str]) -> list[bool]:
    """Which pieces begin a sentence, or follow a sign that does."""
    starts, start = [], True
    for piece in written:
        starts.append(start)
        start = piece in _SENTENCE_ENDS or (start and not piece[0].isalnum())
    return starts


def _is_titled(piece: str, start: bool) -> bool:
    return not start and len(piece) > 1 and piece.istitle() and piece.lower() in CLOSED


def _lower(piece: str, *, named: bool) -> str:
    lower = piece.lower()
    if "," in piece and _THOUSANDS.fullmatch(piece):
        return piece.replace(",", "")
    return lower + NAME_MARK if named and piece.isupper() and piece != "I" and lower in CLOSED else lower


def _without_silent_signs(pieces: list[str], matches: list[re.Match[str]]) -> list[str]:
    """Quotes in pairs go; pauses stay as what parts two words, or are marked where they are what is asked about."""
    if _SIGNS.isdisjoint(pieces):
        return pieces
    quotes = {"'", '"'} if pieces.count('"') % 2 == 0 else {"'"}
    last_word = max((place for place, piece in enumerate(pieces) if piece[0].isalnum()), default=-1)
    kept: list[str] = []
    for place, piece in enumerate(pieces):
        if piece in PAUSES:
            is_close = place > 0 and matches[place].start() == matches[place - 1].end()
            is_factorial = piece == "!" and kept and kept[-1][-1].isdigit() and is_close
            kept.append(piece if (is_close or place > last_word) and not is_factorial else piece + NAME_MARK)
        elif piece not in quotes:
            kept.append(piece)
    return kept


def _capitals(written: list[str], starts: list[bool]) -> Capitals:
    inner = {piece.split("'", 1)[0] or piece for piece, start in zip(written, starts, strict=True) if not start}
    names = {piece.lower() for piece in inner if piece[0].isupper() and len(piece) > 1}
    plain = {piece for piece in inner if piece[0].islower()}
    return Capitals(frozenset(names - _TELLS_NOTHING), frozenset(plain - _TELLS_NOTHING))
