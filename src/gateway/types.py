"""The words that several modules share. Pure values: nothing here reads a clock, a file or the environment."""

from enum import StrEnum

MAX_NANOUSD = 1 << 60
"""No single amount above this (about a billion dollars) is accepted anywhere; sums stay exact in 63 bits."""


class Window(StrEnum):
    """The calendar span, in UTC, over which a budget counts; `total` never ends."""

    TOTAL = "total"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class Tier(StrEnum):
    """What the difficulty router chooses between, weakest first; `<` follows this order."""

    CHEAP = "cheap"
    STANDARD = "standard"
    STRONG = "strong"


class Secret:
    """A credential that shows itself only to `reveal`: every printed, logged or formatted form of it is `***`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The credential itself, for the one header it belongs in."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)
