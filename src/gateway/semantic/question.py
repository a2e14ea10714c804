"""A question, read: everything of a text that two questions are compared by."""

from collections.abc import Sequence
from hashlib import sha256
from itertools import filterfalse
from typing import Final

from msgspec import Struct

from gateway.semantic.clauses import direct, settled, unfronted
from gateway.semantic.counts import Count
from gateway.semantic.frames import Frame, framed
from gateway.semantic.grammar import POSSESSIVE
from gateway.semantic.manners import bare
from gateway.semantic.plain import quotations
from gateway.semantic.rewording import reworded
from gateway.semantic.slots import slotted
from gateway.semantic.text import Text, in_words
from gateway.semantic.tokens import OF, Token, said
from gateway.semantic.words import Capitals

VERSION: Final = 6
"""Goes up with every change of what is read or compared; part of every key, so that old entries are found no more."""

BINDERS: Final = frozenset({OF, POSSESSIVE})
"""Keys that are not part of a question's key: `Chile's capital` is the capital of Chile."""


class Counts(Struct, frozen=True, array_like=True):
    """Keys of nouns that are one thing, and of those that are many."""

    one: frozenset[str]
    many: frozenset[str]


class Articles(Struct, frozen=True, array_like=True):
    """Keys of what has `the` before it, and of what has `a`."""

    definite: frozenset[str]
    indefinite: frozenset[str]


class Question(Struct, frozen=True, array_like=True):
    """What a text asks.

    text      as it came
    frame     what is asked for
    sense     a narrower sense of the frame or the kind of auxiliary; "" is not known, and agrees with any
    mode      tense or modality; "" is the plain present
    quoted    texts between quotes, sorted
    keys      everything else it says, in order
    capitals  which words are names, as far as the text shows it
    counts    which nouns are one thing and which are many, as far as that is told
    articles  what has which article; what has none agrees with any
    key       32 bytes; two questions of one meaning have one key, and not the other way about
    """

    text: str
    frame: Frame
    sense: str
    mode: str
    quoted: tuple[str, ...]
    keys: tuple[str, ...]
    capitals: Capitals
    counts: Counts
    articles: Articles
    key: bytes


def read(text: str) -> Question:
    """Read a text of any length and language, in time proportional to its length."""
    return read_words(in_words(text))


def read_words(text: Text) -> Question:
    """The same of a text whose words were looked for before."""
    words = slotted(text.words)
    asked = text.asked if words is text.words else bare(words)
    clause = direct(asked.words) if asked.embedded else unfronted(asked.words)
    found = framed(reworded(list(clause)), embedded=asked.embedded)
    opening, told = settled(found.opening, said(found.rest, found.opening.frame, embedded=asked.embedded))
    keys = tuple([token.key for token in told.tokens])
    marked = [token for token in told.tokens if token.article or token.counts is not Count.UNTOLD]
    quoted = quotations(text.plain)
    mode, sense = told.mode or opening.mode, told.kind or opening.sense
    document = (VERSION, str(opening.frame), mode, quoted, sorted(filterfalse(BINDERS.__contains__, keys)))
    return Question(
        text.typed,
        opening.frame,
        sense,
        mode,
        quoted,
        keys,
        text.capitals,
        Counts(_counted_as(Count.ONE, marked), _counted_as(Count.MANY, marked)),
        Articles(_behind("the", marked), _behind("a", marked)),
        sha256(repr(document).encode()).digest(),
    )


def _counted_as(count: Count, tokens: Sequence[Token]) -> frozenset[str]:
    return frozenset([token.key for token in tokens if token.counts is count])


def _behind(article: str, tokens: Sequence[Token]) -> frozenset[str]:
    return frozenset([token.key for token in tokens if token.article == article])
