"""Commits that many threads share: one for all that wait, one refusal for one, one failure for all."""

import contextlib
import gc
import sqlite3
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

from gateway import sqlite_store
from gateway.drive import drive
from gateway.errors import BudgetReserved, StoreUnavailable
from gateway.sqlite_store import BATCH, SqliteStore
from gateway.store import Durability, Transaction, Work
from tests.support.connections import Fuse, disk_error, watched

PATIENCE_S = 20.0
"""A bug makes a test fail after this; nothing waits for it otherwise."""


def insert(name: str, error: BaseException | None = None) -> Work[str]:
    """Work that adds a tenant and returns its name, or raises `error` after that."""

    async def work(transaction: Transaction) -> str:
        await transaction.execute("INSERT INTO tenants VALUES (?, 0)", (name,))
        if error is not None:
            raise error
        return name

    return work


async def names_in(transaction: Transaction) -> list[str]:
    """Work that reads all tenants."""
    return [name for (name,) in (await transaction.execute("SELECT name FROM tenants ORDER BY name")).records]


class GroupCommitCase(unittest.TestCase):
    """A store that counts its commits; `fuse` makes statements fail."""

    flush_after_s = 60.0
    """Queued work is carried by the next transaction alone, unless a test says otherwise."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "ledger.db"
        for name, seconds in (("FLUSH_AFTER_S", self.flush_after_s), ("RETRY_AFTER_S", 0.001)):
            patch = mock.patch.object(sqlite_store, name, seconds)
            patch.start()
            self.addCleanup(patch.stop)
        self.errors: list[BaseException] = []
        self.fuse = Fuse()
        self.commits = 0
        self.committed = threading.Event()
        self.store = self.open()
        self.commits = 0

    def open(self) -> SqliteStore:
        with watched(before=lambda sql: self.fuse(sql), after=lambda sql: self.count(sql)):
            store = SqliteStore(
                self.path,
                durability=Durability.NORMAL,
                on_error=self.errors.append,
                on_failed=lambda doing, error: self.errors.append(error),
            )
        self.addCleanup(store._writer.close)  # of a lost ledger it is left to the end of the process
        self.addCleanup(store.close)
        return store

    def count(self, sql: str) -> None:
        if sql == "COMMIT":
            self.commits += 1
            self.committed.set()

    def names(self) -> list[str]:
        """All tenants that are committed."""
        return [name for (name,) in drive(self.store.read("SELECT name FROM tenants ORDER BY name"))]

    @contextlib.contextmanager
    def leading(self, last_words: BaseException | None = None) -> Iterator["Waiters"]:
        """While the block runs, one thread is in the middle of its transaction; then it goes on and all are joined."""
        begun, go_on = threading.Event(), threading.Event()

        async def work(transaction: Transaction) -> None:
            begun.set()
            if not go_on.wait(PATIENCE_S):
                raise TimeoutError
            if last_words is not None:
                raise last_words

        waiters = Waiters(self.store)
        waiters.start("leader", work)
        self.assertTrue(begun.wait(PATIENCE_S))
        try:
            yield waiters
        finally:
            go_on.set()
            waiters.join()


class Waiters:
    """Threads that transact; `results` and `errors` by name."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._threads: list[threading.Thread] = []
        self.results: dict[str, object] = {}
        self.errors: dict[str, BaseException] = {}

    def start(self, name: str, work: Work[object]) -> None:
        def run() -> None:
            try:
                self.results[name] = drive(self._store.transact(work))
            except BaseException as error:
                self.errors[name] = error

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def line_up(self, works: Sequence[tuple[str, Work[object]]]) -> None:
        """Start a thread for each work; return once all wait behind the leader."""
        for name, work in works:
            self.start(name, work)
        wait_for_line(self._store, len(self._threads) - 1)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                raise TimeoutError("a waiter was never woken")


