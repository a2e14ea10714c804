"""Copies of a database that others use: as of one moment, in a bounded number of steps."""

import contextlib
import sqlite3
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from gateway import sqlite_copy
from tests.support.connections import disk_error

STEPS = 40
"""More than the pages of the source, at one page a step."""


def nothing() -> None:
    """What happens between two steps when nothing does."""


class CopyTest(unittest.TestCase):
    """A source of some 30 pages, copied page by page through a connection of its own."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path, self.draft = Path(folder.name) / "source.db", Path(folder.name) / "draft"
        self.enterContext(mock.patch.object(sqlite_copy, "STEP_PAGES", 1))

    def open(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, timeout=0)
        self.addCleanup(connection.close)
        return connection

    def sources(self, journal: str = "wal") -> tuple[sqlite3.Connection, sqlite3.Connection]:
        """One connection that writes, and one that is copied from."""
        writer = self.open(self.path)
        writer.execute(f"PRAGMA journal_mode = {journal}").fetchall()
        writer.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, text)")
        writer.executemany("INSERT INTO t VALUES (?, ?)", [(number, "x" * 3000) for number in range(1, 31)])
        return writer, self.open(self.path)

    def copy(self, source: sqlite3.Connection, between: Callable[[], object] = nothing) -> int:
        """Copy into a new draft; the number of steps, which is an error if there are too many."""
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1
            if steps > STEPS:
                raise AssertionError("it does not end")
            between()

        with sqlite_copy.drafted(self.draft):
            sqlite_copy.copy(source, self.draft, between=step)
            self.copied = self.rows(self.open(self.draft))
        return steps

    def rows(self, connection: sqlite3.Connection) -> list[tuple[int, str]]:
        self.assertEqual(connection.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
        return connection.execute("SELECT id, text FROM t ORDER BY id").fetchall()

    def test_a_source_that_is_written_between_any_two_steps_is_copied_as_of_the_beginning(self) -> None:
        """Whoever commits, through whatever connection, does not start it anew."""
        writer, source = self.sources()
        before = self.rows(writer)
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        steps = self.copy(source, lambda: writer.execute("UPDATE t SET text = text || 'y'"))
        self.assertEqual(self.copied, before)
        self.assertLessEqual(steps, pages + 1)
        self.assertNotEqual(self.rows(writer), before)

    def test_a_transaction_that_is_rolled_back_between_any_two_steps_changes_nothing(self) -> None:
        """One that has reached the write-ahead log, too."""
        writer, source = self.sources()
        writer.execute("PRAGMA cache_size = 1")
        before = self.rows(writer)

        def undone() -> None:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("UPDATE t SET text = text || 'y'")
            writer.execute("ROLLBACK")

        self.copy(source, undone)
        self.assertEqual(self.copied, before)

    def test_an_open_transaction_of_another_connection_is_not_waited_for(self) -> None:
        """It is not in the copy."""
        writer, source = self.sources()
        before = self.rows(writer)
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("DELETE FROM t")
        self.copy(source)
        self.assertEqual(self.copied, before)

    def test_a_source_without_a_log_lets_nobody_commit_meanwhile(self) -> None:
        """So that a backup on which some program works is whole when it is restored."""
        writer, source = self.sources("delete")
        before = self.rows(writer)

        def refused() -> None:
            self.assertRaises(sqlite3.OperationalError, writer.execute, "UPDATE t SET text = ''")

        self.copy(source, refused)
        self.assertEqual(self.copied, before)

    def test_no_transaction_stays_open(self) -> None:
        """Not when it was copied, nor when the copying was ended, nor when the draft could not be written."""
        writer, source = self.sources()
        self.copy(source)
        self.assertFalse(source.in_transaction)

        class Enough(Exception):
            """Whoever wanted the copy wants it no more."""

        with self.assertRaises(Enough):
            self.copy(source, mock.Mock(side_effect=Enough))
        self.assertFalse(source.in_transaction)
        with self.assertRaises(sqlite3.OperationalError):
            sqlite_copy.copy(source, self.draft.parent / "none" / "draft")
        self.draft.write_bytes(b"no database, and no empty file" * 100)
        with self.assertRaises(sqlite3.DatabaseError):
            sqlite_copy.copy(source, self.draft)
        self.assertFalse(source.in_transaction)
        writer.execute("UPDATE t SET text = ''")
        self.assertEqual(writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0], 0)

    def test_a_source_that_cannot_be_read_is_no_copy(self) -> None:
        """SQLite's own words say why, not that there is no transaction to end: after some errors there is none."""

        class Unreadable(sqlite3.Connection):
            def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
                if sql.startswith("SELECT"):
                    super().execute("ROLLBACK")
                    raise disk_error(sqlite3.SQLITE_IOERR_READ, "disk I/O error")
                return super().execute(sql, parameters)

        self.sources()
        junk = self.path.with_name("junk")
        junk.write_bytes(b"no database" * 100)
        for path, factory, words in (
            (junk, sqlite3.Connection, "not a database"),
            (self.path, Unreadable, "disk I/O error"),
        ):
            source = sqlite3.connect(path, isolation_level=None, factory=factory)
            with self.subTest(words), contextlib.closing(source), self.assertRaisesRegex(sqlite3.DatabaseError, words):
                self.copy(source)
