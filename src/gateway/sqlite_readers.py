"""Connections for reading alone, each lent to one reader at a time, so that a long read delays nobody.

Knows no ledger: what is read, and what an error means, is for whoever reads.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator

from gateway.errors import StoreUnavailable

MOST_READERS = 8
"""Reads at a time; one more waits. Each has a connection of two descriptors, of which SQLite keeps one for good."""


class Readers:
    """Lends connections from any thread; `_lock` guards `_idle` and `_closed`.

    connect    makes one; the first is made at once, and what that raises passes
    on_failed  is told why another one could not be made
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], on_failed: Callable[[sqlite3.Error], None]) -> None:
        self._connect = connect
        self._on_failed = on_failed
        self._places = threading.BoundedSemaphore(MOST_READERS)
        self._lock = threading.Lock()
        self._idle = [connect()]
        self._closed = False

    @contextlib.contextmanager
    def lent(self) -> Iterator[sqlite3.Connection]:
        """One of the connections, for this block alone. Raises StoreUnavailable if there is none."""
        with self._places:
            reader = self._take()
            try:
                yield reader
            finally:
                self._give_back(reader)

    def close(self) -> None:
        """Close all of them; one that is lent, as soon as it comes back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    def _take(self) -> sqlite3.Connection:
        with self._lock:
            if self._closed:
                raise StoreUnavailable
            if self._idle:
                return self._idle.pop()
        try:
            return self._connect()
        except sqlite3.Error as error:
            self._on_failed(error)
            raise StoreUnavailable from error

    def _give_back(self, reader: sqlite3.Connection) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(reader)
                return
        reader.close()
