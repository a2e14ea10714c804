"""What tokens cost, and since when.

Decides the cost of a usage and the most that a call within given token bounds can cost. Does not know budgets, or
which price applies to which model.

Rules. A price is pico-dollars per token, which is USD per million tokens x 1,000,000: integers for every real price.
Costs are multiplied, added, and rounded to nano-dollars once, upward. Every prompt token is in exactly one class:
cached, written to the cache, or plain input. A price change is a new dated entry, never an edit.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import ClassVar, Self

from msgspec import Struct

from llmkit.money import ceil_div, decimal_of, scaled
from llmkit.types import Usage

PICOUSD_PER_NANOUSD = 1_000

_REQUIRED = ("input", "output")
_OPTIONAL = ("cached_input", "cache_write")


class Price(Struct, frozen=True):
    """Pico-dollars per token of each class; ints >= 0, ValueError otherwise."""

    input_pico: int
    cached_input_pico: int
    cache_write_pico: int
    output_pico: int

    FREE: ClassVar["Price"]

    def __post_init__(self) -> None:
        """Refuse what is no price."""
        for pico in (self.input_pico, self.cached_input_pico, self.cache_write_pico, self.output_pico):
            if type(pico) is not int or pico < 0:
                raise ValueError("prices are integers of pico-dollars per token, 0 or more")

    @classmethod
    def parse(cls, mapping: Mapping[str, object]) -> Self:
        """Read a price in USD per million tokens.

        mapping  `input` and `output`; `cached_input` and `cache_write` default to `input`. Values are decimal strings,
                 ints, Decimals, or floats, which stand for the decimal that they print as.
        Raises ValueError naming the key: unknown, missing, not a number, negative, or with more than 6 decimals.
        """
        for key in mapping:
            if key not in _REQUIRED and key not in _OPTIONAL:
                raise ValueError(f"{key}: is not a key of a price")
        for key in _REQUIRED:
            if key not in mapping:
                raise ValueError(f"{key}: is missing")
        pico = {key: _pico(key, value) for key, value in mapping.items()}
        return cls(
            input_pico=pico["input"],
            cached_input_pico=pico.get("cached_input", pico["input"]),
            cache_write_pico=pico.get("cache_write", pico["input"]),
            output_pico=pico["output"],
        )

    def cost_nanousd(self, usage: Usage) -> int:
        """The cost of a usage, each token by its class, rounded upward once.

        A usage with more cached than prompt tokens pays for all it names: the plain input is then 0, never negative.
        """
        plain = max(usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens, 0)
        return ceil_div(
            plain * self.input_pico
            + usage.cached_tokens * self.cached_input_pico
            + usage.cache_write_tokens * self.cache_write_pico
            + usage.completion_tokens * self.output_pico,
            PICOUSD_PER_NANOUSD,
        )

    def bound_nanousd(self, prompt_tokens: int, output_tokens: int) -> int:
        """The most a call can cost: at least `cost_nanousd` of every consistent usage within these counts.

        Nobody knows beforehand which prompt tokens will be read from a cache or written to one, so all of them are
        taken at the dearest input class. Raises ValueError for a negative count.
        """
        if prompt_tokens < 0 or output_tokens < 0:
            raise ValueError("token bounds are 0 or more")
        dearest = max(self.input_pico, self.cached_input_pico, self.cache_write_pico)
        return ceil_div(prompt_tokens * dearest + output_tokens * self.output_pico, PICOUSD_PER_NANOUSD)


Price.FREE = Price(0, 0, 0, 0)


class PriceEntry(Struct, frozen=True):
    """A price and the wall-clock moment (ms since the Unix epoch) from which it is in force; version names it."""

    from_ms: int
    price: Price
    version: str


class PriceBook:
    """The dated prices of one deployment. Immutable: safe from any thread; books of the same entries are equal."""

    def __init__(self, entries: Iterable[PriceEntry]) -> None:
        """Take entries in any order; ValueError when two start at the same moment."""
        self.entries: tuple[PriceEntry, ...] = tuple(sorted(entries, key=lambda entry: entry.from_ms))
        self._starts = [entry.from_ms for entry in self.entries]
        if len(set(self._starts)) != len(self._starts):
            raise ValueError("two prices start at the same moment")

    def at(self, ms: int) -> PriceEntry | None:
        """The entry in force at a moment: the last that starts at or before it; None before the first."""
        index = bisect_right(self._starts, ms)
        return self.entries[index - 1] if index else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PriceBook) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)


def _pico(key: str, value: object) -> int:
    try:
        return scaled(Decimal(repr(value)) if isinstance(value, float) else decimal_of(value), places=6)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{key}: {error}") from None
