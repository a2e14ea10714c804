"""Window numbers and their ends, at the edges of the calendar and for clocks that are set back."""

import contextlib
import math
import unittest
from datetime import UTC, datetime

from gateway.errors import BudgetExceeded
from gateway.types import Window
from gateway.windows import window_end, window_end_ms, window_number
from tests.support.books import Book, ledger_folder

DAY_S = 86_400


def ms(text: str) -> int:
    """UTC milliseconds of an ISO time."""
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class NumberTest(unittest.TestCase):
    """window_number()."""

    def test_total_is_one_window(self) -> None:
        """Whenever it is."""
        for instant in ("1969-07-20", "2026-01-01", "9999-12-31"):
            self.assertEqual(0, window_number(Window.TOTAL, ms(instant)))

    def test_each_kind_turns_at_its_own_midnight(self) -> None:
        """The last millisecond belongs to the window that ends, the next one to the window that begins."""
        for kind, midnight in (
            (Window.DAY, "2026-03-01"),
            (Window.DAY, "2028-02-29"),
            (Window.DAY, "1970-01-01"),
            (Window.WEEK, "2026-03-02"),
            (Window.WEEK, "1970-01-05"),
            (Window.WEEK, "1969-12-29"),
            (Window.MONTH, "2026-03-01"),
            (Window.MONTH, "2027-01-01"),
            (Window.MONTH, "1970-01-01"),
        ):
            with self.subTest(kind=kind, midnight=midnight):
                before, after = (window_number(kind, ms(midnight) + offset) for offset in (-1, 0))
                self.assertEqual(1, after - before)

    def test_no_window_turns_inside_itself(self) -> None:
        """From a Monday to the next Sunday it is one week; from the first to the 31st one month."""
        for kind, first, last in (
            (Window.DAY, "2026-03-29T00:00:00", "2026-03-29T23:59:59.999"),
            (Window.WEEK, "2025-12-29T00:00:00", "2026-01-04T23:59:59.999"),
            (Window.MONTH, "2026-01-01T00:00:00", "2026-01-31T23:59:59.999"),
        ):
            with self.subTest(kind=kind):
                self.assertEqual(window_number(kind, ms(first)), window_number(kind, ms(last)))

    def test_numbers_are_the_documented_ones(self) -> None:
        """They are stored, so they can never change."""
        instant = ms("2026-01-01")
        numbers = {kind: window_number(kind, instant) for kind in Window}
        self.assertEqual({Window.TOTAL: 0, Window.DAY: 20_454, Window.WEEK: 2_922, Window.MONTH: 2026 * 12}, numbers)


class EndTest(unittest.TestCase):
    """window_end()."""

    def test_the_end_is_the_instant_of_the_next_window(self) -> None:
        """In UTC."""
        for kind, instant, end in (
            (Window.DAY, "2026-12-31T12:00", "2027-01-01T00:00:00+00:00"),
            (Window.WEEK, "2026-01-01T12:00", "2026-01-05T00:00:00+00:00"),
            (Window.MONTH, "2026-12-31T12:00", "2027-01-01T00:00:00+00:00"),
            (Window.MONTH, "2028-02-01T00:00", "2028-03-01T00:00:00+00:00"),
        ):
            with self.subTest(kind=kind, instant=instant):
                told = window_end(kind, window_number(kind, ms(instant)))
                self.assertEqual(end, told.isoformat() if told else None)
                self.assertEqual(window_end_ms(kind, window_number(kind, ms(instant))), ms(end))

    def test_total_never_ends(self) -> None:
        """There is no instant to wait for."""
        self.assertIsNone(window_end(Window.TOTAL, 0))
        self.assertEqual(window_end_ms(Window.TOTAL, 0), math.inf)


class ClockTest(unittest.TestCase):
    """What a clock that is set does to budgets: each window is granted once."""

    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.book = stack.enter_context(contextlib.closing(Book(stack.enter_context(ledger_folder()))))
        self.account = self.book.set_limits(100, window=Window.DAY)

    def spend(self, amount: int, request_id: str) -> None:
        """Reserve and settle."""
        self.book.settle(self.book.reserve(self.account, amount, request_id), amount)

    def test_a_new_window_has_the_whole_budget(self) -> None:
        """And the old one keeps what was spent in it."""
        self.spend(100, "today")
        self.book.clock.advance(DAY_S)
        self.spend(100, "tomorrow")
        self.assertEqual([(100,), (100,)], self.book.select("SELECT spent_nanousd FROM balances WHERE level_id = 3"))

    def test_a_clock_that_is_set_back_opens_no_former_window(self) -> None:
        """Time that was reached is not granted again."""
        self.spend(60, "today")
        self.book.clock.advance(DAY_S)
        self.spend(60, "tomorrow")
        self.book.clock.jump_wall(-DAY_S)
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(self.account, 60, "today again")
        self.assertEqual((60, 0, 0, 0), self.book.money())

    def test_a_clock_that_went_ahead_and_came_back_goes_on_where_it_was_ahead(self) -> None:
        """The window that was taken early is used up when its day really comes."""
        self.book.clock.jump_wall(40 * DAY_S)
        self.spend(100, "early")
        self.book.clock.jump_wall(-40 * DAY_S)
        for day in range(40):
            with self.subTest(day=day), self.assertRaises(BudgetExceeded):
                self.book.reserve(self.account, 1, f"day {day}")
            self.book.clock.advance(DAY_S)
        self.book.clock.advance(DAY_S)
        self.spend(100, "the next day")

    def test_a_refused_request_opens_no_window(self) -> None:
        """What was refused left nothing behind, the new window neither."""
        self.spend(10, "today")
        self.book.clock.jump_wall(DAY_S)
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(self.account, 101, "too much")
        self.book.clock.jump_wall(-DAY_S)
        self.assertEqual((10, 0, 0, 0), self.book.money())
        self.assertEqual([(3,)], self.book.select("SELECT count(*) FROM balances"))


if __name__ == "__main__":
    unittest.main()
