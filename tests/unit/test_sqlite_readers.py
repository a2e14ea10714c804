"""Connections that are lent for reading."""

import sqlite3
import unittest

from gateway.errors import StoreUnavailable
from gateway.sqlite_readers import Readers


class ReadersTest(unittest.TestCase):
    """Connections to nothing, of which all that were made are known."""

    def setUp(self) -> None:
        self.made: list[sqlite3.Connection] = []
        self.failure: sqlite3.Error | None = None
        self.failed: list[sqlite3.Error] = []
        self.readers = Readers(self.connect, self.failed.append)
        self.addCleanup(self.readers.close)

    def connect(self) -> sqlite3.Connection:
        """Make one, or fail."""
        if self.failure is not None:
            raise self.failure
        self.made.append(sqlite3.connect(":memory:"))
        return self.made[-1]

    def assert_closed(self, reader: sqlite3.Connection) -> None:
        """Nothing can be read with it."""
        self.assertRaises(sqlite3.ProgrammingError, reader.execute, "SELECT 1")

    def test_one_that_came_back_is_lent_again(self) -> None:
        """The first was made before anybody asked; also after a read that failed."""
        with self.assertRaises(sqlite3.OperationalError), self.readers.lent() as reader:
            reader.execute("SELECT nothing")
        with self.readers.lent() as again:
            self.assertIs(again, reader)
        self.assertEqual(self.made, [reader])

    def test_those_that_read_at_the_same_time_have_one_each(self) -> None:
        """Then both are there for whoever comes next."""
        with self.readers.lent() as one, self.readers.lent() as other:
            self.assertIsNot(one, other)
        with self.readers.lent(), self.readers.lent():
            self.assertEqual(len(self.made), 2)

    def test_one_that_cannot_be_made_is_told_of(self) -> None:
        """Its place is free again: whoever asks next has one as soon as it can be made."""
        self.failure = sqlite3.OperationalError("no descriptors")
        with self.readers.lent():
            for _ in range(20):
                with self.assertRaises(StoreUnavailable), self.readers.lent():
                    self.fail("nothing was lent")
            self.assertEqual(self.failed, [self.failure] * 20)
            self.failure = None
            with self.readers.lent() as other:
                self.assertEqual(other.execute("SELECT 1").fetchall(), [(1,)])

    def test_one_that_is_lent_when_all_are_closed_is_closed_when_it_comes_back(self) -> None:
        """Its reader may end its read; nobody else gets any."""
        with self.readers.lent(), self.readers.lent():
            self.assertEqual(len(self.made), 2)
        with self.readers.lent() as lent:
            self.readers.close()
            self.assertEqual(lent.execute("SELECT 1").fetchall(), [(1,)])
        for reader in self.made:
            self.assert_closed(reader)
        with self.assertRaises(StoreUnavailable), self.readers.lent():
            self.fail("nothing was lent")


if __name__ == "__main__":
    unittest.main()
