"""From words as they are written to words as they are looked up: contractions, compounds with a number, set phrases.

Rules:
- what is contracted is written out: can't is can not; the 's of a noun becomes a word of its own
- a compound that begins with a number is parted: 16-year-old, two-hour, 50GB, 3rd stays one; twenty-five is one number,
  but not twenty five, which may be twenty of five
- & between two names is and
- in a question about words all stay as they are written
- a verb and its particle become one word with the verb's ending, so that neither is matched alone
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gateway.semantic import lexicon
from gateway.semantic.grammar import MENTIONS, is_noun
from gateway.semantic.inflection import PAST, PROGRESSIVE
from gateway.semantic.patterns import Phrases

_DIGITS_AND_LETTERS: Final = re.compile(r"(\d+(?:[.,]\d+)*)([^\W\d_]+)")
_ORDINAL: Final = re.compile(r"\d+(?:st|nd|rd|th)")
_NETWORKS: Final = frozenset({"2g", "3g", "4g", "5g", "6g"})
"""Generations of mobile networks, not grams."""
_ONES: Final = {word: int(value) for word, value in lexicon.NUMBERS.items() if value in "123456789"}
_TENS: Final = {
    word: int(value) for word, value in lexicon.NUMBERS.items() if value.endswith("0") and 19 < int(value) < 91
}
_NOT_AS_WRITTEN: Final = lexicon.MISSPELLINGS.keys() | lexicon.CONTRACTIONS.keys()
_UNIT_NAMES: Final = frozenset(name for names in lexicon.UNITS for name in names.split())


def expanded(words: Iterable[str]) -> list[str]:
    """The words written out, and phrases put together."""
    words = list(words)
    if not MENTIONS.isdisjoint(words):
        return words
    if "&" in words:
        words = _with_and(words)
    written_out: list[str] = []
    for word in words:
        if word not in _NOT_AS_WRITTEN and (word.isalpha() or word.isdecimal()):
            written_out.append(word)
        else:
            written_out += _parts(lexicon.MISSPELLINGS.get(word, word))
    return list(_joined(written_out)) if _phrases.may_be_in(written_out) else written_out


def _with_and(words: Sequence[str]) -> list[str]:
    """`salt & vinegar` as `salt and vinegar`; beside a term of programming, a number or a letter a sign is a sign."""
    if not lexicon.TERMS.isdisjoint(words):
        return list(words)
    threes = zip(["", *words], words, [*words[1:], ""], strict=False)
    return ["and" if word == "&" and _is_name(before) and _is_name(after) else word for before, word, after in threes]


def _is_name(word: str) -> bool:
    return len(word) > 1 and word.isalpha() and is_noun(word)


def _parts(word: str) -> Iterator[str]:
    if word in lexicon.CONTRACTIONS:
        yield from lexicon.CONTRACTIONS[word].split()
    elif "'" in word:
        yield from _without_ending(word)
    elif word[0].isdigit():
        yield from _parted_number(word)
    elif "-" in word and word.split("-", 1)[0] in lexicon.NUMBERS:
        yield from _numbered(word.split("-"))
    else:
        yield word


def _without_ending(word: str) -> Iterator[str]:
    for ending, meaning in lexicon.CONTRACTED_ENDINGS.items():
        if word.endswith(ending) and word != ending:
            yield word.removesuffix(ending)
            yield meaning
            return
    yield word


def _parted_number(word: str) -> Iterator[str]:
    if _ORDINAL.fullmatch(word):
        yield str(int(word[:-2])) + "th" if len(word) < 20 else word
        return
    first, *others = word.split("-")
    match = _DIGITS_AND_LETTERS.fullmatch(first)
    yield from match.groups() if match and match[2] in _UNIT_NAMES and first not in _NETWORKS else [first]
    yield from others


def _numbered(parts: Sequence[str]) -> Sequence[str]:
    """`twenty-five-year-old` as 25 year old."""
    if parts[0] in _TENS and parts[1] in _ONES:
        return [str(_TENS[parts[0]] + _ONES[parts[1]]), *parts[2:]]
    return parts


def _joined(words: Sequence[str]) -> Iterator[str]:
    place = 0
    while place < len(words):
        found = _phrases.at(words, place)
        if found is None:
            yield words[place]
            place += 1
        else:
            yield from found.value.split()
            place += found.length


def _phrasal_rows() -> Iterator[tuple[str, str]]:
    for verb, particle, name in lexicon.PHRASAL_VERBS:
        base, past, progressive = verb.split()
        third_person = base + ("es" if base.endswith("h") else "s")
        yield f"{base}|{third_person} {particle}", name
        yield f"{past} {particle}", name + PAST
        yield f"{progressive} {particle}", name + PROGRESSIVE


_phrases: Final = Phrases([*_phrasal_rows(), *lexicon.SET_PHRASES])
