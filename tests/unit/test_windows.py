"""Window numbers and their ends, at the edges of the calendar and for clocks that are set back."""

import contextlib
import math
import tempfile
import unittest
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.clock import FakeClock
from gateway.drive import drive
from gateway.errors import BudgetExceeded
from gateway.holds import Policy
from gateway.ledger import Ledger
from gateway.levels import Scope
from gateway.sqlite_store import SqliteStore
from gateway.store import Durability, Work
from gateway.types import Window
from gateway.windows import window_end, window_end_ms, window_number
from tests.support.books import opened_book, purpose
from tests.support.connections import watched

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
        self.book = self.enterContext(opened_book())
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

    def test_a_refused_request_opens_its_window_and_books_nothing(self) -> None:
        """It was refused by the new window: that one is reached, and has all of its budget."""
        self.spend(10, "today")
        self.book.clock.jump_wall(DAY_S)
        with self.assertRaises(BudgetExceeded):
            self.book.reserve(self.account, 101, "too much")
        self.book.clock.jump_wall(-DAY_S)
        self.assertEqual((0, 0, 0, 0), self.book.money())
        self.spend(100, "all of it")
        self.assertEqual([(10,), (100,)], self.book.select("SELECT spent_nanousd FROM balances WHERE level_id = 3"))

    def test_a_hold_belongs_to_the_window_that_began_since_it_was_looked_for(self) -> None:
        """Midnight may lie between the transaction that opens the windows and the one that holds the money."""
        transact = self.book.store.transact

        async def until_midnight(work: Work[Any]) -> Any:
            self.book.store.transact = transact  # type: ignore[method-assign]
            result = await transact(work)
            self.book.clock.advance(DAY_S)
            return result

        self.book.store.transact = until_midnight  # type: ignore[method-assign]
        self.book.reserve(self.account, 60)
        held = "SELECT window_number, held_nanousd FROM balances WHERE level_id = 3 ORDER BY window_number"
        today = window_number(Window.DAY, self.book.clock.wall_ms())
        self.assertEqual([(today - 1, 0), (today, 60)], self.book.select(held))


class StatementsTest(unittest.TestCase):
    """What requests in a window ask of the store."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.statements: list[str] = []
        with watched(before=lambda sql: self.statements.append(sql.split(None, 1)[0])):
            self.store = SqliteStore(Path(folder.name) / "ledger.db", durability=Durability.NORMAL)
        self.addCleanup(self.store.close)
        self.clock = FakeClock()
        self.start()
        for scope, name in ((Scope.GLOBAL, ""), (Scope.TENANT, "acme"), (Scope.KEY, "key1")):
            drive(self.ledger.set_level(scope, name, Window.DAY, 100))

    def start(self) -> None:
        """A ledger that remembers nothing."""
        self.ledger = Ledger(self.store, self.clock)
        drive(self.ledger.open(pid=1, machine_boot="test"))

    def asked(self, amount: int, request_id: str = "req_1") -> list[str]:
        """The first words of all that is asked for one reservation, granted or refused."""
        self.statements.clear()
        with contextlib.suppress(BudgetExceeded):
            drive(self.ledger.reserve(self.ledger.account("acme", "key1"), amount, purpose(request_id)))
        return list(self.statements)

    def test_refusals_in_a_window_that_nobody_has_opened_undo_nothing(self) -> None:
        """The first of them opens it, in a transaction of its own; none rolls back what it shares one with."""
        for _ in range(2):
            self.clock.advance(DAY_S)
            asked = [self.asked(101) for _ in range(10)]
            self.assertEqual([statements.count("BEGIN") for statements in asked], [2] + [1] * 9)
            self.assertFalse([words for statements in asked for words in statements if words == "ROLLBACK"])

    def test_a_refusal_writes_nothing_whichever_level_refuses(self) -> None:
        """A caller without money keeps no disk busy, and is told so by a full one, too."""
        account = self.ledger.account("acme", "key1")
        held = drive(self.ledger.reserve(account, 1, purpose("held")))
        for scope, name in ((Scope.KEY, "key1"), (Scope.TENANT, "acme"), (Scope.GLOBAL, "")):
            self.store.flush()
            before = self.store.wal_bytes
            for number in range(3):
                self.assertEqual(["BEGIN", "INSERT", "SELECT", "COMMIT"], self.asked(101, f"{name}_{number}"))
            with self.assertRaises(BudgetExceeded):
                drive(self.ledger.top_up(held, 101, purpose("held")))
            self.assertEqual(before, self.store.wal_bytes)
            drive(self.ledger.set_level(scope, name, Window.DAY, 1000))
        self.assertEqual([(1,)], drive(self.store.read("SELECT max(held_nanousd) FROM balances")))

    def test_a_sweep_that_finds_nothing_new_writes_nothing(self) -> None:
        """An idle gateway leaves its disk alone."""
        drive(self.ledger.void(drive(self.ledger.reserve(self.ledger.account("acme", "key1"), 1, purpose()))))
        written = []
        for _ in range(3):
            drive(self.ledger.sweep(hold_ttl_s=900, unresolved_after_s=900, policy=Policy.VOID))
            written.append(self.store.wal_bytes)
        self.assertEqual(written[0], written[-1])

    def test_a_reservation_in_a_known_window_is_one_statement(self) -> None:
        """Whoever has opened it; after a restart it is read once, and no transaction is needed for that."""
        self.asked(101)
        self.assertEqual(["BEGIN", "INSERT", "COMMIT"], self.asked(10, "req_1"))
        self.start()
        for number, read in enumerate((["SELECT"], [])):
            self.assertEqual([*read, "BEGIN", "INSERT", "COMMIT"], self.asked(10, f"again_{number}"))


if __name__ == "__main__":
    unittest.main()