def wait_for_line(store: SqliteStore, length: int) -> None:
    """Return once `length` threads wait behind the leader."""
    pause = threading.Event()
    for _ in range(int(PATIENCE_S / 0.001)):
        if len(store._waiting) == length:
            return
        pause.wait(0.001)
    raise TimeoutError(f"{len(store._waiting)} wait, not {length}")


def numbered(count: int) -> list[str]:
    return [f"t{number:03}" for number in range(count)]


def inserts(names: Sequence[str]) -> list[tuple[str, Work[object]]]:
    return [(name, insert(name)) for name in names]


class SharingTest(GroupCommitCase):
    """What a group shares, and what it does not."""

    def test_all_that_wait_share_one_commit(self) -> None:
        """Thirty-one threads behind a leader are committed at once, and each gets its own result."""
        names = numbered(31)
        with self.leading() as waiters:
            waiters.line_up(inserts(names))
        self.assertEqual(self.commits, 2)
        self.assertEqual({name: waiters.results[name] for name in names}, {name: name for name in names})
        self.assertEqual((self.names(), waiters.errors), (names, {}))

    def test_the_lead_is_passed_on_until_nobody_waits(self) -> None:
        """More than one batch: each has a leader, nobody is forgotten."""
        names = numbered(BATCH + 20)
        with self.leading() as waiters:
            waiters.line_up(inserts(names))
        self.assertEqual(self.commits, 3)
        self.assertEqual((self.names(), waiters.errors), (names, {}))

    def test_one_refusal_rolls_back_nobody_else(self) -> None:
        """A refused reservation, a broken constraint and a bug each fail alone, and leave nothing."""
        failures: list[tuple[str, BaseException]] = [
            ("refused", BudgetReserved("held")),
            ("broken", sqlite3.IntegrityError("constraint")),
            ("buggy", RecursionError()),
        ]
        names = numbered(10)
        with self.leading() as waiters:
            waiters.line_up(inserts(names[:5]))
            waiters.line_up([(name, insert(name, error)) for name, error in failures])
            waiters.line_up(inserts(names[5:]))
        self.assertEqual(self.commits, 2)
        self.assertEqual(waiters.errors, dict(failures))
        self.assertEqual((self.names(), self.errors), (names, []))

    def test_a_leader_that_fails_leads_to_the_end(self) -> None:
        """The leader's own refusal keeps nobody waiting."""
        with self.leading(BudgetReserved("held")) as waiters:
            waiters.line_up(inserts(["a", "b"]))
        self.assertEqual((self.names(), list(waiters.errors)), (["a", "b"], ["leader"]))

    def test_threads_at_full_speed_lose_nothing(self) -> None:
        """Sixteen threads transact and enqueue: all of it is kept, once, and commits are shared."""
        start = threading.Barrier(16)

        def run(number: int) -> None:
            start.wait(PATIENCE_S)
            for turn in range(25):
                self.store.enqueue(insert(f"q{number:02}-{turn:02}"))
                self.assertEqual(
                    drive(self.store.transact(insert(f"t{number:02}-{turn:02}"))), f"t{number:02}-{turn:02}"
                )

        threads = [threading.Thread(target=run, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        self.assertEqual(len(self.names()), 2 * 16 * 25)
        self.assertLess(self.commits, 16 * 25)
        self.assertEqual(self.errors, [])


class FailingTest(GroupCommitCase):
    """When the commit of a group fails."""

    def assert_all_failed(self, waiters: Waiters, names: Sequence[str]) -> None:
        self.assertEqual(
            {name: type(waiters.errors.get(name)) for name in names}, dict.fromkeys(names, StoreUnavailable)
        )
        self.assertEqual(self.names(), [])
        self.assertFalse(self.store.writable)
        drive(self.store.transact(insert("later")))
        self.assertEqual((self.names(), self.store.writable), (["later"], True))

    def test_a_failed_commit_wakes_and_fails_all(self) -> None:
        """Every waiter is told, nothing of theirs is kept, and the next transaction goes through."""
        for error in (disk_error(), disk_error(sqlite3.SQLITE_BUSY, "database is locked")):
            with self.subTest(error=str(error)):
                self.doCleanups()
                self.setUp()
                names = numbered(20)
                with self.leading() as waiters:
                    waiters.line_up(inserts(names))
                    self.fuse = FuseAfter(1, "COMMIT", error)
                self.assert_all_failed(waiters, names)

    def test_a_commit_that_sqlite_has_rolled_back_itself_fails_all(self) -> None:
        """A write error may end the transaction on its own: there is nothing left to roll back then."""
        names = numbered(20)
        with self.leading() as waiters:
            waiters.line_up(inserts(names))
            self.fuse = FuseAfter(1, "COMMIT", disk_error(), first=lambda: self.store._writer.execute("ROLLBACK"))
        self.assert_all_failed(waiters, names)

    def test_a_failed_commit_fails_those_in_line_too(self) -> None:
        """They have waited for as long as a lock is waited for; none of their work is begun."""
        names = ["a", "b", "c"]
        with self.leading() as waiters:
            waiters.line_up(inserts(names))
            self.fuse.times = 1
        self.assertEqual(self.fuse.times, 0)
        self.assertIsInstance(waiters.errors.pop("leader"), StoreUnavailable)
        self.assert_all_failed(waiters, names)

    def test_a_ledger_that_is_lost_while_its_log_is_copied_fails_those_in_line(self) -> None:
        """The leader's work is committed; of theirs, nothing is begun."""
        names = ["a", "b", "c"]
        self.fuse = Fuse("PRAGMA wal_checkpoint", lambda: disk_error(sqlite3.SQLITE_IOERR_FSYNC))
        with mock.patch.object(sqlite_store, "COPY_AFTER", 1), self.leading() as waiters:
            waiters.line_up(inserts(names))
            self.fuse.times = 1
        self.assertEqual(waiters.results, {"leader": None})
        self.assertEqual(
            {name: type(error) for name, error in waiters.errors.items()}, dict.fromkeys(names, StoreUnavailable)
        )
        self.assertEqual((self.names(), self.commits), ([], 1))

    def test_a_failed_statement_of_one_fails_all(self) -> None:
        """A disk that fills up in the middle is nobody's own fault."""
        names = numbered(20)
        with self.leading() as waiters:
            waiters.line_up(inserts(names))
            self.fuse = FuseAfter(10, "INSERT", disk_error(sqlite3.SQLITE_FULL))
        self.assert_all_failed(waiters, names)

    def test_an_interrupted_leader_wakes_and_fails_the_others(self) -> None:
        """A KeyboardInterrupt in one thread's work is raised there; the others are told that nothing was kept."""
        names = numbered(8)
        with self.leading() as waiters:
            waiters.line_up([("interrupted", insert("interrupted", KeyboardInterrupt()))])
            waiters.line_up(inserts(names))
        self.assertIsInstance(waiters.errors["interrupted"], KeyboardInterrupt)
        self.assert_all_failed(waiters, names)


class FuseAfter(Fuse):
    """Fails one statement that begins with `words`, after `spared` others; does `first` before that."""

    def __init__(
        self, spared: int, words: str, error: BaseException, first: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(words)
        self._spared, self._raised, self._first = spared, error, first

    def __call__(self, sql: str) -> None:
        if not sql.startswith(self._words):
            return
        self._spared -= 1
        if self._spared == -1:
            self._first()
            raise self._raised


class QueueTest(GroupCommitCase):
    """Queued work beside transactions."""

    def test_queued_work_is_applied_before_the_money_is_seen(self) -> None:
        """What is queued while a leader works comes before all that wait behind it."""
        with self.leading() as waiters:
            waiters.line_up([("first", names_in), ("second", names_in)])
            self.store.enqueue(insert("a"))
            self.store.enqueue(insert("b"))
        self.assertEqual((waiters.results["first"], waiters.results["second"]), (["a", "b"], ["a", "b"]))
        self.assertEqual(self.commits, 2)

    def test_a_failed_commit_keeps_the_queue_for_the_next(self) -> None:
        """The waiters are refused; the queue is applied once, before the next transaction sees the money."""
        with self.leading() as waiters:
            waiters.line_up([("refused", names_in)])
            self.store.enqueue(insert("a"))
            self.fuse = FuseAfter(1, "COMMIT", disk_error())
        self.assertIsInstance(waiters.errors["refused"], StoreUnavailable)
        self.assertEqual(self.names(), [])
        self.assertEqual(drive(self.store.transact(names_in)), ["a"])

    def test_a_failed_commit_wakes_the_flusher_again(self) -> None:
        """It may have looked, and found the queue empty, while a leader had the work."""
        with self.leading() as waiters:
            waiters.line_up([("refused", names_in)])
            self.store._alarmed = True
            self.store.enqueue(insert("a"))
            self.store._alarmed = False
            self.fuse = FuseAfter(1, "COMMIT", disk_error())
        self.assertIsInstance(waiters.errors["refused"], StoreUnavailable)
        self.assertTrue(self.store._alarmed)

    def test_rows_that_move_no_money_are_dropped_when_very_many_wait(self) -> None:
        """And counted; money is never dropped."""
        with mock.patch.object(sqlite_store, "MOST_QUEUED", 2), self.leading():
            for name in "abc":
                self.store.enqueue(insert(name), vital=False)
            self.store.enqueue(insert("money"))
        self.store.flush()
        self.assertEqual((self.names(), self.store.dropped), (["a", "b", "money"], 1))

    def test_flush_waits_for_work_that_a_leader_has_taken(self) -> None:
        """What was queued is committed when flush() returns, whoever commits it."""
        self.store.enqueue(insert("a"))
        with self.leading():
            flushing = threading.Thread(target=self.store.flush)
            flushing.start()
            wait_for_line(self.store, 1)
        flushing.join(PATIENCE_S)
        self.assertEqual((flushing.is_alive(), self.names()), (False, ["a"]))

    def test_close_waits_for_those_in_line_and_flushes(self) -> None:
        """close() comes after all that wait; whoever comes after it is refused."""
        with self.leading() as waiters:
            waiters.line_up(inserts(["a"]))
            self.store.enqueue(insert("b"))
            closing = threading.Thread(target=self.store.close)
            closing.start()
        closing.join(PATIENCE_S)
        self.assertFalse(closing.is_alive())
        with self.assertRaises(StoreUnavailable):
            drive(self.store.transact(insert("late")))
        self.store = self.open()
        self.assertEqual(self.names(), ["a", "b"])

    def test_a_finaliser_may_queue_work_at_any_moment(self) -> None:
        """Garbage that is collected while its thread holds every lock of the store queues its work and returns."""

        class Dropped:
            def __init__(self, store: SqliteStore, name: str) -> None:
                self.itself, self._store, self._name = self, store, name

            def __del__(self) -> None:
                self._store.enqueue(insert(self._name))

        async def collects(transaction: Transaction) -> list[str]:
            Dropped(self.store, "within work")
            gc.collect()
            return await names_in(transaction)

        def holds_all_locks() -> None:
            with self.store._mutex:
                Dropped(self.store, "under all locks")
                gc.collect()

        for collector in (holds_all_locks, lambda: drive(self.store.transact(collects))):
            thread = threading.Thread(target=collector, daemon=True)
            thread.start()
            thread.join(PATIENCE_S)
            self.assertFalse(thread.is_alive())
        self.assertEqual(drive(self.store.transact(names_in)), ["under all locks", "within work"])


class FlusherTest(GroupCommitCase):
    """Queued work that no transaction carries."""

    flush_after_s = 0.0

    def test_queued_work_is_committed_by_itself(self) -> None:
        """Nobody has to come by."""
        self.committed.clear()
        self.store.enqueue(insert("a"))
        self.assertTrue(self.committed.wait(PATIENCE_S))
        self.assertEqual(self.names(), ["a"])

    def test_it_is_tried_until_it_succeeds(self) -> None:
        """Ten failed commits later it is kept, once, and what was queued meanwhile with it."""
        self.fuse.times = 10
        self.committed.clear()
        self.store.enqueue(insert("a"))
        self.store.enqueue(insert("b"))
        self.assertTrue(self.committed.wait(PATIENCE_S))
        self.store.flush()
        self.assertEqual((self.names(), len(self.errors)), (["a", "b"], 10))

    def test_no_wake_is_lost(self) -> None:
        """Work that is queued at the very moment when earlier work was committed is committed, too."""
        names, done = iter(numbered(50)), threading.Event()

        def queue_the_next(sql: str) -> None:
            if sql == "COMMIT":
                name = next(names, None)
                self.store.enqueue(insert(name)) if name else done.set()

        self.count = queue_the_next  # type: ignore[method-assign]
        self.store.enqueue(insert("first"))
        self.assertTrue(done.wait(PATIENCE_S))
        self.assertEqual(len(self.names()), 51)


class CalmTest(GroupCommitCase):
    """The flusher copies the log once enough was committed and nobody commits."""

    flush_after_s = 0.0

    def setUp(self) -> None:
        self.copied, self.copiers = threading.Event(), list[str]()
        for name, value in (("COPY_IN_CALM_AFTER", 4), ("CALM_S", 0.0)):
            self.enterContext(mock.patch.object(sqlite_store, name, value))
        super().setUp()

    def count(self, sql: str) -> None:
        super().count(sql)
        if sql.startswith("PRAGMA wal_checkpoint"):
            self.copiers.append(threading.current_thread().name)
            self.copied.set()

    def commit(self, *names: str) -> None:
        for name in names:
            drive(self.store.transact(insert(name)))

    def test_it_is_copied_on_no_request_s_thread(self) -> None:
        """Four pieces of work are enough here."""
        self.commit(*numbered(4))
        self.assertTrue(self.copied.wait(PATIENCE_S))
        self.assertEqual(self.copiers, ["ledger-flush"])

    def test_a_little_is_not_worth_it(self) -> None:
        """Three are not: two of a request, and the flusher's own."""
        self.commit("a")
        self.committed.clear()
        self.store.enqueue(insert("b"))
        self.assertTrue(self.committed.wait(PATIENCE_S))
        self.store.close()
        self.assertEqual(self.copiers, [])

    def test_who_comes_meanwhile_is_served_after_it(self) -> None:
        """The lead is passed on to them, as by any leader."""
        copying, go_on = threading.Event(), threading.Event()

        def hold() -> None:
            copying.set()
            go_on.wait(PATIENCE_S)

        self.fuse = FuseAfter(0, "PRAGMA wal_checkpoint", disk_error(), first=hold)
        self.commit(*numbered(4))
        self.assertTrue(copying.wait(PATIENCE_S))
        waiters = Waiters(self.store)
        for name in ("a", "b"):
            waiters.start(name, insert(name))
        wait_for_line(self.store, 2)
        self.assertEqual(self.commits, 4)
        go_on.set()
        waiters.join()
        self.assertEqual((waiters.results, self.commits), ({"a": "a", "b": "b"}, 5))

    def test_one_that_fails_is_told_and_the_next_takes_it_along(self) -> None:
        """Nothing is lost by it, and nobody hears of it but the log."""
        failed = threading.Event()
        self.fuse = FuseAfter(0, "PRAGMA wal_checkpoint", disk_error(), first=failed.set)
        self.commit(*numbered(4))
        self.assertTrue(failed.wait(PATIENCE_S))
        self.commit("a", "b", "c", "d")
        self.assertTrue(self.copied.wait(PATIENCE_S))
        self.assertEqual([str(error) for error in self.errors], ["database or disk is full"])
