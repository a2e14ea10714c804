"""The schema keeps amounts whole: no fraction, no text, no negative, nothing so large that a sum turns into a float."""

import contextlib
import sqlite3
import unittest
from typing import Any

from gateway.levels import LedgerBroken
from gateway.migrations import MAX_NANOUSD
from gateway.store import Transaction
from tests.support.books import Book, ledger_folder, row


class AmountTest(unittest.TestCase):
    """Amounts, behind the ledger's back."""

    def setUp(self) -> None:
        folder = self.enterContext(ledger_folder())
        self.book = self.enterContext(contextlib.closing(Book(folder)))
        self.account = self.book.set_limits(None, None, 10**9)
        self.book.settle(self.book.reserve(self.account, 1000), 700)

    def execute(self, sql: str, *values: Any) -> None:
        async def work(transaction: Transaction) -> None:
            for trigger in ("requests_are_never_rewritten", "a_raised_hold_needs_room"):
                await transaction.execute(f"DROP TRIGGER IF EXISTS {trigger}")
            await transaction.execute(sql, values)

        self.book.run(self.book.store.transact(work))

    def test_a_fraction_or_a_text_is_no_amount(self) -> None:
        """Of no table; a column that is not STRICT keeps both."""
        columns = self.book.select(
            """SELECT tables.name, columns.name FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
                WHERE tables.type = 'table' AND columns.name LIKE '%_nanousd'"""
        )
        self.assertGreaterEqual(len(columns), 10)
        for table, column in columns:
            for value in (1.5, 2.0**63, "12abc", b"12"):
                with self.subTest(table=table, column=column, value=value), self.assertRaises(sqlite3.IntegrityError):
                    self.execute(f"UPDATE {table} SET {column} = ?", value)

    def test_an_amount_is_bounded(self) -> None:
        """From below in every sum of money, from above in every single amount."""
        for table, column in (("holds", "amount_nanousd"), ("holds", "cost_nanousd"), ("levels", "limit_nanousd")):
            for value in (-1, MAX_NANOUSD + 1):
                with self.subTest(column=column, value=value), self.assertRaises(sqlite3.IntegrityError):
                    self.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS NOT NULL", value)
        for column in ("spent_nanousd", "held_nanousd", "unresolved_nanousd", "overage_nanousd"):
            with self.subTest(column=column), self.assertRaises(sqlite3.IntegrityError):
                self.execute(f"UPDATE balances SET {column} = -1")

    def test_a_sum_beyond_an_integer_is_refused_whole(self) -> None:
        """SQLite goes on with a float, which is above every limit; nothing of the reservation is kept."""
        account = self.book.set_limits(None, None, None)
        with self.assertRaises(LedgerBroken):
            for number in range(10):
                self.book.reserve(account, MAX_NANOUSD, f"req_{number + 2}")
        self.assertEqual(self.book.level().held_nanousd % MAX_NANOUSD, 0)
        self.assertTrue(self.book.verify().ok)

    def test_a_row_is_kept_with_its_integers(self) -> None:
        """What the ledger writes has the type that it had."""
        self.book.ledger.record(row("req_9"))
        self.book.flush()
        kinds = self.book.select("SELECT DISTINCT typeof(cost_nanousd), typeof(overage_nanousd) FROM requests")
        self.assertEqual(kinds, [("integer", "integer")])
