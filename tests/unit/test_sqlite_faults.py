"""Which errors of SQLite concern one statement, which pass, which are the device's, and which are final."""

import resource
import sqlite3
import tempfile
import unittest
from pathlib import Path

from gateway.sqlite_faults import Fault, fault_of, has_room
from gateway.sqlite_file import FileMoved
from tests.support.connections import disk_error

CODES = {
    Fault.OWN: (
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        sqlite3.SQLITE_CONSTRAINT_CHECK,
        sqlite3.SQLITE_MISMATCH,
        sqlite3.SQLITE_TOOBIG,
    ),
    Fault.PASSING: (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_BUSY_SNAPSHOT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_IOERR_NOMEM,
    ),
    Fault.DEVICE: (
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_IOERR_WRITE,
        sqlite3.SQLITE_IOERR_READ,
        sqlite3.SQLITE_IOERR_SHORT_READ,
        sqlite3.SQLITE_IOERR_TRUNCATE,
        sqlite3.SQLITE_IOERR_SHMSIZE,
    ),
    Fault.FINAL: (
        sqlite3.SQLITE_IOERR_FSYNC,
        sqlite3.SQLITE_IOERR_DIR_FSYNC,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_CORRUPT_INDEX,
        sqlite3.SQLITE_NOTADB,
    ),
}


class FaultTest(unittest.TestCase):
    """fault_of()."""

    def test_each_code_has_its_meaning(self) -> None:
        """By the extended code, where there is one of its own."""
        for fault, codes in CODES.items():
            for code in codes:
                with self.subTest(code=code):
                    self.assertIs(fault_of(disk_error(code)), fault)

    def test_a_file_that_moved_is_final(self) -> None:
        """What is written to it is lost."""
        self.assertIs(fault_of(FileMoved("it was taken away")), Fault.FINAL)

    def test_what_is_not_from_sqlite_is_the_works_own(self) -> None:
        """And so is an error that sqlite3 raises by itself, which has no code."""
        for error in (ValueError(), MemoryError(), sqlite3.ProgrammingError("bad parameters")):
            self.assertIs(fault_of(error), Fault.OWN)


class RoomTest(unittest.TestCase):
    """has_room()."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "ledger.db"

    def test_it_is_tried_and_leaves_nothing(self) -> None:
        """A file of the same size, and a little more, may be there."""
        self.path.write_bytes(bytes(5000))
        self.assertTrue(has_room(self.path))
        self.assertEqual([file.name for file in self.path.parent.iterdir()], ["ledger.db"])

    def test_a_limit_on_the_size_of_files_is_a_want_of_room(self) -> None:
        """Also when some bytes would fit."""
        self.path.write_bytes(bytes(5000))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        for more, room in ((0, False), (1, False), (1 << 20, True)):
            resource.setrlimit(resource.RLIMIT_FSIZE, (5000 + more, before[1]))
            self.assertIs(has_room(self.path), room)
        self.assertEqual([file.name for file in self.path.parent.iterdir()], ["ledger.db"])

    def test_another_error_is_no_want_of_room(self) -> None:
        """A folder that is gone has not run full."""
        self.assertTrue(has_room(self.path.parent / "gone" / "ledger.db"))
