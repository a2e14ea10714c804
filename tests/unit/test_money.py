"""Amounts: parsed exactly or refused, written exactly, divided upward."""

import unittest
from decimal import Decimal, localcontext

from llmkit.money import MAX_AMOUNT, NANOUSD_PER_USD, ceil_div, decimal_of, format_usd, parse_usd, scaled


class ParseTest(unittest.TestCase):
    """From what people write to nano-dollars."""

    def test_an_amount_is_exact(self) -> None:
        """Strings, ints and decimals."""
        for value, nanousd in (
            ("5", 5_000_000_000),
            ("0.000148", 148_000),
            ("0.000000001", 1),
            ("1.10", 1_100_000_000),
            ("007", 7_000_000_000),
            ("0.1000000000000", 100_000_000),
            (0, 0),
            (12, 12_000_000_000),
            (Decimal("1E+2"), 100_000_000_000),
            (Decimal("2.5E-8"), 25),
            (Decimal("-0"), 0),
            (Decimal("0E+9"), 0),
        ):
            with self.subTest(value=value):
                self.assertEqual(parse_usd(value), nanousd)

    def test_what_has_no_exact_amount_is_refused(self) -> None:
        """Never rounded."""
        for value in ("0.0000000001", "1.0000000001", Decimal("1E-10"), Decimal("1E-999999")):
            with self.subTest(value=value), self.assertRaises(ValueError):
                parse_usd(value)

    def test_text_must_be_a_plain_decimal(self) -> None:
        """No sign, exponent, space, underscore, comma, foreign digit or word."""
        for text in (
            "",
            " 5",
            "5\n",
            "+5",
            "-5",
            "-0",
            "1e3",
            "1_000",
            "1,5",
            ".5",
            "5.",
            "\u0665",
            "NaN",
            "Infinity",
            "0x5",
            "$5",
            "9" * 41,
        ):
            with self.subTest(text=text), self.assertRaises(ValueError):
                parse_usd(text)

    def test_amounts_out_of_range_are_refused(self) -> None:
        """Negative, not finite, above 2**62, or with an exponent that would fill the memory."""
        for value in (
            -1,
            Decimal("-0.1"),
            Decimal("NaN"),
            Decimal("sNaN"),
            Decimal("Infinity"),
            Decimal("-Infinity"),
            Decimal("1E+999999999"),
            Decimal("1E-999999999"),
            10**30,
            "4611686018.427387905",
        ):
            with self.subTest(value=value), self.assertRaises(ValueError):
                parse_usd(value)

    def test_the_bound_itself_is_an_amount(self) -> None:
        """2**62 nano-dollars, a little over 4.6 thousand million USD."""
        self.assertEqual(parse_usd("4611686018.427387904"), MAX_AMOUNT)
        self.assertEqual(MAX_AMOUNT, 2**62)

    def test_other_types_are_refused(self) -> None:
        """A float has already lost the amount; True is not one dollar."""
        for value in (0.1, 5.0, True, None, b"5", [5]):
            with self.subTest(value=value), self.assertRaises(TypeError):
                parse_usd(value)  # type: ignore[arg-type]

    def test_the_decimal_context_does_not_matter(self) -> None:
        """A program that works with three digits gets the same amount."""
        with localcontext() as context:
            context.prec = 3
            self.assertEqual(parse_usd("1234567.123456789"), 1_234_567_123_456_789)
            self.assertEqual(parse_usd(Decimal("1234567.123456789")), 1_234_567_123_456_789)

    def test_the_fault_is_named(self) -> None:
        """A reader of a config error sees what is wrong."""
        for value, words in (
            (Decimal(-1), "negative"),
            (Decimal("NaN"), "not a finite number"),
            (Decimal("1E-7"), "more than 6 decimals"),
            (Decimal("1E+30"), "out of range"),
        ):
            with self.subTest(value=value), self.assertRaisesRegex(ValueError, words):
                scaled(value, places=6)
        with self.assertRaisesRegex(TypeError, "not float"):
            decimal_of(0.5)


class FormatTest(unittest.TestCase):
    """From nano-dollars to what people read."""

    def test_it_is_exact_and_plain(self) -> None:
        """No exponent, no trailing zeros, no point without decimals."""
        for nanousd, text in (
            (0, "0"),
            (1, "0.000000001"),
            (148_000, "0.000148"),
            (1_500_000_000, "1.5"),
            (5 * NANOUSD_PER_USD, "5"),
            (100 * NANOUSD_PER_USD, "100"),
            (-1, "-0.000000001"),
            (-NANOUSD_PER_USD * 3 // 2, "-1.5"),
            (MAX_AMOUNT, "4611686018.427387904"),
        ):
            with self.subTest(nanousd=nanousd):
                self.assertEqual(format_usd(nanousd), text)

    def test_what_is_written_can_be_read(self) -> None:
        """format_usd and parse_usd are inverse."""
        for nanousd in (0, 1, 10, 999_999_999, 1_000_000_000, 1_000_000_001, 123_456_789_012, MAX_AMOUNT):
            self.assertEqual(parse_usd(format_usd(nanousd)), nanousd)


class CeilDivTest(unittest.TestCase):
    """The only division of money."""

    def test_it_rounds_upward(self) -> None:
        """Also where a float quotient would be wrong."""
        for a, b, quotient in ((0, 5, 0), (1, 5, 1), (5, 5, 1), (6, 5, 2), (-6, 5, -1), (2**80 + 1, 2, 2**79 + 1)):
            with self.subTest(a=a, b=b):
                self.assertEqual(ceil_div(a, b), quotient)

    def test_nothing_is_divided_by_zero(self) -> None:
        """The error is Python's own."""
        with self.assertRaises(ZeroDivisionError):
            ceil_div(1, 0)


if __name__ == "__main__":
    unittest.main()
