"""What nobody waits for, every few seconds: the ledger's files, holds that are too old, memory that is free."""

import itertools
import threading

from gateway import heap
from gateway.books import Books
from gateway.config_schema import Config
from gateway.drive import drive
from gateway.errors import StoreUnavailable
from gateway.holds import Policy
from gateway.oplog import OpLog

SWEEP_EVERY_S = 2.0
"""How soon a hold that is too old, a store that can be written again, or a ledger that was taken away, is noticed."""

_TRIM_EVERY = 15  # sweeps: half a minute's freed memory is a few megabytes

LARGE_WAL_BYTES = 64 << 20
"""A write-ahead log of this size is not copied back any more: somebody reads in the ledger without an end."""


class Janitor:
    """Every SWEEP_EVERY_S, on a thread: looks at the ledger's files, gives up holds that are too old, and applies the
    policy to unresolved money; every now and then gives free memory back.
    """

    def __init__(self, books: Books, config: Config, log: OpLog) -> None:
        self._books = books
        self._config = config
        self._log = log
        self._wal_was_large = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="janitor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for round_ in itertools.count(1):
            if self._stop.wait(SWEEP_EVERY_S):
                return
            if round_ % _TRIM_EVERY == 0:
                heap.trim()
            try:
                self._sweep()
            except StoreUnavailable:
                continue
            except Exception as error:  # noqa: BLE001 - the next round may succeed
                self._log.error(error)

    def _sweep(self) -> None:
        self._look_at_files()
        if not self._books.store.writable:
            drive(self._books.ledger.touch())
        store = self._config.store
        changed = drive(
            self._books.ledger.sweep(
                hold_ttl_s=store.hold_ttl_s,
                unresolved_after_s=store.unresolved_after_s,
                policy=Policy(store.unresolved_policy),
            )
        )
        if changed:
            self._log.event("holds_swept", holds=changed)

    def _look_at_files(self) -> None:
        self._books.store.check_files()
        wal_bytes = self._books.store.wal_bytes
        large = wal_bytes > LARGE_WAL_BYTES
        if large and not self._wal_was_large:
            detail = "a program, or a backup to a slow disk, reads in ledger.db without an end"
            self._log.event("large_wal", bytes=wal_bytes, detail=detail)
        self._wal_was_large = large
