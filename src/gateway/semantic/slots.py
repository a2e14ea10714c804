"""Slots: dates, sums and large numbers, each in one form.

Rules:
- a day and a month stand together in one order: May 5th, 5 May, the 5th of May
- a sign of currency goes behind its number: $5 is 5 dollars
- a number and its thousand, million or billion are one number; a full hour needs no minutes before am and pm
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final

from gateway.semantic.lexicon import NUMBERS

_MONTHS: Final = {
    name: names.split()[0]
    for names in (
        "january jan",
        "february feb",
        "march mar",
        "april apr",
        "may",
        "june jun",
        "july jul",
        "august aug",
        "september sep sept",
        "october oct",
        "november nov",
        "december dec",
    )
    for name in names.split()
}
_DAY: Final = re.compile(r"(\d{1,2})(?:th)?")
_LARGE: Final = {"thousand": 3, "million": 6, "billion": 9}
_AMOUNT: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?")
_CURRENCIES: Final = frozenset("€$£")
_HALVES_OF_DAY: Final = frozenset({"am", "am^", "pm", "a.m", "p.m"})
_MARKS: Final = _MONTHS.keys() | _LARGE.keys() | _CURRENCIES | _HALVES_OF_DAY
"""Each slot has one of these words; most questions have none."""


def slotted(words: list[str]) -> list[str]:
    """The words, with each date, sum and large number in one form; themselves if there is none."""
    return words if _MARKS.isdisjoint(words) else list(_slots(words))


def _slots(words: Sequence[str]) -> Iterator[str]:
    place = 0
    padded = [*words, "", "", ""]
    while place < len(words):
        first, second, third = padded[place : place + 3]
        if date := _date(first, second, third):
            yield date
            place += 3 if second == "of" else 2
        elif first in _CURRENCIES and second[:1].isdigit():
            amount = _times(second, third)
            yield from (amount or second, first)
            place += 3 if amount else 2
        elif amount := _times(first, second):
            yield amount
            place += 2
        else:
            yield first.removesuffix(":00") if second in _HALVES_OF_DAY else first
            place += 1


def _date(first: str, second: str, third: str) -> str | None:
    """`5-may` for a day and a month in either order."""
    if first in _MONTHS:
        return _day_of(second, first)
    month = third if second == "of" else second
    return _day_of(first, month) if month in _MONTHS else None


def _day_of(day: str, month: str) -> str | None:
    match = _DAY.fullmatch(day)
    return f"{match[1]}-{_MONTHS[month]}" if match and 1 <= int(match[1]) <= 31 else None


def _times(number: str, large: str) -> str | None:
    number = NUMBERS.get(number, number)
    if large not in _LARGE or not _AMOUNT.fullmatch(number):
        return None
    return f"{(Decimal(number) * 10 ** _LARGE[large]).normalize():f}"
