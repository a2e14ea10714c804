"""The store port over SQLite: one writing connection, commits shared by concurrent requests.

Group commit without a writer thread: the first thread that finds nobody committing leads. It runs the work of all that
wait in one BEGIN IMMEDIATE transaction, commits once, wakes them, and hands the lead to the next one that waits. Queued
work goes first in every batch, so a reservation sees every settlement queued before it. Only if some work raises after
it has changed something, all of it runs again, each piece between savepoints.

Why one writing connection: releases of SQLite up to 3.51.2 can damage a WAL file that two connections write at once.
All others are `query_only` and lent for a read each (sqlite_readers). A copy of the ledger is such a read: no commit
waits for it, and none starts it anew; the write-ahead log grows until it ends.

After a final fault of the storage (see sqlite_faults) the store is lost: it commits nothing more, and says so once. It
copies the write-ahead log into the database itself, because SQLite's automatism hides the faults that it meets, a
failed sync among them. Nobody can commit meanwhile, so the flusher does it in a calm; where there is none, a leader
does it once in 250 requests, and finds most of the log synced already, by the flusher.

Locks: `_mutex` guards each change of `_waiting`, `_leading`, `_closed` and `_lost`; whoever decides by one look without
it looks again under it, or may be one step late. The writing connection, its one cursor (one for each statement would
take longer to make than to use) and `_device_faults` belong to whoever leads, `_synced` to the flusher; `_committed`
and `_copied` are changed by whoever leads alone, and read by the flusher, too. `_queue` is a deque touched by its
atomic ends alone, so enqueue() needs no lock, and `_failing` is changed by single dict operations; `_alarmed` is
lowered before the queue is emptied and raised after it is filled, so no work is ever left without a wake.
"""

import contextlib
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from gateway.db_files import size
from gateway.drive import drive
from gateway.errors import StoreUnavailable
from gateway.sqlite_copy import copy
from gateway.sqlite_faults import Fault, fault_of, has_room
from gateway.sqlite_file import FileMoved, NotSynced, OpenFiles, connect, connect_as_it_is, connect_writer, run
from gateway.sqlite_readers import Readers
from gateway.store import Doing, Durability, Record, Result, Transaction, Value, Work

T = TypeVar("T")

MOST_BATCHES = 4
"""Batches that one leader commits, its own the first: the next leader would have to wake up between two of them, which
takes longer than a commit when many threads run."""

BATCH = 128
"""Requests per commit: one commit of this many is far below a millisecond of work, so nobody waits long for it."""

FLUSH_AFTER_S = 0.01
"""Queued work waits this long, at most twice, for a request's commit to carry it before it gets one of its own."""

FLUSH_AT_LAST_S = 0.04
"""The same while requests go on to commit: to look every time would take a tenth of them some 100 us."""

MOST_QUEUED = 100_000
"""Pieces of work beyond which rows that move no money are dropped and counted while the disk refuses them."""

RETRY_AFTER_S = 0.25
"""Pause between commits of queued work while the disk refuses them."""

COPY_AFTER = 512
"""Pieces of work after which the log is copied into the database, whoever waits: some 4 MB."""

COPY_IN_CALM_AFTER = 256
"""Pieces of work, some 2 MB, after which the log is copied once nobody has committed for CALM_S."""

CALM_S = 0.1
"""Between two commits of a crowd it takes less: a batch of theirs runs for some 20 ms while all threads are at work."""

SYNC_AFTER = 128
"""Pieces of work after which the log is synced ahead of its copying: that is two thirds of what copying it takes."""

LEAST_GROWTH_BYTES = 64 << 20
"""The log may grow by this much, or by half of the ledger, while that is copied; under full load a copy to a disk that
is as fast as the ledger's lets it grow by less than a tenth. Commits wait once, when all of that is copied back."""

_MOST_DEVICE_FAULTS = 2
"""In a row, while there is room: one may be of a disk that was full, and is not any more when it is looked at."""


class _SqliteTransaction:
    """A Transaction over the open transaction of the connection that a cursor is of."""

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self._cursor = cursor

    async def execute(self, sql: str, params: Sequence[Value] = ()) -> Result:
        return run(self._cursor, sql, params)


class _Ticket(Generic[T]):
    """One transact() that waits for a commit; `signal` is for those who do not lead, and held until they go on."""

    __slots__ = ("done", "error", "result", "signal", "work")

    def __init__(self, work: Work[T]) -> None:
        self.work = work
        self.signal: threading.Lock | None = None
        self.done = False
        self.error: BaseException | None = None
        self.result: T | None = None

    def wake(self) -> None:
        """Let its thread go on: the outcome is there."""
        self.done = True
        self.go_on()

    def go_on(self) -> None:
        """Let its thread go on, also to lead; one that leads already goes on as it is."""
        if self.signal is not None and self.signal.locked():
            self.signal.release()


