"""Tokens: what a question says behind its opening, one key for everything that must be found in the other question.

Decides which words say nothing, and which two words have one key. Everything not dropped here is content, small words
and signs included. Rules:
- the first auxiliary says kind and mode, and is no token; every later one is
- an article before a noun is no token, but told beside it; before a small word, a sign or the end it is a name
  (vitamin a, the who), and before a number it says which (to the six)
- `have` at the end of a question with `do` says nothing: what does it have
- a unit is a unit behind a number only, and `of` behind a unit says nothing
- in a question about a film, a song, a book or a language of programming a word has no synonym: it may be the name
- in a question about words nothing is dropped, and every word is as it is written; nor is stress dropped in a list,
  before a preposition or at the end
- a single word whose meaning is asked is kept as it is written
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from msgspec import Struct

from gateway.semantic import lexicon
from gateway.semantic.counts import Count, counted, is_cardinal
from gateway.semantic.frames import HOLDS_AUXILIARY, Frame
from gateway.semantic.grammar import ARTICLES, AUXILIARIES, CLOSED, MENTIONS, PREPOSITIONS, PRONOUNS, SILENT, is_noun
from gateway.semantic.inflection import american, form_of
from gateway.semantic.patterns import REMEMBERED
from gateway.semantic.pauses import without_pauses

OF: Final = "of"
NUMBER: Final = "#"
"""Begins the key of a number."""


LATER: Final = "~later"
"""Ends the kind of an auxiliary behind other words: how late can fees be paid is not how can late fees be paid."""


class Token(Struct, frozen=True):
    """One thing said. `article` stood before it: "the", "a" for `an` as well, or ""; `counts` as one or many."""

    key: str
    article: str = ""
    counts: Count = Count.UNTOLD


class Said(Struct, frozen=True):
    """What stands behind the opening: tokens in order, kind and mode of the first auxiliary ("" if there is none)."""

    tokens: list[Token]
    kind: str
    mode: str


def said(words: Sequence[str], frame: Frame, *, embedded: bool) -> Said:
    """The tokens of the words behind an opening; behind `tell me` a subject stands before its auxiliary."""
    words = without_pauses(words)
    place = _first_auxiliary(words) if frame in HOLDS_AUXILIARY else None
    if place is None:
        return Said(_tokens(words, _counted(words, frame)), "", "")
    auxiliary = AUXILIARIES[words[place]]
    rest = words[:place] + words[place + 1 :]
    if frame is Frame.WHAT and place == 0 and len(rest) == 2 and rest[1] == "mean":
        return Said(
            [Token(rest[0] if rest[0] in CLOSED else _key(rest[0], False)), Token("mean")],
            auxiliary.kind,
            auxiliary.mode,
        )
    if auxiliary.kind == "do" and rest and rest[-1] == "have":
        rest.pop()
    kind = auxiliary.kind + LATER if place and not embedded and frame is not Frame.REASON else auxiliary.kind
    return Said(_tokens(rest, counted(rest, None, place)), kind, auxiliary.mode)


def key_of(word: str, *, of_works: bool = False) -> str:
    """The key that a word shares with its other forms, spellings and synonyms; the last not in a question of works."""
    word = lexicon.SPELLINGS.get(word) or american(word)
    base, mark = form_of(word)
    base = lexicon.SPELLINGS.get(base, base)
    if of_works and base not in lexicon.WORKS:
        return base + mark
    if word in _SYNONYMS:
        return _SYNONYMS[word]
    return _SYNONYMS.get(base, base) + mark


def _first_auxiliary(words: Sequence[str]) -> int | None:
    for place, word in enumerate(words):
        if word in AUXILIARIES:
            return place
    return None


def _counted(words: Sequence[str], frame: Frame) -> list[Count]:
    """Of words without an auxiliary: most frames of that kind are opened by one, and their subject follows."""
    if frame in HOLDS_AUXILIARY:
        return counted(words, frame, None)
    return counted(words, None, None if frame is Frame.MEANING else 0)


def _tokens(words: Sequence[str], counts: Sequence[Count]) -> list[Token]:
    tokens: list[Token] = []
    keeps_all = not MENTIONS.isdisjoint(words)
    of_works = not lexicon.TERMS.isdisjoint(words) or any(map(_is_of_works, filter(str.isalpha, words)))
    article = key = before = ""
    unit: str | None = None
    for (word, following), count in zip(pairwise([*words, ""]), counts, strict=True):
        if word in _PERHAPS_SILENT:
            if word in ARTICLES and is_noun(following) and not (keeps_all or is_cardinal(following)):
                article = "the" if word == "the" else "a"
                continue
            if word == OF and unit:
                continue
            if word in SILENT and not (keeps_all or before in _LISTS or following in _LISTS_OR_ENDS):
                continue
        unit = _UNITS.get(word) if key[:1] == NUMBER else None
        key = unit or (word if keeps_all else _key(word, of_works))
        tokens.append(Token(key, article, count))
        article, before = "", word
    return tokens


@lru_cache(REMEMBERED)
def _is_of_works(word: str) -> bool:
    return form_of(word).base in lexicon.WORKS


@lru_cache(REMEMBERED)
def _key(word: str, of_works: bool) -> str:
    if word[0].isdigit():
        return NUMBER + word
    if number := lexicon.NUMBERS.get(word):
        return NUMBER + number
    if word in PRONOUNS:
        return PRONOUNS[word]
    return word if word in CLOSED else key_of(word, of_works=of_works)


_PERHAPS_SILENT: Final = ARTICLES | SILENT | {OF}
_LISTS: Final = PREPOSITIONS | {"and", "or"}
_LISTS_OR_ENDS: Final = _LISTS | {""}
_UNITS: Final = {name: f"{names.split()[0]} unit" for names in lexicon.UNITS for name in names.split()}
_SYNONYMS: Final = {
    base: synonyms.members.split()[0] for synonyms in lexicon.SYNONYMS for base in synonyms.members.split()
}
