"""A text in words: what every look at it begins with, done once for all of them."""

from msgspec import Struct

from gateway.semantic.expansion import expanded
from gateway.semantic.manners import Asked, bare
from gateway.semantic.plain import plain
from gateway.semantic.words import Capitals, scan


class Text(Struct, frozen=True):
    """What was typed, and the same in words.

    plain     in one form of each character
    words     written out, pauses included
    asked     the words without manners
    capitals  what the capitals said
    """

    typed: str
    plain: str
    words: list[str]
    asked: Asked
    capitals: Capitals


def in_words(typed: str) -> Text:
    """The words of a text of any length, in time proportional to its length."""
    flat = plain(typed)
    found = scan(flat)
    words = expanded(found.pieces)
    return Text(typed, flat, words, bare(words), found.capitals)
