"""Conversions: `how many km are in 5 miles`, `what is 5 miles in km` and `convert 5 miles to km` are one question.

Decides only for a text that is nothing else: one number, its unit, and the unit to tell it in. Nothing is calculated.
"""

from typing import Final

from gateway.semantic import lexicon
from gateway.semantic.counts import is_cardinal
from gateway.semantic.patterns import Phrases

MEASURES: Final = (
    *lexicon.UNITS,
    "inch inches",
    "foot feet ft",
    "yard yards",
    "ounce ounces oz",
    "pound pounds",
    "stone stones",
    "pint pints",
    "gallon gallons",
    "acre acres",
    "hectare hectares",
    "celsius",
    "fahrenheit",
)
"""Names of one unit; of a name in two rows the first counts."""

ORDERS: Final = (
    ("convert|change N U to|into|in U", False),
    ("what is N U in U", False),
    ("how much is N U in U", False),
    ("how many U is|are N U", True),
    ("how many U is|are in N U", True),
)
"""What may be said of a number and two units; whether the one to tell it in comes first."""


def conversion(words: list[str]) -> list[str]:
    """A question of a conversion as `convert 5 mile to km`; any other itself."""
    if len(words) > _LONGEST or _UNITS.keys().isdisjoint(words) or words[0] not in _STARTS:
        return words
    shape = [_NUMBER if is_cardinal(word) else _UNIT if word in _UNITS else word for word in words]
    found = _orders.at(shape, 0)
    if found is None or found.length < len(words):
        return words
    number = words[shape.index(_NUMBER)]
    one, other = (_UNITS[word] for word, kind in zip(words, shape, strict=True) if kind == _UNIT)
    start, end = (other, one) if found.value else (one, other)
    return ["convert", number, start, "to", end]


_NUMBER: Final = "N"
_UNIT: Final = "U"
_LONGEST: Final = 7
_STARTS: Final = frozenset({"convert", "change", "what", "how"})
_UNITS: Final = {name: names.split()[0] for names in reversed(MEASURES) for name in names.split()}
_orders: Final = Phrases(ORDERS)
