"""One or many: which nouns of a question say whether they name one thing or several.

Plural and singular have one key, since what is asked of a file is asked of files. Not so where a number is part of what
is asked. Rules:
- behind a definite word it is: the file is not the files, nor my child my children
- so it is of a noun with no word before it to say which: when was Alien released is not when was Aliens released
- behind `a`, `any` or a number it is not; what is counted is compared elsewhere
- the ending of a verb is none of a noun: behind a plural, where a phrase begins, and where the subject comes first,
  behind a singular
"""

from collections.abc import Sequence
from enum import Enum, auto
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Final

from gateway.semantic import lexicon
from gateway.semantic.frames import Frame
from gateway.semantic.grammar import is_noun
from gateway.semantic.inflection import american, form_of
from gateway.semantic.patterns import REMEMBERED, word_set


class Count(Enum):
    """Whether a word names one thing or many; UNTOLD agrees with both."""

    UNTOLD = auto()
    ONE = auto()
    MANY = auto()


_UNTOLD, _ONE, _MANY = Count


def counted(words: Sequence[str], frame: Frame | None, subject: int | None) -> list[Count]:
    """The count of each word behind an opening.

    frame    None where no verb in the third person may follow
    subject  where the one begins that stands behind an auxiliary; None if there is none
    """
    if subject is None:
        return _in_phrases("", words, frame)
    before = words[:subject]
    is_one_phrase = all(map(_may_be_counted, before))
    counts = [_UNTOLD] * len(before) if is_one_phrase else _in_phrases("", before, None)
    return counts + _in_phrases(_SUBJECT, words[subject:], None)


def _in_phrases(opener: str, words: Sequence[str], frame: Frame | None) -> list[Count]:
    """Of words behind an opener, "" for none: each run of those that may be counted is a phrase."""
    counts: list[Count] = []
    for is_phrase, run in groupby(words, _may_be_counted):
        part = list(run)
        if is_phrase:
            counts += _in_phrase(opener, part, frame if len(counts) < 2 else None)
        else:
            counts += [_UNTOLD] * len(part)
            opener = part[-1]
    return counts


@lru_cache(REMEMBERED)
def _may_be_counted(word: str) -> bool:
    return is_noun(word) and word not in _INDEFINITE


def _in_phrase(opener: str, phrase: Sequence[str], frame: Frame | None) -> list[Count]:
    """Of the words between two small ones; `frame` is None unless the phrase begins what is said."""
    if opener in _DEFINITE or opener == _SUBJECT:
        least = 0
    elif opener in _INDEFINITE or any(map(is_cardinal, phrase)):
        return [_UNTOLD] * len(phrase)
    else:
        least = 1 if phrase[1:] or not opener else 0
    endings = list(map(_ending, phrase))
    if frame and (verb := 0 if frame is Frame.WHO and not opener else _verb(endings)) is not None:
        endings[verb] = _UNTOLD
    return [
        _UNTOLD if place < least or (place and _shows(phrase[place - 1], endings[place - 1])) else ending
        for place, ending in enumerate(endings)
    ]


def _shows(word: str, ending: Count) -> bool:
    """Whether a word says that the next one is its verb, or is counted by it."""
    return ending is _MANY or is_cardinal(word)


def _verb(endings: Sequence[Count]) -> int | None:
    """Where the third person stands behind a single subject."""
    return next((place for place, pair in enumerate(pairwise(endings), 1) if pair == (_ONE, _MANY)), None)


@lru_cache(REMEMBERED)
def _ending(word: str) -> Count:
    word = american(word)
    if not word.isalpha() or word in _NO_PLURALS:
        return _UNTOLD
    base, mark = form_of(word)
    if mark:
        return _UNTOLD
    return _ONE if base == word else _MANY


def is_cardinal(word: str) -> bool:
    """Whether a word says how many: five, 5; not fifth."""
    return word[-1:].isdigit() or word in _CARDINALS


_CARDINALS: Final = frozenset({word for word, value in lexicon.NUMBERS.items() if value.isdigit()})
_SUBJECT: Final = " "
"""Opens a subject that stands right behind an auxiliary; no word of a text is blank."""
_DEFINITE: Final = word_set("the my our your his her its their 's")
_INDEFINITE: Final = word_set("a an any some no each every")
_NO_PLURALS: Final = word_set("mathematics maths")
"""Words in -s that are one thing, and share a key with a word without it."""
