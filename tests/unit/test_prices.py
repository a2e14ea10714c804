"""Prices: read exactly, applied by token class, dated."""

import unittest
from decimal import Decimal

from llmkit.prices import Price, PriceBook, PriceEntry
from llmkit.types import Usage

_MINI = Price.parse({"input": Decimal("0.15"), "cached_input": Decimal("0.075"), "output": Decimal("0.60")})


class ParseTest(unittest.TestCase):
    """From USD per million tokens to pico-dollars per token."""

    def test_every_kind_of_number_is_exact(self) -> None:
        """Strings, ints, decimals, and floats by the decimal they print as."""
        for value, pico in (
            ("0.15", 150_000),
            (Decimal("0.0075"), 7_500),
            (3, 3_000_000),
            (0.1, 100_000),
            (0.075, 75_000),
            (1e-06, 1),
            ("0.000001", 1),
            (0, 0),
        ):
            with self.subTest(value=value):
                price = Price.parse({"input": value, "output": 1})
                self.assertEqual(price, Price(pico, pico, pico, 1_000_000))

    def test_the_cache_classes_default_to_the_input_price(self) -> None:
        """Each on its own."""
        self.assertEqual(
            Price.parse({"input": 2, "output": 8, "cached_input": 1}), Price(2_000_000, 1_000_000, 2_000_000, 8_000_000)
        )
        self.assertEqual(
            Price.parse({"input": 2, "output": 8, "cache_write": 3}), Price(2_000_000, 2_000_000, 3_000_000, 8_000_000)
        )

    def test_a_fault_names_its_key(self) -> None:
        """An operator sees where to look."""
        good = {"input": "1", "output": "2"}
        for key, value in (
            ("input", "0.0000001"),
            ("output", "-1"),
            ("output", -1),
            ("cached_input", float("nan")),
            ("cached_input", float("inf")),
            ("cache_write", "free"),
            ("cache_write", None),
            ("input", True),
            ("output", [1]),
            ("output", 10**20),
            ("reasoning", 1),
            ("Input", 1),
        ):
            with self.subTest(key=key, value=value), self.assertRaisesRegex(ValueError, f"^{key}: "):
                Price.parse({**good, key: value})

    def test_input_and_output_must_be_there(self) -> None:
        """An unknown price is never zero."""
        for key in ("input", "output"):
            mapping = {"input": "1", "output": "2"}
            del mapping[key]
            with self.subTest(missing=key), self.assertRaisesRegex(ValueError, f"^{key}: "):
                Price.parse(mapping)

    def test_a_price_is_made_of_whole_numbers(self) -> None:
        """No float, no bool and nothing negative gets in by the constructor."""
        for bad in (1.5, True, -1, Decimal(1)):
            with self.subTest(bad=bad), self.assertRaises(ValueError):
                Price(1, 1, 1, bad)  # type: ignore[arg-type]

    def test_free_costs_nothing(self) -> None:
        """Whatever the usage."""
        self.assertEqual(Price.FREE.cost_nanousd(Usage(10**9, 5, 5, 10**9, 7)), 0)
        self.assertEqual(Price.FREE.bound_nanousd(10**9, 10**9), 0)


class CostTest(unittest.TestCase):
    """One usage, one amount."""

    def test_each_token_is_priced_by_its_class(self) -> None:
        """Cached and cache-write tokens are part of the prompt, reasoning tokens of the completion."""
        price = Price.parse({"input": "4", "cached_input": "1", "cache_write": "5", "output": "16"})
        usage = Usage(
            prompt_tokens=100, cached_tokens=60, cache_write_tokens=30, completion_tokens=7, reasoning_tokens=5
        )
        self.assertEqual(price.cost_nanousd(usage), (10 * 4 + 60 * 1 + 30 * 5 + 7 * 16) * 1000)

    def test_a_known_bill(self) -> None:
        """1,000 prompt tokens of which 400 cached, and 500 out, at the price of gpt-4o-mini."""
        self.assertEqual(_MINI.cost_nanousd(Usage(1000, 400, 0, 500)), 90_000 + 30_000 + 300_000)

    def test_a_fraction_is_rounded_upward_once(self) -> None:
        """Two half nano-dollars make one, not two; a single pico-dollar makes one."""
        half = Price(500, 500, 500, 500)
        self.assertEqual(half.cost_nanousd(Usage(prompt_tokens=1)), 1)
        self.assertEqual(half.cost_nanousd(Usage(prompt_tokens=1, completion_tokens=1)), 1)
        self.assertEqual(Price(1, 1, 1, 1).cost_nanousd(Usage(completion_tokens=1)), 1)

    def test_more_cached_than_prompt_tokens_never_earn_money(self) -> None:
        """A provider that contradicts itself is paid for what it names."""
        self.assertEqual(_MINI.cost_nanousd(Usage(prompt_tokens=10, cached_tokens=1000)), 75_000)

    def test_nothing_used_costs_nothing(self) -> None:
        """Zero is not rounded up."""
        self.assertEqual(_MINI.cost_nanousd(Usage()), 0)


