"""The store port over SQLite: one writing connection, commits shared by concurrent requests.

Group commit without a writer thread: the first thread that finds nobody committing leads. It runs the work of all that
wait, each between savepoints, in one BEGIN IMMEDIATE transaction, commits once, wakes them, and hands the lead to the
next one that waits. Queued work goes first in every batch, so a reservation sees every settlement queued before it.

Why one writing connection: releases of SQLite up to 3.51.2 can damage a WAL file that two connections write at once.
The second connection here is `query_only`.

Locks: `_mutex` guards `_waiting`, `_leading` and `_closed`. `_read_lock` guards the reading connection. The writing
connection belongs to the leader. `_queue` is a deque touched by its atomic ends alone, so enqueue() needs no lock;
`_alarmed` is lowered before the queue is emptied and raised after it is filled, so no work is ever left without a wake.
"""

import contextlib
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from gateway.drive import drive
from gateway.errors import StoreUnavailable
from gateway.sqlite_file import connect, connect_writer, run
from gateway.store import Durability, Record, Result, Transaction, Value, Work

T = TypeVar("T")

BATCH = 128
"""Requests per commit: one commit of this many is far below a millisecond of work, so nobody waits long for it."""

FLUSH_AFTER_S = 0.01
"""Queued work waits this long for a request's commit to carry it before it gets one of its own."""

MOST_QUEUED = 100_000
"""Pieces of work beyond which rows that move no money are dropped and counted while the disk refuses them."""

RETRY_AFTER_S = 0.25
"""Pause between commits of queued work while the disk refuses them."""


