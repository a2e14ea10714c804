"""The exact cache: answers by digest, shared within one tenant, and never a reason for a request to fail.

Decides which entries are kept, for how long, and whether one may be served. Does not know what a digest is made of, or
SQL.

Rules:
- every failure of the file is a miss or a dropped store, and is told to `on_error`; only a purge fails aloud
- an entry is checked again before it is served: same digest, same tenant, same epoch, not expired, not a bit changed
- store() and lookup() wait for no write: one thread writes, for all, what was handed over meanwhile. An entry can be
  looked up at once
- an answer that was asked for before a purge is not served after it: its epoch is no longer the tenant's
- the entries that were looked up last are kept in memory, unsealed. What leaves the file is forgotten there, too, once
  that is committed; what was read from the file while the writer wrote is not kept, for it may be gone

Locks: `_lock` guards what waits for the writer (`_pending`, `_pending_bytes`, `_uses`, `_errands`), `_recent` and
`_writes`, the counters, `_last_use`, `_next_report_s`, `_damaged`, and each change of `_file`, which is None when there
is none; `_changed` is the same lock, where the writer is woken. Only the writer calls the file, but for what is safe
from any thread.
"""

import contextlib
import functools
import queue
import sqlite3
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from gateway.cache_entry import Entry, Record, row_of, size_of, unseal
from gateway.cache_file import NO_BOUND, CacheFile, Removed, is_damage
from gateway.cache_recent import LARGEST_SHARE, Recent
from gateway.clock import Clock

JITTER: Final = 0.1
"""The part of a lifetime that is left to chance, so that what was stored together does not expire together."""

GATHER_S: Final = 0.05
"""The writer waits this long for more entries before it commits: a commit for each would cost requests their CPU."""

MOST_PENDING: Final = 1024
MOST_PENDING_BYTES: Final = 16 << 20
"""Entries and bytes that may wait for the writer; what comes beyond them is dropped."""

MOST_USES: Final = 1024
"""Uses that are remembered before they are written without a store."""

MOST_RECENT_BYTES: Final = 4 << 20
"""Of entries that are kept in memory, too: some thousands of short answers."""

REPORT_EVERY_S: Final = 10.0
"""A broken disk fails every request alike: one report in this time says it."""


class CacheUnavailable(Exception):
    """The purge could not be made durable: nothing was purged."""


class Hit(Struct, frozen=True):
    """An answer that may be served. age_s: whole seconds since it was stored."""

    body: bytes
    deployment: str
    provider: str
    tier: str
    age_s: int


class Match(Struct, frozen=True):
    """An answer that may be served, and the digest under which it lies."""

    digest: bytes
    hit: Hit


