"""The schema keeps amounts whole: no fraction, no text, no negative, nothing so large that a sum turns into a float."""

import contextlib
import re
import sqlite3
import unittest
from typing import Any
from unittest import mock

from gateway import audit
from gateway.holds import Policy
from gateway.levels import LedgerBroken
from gateway.store import Transaction
from gateway.types import MAX_NANOUSD
from tests.support.books import Book, ledger_folder, opened_book, row
from tests.support.connections import watched


class GuardsTest(unittest.TestCase):
    """What the schema refuses whoever asks for it; the books are what they were then."""

    def setUp(self) -> None:
        self.book = self.enterContext(opened_book())
        account = self.book.set_limits(100, 100, 100)
        settled, void, unresolved, _ = (self.book.reserve(account, 10, f"req_{number}") for number in range(4))
        self.book.settle(settled, 7)
        self.book.run(self.book.ledger.void(void, row("req_1")))
        self.book.run(self.book.ledger.leave_unresolved(unresolved, "timeout", row("req_2")))
        self.before = self.content()

    def content(self) -> list[Any]:
        return [self.book.select(f"SELECT * FROM {table} ORDER BY id") for table in ("holds", "balances")]

    def assert_refused(self, sql: str) -> None:
        with self.assertRaises(sqlite3.IntegrityError, msg=sql):
            self.book.tamper(sql)
        self.assertEqual(self.before, self.content(), sql)

    def assert_ignored(self, sql: str) -> None:
        self.book.tamper(sql)
        self.assertEqual(self.before, self.content(), sql)

    def test_a_hold_is_opened_and_resolved_once(self) -> None:
        """What is settled or void stays so, and nothing is open again."""
        for state in ("settled", "void"):
            for change in ("state = 'open'", "state = 'unresolved'", "cost_nanousd = 8", "amount_nanousd = 9"):
                self.assert_refused(f"UPDATE holds SET {change} WHERE state = '{state}'")
        self.assert_refused("UPDATE holds SET state = 'open' WHERE state = 'unresolved'")

    def test_a_hold_needs_room_in_balances_that_are_there(self) -> None:
        """In each of its three; so does a raise."""
        insert = "INSERT INTO holds SELECT NULL, {} FROM holds WHERE state = 'open'"
        columns = [name for (name,) in self.book.select("SELECT name FROM pragma_table_info('holds')")][1:]
        for name, value in (
            *((balance, "99") for balance in ("key_balance", "tenant_balance", "global_balance")),
            ("amount_nanousd", "74"),
        ):
            self.assert_ignored(insert.format(", ".join(value if column == name else column for column in columns)))
        self.assert_ignored("UPDATE holds SET amount_nanousd = 84 WHERE state = 'open'")

    def test_a_hold_stays(self) -> None:
        """In its balances, and what it is called by: ids only rise."""
        for column in ("key_balance", "tenant_balance", "global_balance", "id"):
            self.assert_refused(f"UPDATE holds SET {column} = {column} + 1 WHERE state = 'open'")
        self.assert_refused("DELETE FROM holds WHERE id = (SELECT max(id) FROM holds)")


class PendingTest(unittest.TestCase):
    """What is asked of a ledger of any size while requests wait."""

    def test_what_was_resolved_long_ago_is_not_looked_at(self) -> None:
        """By no start, sweep, list or metric: open holds are above a mark, unresolved ones in an index."""
        asked: list[str] = []
        with ledger_folder() as folder, watched(before=asked.append), contextlib.closing(Book(folder)) as book:
            book.reserve(book.set_limits(), 1)
            book.crash()
            asked.clear()
            book.open()
            book.run(book.ledger.sweep(hold_ttl_s=900, unresolved_after_s=0, policy=Policy.VOID))
            book.run(book.ledger.pending_totals())
            book.run(audit.list_holds(book.store))
            for statement in sorted({sql for sql in asked if "holds" in sql}):
                plan = book.select("EXPLAIN QUERY PLAN " + re.sub(r"\?\d*", "NULL", statement))
                steps = "\n".join(step[-1] for step in plan)
                self.assertNotRegex(
                    steps, r"SCAN (\w+ USING (?!INDEX holds_unresolved)|(holds|requests)\b(?! USING))", statement
                )


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
        allowed = mock.patch("gateway.levels.CALL_MOST_NANOUSD", MAX_NANOUSD)
        with allowed, self.assertRaises(LedgerBroken):
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
