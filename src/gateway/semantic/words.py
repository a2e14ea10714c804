"""Words and signs: a plain text in pieces, and which of them are written with a capital.

Rules:
- everything that is not white space is a word or a sign; which signs say nothing, pauses.py decides
- a hyphen, dot, apostrophe or ampersand inside a word is part of it; between two digits a hyphen is a sign
- a capital tells where the text has both: not where only I has one, in capitals, or in a Title Like This One
- a small word in capitals is a name: US, IT, WHO, and vitamin A; so is an article with a capital before another one:
  The Who
- where capitals tell nothing, those of letters.py do
"""

import re
from typing import Final

from msgspec import Struct

from gateway.semantic import lexicon
from gateway.semantic.grammar import ARTICLES, AUXILIARIES, CLOSED
from gateway.semantic.letters import exact
from gateway.semantic.pauses import MARK, PAUSES, without_silent

_PIECE: Final = re.compile(
    r"\w+(?:(?:[.'&]|-(?!\d)|(?<!\d)-(?=\d)|(?<=\d)[,:/](?=\d))\w+)*(?:(?<=[^\W\d_])(?:\+\+|#))?|[^\w\s]"
)
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")

_SENTENCE_ENDS: Final = frozenset(".?!:")


class Capitals(Struct, frozen=True, array_like=True):
    """Which words of a text have a capital, and which have not; both empty where capitals tell nothing.

    exact  words of which each letter's case tells all the same, as they are written
    """

    upper: frozenset[str]
    lower: frozenset[str]
    exact: frozenset[str]


_TELLS_NOTHING: Final = CLOSED | lexicon.ANY_CASE | frozenset(name for names in lexicon.UNITS for name in names.split())
_NONE: Final[frozenset[str]] = frozenset()
_I: Final = frozenset({"I", "I'm", "I've", "I'd", "I'll"})


class Words(Struct, frozen=True):
    """Lower-case words and signs in order, pauses included, and what the capitals said."""

    pieces: list[str]
    capitals: Capitals


def scan(text: str) -> Words:
    """The words of a plain text, in time proportional to its length."""
    written: list[str] = []
    apart: set[int] = set()
    for run in text.split():
        if run.isalnum():
            written.append(run)
            continue
        if run[0] in PAUSES:
            apart.add(len(written))
        written += _PIECE.findall(run)
    lower = list(map(str.lower, written))
    if "," in text:
        lower = [piece.replace(",", "") if _THOUSANDS.fullmatch(piece) else piece for piece in lower]
    starts: list[bool] | None = None
    if _is_mixed(text, written):
        starts = _starts(written)
        titled = _is_titled(written, starts)
        lower = [
            low if start or low == piece else _named(piece, low, following, titled)
            for piece, low, start, following in zip(written, lower, starts, [*written[1:], ""], strict=True)
        ]
        if titled:
            starts = None
    return Words(without_silent(lower, apart), _capitals(written, starts))


def _is_mixed(text: str, written: list[str]) -> bool:
    """Whether a text in capitals and small letters has a capital on more than an I."""
    if (text.isascii() and text.islower()) or text.isupper():
        return False
    return any(not piece.islower() and piece[0].isalpha() and piece not in _I for piece in written)


def _starts(written: list[str]) -> list[bool]:
    """Which pieces begin a sentence, or follow a sign that does."""
    starts, start = [], True
    for piece in written:
        starts.append(start)
        start = piece in _SENTENCE_ENDS or (start and not piece[0].isalnum())
    return starts


def _is_titled(written: list[str], starts: list[bool]) -> bool:
    """Whether a text is a Title Like This One: a small word has a capital, and no auxiliary or content is without."""
    inner = [piece for piece, start in zip(written, starts, strict=True) if not start and len(piece) > 1]
    if not any(piece.istitle() and piece.lower() in CLOSED for piece in inner):
        return False
    return not any(piece.islower() and (piece not in CLOSED or piece in AUXILIARIES) for piece in inner)


def _named(piece: str, lower: str, following: str, titled: bool) -> str:
    """A small word in capitals is a name, and so is an article with one before a word with one: The Who."""
    if lower not in CLOSED or piece == "I":
        return lower
    if piece.isupper():
        is_name = len(piece) > 1 or not titled
    else:
        is_name = not titled and lower in ARTICLES and piece.istitle() and following[:1].isupper()
    return lower + MARK if is_name else lower


def _capitals(written: list[str], starts: list[bool] | None) -> Capitals:
    """What the capitals say; `starts` is None where they say nothing."""
    if starts is None:
        return Capitals(_NONE, _NONE, exact(written, None))
    inner = {piece.split("'", 1)[0] or piece for piece, start in zip(written, starts, strict=True) if not start}
    names = {piece.lower() for piece in inner if piece[0].isupper() and len(piece) > 1}
    plain = [piece for piece in inner - _TELLS_NOTHING if piece[0].islower()]
    return Capitals(frozenset(names - _TELLS_NOTHING), frozenset(plain), exact(written, starts))
