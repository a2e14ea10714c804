"""Money as integers: nano-dollars in, nano-dollars out.

Decides what is a valid amount and how it is written. Does not know what anything costs.

Rules. 1 USD = 1,000,000,000 nano-dollars: micro-dollars would round the cheapest real prices to nothing. No float ever
stands for an amount. An amount that has no exact integer is refused, never rounded; the one division that prices need
rounds upward.
"""

import re
from decimal import Decimal
from fractions import Fraction

NANOUSD_PER_USD = 1_000_000_000
MAX_AMOUNT = 2**62  # the sum of two amounts still fits the signed 64 bits of a database column

_PLAIN = re.compile(r"[0-9]{1,40}(\.[0-9]{1,40})?")
_MAX_EXPONENT = 100  # beyond it a few characters ("1e999999999") would ask for a gigabyte of digits


def parse_usd(value: str | int | Decimal) -> int:
    """Nano-dollars of an amount in USD.

    value  a plain decimal ("5", "0.000148"; no sign, exponent or space), an int or a Decimal.
    Returns an int from 0 to 2**62, exactly.
    Raises ValueError for negative, non-finite or too large amounts and for more than 9 decimals; TypeError for a float
    (it has already lost the amount) and any other type.
    """
    return scaled(decimal_of(value), places=9)


def format_usd(nanousd: int) -> str:
    """The amount in USD as an exact plain decimal without exponent or trailing zeros: "5", "0.000148", "-0.5"."""
    digits = str(abs(nanousd)).zfill(10)
    dollars, rest = digits[:-9], digits[-9:].rstrip("0")
    text = f"{dollars}.{rest}" if rest else dollars
    return f"-{text}" if nanousd < 0 else text


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded towards plus infinity; raises ZeroDivisionError when b is 0."""
    return -(-a // b)


def decimal_of(value: object) -> Decimal:
    """A plain decimal str, an int or a Decimal, as a Decimal; ValueError for other text, TypeError for other types."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if not isinstance(value, str):
        raise TypeError(f"an amount is a decimal string, an int or a Decimal, not {type(value).__name__}")
    if not _PLAIN.fullmatch(value):
        raise ValueError("is not a plain decimal number")
    return Decimal(value)


def scaled(value: Decimal, places: int) -> int:
    """value x 10**places as an int from 0 to 2**62; ValueError when it is negative, not finite, inexact or larger."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError("is not a finite number")
    if value < 0:
        raise ValueError("is negative")
    if abs(exponent) > _MAX_EXPONENT:
        raise ValueError("is out of range")
    amount: Fraction = Fraction(value) * 10**places
    if amount > MAX_AMOUNT:
        raise ValueError("is out of range")
    if amount.denominator != 1:
        raise ValueError(f"has more than {places} decimals")
    return amount.numerator
