"""From words as they are written to words as they are looked up: contractions, compounds with a number, set phrases.

Rules:
- what is contracted is written out: can't is can not; the 's of a noun becomes a word of its own; where'd stays
- a compound that begins with a number is parted: 16-year-old, two-hour, 50GB, 3rd stays one; twenty-five is one number,
  but not twenty five, which may be twenty of five; nor are two thousand-dollar prizes of two thousand dollars
- & between two names is and
- in a question about words all stay as they are written
- a verb and its particle become one word with the verb's ending, so that neither is matched alone
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Final

from gateway.semantic import lexicon
from gateway.semantic.grammar import MENTIONS, is_noun
from gateway.semantic.inflection import PAST, PROGRESSIVE
from gateway.semantic.patterns import REMEMBERED, Phrases

_DIGITS_AND_LETTERS: Final = re.compile(r"(\d+(?:[.,]\d+)*)([^\W\d_]+)")
_ORDINAL: Final = re.compile(r"\d+(?:st|nd|rd|th)")
_NETWORKS: Final = frozenset({"2g", "3g", "4g", "5g", "6g"})
"""Generations of mobile networks, not grams."""
_ONES: Final = {word: int(value) for word, value in lexicon.NUMBERS.items() if value in "123456789"}
_TENS: Final = {
    word: int(value) for word, value in lexicon.NUMBERS.items() if value.endswith("0") and 19 < int(value) < 91
}
_PARTED: Final = lexicon.NUMBERS.keys() - {"hundred", "thousand", "million", "billion", "dozen"}
"""Numbers that end with a hyphen; the number before one of the others would be taken for its part."""
_UNIT_NAMES: Final = frozenset(name for names in lexicon.UNITS for name in names.split())


def expanded(words: Iterable[str]) -> list[str]:
    """The words written out, and phrases put together."""
    words = list(words)
    if not MENTIONS.isdisjoint(words):
        return words
    if "&" in words:
        words = _with_and(words)
    return _joined(list(chain.from_iterable(map(_parts, words))))


def _with_and(words: Sequence[str]) -> list[str]:
    """`salt & vinegar` as `salt and vinegar`; beside a term of programming, a number or a letter a sign is a sign."""
    if not lexicon.TERMS.isdisjoint(words):
        return list(words)
    threes = zip(["", *words], words, [*words[1:], ""], strict=False)
    return ["and" if word == "&" and _is_name(before) and _is_name(after) else word for before, word, after in threes]


def _is_name(word: str) -> bool:
    return len(word) > 1 and word.isalpha() and is_noun(word)


@lru_cache(REMEMBERED)
def _parts(word: str) -> Sequence[str]:
    word = lexicon.MISSPELLINGS.get(word, word)
    if word in lexicon.CONTRACTIONS:
        return lexicon.CONTRACTIONS[word].split()
    if word.isalpha() or word.isdecimal():
        return (word,)
    if "'" in word:
        return (word,) if word in lexicon.UNTOLD_CONTRACTIONS else _without_ending(word)
    if word[0].isdigit():
        return _parted_number(word)
    return _numbered(word.split("-")) if word.split("-", 1)[0] in _PARTED else (word,)


def _without_ending(word: str) -> Sequence[str]:
    for ending, meaning in lexicon.CONTRACTED_ENDINGS.items():
        if word.endswith(ending) and word != ending:
            return word.removesuffix(ending), meaning
    return (word,)


def _parted_number(word: str) -> Sequence[str]:
    if _ORDINAL.fullmatch(word):
        return (str(int(word[:-2])) + "th" if len(word) < 20 else word,)
    first, *others = word.split("-")
    match = _DIGITS_AND_LETTERS.fullmatch(first)
    if match and match[2] in _UNIT_NAMES and first not in _NETWORKS:
        return *match.groups(), *others
    return first, *others


def _numbered(parts: Sequence[str]) -> Sequence[str]:
    """`twenty-five-year-old` as 25 year old."""
    if parts[0] in _TENS and parts[1] in _ONES:
        return [str(_TENS[parts[0]] + _ONES[parts[1]]), *parts[2:]]
    return parts


def _joined(words: list[str]) -> list[str]:
    joined: list[str] = []
    end = 0
    for place, found in _phrases.within(words):
        if place >= end:
            joined += [*words[end:place], *found.value.split()]
            end = place + found.length
    return joined + words[end:]


def _phrasal_rows() -> Iterator[tuple[str, str]]:
    for verb, particle, name in lexicon.PHRASAL_VERBS:
        base, past, progressive = verb.split()
        third_person = base + ("es" if base.endswith("h") else "s")
        yield f"{base}|{third_person} {particle}", name
        yield f"{past} {particle}", name + PAST
        yield f"{progressive} {particle}", name + PROGRESSIVE


_phrases: Final = Phrases([*_phrasal_rows(), *lexicon.SET_PHRASES])
