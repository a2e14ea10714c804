"""A text in words: what every look at it begins with, done once for all of them."""

from dataclasses import dataclass

from gateway.semantic.expansion import expanded
from gateway.semantic.plain import plain
from gateway.semantic.words import Capitals, scan


@dataclass(frozen=True, slots=True)
class Text:
    """What was typed, the same in one form of each character, its words written out, and what its capitals said."""

    typed: str
    plain: str
    words: list[str]
    capitals: Capitals


def in_words(typed: str) -> Text:
    """The words of a text of any length, in time proportional to its length."""
    flat = plain(typed)
    found = scan(flat)
    return Text(typed, flat, expanded(found.pieces), found.capitals)