class ExactCache:
    """The cache over one file; safe from any thread."""

    def __init__(
        self,
        path: Path,
        *,
        ttl_s: float,
        max_bytes: int,
        max_partition: int = NO_BOUND,
        clock: Clock,
        draw: Callable[[], float],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Open the file; if that fails, the cache stays empty.

        ttl_s          the longest lifetime of an entry; 0 keeps nothing
        max_bytes      bound of the sizes of all entries as they lie in the file
        max_partition  bound of the entries of each partition
        draw           a random number, at least 0 and below 1
        on_error       is told of failures, at most once in REPORT_EVERY_S
        """
        self._ttl_s = ttl_s
        self._largest_bytes = max_bytes // LARGEST_SHARE
        self._clock = clock
        self._draw = draw
        self._on_error = on_error
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._pending: dict[bytes, tuple[Record, int]] = {}
        self._pending_bytes = 0
        self._uses: dict[bytes, int] = {}
        self._errands: list[Callable[[], None]] = []
        self._recent = Recent(MOST_RECENT_BYTES)
        self._writes = 0
        self._hits = self._misses = self._stored = self._dropped = self._evicted = self._expired = 0
        self._last_use = 0
        self._next_report_s = clock.now_s()
        self._damaged = False
        self._file: CacheFile | None = None
        try:
            self._file = CacheFile(path, max_bytes, max_partition=max_partition)
        except (sqlite3.Error, OSError) as error:
            self._report(error)
            return
        self._last_use = self._file.last_used
        self._writer = threading.Thread(target=self._write_forever, args=(self._file,), name="cache-write", daemon=True)
        self._writer.start()

    def epoch(self, tenant: str) -> int:
        """A number that every purge of this tenant, or of all, raises. From memory."""
        file = self._file
        return file.epoch(tenant) if file else 0

    async def lookup(self, digest: bytes, tenant: str) -> Hit | None:
        """The answer under this digest, if this tenant may have it now; counted as a hit or a miss."""
        return self._find(digest, tenant, counts=1)

    async def find(self, digest: bytes, tenant: str) -> Hit | None:
        """The same, uncounted: for whoever looks for more than what a request has asked."""
        return self._find(digest, tenant, counts=0)

    def _find(self, digest: bytes, tenant: str, *, counts: int) -> Hit | None:
        now_ms = self._clock.wall_ms()
        with self._lock:
            writes = self._writes
            waiting = self._pending.get(digest)
            at_hand = waiting[0] if waiting is not None else self._recent.get(digest)
        record = at_hand or self._read(digest)
        if not record or not record.may_be_served(digest, tenant=tenant, epoch=self.epoch(tenant), now_ms=now_ms):
            with self._lock:
                self._misses += counts
            return None
        with self._lock:
            self._hits += counts
            self._note_use(digest)
            if at_hand is None and writes == self._writes:
                self._recent.put(record)
        entry = record.entry
        age_s = (now_ms - record.stored_ms) // 1000
        return Hit(entry.body, entry.deployment, entry.provider, entry.tier, age_s)

    def store(self, digest: bytes, entry: Entry, *, ttl_s: float | None) -> None:
        """Keep an answer under this digest; lookup() finds it from now on.

        ttl_s  the lifetime that the client wants; the cache's own if that is shorter or this is None
        Never blocks. What is too large, or more than the writer keeps up with, is dropped.
        """
        lifetime_s = min(self._ttl_s, self._ttl_s if ttl_s is None else ttl_s) * (1 - JITTER * self._draw())
        now_ms = self._clock.wall_ms()
        record = Record(digest, now_ms, now_ms + int(lifetime_s * 1000), entry)
        with self._changed:
            if not self._has_room(record):
                self._dropped += 1
                return
            if not self._pending:
                self._changed.notify_all()
            self._forget_pending(digest)
            self._last_use += 1
            self._pending[digest] = record, self._last_use
            self._pending_bytes += size_of(record)

    async def purge(self, tenant: str | None) -> int:
        """Let no answer to this tenant, or to any, be served that was asked for until now; how many were removed.

        Raises CacheUnavailable: the epoch is as it was.
        """
        file = self._file
        if file is None:
            raise CacheUnavailable("the file of the cache is not open")
        return self._run(lambda: self._purge(file, tenant))

    def flush(self) -> None:
        """Return once all that was handed over before is in the file, or was dropped."""
        with contextlib.suppress(CacheUnavailable):
            self._run(lambda: 0)

    def close(self) -> None:
        """Write what waits, and close the file. From then on the cache is empty, and drops what it is given."""
        with self._changed:
            file, self._file = self._file, None
            self._forget_recent(None)
            self._changed.notify_all()
        if file is not None:
            self._writer.join()
            file.close()

    def stats(self) -> dict[str, int]:
        """Entries and bytes in the file; and how often since the start what happened.

        dropped  stores that were not kept: too large, too many at once, of an old epoch, or refused by the disk
        """
        file = self._file
        with self._lock:
            return {
                "entries": file.entries if file else 0,
                "bytes": file.bytes if file else 0,
                "hits": self._hits,
                "misses": self._misses,
                "stored": self._stored,
                "dropped": self._dropped,
                "evicted": self._evicted,
                "expired": self._expired,
            }

    def _read(self, digest: bytes) -> Record | None:
        """What the file has under this digest, unchecked."""
        file = self._file
        try:
            sealed = file.read(digest) if file else None
            return None if sealed is None else unseal(sealed)
        except (sqlite3.Error, zlib.error, ValueError) as error:
            self._fail(error)
            return None

    def _note_use(self, digest: bytes) -> None:
        if digest in self._uses or len(self._uses) < MOST_USES:
            self._last_use += 1
            self._uses[digest] = self._last_use
            if len(self._uses) == MOST_USES:
                self._changed.notify_all()

    def _has_room(self, record: Record) -> bool:
        size = size_of(record)
        return (
            self._file is not None
            and record.stored_ms < record.expires_ms
            and size <= self._largest_bytes
            and len(self._pending) < MOST_PENDING
            and self._pending_bytes + size <= MOST_PENDING_BYTES
        )

    def _forget_pending(self, digest: bytes) -> None:
        if waiting := self._pending.pop(digest, None):
            self._pending_bytes -= size_of(waiting[0])

    def _run(self, errand: Callable[[], int]) -> int:
        """Let the writer run an errand once it has written all that waits now. Raises CacheUnavailable if it fails."""
        results: queue.SimpleQueue[int | None] = queue.SimpleQueue()

        def run() -> None:
            result = None
            try:
                result = errand()
            finally:
                results.put(result)

        with self._changed:
            if self._file is None:
                raise CacheUnavailable("the file of the cache is not open")
            self._errands.append(run)
            self._changed.notify_all()
        result = results.get()
        if result is None:
            raise CacheUnavailable("the file of the cache cannot be written")
        return result

    # The writer

    def _write_forever(self, file: CacheFile) -> None:
        """Write, run errands, wait for more. The first round only removes what is expired or over a new bound."""
        pending: dict[bytes, tuple[Record, int]] = {}
        uses: dict[bytes, int] = {}
        errands: list[Callable[[], None]] = []
        closing = False
        while True:
            jobs: list[Callable[[], None]] = [functools.partial(self._write, file, pending, uses), *errands]
            for job in jobs:
                try:
                    job()
                except Exception as error:  # noqa: BLE001 - without a writer, whoever waits for it would hang
                    self._fail(error)
            if closing:
                return
            with self._changed:
                self._changed.wait_for(self._has_work)
                self._changed.wait_for(self._is_urgent, GATHER_S)
                pending = dict(self._pending)
                uses, self._uses = self._uses, {}
                errands, self._errands = self._errands, []
                closing = self._file is None

    def _has_work(self) -> bool:
        return bool(self._pending) or self._damaged or len(self._uses) >= MOST_USES or self._is_urgent()

    def _is_urgent(self) -> bool:
        return bool(self._errands) or self._file is None

    def _write(self, file: CacheFile, pending: dict[bytes, tuple[Record, int]], uses: dict[bytes, int]) -> None:
        kept, removed = 0, Removed(0, 0)
        gone: Sequence[bytes] | None = None
        try:
            if self._damaged:
                self._damaged = False
                file.start_anew()
                with self._lock:
                    self._forget_recent(None)
            rows = [
                row_of(record, max(used, uses.get(digest, 0)))
                for digest, (record, used) in pending.items()
                if record.entry.epoch == file.epoch(record.entry.tenant)
            ]
            removed = file.write(rows, uses, self._clock.wall_ms())
            kept, gone = len(rows), removed.digests
        finally:
            with self._lock:
                self._forget_recent(gone)
                for digest, waiting in pending.items():
                    if self._pending.get(digest) is waiting:
                        self._forget_pending(digest)
                self._stored += kept
                self._dropped += len(pending) - kept
                self._expired += removed.expired
                self._evicted += removed.evicted

    def _purge(self, file: CacheFile, tenant: str | None) -> int:
        file.raise_epoch(tenant)
        try:
            return file.remove_all(tenant)
        except sqlite3.Error as error:
            self._fail(error)
            return 0
        finally:
            with self._lock:
                self._forget_recent(None)

    def _forget_recent(self, digests: Sequence[bytes] | None) -> None:
        """These, or whatever it is, may not be in the file any more, nor as they were read until now."""
        self._writes += 1
        if digests is None:
            self._recent.clear()
        else:
            self._recent.forget(digests)

    def _fail(self, error: Exception) -> None:
        """Tell of a failure of the file, and have it replaced if it is damaged."""
        with self._changed:
            if is_damage(error) and not self._damaged:
                self._damaged = True
                self._changed.notify_all()
        self._report(error)

    def _report(self, error: Exception) -> None:
        now_s = self._clock.now_s()
        with self._lock:
            if now_s < self._next_report_s:
                return
            self._next_report_s = now_s + REPORT_EVERY_S
        self._on_error(error)
