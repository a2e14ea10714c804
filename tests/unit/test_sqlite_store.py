"""The store over SQLite on one thread: what is kept, what is rolled back, and whose fault an error is."""

import contextlib
import errno
import os
import sqlite3
import tempfile
import threading
import unittest
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from gateway import sqlite_file, sqlite_readers, sqlite_store
from gateway.clock import FakeClock
from gateway.data_dir import machine_boot_id
from gateway.drive import StorySuspendedError, drive
from gateway.errors import StoreUnavailable
from gateway.ledger import Ledger
from gateway.sqlite_file import has_wal_reset_bug
from gateway.sqlite_store import SqliteStore
from gateway.store import Doing, Durability, Transaction, Work
from tests.support.books import row
from tests.support.connections import Fuse, disk_error, watched

PATIENCE_S = 20.0
"""A bug makes a test fail after this; nothing waits for it otherwise."""

SPARE = 64
"""Descriptors that a serving process has beside those of clients, and more readers than it should ever have."""


def insert(*names: str) -> Work[int]:
    """Work that adds tenants of these names, and returns how many."""

    async def work(transaction: Transaction) -> int:
        for name in names:
            await transaction.execute("INSERT INTO tenants VALUES (?, 0)", (name,))
        return len(names)

    return work


def delete(name: str) -> Work[None]:
    """Work that takes a tenant away."""

    async def work(transaction: Transaction) -> None:
        await transaction.execute("DELETE FROM tenants WHERE name = ?", (name,))

    return work


def insert_then_raise(name: str, error: BaseException) -> Work[None]:
    """Work that adds a tenant, then fails."""

    async def work(transaction: Transaction) -> None:
        await transaction.execute("INSERT INTO tenants VALUES (?, 0)", (name,))
        raise error

    return work


async def names_in(transaction: Transaction) -> list[str]:
    """Work that reads all tenants."""
    return [name for (name,) in (await transaction.execute("SELECT name FROM tenants ORDER BY name")).records]