class _LeftTraces(BaseException):
    """Work raised and has left changes in the transaction of its neighbours. No Exception: it is nobody's own."""


class CopyTooSlow(Exception):
    """The ledger is written faster than its copy: nothing is wrong with either, but the log must not grow for ever."""


class SqliteStore:
    """A Store in one SQLite file.

    unwritable why the ledger is opened as it is, and refuses every commit; None to open it for writing
    on_error   is told of queued work that raised, and of whatever was not the storage's fault and ended a commit
    on_failed  is told of everything that the storage has refused
    on_works   is told of the first thing of a kind that succeeds after one that was refused
    on_lost    is told once, in words, why nothing can be committed any more; before anyone who waits is. The process
               must end then
    """

    def __init__(
        self,
        path: Path,
        *,
        durability: Durability = Durability.FULL,
        unwritable: str | None = None,
        on_error: Callable[[BaseException], None] = lambda error: None,
        on_failed: Callable[[Doing, sqlite3.Error], None] = lambda doing, error: None,
        on_works: Callable[[Doing], None] = lambda doing: None,
        on_lost: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._path = path
        self._writer = connect_writer(path, durability) if unwritable is None else connect_as_it_is(path)
        self._writer.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
        connect_reader = _connect_reader if unwritable is None else connect_as_it_is
        self._readers = Readers(lambda: connect_reader(path), lambda error: self._fails(Doing.READ, error))
        self._cursor = self._writer.cursor()
        self._transaction: Transaction = _SqliteTransaction(self._cursor)
        self._on_error = on_error
        self._on_failed = on_failed
        self._on_works = on_works
        self._unwritable = unwritable
        self._failing: dict[Doing, str] = {}
        self._on_lost = on_lost
        self._files = OpenFiles(path)
        self._is_synced_by_commits = durability is Durability.FULL
        self._committed = self._copied = self._synced = 0
        self._device_faults = 0
        self._lost = False
        self._mutex = threading.Lock()
        self._waiting: list[_Ticket[Any]] = []
        self._leading = False
        self._closed = False
        self._queue: deque[Work[object]] = deque()
        self._wake: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._alarmed = False
        self.dropped = 0
        self._stop = threading.Event()
        self._flusher = threading.Thread(target=self._flush_forever, name="ledger-flush", daemon=True)
        self._flusher.start()

    @property
    def writable(self) -> bool:
        """Whether the last commit that wrote something succeeded, and another may."""
        return self.trouble is None and not self._lost

    @property
    def trouble(self) -> str | None:
        """Why the last commit failed, or every one will; None if it has not."""
        return self._unwritable or self._failing.get(Doing.COMMIT)

    @property
    def wal_bytes(self) -> int:
        """The size of the write-ahead log; one that is large has a reader that keeps it from being copied."""
        return self._files.wal_bytes

    def check_files(self) -> None:
        """See that the open files are still those at their paths; the store is lost if not. Raises OSError."""
        try:
            self._files.check()
        except FileMoved as moved:
            self._lose(moved)

    @property
    def queued(self) -> int:
        """Pieces of work that wait for a commit and nobody waits for."""
        return len(self._queue)

    async def transact(self, work: Work[T]) -> T:
        return self._transact(work)

    def enqueue(self, work: Work[object], *, vital: bool = True) -> bool:
        if not vital and len(self._queue) >= MOST_QUEUED:
            self.dropped += 1
            return False
        self._queue.append(work)
        self._alarm()
        return True

    async def read(self, sql: str, params: Sequence[Value] = ()) -> list[Record]:
        with self._readers.lent() as reader:
            try:
                records = reader.execute(sql, params).fetchall()
            except sqlite3.Error as error:
                self._fails(Doing.READ, error)
                raise StoreUnavailable from error
        self._succeeds(Doing.READ)
        return records

    def copy_to(self, draft: Path) -> None:
        """Copy all that was committed before this call into the empty file `draft`; requests go on.

        Raises CopyTooSlow if too much is committed meanwhile, sqlite3.Error if the draft cannot be written,
        StoreUnavailable if closed or lost.
        """
        before = self.wal_bytes
        most_growth = max(LEAST_GROWTH_BYTES, size(self._path) // 2)

        def between() -> None:
            if self._stop.is_set() or self._lost:
                raise StoreUnavailable
            if self.wal_bytes - before > most_growth:
                raise CopyTooSlow(f"{most_growth >> 20} MiB were committed before all was copied: take a faster disk")

        between()
        with self._readers.lent() as reader:
            copy(reader, draft, between=between)

    def close(self) -> None:
        """Commit what is queued, then close the file. Work that cannot be committed now is lost with the process.

        The writer of a lost ledger is left to the end of the process: SQLite would copy the log, and sync once more.
        """
        self._stop.set()
        self._wake.put(False)
        self._flusher.join()
        with contextlib.suppress(StoreUnavailable):
            self._transact(_nothing, last=True)
        with self._mutex:
            self._closed = True
        self._readers.close()
        if not self._lost:
            self._writer.close()

    def _transact(self, work: Work[T], *, last: bool = False) -> T:
        """Lead, or wait for a leader. After the `last` ticket none is taken, so nobody uses the connection after it."""
        ticket = _Ticket(work)
        with self._mutex:
            if self._closed or self._lost:
                raise StoreUnavailable
            self._closed = last
            self._waiting.append(ticket)
            leads = not self._leading
            self._leading = True
            if not leads:
                ticket.signal = signal = threading.Lock()
                signal.acquire()
        if not leads:
            signal.acquire()
        if not ticket.done:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        return ticket.result  # type: ignore[return-value]

    def _lead(self) -> None:
        """Commit batch after batch and wake their followers; whatever happens, the lead is passed on."""
        try:
            for _ in range(MOST_BATCHES):
                with self._mutex:
                    batch = self._waiting[:BATCH]
                    del self._waiting[:BATCH]
                self._lead_one(batch)
                if not self._waiting:
                    break
        finally:
            self._pass_the_lead()

    def _lead_one(self, batch: list[_Ticket[Any]]) -> None:
        try:
            self._run_batch(batch)
        finally:
            for ticket in batch:
                ticket.wake()
        if self._committed - self._copied >= COPY_AFTER:
            self._copy()

    def _pass_the_lead(self) -> None:
        with self._mutex:
            successor = self._waiting[0] if self._waiting else None
            self._leading = successor is not None
        if successor is not None:
            successor.go_on()

    def _run_batch(self, batch: list[_Ticket[Any]]) -> None:
        """Run all queued work and `batch` in one transaction; either all of it is committed or none of it.

        None is made for those who wait for queued work that an earlier batch has taken along.
        """
        if self._lost:
            self._undo([], batch)
            return
        queued = self._take_queued()
        if not queued and {ticket.work for ticket in batch} == {_nothing}:
            return
        changes = self._writer.total_changes
        try:
            try:
                faults = self._commit(queued, batch, self._bare)
            except _LeftTraces:
                self._writer.execute("ROLLBACK")
                faults = self._commit(queued, batch, self._guarded)
        except BaseException as error:  # noqa: BLE001 - it goes to one of those who wait
            first = batch[0]
            self._judge(error)
            self._undo(queued, batch)
            self._fails(Doing.COMMIT, error)
            if not isinstance(error, sqlite3.Error):
                first.error = error
        else:
            self._committed += len(queued) + len(batch)
            if self._committed - self._copied >= COPY_IN_CALM_AFTER:
                self._alarm()
            if self._writer.total_changes > changes:
                self._device_faults = 0
                self._succeeds(Doing.COMMIT)
            for fault in faults:
                self._on_error(fault)

    def _commit(
        self, queued: list[Work[object]], batch: list[_Ticket[Any]], run_one: Callable[[Work[Any]], Any]
    ) -> list[Exception]:
        """Begin, run everything, commit; returns what queued work raised: nobody else waits for that."""
        faults: list[Exception] = []
        self._cursor.execute("BEGIN IMMEDIATE")
        for work in queued:
            try:
                run_one(work)
            except Exception as error:
                if not self._is_isolated(error):
                    raise
                faults.append(error)
        for ticket in batch:
            try:
                ticket.result = run_one(ticket.work)
            except Exception as error:
                if not self._is_isolated(error):
                    raise
                ticket.error = error
        self._cursor.execute("COMMIT")
        return faults

    def _undo(self, queued: list[Work[object]], batch: list[_Ticket[Any]]) -> None:
        """Nothing of the batch was kept: roll back if SQLite has not already, and say so to all that wait.

        Those who were to come in the next batch, too: they have waited for this one, and none waits longer than it.
        """
        self._queue.extendleft(reversed(queued))
        self._alarm()
        with self._mutex:
            batch += self._waiting
            self._waiting.clear()
        for ticket in batch:
            ticket.error = StoreUnavailable()
        if self._writer.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("ROLLBACK")

    def _copy(self) -> None:
        """Copy the log into the database. If that fails, the log still has everything.

        That of a lost ledger is left as it is: after a failed sync nobody knows what would be copied.
        """
        if self._lost:
            return
        self._copied = self._committed
        try:
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as error:
            self._judge(error)
            self._fails(Doing.COPY, error)
        else:
            self._succeeds(Doing.COPY)

    def _fails(self, doing: Doing, error: BaseException) -> None:
        self._failing[doing] = str(error) or type(error).__name__
        if isinstance(error, sqlite3.Error):
            self._on_failed(doing, error)
        else:
            self._on_error(error)

    def _succeeds(self, doing: Doing) -> None:
        if self._failing and self._failing.pop(doing, None) is not None:
            self._on_works(doing)

    def _judge(self, error: BaseException) -> None:
        """Decide whether the store outlives an error of its connection."""
        fault = fault_of(error)
        if fault is Fault.DEVICE and has_room(self._path):
            self._device_faults += 1
        if fault is Fault.FINAL or self._device_faults >= _MOST_DEVICE_FAULTS:
            self._lose(error)

    def _lose(self, why: BaseException) -> None:
        with self._mutex:
            told, self._lost = self._lost, True
        if not told:
            self._on_lost(f"{why} ({getattr(why, 'sqlite_errorname', type(why).__name__)})")

    def _take_queued(self) -> list[Work[object]]:
        taken: list[Work[object]] = []
        while self._queue:
            taken.append(self._queue.popleft())
        return taken

    def _is_isolated(self, error: Exception) -> bool:
        """Whether `error` concerns one piece of work alone: the transaction of its neighbours is still there."""
        return self._writer.in_transaction and fault_of(error) is Fault.OWN

    def _bare(self, work: Work[T]) -> T:
        """Run `work`; _LeftTraces if it raises after it has changed something."""
        changes = self._writer.total_changes
        try:
            return drive(work(self._transaction))
        except Exception as error:
            if self._writer.total_changes != changes and self._is_isolated(error):
                raise _LeftTraces from error
            raise

    def _guarded(self, work: Work[T]) -> T:
        """Run `work` so that, if it raises, nothing of it is left in the transaction."""
        self._writer.execute("SAVEPOINT work")
        try:
            result = drive(work(self._transaction))
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
        while self._is_woken():
            self._leave_it_to_requests()
            self._alarmed = False
            while not self._flushed():
                if self._stop.wait(RETRY_AFTER_S):
                    return

    def _is_woken(self) -> bool:
        """Wait for an alarm, and copy the log if none comes for CALM_S; whether to go on."""
        if self._committed - self._copied >= COPY_IN_CALM_AFTER:
            try:
                return self._wake.get(timeout=CALM_S)
            except queue.Empty:
                self._copy_in_calm()
        return self._wake.get()

    def _leave_it_to_requests(self) -> None:
        """Wait until none has committed for a while: each commit takes along all that is queued before it."""
        committed, wait_s = -1, FLUSH_AFTER_S
        while committed != self._committed and not self._stop.is_set():
            committed = self._committed
            self._sync_ahead(committed)
            self._stop.wait(wait_s)
            wait_s = min(2 * wait_s, FLUSH_AT_LAST_S)

    def _sync_ahead(self, committed: int) -> None:
        """Sync the log of what was `committed`, if that is much: commits go on, and copying it finds less to sync.

        No promise rests on it but the one that every failed sync is final.
        """
        if self._is_synced_by_commits or self._lost or committed - max(self._synced, self._copied) < SYNC_AFTER:
            return
        self._synced = committed
        try:
            self._files.sync_log()
        except NotSynced as error:
            self._lose(error)

    def _copy_in_calm(self) -> None:
        """Copy the log, unless somebody leads, or none may any more."""
        with self._mutex:
            if self._leading or self._closed:
                return
            self._leading = True
        try:
            self._copy()
        finally:
            self._pass_the_lead()

    def _flushed(self) -> bool:
        """Whether nothing waits. What a leader has taken along is its care: if it fails, it raises the alarm again."""
        if not self._queue:
            return True
        try:
            self._transact(_nothing)
        except StoreUnavailable:
            return False
        return True


def _connect_reader(path: Path) -> sqlite3.Connection:
    reader = connect(path)
    reader.execute("PRAGMA query_only = ON")
    return reader


async def _nothing(transaction: Transaction) -> None:
    """Work of a commit that only carries what is queued."""