class BoundTest(unittest.TestCase):
    """What to hold before the call."""

    def test_the_prompt_is_taken_at_the_dearest_input_class(self) -> None:
        """Whichever it is."""
        for key, dearest in (("input", 9), ("cached_input", 9), ("cache_write", 9)):
            with self.subTest(key=key):
                mapping = {"input": 1, "cached_input": 1, "cache_write": 1, "output": 2, key: dearest}
                self.assertEqual(Price.parse(mapping).bound_nanousd(10, 5), (10 * 9 + 5 * 2) * 1000)

    def test_it_is_rounded_upward(self) -> None:
        """A bound below the cost by a fraction would be none."""
        self.assertEqual(Price(1, 1, 1, 1).bound_nanousd(1, 0), 1)

    def test_a_negative_count_is_refused(self) -> None:
        """It would lower the hold."""
        for counts in ((-1, 5), (5, -1)):
            with self.assertRaises(ValueError):
                _MINI.bound_nanousd(*counts)


class UsageTest(unittest.TestCase):
    """Token counts."""

    def test_the_total_counts_no_part_twice(self) -> None:
        """Prompt and completion only."""
        self.assertEqual(Usage(10, 4, 3, 20, 15).total_tokens, 30)

    def test_only_counts_are_counts(self) -> None:
        """Ints of 0 or more, in every class."""
        for name in Usage.__struct_fields__:
            for bad in (-1, 1.0, True, "1", None):
                with self.subTest(name=name, bad=bad), self.assertRaises(ValueError):
                    Usage(**{name: bad})  # type: ignore[arg-type]


class PriceBookTest(unittest.TestCase):
    """Which price is in force."""

    def test_the_last_entry_that_has_started_is_in_force(self) -> None:
        """From its first millisecond on; before the first entry there is no price."""
        old, new = PriceEntry(100, _MINI, "old"), PriceEntry(200, Price.FREE, "new")
        book = PriceBook([new, old])
        self.assertEqual(book.entries, (old, new))
        for ms, entry in ((99, None), (100, old), (199, old), (200, new), (10**15, new)):
            with self.subTest(ms=ms):
                self.assertIs(book.at(ms), entry)

    def test_an_empty_book_has_no_price(self) -> None:
        """None, never free."""
        self.assertIsNone(PriceBook([]).at(0))

    def test_books_of_the_same_entries_are_equal(self) -> None:
        """In whatever order they were given; what reads a file twice can tell that nothing has changed."""
        old, new = PriceEntry(1, _MINI, "a"), PriceEntry(2, Price.FREE, "b")
        self.assertEqual(PriceBook([old, new]), PriceBook([new, old]))
        self.assertEqual(hash(PriceBook([old, new])), hash(PriceBook([new, old])))
        for other in (PriceBook([old]), PriceBook([old, PriceEntry(2, Price.FREE, "c")]), (old, new)):
            self.assertNotEqual(PriceBook([old, new]), other)

    def test_two_prices_for_one_moment_are_refused(self) -> None:
        """Neither could be right."""
        with self.assertRaises(ValueError):
            PriceBook([PriceEntry(1, _MINI, "a"), PriceEntry(2, _MINI, "b"), PriceEntry(1, Price.FREE, "c")])


if __name__ == "__main__":
    unittest.main()