class StoreCase(unittest.TestCase):
    """A store whose queued work is carried by the next transaction alone, and whose COMMIT can be made to fail."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "ledger.db"
        for name, seconds in (("FLUSH_AFTER_S", 60.0), ("RETRY_AFTER_S", 60.0)):
            patch = mock.patch.object(sqlite_store, name, seconds)
            patch.start()
            self.addCleanup(patch.stop)
        self.errors: list[BaseException] = []
        self.refused: list[Doing] = []
        self.works: list[Doing] = []
        self.lost: list[str] = []
        self.fuse = Fuse()
        self.store = self.open()

    def open(self, durability: Durability = Durability.NORMAL) -> SqliteStore:
        with watched(before=lambda sql: self.fuse(sql)):
            store = SqliteStore(
                self.path,
                durability=durability,
                on_error=self.errors.append,
                on_failed=self.failed,
                on_works=self.works.append,
                on_lost=self.lost.append,
            )
        self.addCleanup(store._writer.close)  # of a lost ledger it is left to the end of the process
        self.addCleanup(store.close)
        return store

    def failed(self, doing: Doing, error: sqlite3.Error) -> None:
        self.refused.append(doing)
        self.errors.append(error)

    def names(self) -> list[str]:
        """All tenants that are committed."""
        return [name for (name,) in drive(self.store.read("SELECT name FROM tenants ORDER BY name"))]

    @staticmethod
    def pragma(name: str) -> Work[Any]:
        """Work that runs a PRAGMA on the writing connection, and returns what it says."""

        async def work(transaction: Transaction) -> Any:
            return (await transaction.execute(f"PRAGMA {name}")).records[0][0]

        return work


class TransactTest(StoreCase):
    """One piece of work after another."""

    def test_the_result_comes_once_it_is_committed(self) -> None:
        """transact() returns what the work returned, and another connection sees what it did."""
        self.assertEqual(drive(self.store.transact(insert("a", "b"))), 2)
        with contextlib.closing(sqlite3.connect(self.path)) as other:
            self.assertEqual(other.execute("SELECT count(*) FROM tenants").fetchone(), (2,))

    def test_a_commit_that_would_carry_nothing_is_not_made(self) -> None:
        """Who waits for what a leader has taken along, waits for that commit alone."""
        begun: list[str] = []
        self.fuse = lambda sql: begun.append(sql) if sql.startswith("BEGIN") else None  # type: ignore[assignment]
        self.store._transact(sqlite_store._nothing)
        self.assertEqual(begun, [])
        self.store._queue.append(insert("a"))
        self.store._transact(sqlite_store._nothing)
        self.assertEqual((len(begun), self.names()), (1, ["a"]))

    def test_work_that_raises_leaves_nothing(self) -> None:
        """Its exception passes through, what it did is rolled back, and nobody is alarmed: it is not an error here."""
        with self.assertRaisesRegex(LookupError, "refused"):
            drive(self.store.transact(insert_then_raise("a", LookupError("refused"))))
        self.assertEqual((self.names(), self.errors), ([], []))

    def test_a_broken_constraint_is_the_works_own_fault(self) -> None:
        """The work is told, the store stays in order."""
        drive(self.store.transact(insert("a")))
        with self.assertRaises(sqlite3.IntegrityError):
            drive(self.store.transact(insert("b", "a")))
        self.assertEqual((self.names(), self.store.writable), (["a"], True))

    def test_a_broken_statement_is_the_works_own_fault(self) -> None:
        """Bad SQL and a value without a type are told to the work that brought them; the store stays in order."""

        async def bad_sql(transaction: Transaction) -> None:
            await transaction.execute("SELECT nothing FROM nowhere")

        async def bad_value(transaction: Transaction) -> None:
            await transaction.execute("SELECT ?", (object(),))  # type: ignore[arg-type]

        for work in (bad_sql, bad_value):
            with self.subTest(work=work.__name__), self.assertRaises(sqlite3.Error):
                drive(self.store.transact(work))
        self.assertTrue(self.store.writable)

    def test_a_failed_commit_keeps_nothing(self) -> None:
        """StoreUnavailable, nothing is kept, the operator is told, and the next transaction goes through."""
        self.fuse.times = 1
        with self.assertRaises(StoreUnavailable):
            drive(self.store.transact(insert("a")))
        self.assertEqual((self.names(), len(self.errors), self.store.writable), ([], 1, False))
        self.assertEqual(self.store.trouble, "database or disk is full")
        drive(self.store.transact(insert("b")))
        self.assertEqual((self.names(), self.store.writable, self.store.trouble), (["b"], True, None))

    def test_each_failure_is_told_and_that_it_works_again_once(self) -> None:
        """A commit that wrote nothing proves nothing; commits, reads and copies of the log are told apart."""
        for words, doing, act in (
            ("COMMIT", Doing.COMMIT, lambda: drive(self.store.transact(insert("a")))),
            ("SELECT", Doing.READ, self.names),
        ):
            with self.subTest(doing=doing):
                self.fuse = Fuse(words)
                self.fuse.times = 3
                for _ in range(3):
                    self.assertRaises(StoreUnavailable, act)
                drive(self.store.transact(names_in))
                self.assertEqual((self.refused, self.works), ([doing] * 3, []))
                for _ in range(2):
                    act()
                    drive(self.store.transact(delete("a")))
                self.assertEqual((self.refused, self.works), ([doing] * 3, [doing]))
                self.refused.clear()
                self.works.clear()

    def test_a_fault_that_is_not_the_storages_is_an_error(self) -> None:
        """It is logged with the place where it was raised, each time."""
        self.fuse = Fuse("COMMIT", MemoryError)
        self.fuse.times = 1
        with self.assertRaises(MemoryError):
            drive(self.store.transact(insert("a")))
        self.assertEqual(([type(error) for error in self.errors], self.refused), ([MemoryError], []))
        self.assertEqual((self.store.writable, self.store.trouble), (False, "MemoryError"))

    def test_every_fault_of_the_storage_fails_the_commit(self) -> None:
        """Busy, full, read-only: at BEGIN, in a statement or at COMMIT, it is 503 and nothing is kept."""
        for code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY):
            for words in ("BEGIN", "INSERT", "COMMIT"):
                with self.subTest(code=code, words=words):
                    self.fuse = Fuse(words, lambda code=code: disk_error(code))  # type: ignore[misc]
                    self.fuse.times = 1
                    with self.assertRaises(StoreUnavailable):
                        drive(self.store.transact(insert("a")))
                    self.assertEqual((self.names(), self.lost), ([], []))

    def test_a_database_that_may_not_grow_refuses_and_recovers(self) -> None:
        """SQLITE_FULL leaves its transaction open: it is rolled back, and with room the next one goes through."""
        pages = drive(self.store.transact(self.pragma("page_count")))
        drive(self.store.transact(self.pragma(f"max_page_count = {pages}")))
        for _ in range(2):
            with self.assertRaises(StoreUnavailable):
                drive(self.store.transact(insert(*(f"{number:<900}" for number in range(9)))))
            self.assertFalse(self.store._writer.in_transaction)
        self.assertEqual((self.names(), self.store.writable, self.lost), ([], False, []))
        drive(self.store.transact(self.pragma("max_page_count = 1000000")))
        drive(self.store.transact(insert("a")))
        self.assertEqual((self.names(), self.store.writable), (["a"], True))

    def test_a_database_that_may_not_be_written_refuses_and_recovers(self) -> None:
        """SQLITE_READONLY comes at BEGIN IMMEDIATE already; reading goes on."""
        drive(self.store.transact(insert("a")))
        self.store._writer.execute("PRAGMA query_only = ON")
        for _ in range(2):
            with self.assertRaises(StoreUnavailable):
                drive(self.store.transact(insert("b")))
        self.assertEqual((self.names(), self.store.writable, self.lost), (["a"], False, []))
        self.assertEqual(str(self.errors[0]), "attempt to write a readonly database")
        self.store._writer.execute("PRAGMA query_only = OFF")
        drive(self.store.transact(insert("b")))
        self.assertEqual((self.names(), self.store.writable), (["a", "b"], True))

    def test_a_transaction_that_sqlite_took_away_is_not_finished(self) -> None:
        """If an error ends the whole transaction, the rest of the batch is not run outside of one."""

        async def loses_the_transaction(transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO tenants VALUES ('a', 0)")
            await transaction.execute("ROLLBACK")
            raise MemoryError

        with self.assertRaises(MemoryError):
            drive(self.store.transact(loses_the_transaction))
        drive(self.store.transact(insert("b")))
        self.assertEqual(self.names(), ["b"])

    def test_an_interrupt_passes_through_and_keeps_nothing(self) -> None:
        """A BaseException of the work is raised as it is; the store works on."""
        with self.assertRaises(KeyboardInterrupt):
            drive(self.store.transact(insert_then_raise("a", KeyboardInterrupt())))
        drive(self.store.transact(insert("b")))
        self.assertEqual(self.names(), ["b"])

    def test_work_that_suspends_is_stopped(self) -> None:
        """Work may only await its transaction."""

        class Suspends(Awaitable[None]):
            def __await__(self):  # type: ignore[no-untyped-def]
                yield

        async def work(transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO tenants VALUES ('a', 0)")
            await Suspends()

        with self.assertRaises(StorySuspendedError):
            drive(self.store.transact(work))
        self.assertEqual(self.names(), [])

    def test_a_transaction_keeps_other_writers_out_from_its_start(self) -> None:
        """What it has read cannot be changed before it writes: it begins with the write lock."""

        async def work(transaction: Transaction) -> None:
            await names_in(transaction)
            with contextlib.closing(sqlite3.connect(self.path, isolation_level=None, timeout=0)) as other:
                self.assertRaises(sqlite3.OperationalError, other.execute, "INSERT INTO tenants VALUES ('other', 0)")
            await transaction.execute("INSERT INTO tenants VALUES ('a', 0)")

        drive(self.store.transact(work))
        self.assertEqual(self.names(), ["a"])

    def test_results_count_rows_and_name_the_last(self) -> None:
        """A statement says how many rows it changed, RETURNING included, and the id of the row it inserted."""

        async def work(transaction: Transaction) -> list[tuple[int, int]]:
            boot = await transaction.execute("INSERT INTO boots (started_ms, pid, machine_boot) VALUES (1, 1, '')")
            none = await transaction.execute("UPDATE boots SET pid = 2 WHERE pid = 7")
            both = await transaction.execute("UPDATE boots SET pid = 2 RETURNING id")
            return [(boot.rowcount, boot.last_id), (none.rowcount, 0), (both.rowcount, both.records[0][0])]

        self.assertEqual(drive(self.store.transact(work)), [(1, 1), (0, 0), (1, 1)])


class QueueTest(StoreCase):
    """Work that nobody waits for."""

    def test_queued_work_comes_before_the_next_transaction(self) -> None:
        """It is not there before a commit; the next transaction sees all of it, in order."""
        for name in ("a", "b"):
            self.store.enqueue(insert(name))
        self.assertEqual(self.names(), [])
        self.assertEqual(drive(self.store.transact(names_in)), ["a", "b"])

    def test_flush_commits_what_is_queued(self) -> None:
        """And does nothing when nothing is."""
        self.store.enqueue(insert("a"))
        self.store.flush()
        self.fuse.times = 1
        self.store.flush()
        self.assertEqual((self.names(), self.fuse.times), (["a"], 1))

    def test_a_flush_of_its_own_waits_until_no_request_commits(self) -> None:
        """A request's commit has taken along what was queued; what is queued behind it is given the same time."""
        seen: list[list[str]] = []
        flushed = threading.Event()

        def pause(seconds: float) -> bool:
            seen.append(self.names())
            if len(seen) < 3:
                drive(self.store.transact(insert(f"request {len(seen)}")))
                self.store.enqueue(insert(f"queued {len(seen)}"))
            return False

        self.enterContext(mock.patch.object(self.store._stop, "wait", pause))

        def flush() -> bool:
            flushed.set()
            return True

        self.enterContext(mock.patch.object(self.store, "_flushed", flush))
        self.store.enqueue(insert("queued"))
        self.assertTrue(flushed.wait(5))
        self.assertEqual([len(names) for names in seen], [0, 2, 4])

    def test_queued_work_survives_a_failed_commit(self) -> None:
        """It is tried again before later work, in the same order, and kept once."""

        def boot(pid: int) -> Work[None]:
            async def work(transaction: Transaction) -> None:
                await transaction.execute("INSERT INTO boots (started_ms, pid, machine_boot) VALUES (0, ?, '')", (pid,))

            return work

        self.store.enqueue(boot(7))
        self.store.enqueue(boot(5))
        self.fuse.times = 3
        for _ in range(3):
            with self.assertRaises(StoreUnavailable):
                self.store.flush()
        self.store.enqueue(boot(6))
        self.store.flush()
        self.assertEqual(drive(self.store.read("SELECT pid FROM boots ORDER BY id")), [(7,), (5,), (6,)])

    def test_queued_work_that_raises_is_reported_and_alone(self) -> None:
        """Whatever it raises, broken SQL included, its neighbours are kept and it is not tried again."""

        async def bad_sql(transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO nowhere VALUES (1)")

        failures = (
            bad_sql,
            insert_then_raise("x", ValueError()),
            insert_then_raise("y", RecursionError()),
            insert("a"),
        )
        self.store.enqueue(insert("a"))
        for work in failures:
            self.store.enqueue(work)
        self.store.enqueue(insert("b"))
        self.assertEqual(drive(self.store.transact(names_in)), ["a", "b"])
        kinds = [type(error) for error in self.errors]
        self.assertEqual(kinds, [sqlite3.OperationalError, ValueError, RecursionError, sqlite3.IntegrityError])
        self.store.flush()
        self.assertEqual(len(self.errors), 4)

    def test_a_storage_fault_in_queued_work_keeps_it(self) -> None:
        """A full disk is not the work's fault: it stays queued, and the waiting transaction is refused."""
        self.store.enqueue(insert("a"))
        self.fuse = Fuse("INSERT", lambda: disk_error(sqlite3.SQLITE_FULL))
        self.fuse.times = 1
        with self.assertRaises(StoreUnavailable):
            drive(self.store.transact(names_in))
        self.assertEqual(drive(self.store.transact(names_in)), ["a"])

    def test_close_commits_what_is_queued(self) -> None:
        """What was queued is there after the next start."""
        self.store.enqueue(insert("a"))
        self.store.close()
        self.store = self.open()
        self.assertEqual(self.names(), ["a"])

    def test_close_does_not_hang_on_a_broken_disk(self) -> None:
        """It gives up what cannot be committed."""
        self.store.enqueue(insert("a"))
        self.fuse.times = 1000
        self.store.close()
        self.fuse.times = 0
        self.store = self.open()
        self.assertEqual(self.names(), [])

    def test_a_closed_store_takes_nothing(self) -> None:
        """transact() is refused, enqueue() is harmless, close() may be called again."""
        self.store.close()
        self.store.close()
        self.store.enqueue(insert("a"))
        with self.assertRaises(StoreUnavailable):
            drive(self.store.transact(insert("b")))


class ReadTest(StoreCase):
    """Reading."""

    def test_a_read_sees_only_what_is_committed(self) -> None:
        """Work in progress is invisible."""
        seen: list[list[str]] = []

        async def work(transaction: Transaction) -> None:
            await transaction.execute("INSERT INTO tenants VALUES ('a', 0)")
            seen.append(self.names())

        drive(self.store.transact(work))
        self.assertEqual((seen, self.names()), ([[]], ["a"]))

    def test_reading_cannot_write(self) -> None:
        """The second connection never writes."""
        with self.assertRaises(StoreUnavailable):
            drive(self.store.read("INSERT INTO tenants VALUES ('a', 0)"))

    def test_a_crowd_of_readers_takes_few_descriptors(self) -> None:
        """Only some may be spare beside those of clients; whoever comes when all are in use waits."""
        crowd = threading.Barrier(SPARE)

        def read(_: int) -> list[Any]:
            crowd.wait()
            return drive(self.store.read("SELECT count(*) FROM levels"))

        before = len(list(Path("/proc/self/fd").iterdir()))
        with ThreadPoolExecutor(SPARE) as pool:
            self.assertEqual(list(pool.map(read, range(SPARE))), [[(0,)]] * SPARE)
        self.assertLess(len(list(Path("/proc/self/fd").iterdir())) - before, 2 * sqlite_readers.MOST_READERS + 1)

    def test_a_failed_read_is_told(self) -> None:
        """StoreUnavailable for the caller, the cause for the operator."""
        self.fuse = Fuse("SELECT")
        self.fuse.times = 1
        with self.assertRaises(StoreUnavailable):
            self.names()
        self.assertEqual(len(self.errors), 1)


class LostTest(StoreCase):
    """A ledger that is lost: nothing is committed any more."""

    def break_at(self, words: str, code: int, times: int = 1) -> None:
        self.fuse = Fuse(words, lambda: disk_error(code, "disk I/O error"))
        self.fuse.times = times

    def assert_lost(self) -> None:
        """Everything is refused without a statement, told once; what is committed can be read; close() ends."""
        self.store.enqueue(insert("b"))
        self.errors.clear()
        self.fuse = Fuse("")
        self.fuse.times = 1
        for _ in range(2):
            with self.assertRaises(StoreUnavailable):
                drive(self.store.transact(insert("c")))
        self.assertRaises(StoreUnavailable, self.store.flush)
        self.assertEqual((self.errors, self.fuse.times), ([], 1))
        self.fuse.times = 0
        self.assertEqual((self.store.writable, len(self.lost)), (False, 1))
        self.assertEqual(self.names(), [])
        self.store.close()
        self.store = self.open()
        self.assertEqual(self.names(), [])

    def test_a_final_fault_loses_it(self) -> None:
        """A failed sync or damage, at BEGIN, in a statement or at COMMIT."""
        for code in (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            for words in ("BEGIN", "INSERT", "COMMIT"):
                with self.subTest(code=code, words=words):
                    self.break_at(words, code)
                    self.lost.clear()
                    with self.assertRaises(StoreUnavailable):
                        drive(self.store.transact(insert("a")))
                    self.assert_lost()

    def test_it_is_told_before_those_who_wait(self) -> None:
        """Whoever is told can end the process before anybody acts on a commit that is not known to be on the disk."""
        told: list[bool] = []
        self.break_at("COMMIT", sqlite3.SQLITE_IOERR_FSYNC)
        with (
            mock.patch.object(self.store, "_on_lost", lambda reason: told.append(ticket_is_done())),
            mock.patch.object(sqlite_store, "_Ticket", _Noted),
            self.assertRaises(StoreUnavailable),
        ):
            drive(self.store.transact(insert("a")))
        self.assertEqual(told, [False])

    def test_a_device_is_broken_when_it_fails_twice_in_a_row(self) -> None:
        """A write that succeeds in between begins the count anew."""
        for _ in range(3):
            self.break_at("COMMIT", sqlite3.SQLITE_IOERR_WRITE)
            with self.assertRaises(StoreUnavailable):
                drive(self.store.transact(insert("a")))
            drive(self.store.transact(insert("a")))
            drive(self.store.transact(delete("a")))
        self.assertEqual(self.lost, [])
        self.break_at("COMMIT", sqlite3.SQLITE_IOERR_WRITE, times=2)
        for _ in range(2):
            with self.assertRaises(StoreUnavailable):
                drive(self.store.transact(insert("a")))
        self.assert_lost()

    def test_a_want_of_room_is_no_broken_device(self) -> None:
        """However often a write fails, if no file may grow."""
        self.break_at("COMMIT", sqlite3.SQLITE_IOERR_WRITE, times=9)
        with mock.patch.object(sqlite_store, "has_room", lambda path: False):
            for _ in range(9):
                with self.assertRaises(StoreUnavailable):
                    drive(self.store.transact(insert("a")))
        drive(self.store.transact(insert("a")))
        self.assertEqual((self.names(), self.lost), (["a"], []))

    def test_a_file_that_was_taken_away_or_replaced_loses_it(self) -> None:
        """The ledger, its log or their index, and the folder of all three."""
        for suffix in ("", "-wal", "-shm"):
            for replaced in (True, False):
                with self.subTest(suffix, replaced=replaced):
                    self.lost.clear()
                    self.store.check_files()
                    self.assertEqual(self.lost, [])
                    file = self.path.with_name("ledger.db" + suffix)
                    aside = file.rename(file.with_name("aside"))
                    if replaced:
                        file.write_bytes(aside.read_bytes())
                    self.store.check_files()
                    self.store.check_files()
                    aside.replace(file)
                    self.assertRegex(self.lost[0], f"ledger.db{suffix} was {'replaced' if replaced else 'taken away'}")
                    self.assert_lost()

    def test_a_folder_that_was_moved_loses_it(self) -> None:
        """The next start would not find what is written there."""
        moved = self.path.parent.rename(self.path.parent.with_name(self.path.parent.name + "-moved"))
        self.store.check_files()
        moved.rename(self.path.parent)
        self.assert_lost()


class _Noted(sqlite_store._Ticket[Any]):
    """Tickets that are known."""

    all: ClassVar[list[sqlite_store._Ticket[Any]]] = []

    def __init__(self, work: Work[Any]) -> None:
        super().__init__(work)
        self.all.append(self)


def ticket_is_done() -> bool:
    """Whether the last ticket's thread may go on."""
    return _Noted.all[-1].done


class WriteAheadLogTest(StoreCase):
    """The log stays small."""

    def setUp(self) -> None:
        for module, name, value in ((sqlite_store, "COPY_AFTER", 16), (sqlite_file, "WAL_KEPT_BYTES", 100_000)):
            self.enterContext(mock.patch.object(module, name, value))
        super().setUp()

    def work(self, times: int) -> int:
        """Commit so many pieces of work, each of several pages; the size of the log then."""
        for number in range(times):
            drive(self.store.transact(insert(f"{number:<4000}")))
            drive(self.store.transact(delete(f"{number:<4000}")))
        return self.store.wal_bytes

    def test_it_is_copied_and_begun_anew(self) -> None:
        """Its size after much work is that after a little: what 16 pieces of work can write."""
        self.assertLess(self.work(20), 400_000)
        self.assertLess(self.work(200), 400_000)

    def test_it_is_copied_no_more_often_than_it_has_to(self) -> None:
        """Once for sixteen pieces of work, not at each commit from then on."""
        copies: list[str] = []
        self.fuse = lambda sql: copies.append(sql) if "wal_checkpoint" in sql else None  # type: ignore[assignment]
        self.work(20)
        self.assertEqual(len(copies), 2)

    def test_that_of_a_lost_ledger_is_not_copied(self) -> None:
        """Also where it was lost while the batch ran that makes the copying due: what is in it was not synced."""
        copies: list[str] = []
        self.fuse = lambda sql: copies.append(sql) if "wal_checkpoint" in sql else None  # type: ignore[assignment]

        async def lose(transaction: Transaction) -> None:
            await insert("a")(transaction)
            self.store._lose(sqlite_file.NotSynced("a sync failed"))

        with mock.patch.object(sqlite_store, "COPY_AFTER", 1):
            drive(self.store.transact(lose))
        self.assertEqual((len(self.lost), copies), (1, []))

    def test_a_reader_that_never_ends_lets_it_grow_and_is_told(self) -> None:
        """Once it has ended, the file is cut back."""
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM tenants").fetchall()
            self.assertGreater(self.work(200), 1_000_000)
        self.assertLessEqual(self.work(20), 100_000)
        self.assertEqual((self.errors, self.lost), ([], []))

    def test_a_copy_that_fails_is_told_and_loses_nothing(self) -> None:
        """What was committed is in the log; the next copy takes it along."""
        self.fuse = Fuse("PRAGMA wal_checkpoint")
        self.fuse.times = 1
        self.work(10)
        self.assertEqual((len(self.errors), self.fuse.times, self.store.writable, self.lost), (1, 0, True, []))
        self.work(10)
        self.assertEqual((self.refused, self.works), ([Doing.COPY], [Doing.COPY]))

    def test_a_copy_that_was_not_synced_loses_the_ledger(self) -> None:
        """SQLite's own copying would tell nobody."""
        self.fuse = Fuse("PRAGMA wal_checkpoint", lambda: disk_error(sqlite3.SQLITE_IOERR_FSYNC))
        self.fuse.times = 1
        with self.assertRaises(StoreUnavailable):
            self.work(10)
        self.assertEqual(len(self.lost), 1)

    def test_a_touch_reaches_the_disk(self) -> None:
        """SQLite leaves out what changes no byte, and a disk that is full would seem to be well."""
        ledger = Ledger(self.store, FakeClock())
        drive(ledger.open(pid=1, machine_boot=""))
        before = self.store.wal_bytes
        drive(ledger.touch())
        self.assertGreater(self.store.wal_bytes, before)
        self.assertEqual(drive(self.store.read("SELECT stopped_ms FROM boots")), [(None,)])

    def test_a_long_read_delays_no_other(self) -> None:
        """Each read that runs at the same time has a connection of its own."""
        with self.store._readers.lent():
            self.assertEqual(self.names(), [])


class PatienceTest(StoreCase):
    """How often the flusher looks whether requests carry what is queued."""

    def test_it_looks_less_often_while_they_do(self) -> None:
        """Each look takes the interpreter from a request; a lull is seen within the longest wait."""
        waits: list[float] = []

        def wait(seconds: float) -> bool:
            waits.append(seconds)
            self.store._committed += len(waits) < 5
            return False

        with (
            mock.patch.object(sqlite_store, "FLUSH_AFTER_S", 0.01),
            mock.patch.object(self.store._stop, "wait", wait),
        ):
            self.store._leave_it_to_requests()
        self.assertEqual(waits, [0.01, 0.02, 0.04, 0.04, 0.04])


class WaitingRowsTest(StoreCase):
    """Rows without money that wait in the ledger, and the work that waits here to write them."""

    def setUp(self) -> None:
        super().setUp()
        self.ledger = Ledger(self.store, FakeClock())
        drive(self.ledger.open(pid=1, machine_boot=""))

    def record(self, *requests: str) -> None:
        for request in requests:
            self.ledger.record(row(request))

    def recorded(self) -> list[str]:
        self.store.flush()
        return [request for (request,) in drive(self.store.read("SELECT request_id FROM requests ORDER BY id"))]

    def test_a_failed_commit_writes_them_again(self) -> None:
        """Each once, and with them what came meanwhile."""
        self.record("a", "b")
        self.fuse.times = 1
        self.assertRaises(StoreUnavailable, self.store.flush)
        self.record("c")
        self.assertEqual(self.recorded(), ["a", "b", "c"])

    def test_what_is_dropped_here_does_not_wait_there(self) -> None:
        """It is counted once; what comes later is written."""
        with mock.patch.object(sqlite_store, "MOST_QUEUED", 2):
            self.record("a", "b", "c")
        self.assertEqual((self.recorded(), self.store.dropped), (["a", "b"], 1))
        self.record("d")
        self.assertEqual(self.recorded(), ["a", "b", "d"])


class SyncAheadTest(StoreCase):
    """The flusher syncs the log while commits go on, so that copying it finds little to sync."""

    def setUp(self) -> None:
        super().setUp()
        self.enterContext(mock.patch.object(sqlite_store, "FLUSH_AFTER_S", 0.0))
        self.enterContext(mock.patch.object(sqlite_store, "SYNC_AFTER", 4))
        self.synced: list[str] = []
        self.broken: OSError | None = None
        self.looked = threading.Event()
        self.enterContext(mock.patch.object(os, "fdatasync", self.sync))

    def sync(self, file: int) -> None:
        self.synced.append(Path(f"/proc/self/fd/{file}").readlink().name)
        if self.broken is not None:
            self.looked.set()
            raise self.broken

    def work(self, times: int, durability: Durability = Durability.NORMAL, looks: int = 1) -> None:
        """Commit so many pieces of work, let the flusher look at the log and commit one more, so often, and close."""
        self.store.close()
        self.store = self.open(durability)
        for number in range(times):
            drive(self.store.transact(insert(str(number))))
        self.fuse = lambda sql: self.looked.set() if sql == "COMMIT" else None  # type: ignore[assignment]
        for look in range(looks):
            self.looked = threading.Event()
            self.store.enqueue(insert(f"look {look}"))
            self.assertTrue(self.looked.wait(PATIENCE_S))
        self.store.close()

    def test_much_is_synced_once(self) -> None:
        """However often the flusher looks."""
        self.work(4, looks=2)
        self.assertEqual(self.synced, ["ledger.db-wal"])

    def test_a_little_waits_for_more(self) -> None:
        """Each sync costs the disk some milliseconds."""
        self.work(3)
        self.assertEqual(self.synced, [])

    def test_what_each_commit_syncs_is_not_synced_again(self) -> None:
        """With durability `full` nothing is left to do."""
        self.work(40, Durability.FULL)
        self.assertEqual(self.synced, [])

    def test_a_log_that_was_not_synced_loses_the_ledger(self) -> None:
        """As any failed sync does; nothing more is acknowledged."""
        self.broken = OSError(errno.EIO, "Input/output error")
        self.work(4)
        self.assertEqual(len(self.lost), 1)
        self.assertIn("(SQLITE_IOERR_FSYNC)", self.lost[0])
        self.assertRaises(StoreUnavailable, drive, self.store.transact(insert("more")))

    def test_a_log_that_cannot_be_opened_is_left_for_its_copying(self) -> None:
        """A want of descriptors is no fault of the disk."""
        with mock.patch.object(os, "open", side_effect=OSError(errno.EMFILE, "Too many open files")):
            self.work(4)
        self.assertEqual((self.synced, self.lost), ([], []))


class SettingsTest(StoreCase):
    """How the file is opened."""

    def test_durability_is_what_sqlite_is_told(self) -> None:
        """`full` syncs every commit, `normal` does not; both write ahead, and the store copies the log."""
        self.store.close()
        for durability, level in ((Durability.FULL, 2), (Durability.NORMAL, 1)):
            store = self.open(durability)
            self.assertEqual(drive(store.transact(self.pragma("synchronous"))), level)
            self.assertEqual(drive(store.transact(self.pragma("journal_mode"))), "wal")
            self.assertEqual(drive(store.transact(self.pragma("foreign_keys"))), 1)
            self.assertEqual(drive(store.transact(self.pragma("wal_autocheckpoint"))), 0)
            store.close()

    def test_a_new_ledger_is_one_file_with_its_mark(self) -> None:
        """The draft is gone, and the file says what it is."""
        self.store.close()
        self.assertEqual([file.name for file in self.path.parent.iterdir()], ["ledger.db"])
        self.assertEqual(self.path.read_bytes()[68:72], b"gwl1")

    def test_the_releases_with_the_reset_bug_are_known(self) -> None:
        """All up to 3.51.2, but for those that it was mended in later."""
        for version, has_bug in (
            ((3, 40, 1), True),
            ((3, 44, 5), True),
            ((3, 44, 6), False),
            ((3, 45, 0), True),
            ((3, 50, 6), True),
            ((3, 50, 7), False),
            ((3, 51, 2), True),
            ((3, 51, 3), False),
            ((3, 52, 0), False),
            ((4, 0, 0), False),
        ):
            with self.subTest(version=version):
                self.assertIs(has_wal_reset_bug(version), has_bug)

    def test_the_boot_of_the_machine_has_a_name(self) -> None:
        """It stays the same while the machine runs."""
        self.assertEqual(machine_boot_id(), machine_boot_id())