_FAULTS_OF_WORK = frozenset(
    (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
)
"""Errors of a statement, which come again however healthy the disk is. All others are the storage's."""


class _SqliteTransaction:
    """A Transaction over the open transaction of one connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def execute(self, sql: str, params: Sequence[Value] = ()) -> Result:
        return run(self._connection, sql, params)


class _Ticket(Generic[T]):
    """One transact() that waits for a commit."""

    __slots__ = ("done", "error", "result", "signal", "work")

    def __init__(self, work: Work[T]) -> None:
        self.work = work
        self.signal = threading.Lock()
        self.done = False
        self.error: BaseException | None = None
        self.result: T | None = None


class SqliteStore:
    """A Store in one SQLite file. `on_error` is told of every failed commit and of queued work that raised."""

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = Durability.FULL,
        on_error: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self._path = path
        self._writer = connect_writer(path, durability)
        self._reader = connect(path)
        self._reader.execute("PRAGMA query_only = ON")
        self._transaction: Transaction = _SqliteTransaction(self._writer)
        self._on_error = on_error
        self._mutex = threading.Lock()
        self._waiting: list[_Ticket[Any]] = []
        self._leading = False
        self._closed = False
        self._writable = True
        self._read_lock = threading.Lock()
        self._queue: deque[Work[object]] = deque()
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._alarmed = False
        self.dropped = 0
        self._stop = threading.Event()
        self._flusher = threading.Thread(target=self._flush_forever, name="ledger-flush", daemon=True)
        self._flusher.start()

    @property
    def writable(self) -> bool:
        """Whether the last commit that wrote something succeeded."""
        return self._writable

    @property
    def queued(self) -> int:
        """Pieces of work that wait for a commit and nobody waits for."""
        return len(self._queue)

    @property
    def wal_bytes(self) -> int:
        """Size of the write-ahead log. Raises OSError if there is none."""
        return self._path.with_name(f"{self._path.name}-wal").stat().st_size

    async def transact(self, work: Work[T]) -> T:
        return self._transact(work)

    def enqueue(self, work: Work[object], *, vital: bool = True) -> None:
        if not vital and len(self._queue) >= MOST_QUEUED:
            self.dropped += 1
            return
        self._queue.append(work)
        self._alarm()

    async def read(self, sql: str, params: Sequence[Value] = (), *, patience_s: float | None = None) -> list[Record]:
        if not self._read_lock.acquire(timeout=-1 if patience_s is None else patience_s):
            raise StoreUnavailable
        try:
            return self._reader.execute(sql, params).fetchall()
        except sqlite3.Error as error:
            self._on_error(error)
            raise StoreUnavailable from error
        finally:
            self._read_lock.release()

    def close(self) -> None:
        """Commit what is queued, then close the file. Work that cannot be committed now is lost with the process."""
        self._stop.set()
        self._wake.put(False)
        self._flusher.join()
        with contextlib.suppress(StoreUnavailable):
            self._transact(_nothing, last=True)
        with self._read_lock:
            self._reader.close()
        self._writer.close()

    def _transact(self, work: Work[T], *, last: bool = False) -> T:
        """Lead, or wait for a leader. After the `last` ticket none is taken, so nobody uses the connection after it."""
        ticket = _Ticket(work)
        with self._mutex:
            if self._closed:
                raise StoreUnavailable
            self._closed = last
            self._waiting.append(ticket)
            leads = not self._leading
            self._leading = True
            if not leads:
                ticket.signal.acquire()
        if not leads:
            ticket.signal.acquire()
        if not ticket.done:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[return-value]

    def _lead(self) -> None:
        """Commit one batch, wake its followers, and pass the lead on."""
        with self._mutex:
            batch = self._waiting[:BATCH]
            del self._waiting[:BATCH]
        try:
            self._run_batch(batch)
        finally:
            with self._mutex:
                successor = self._waiting[0] if self._waiting else None
                self._leading = successor is not None
            for ticket in batch:
                ticket.done = True
                if ticket.signal.locked():
                    ticket.signal.release()
            if successor is not None:
                successor.signal.release()

    def _run_batch(self, batch: list[_Ticket[Any]]) -> None:
        """Run all queued work and `batch` in one transaction; either all of it is committed or none of it."""
        queued = self._take_queued()
        changes = self._writer.total_changes
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            for work in queued:
                self._run_queued(work)
            for ticket in batch:
                self._run_ticket(ticket)
            self._writer.execute("COMMIT")
        except BaseException as error:
            self._undo(queued, batch)
            self._on_error(error)
            if not isinstance(error, sqlite3.Error):
                raise
        else:
            self._writable = self._writable or self._writer.total_changes > changes

    def _undo(self, queued: list[Work[object]], batch: list[_Ticket[Any]]) -> None:
        """Nothing of the batch was kept: roll back if SQLite has not already, and say so to all that wait."""
        self._writable = False
        self._queue.extendleft(reversed(queued))
        self._alarm()
        for ticket in batch:
            ticket.error = StoreUnavailable()
        if self._writer.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")

    def _take_queued(self) -> list[Work[object]]:
        taken: list[Work[object]] = []
        while self._queue:
            taken.append(self._queue.popleft())
        return taken

    def _run_queued(self, work: Work[object]) -> None:
        try:
            self._guarded(work)
        except Exception as error:
            if not self._is_isolated(error):
                raise
            self._on_error(error)

    def _run_ticket(self, ticket: _Ticket[Any]) -> None:
        try:
            ticket.result = self._guarded(ticket.work)
        except Exception as error:
            if not self._is_isolated(error):
                raise
            ticket.error = error

    def _is_isolated(self, error: Exception) -> bool:
        """Whether `error` concerns one piece of work alone: the transaction of its neighbours is still there."""
        return self._writer.in_transaction and _is_fault_of_work(error)

    def _guarded(self, work: Work[T]) -> T:
        """Run `work` so that, if it raises, nothing of it is left in the transaction."""
        self._writer.execute("SAVEPOINT work")
        try:
            result = drive(_started(work, self._transaction))
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK TO work")
                self._writer.execute("RELEASE work")
            raise
        self._writer.execute("RELEASE work")
        return result

    def flush(self) -> None:
        """Return once all that was queued before is committed. Raises StoreUnavailable."""
        with self._mutex:
            pending = self._leading or bool(self._queue)
        if pending:
            self._transact(_nothing)

    def _alarm(self) -> None:
        """Wake the flusher, once until it has looked. Takes no lock."""
        if not self._alarmed:
            self._alarmed = True
            self._wake.put(True)

    def _flush_forever(self) -> None:
        while self._wake.get():
            self._stop.wait(FLUSH_AFTER_S)
            self._alarmed = False
            while not self._flushed():
                if self._stop.wait(RETRY_AFTER_S):
                    return

    def _flushed(self) -> bool:
        try:
            self.flush()
        except StoreUnavailable:
            return False
        return True


def _is_fault_of_work(error: Exception) -> bool:
    if not isinstance(error, sqlite3.Error):
        return True
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF in _FAULTS_OF_WORK


async def _started(work: Work[T], transaction: Transaction) -> T:
    return await work(transaction)


async def _nothing(transaction: Transaction) -> None:
    """Work of a commit that only carries what is queued."""
