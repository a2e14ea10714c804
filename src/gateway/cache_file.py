"""A cache's SQLite file: sealed entries by digest, held under a bound of bytes; and what was purged.

Decides which rows go, and when the file itself is given up. Does not know what is sealed, or who may be served.

Rules:
- the file holds nothing that cannot be asked for again: one that is damaged, or no cache of this program and schema,
  is replaced by an empty one
- the sizes of all rows, and the number of those of one partition, stay under their bounds in every committed state;
  expired rows go first, then those least recently used, so many per transaction that no transaction is long
- a purge is a number, the epoch, that is greater than all before it

`synchronous = NORMAL`: a power cut may take the last answers, never the file. A purge alone is synced, because an
answer that was purged must not come back.

Locks: the writing connection, and with it every field, belongs to the one thread that calls the methods not marked safe
from any thread; others may look at `entries` and `bytes`. `_read_lock` guards the reading connection, which is
`query_only` and waits for no foreign lock.
"""

import contextlib
import sqlite3
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway import sqlite_copy
from gateway.sqlite_file import connect

ROW_OVERHEAD_BYTES: Final = 512
"""Counted for each row beside its sealed bytes: its other columns, its indexes, and what is left over of its pages."""

NO_BOUND: Final = 1 << 62

MOST_DELETED: Final = 1024
"""Rows that go in one transaction: some milliseconds of work."""

_APPLICATION_ID: Final = 0x67774358
_SCHEMA_VERSION: Final = 3
_SCHEMA: Final = (
    """CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        digest BLOB NOT NULL UNIQUE,
        tenant TEXT NOT NULL,
        expires_ms INTEGER NOT NULL,
        used INTEGER NOT NULL,
        size INTEGER NOT NULL,
        "partition" BLOB,
        sealed BLOB NOT NULL
    ) STRICT""",
    "CREATE INDEX entries_by_tenant ON entries (tenant)",
    "CREATE INDEX entries_by_expiry ON entries (expires_ms)",
    # with the size in it, so that all sizes are summed, and victims chosen, without reading a row
    "CREATE INDEX entries_by_use ON entries (used, size)",
    # rows without a partition, which is all of them in most files, cost nothing here
    'CREATE INDEX entries_by_partition ON entries ("partition", used) WHERE "partition" IS NOT NULL',
    'CREATE TABLE partitions ("partition" BLOB PRIMARY KEY, rows INTEGER NOT NULL) STRICT, WITHOUT ROWID',
    """CREATE TRIGGER partition_grows AFTER INSERT ON entries WHEN new."partition" IS NOT NULL BEGIN
        INSERT INTO partitions VALUES (new."partition", 1) ON CONFLICT DO UPDATE SET rows = rows + 1;
    END""",
    """CREATE TRIGGER partition_shrinks AFTER DELETE ON entries WHEN old."partition" IS NOT NULL BEGIN
        UPDATE partitions SET rows = rows - 1 WHERE "partition" = old."partition";
        DELETE FROM partitions WHERE "partition" = old."partition" AND rows = 0;
    END""",
    # one row per tenant that was purged, and one with none for the last purge of all
    "CREATE TABLE purges (number INTEGER PRIMARY KEY, tenant TEXT) STRICT",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)

_INSERT: Final = """INSERT INTO entries (digest, tenant, expires_ms, used, sealed, "partition", size)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""


class Row(NamedTuple):
    """One sealed entry.

    used       a number greater than that of every earlier use of any row
    partition  the rows of one partition are bounded in number; those of none are not
    """

    digest: bytes
    tenant: str
    expires_ms: int
    used: int
    sealed: bytes
    partition: bytes | None = None

    @property
    def size(self) -> int:
        """What it counts towards the bound."""
        return len(self.sealed) + ROW_OVERHEAD_BYTES


class Removed(NamedTuple):
    """How many rows had to go, and why; and the digests of all that are gone, or have been replaced."""

    expired: int
    evicted: int
    digests: Sequence[bytes] = ()


class NotACache(sqlite3.DatabaseError):
    """The file is a database, but not one of this program and schema."""

    sqlite_errorcode = sqlite3.SQLITE_NOTADB


_DAMAGE: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR))
"""What a healthy file never says; SQLITE_ERROR is a table or a column that is not there."""


def is_damage(error: BaseException) -> bool:
    """Whether an error says that the file is of no more use, and not only that it cannot be reached now.

    A connection that is closed is one whose file was given up, and could not be replaced at that moment.
    """
    if isinstance(error, sqlite3.ProgrammingError):
        return True
    return isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE


class CacheFile:
    """The open file. A method that raises sqlite3.Error has kept nothing of the transaction that failed.

    entries, bytes  how many rows there are, and the sum of their sizes
    last_used       the greatest `used` of any row that was there when the file was opened
    """

    def __init__(self, path: Path, max_bytes: int, *, max_partition: int = NO_BOUND) -> None:
        """Open the file, or replace it by an empty one. Raises sqlite3.Error or OSError if neither can be done.

        max_bytes      bound of the sizes of all rows
        max_partition  bound of the rows of each partition
        """
        self._path = path
        self._max_bytes = max_bytes
        self._max_partition = max_partition
        self._read_lock = threading.Lock()
        self._purges: dict[str | None, int] = {}
        try:
            self._open()
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            self._replace()

    def epoch(self, tenant: str) -> int:
        """The number of the last purge that concerned this tenant; 0 if there was none. Safe from any thread."""
        purges = self._purges
        if not purges:
            return 0
        return max(purges.get(tenant, 0), purges.get(None, 0))

    def read(self, digest: bytes) -> bytes | None:
        """What was sealed under this digest. Safe from any thread."""
        with self._read_lock:
            records = self._reader.execute("SELECT sealed FROM entries WHERE digest = ?", (digest,)).fetchall()
        return records[0][0] if records else None

    def write(self, rows: Iterable[Row], uses: Mapping[bytes, int], now_ms: int) -> Removed:
        """Keep `rows`, each in place of an older one of its digest, and remove what is expired or over the bound.

        uses  the new `used` of rows that were looked up, by digest
        """
        waiting = deque(row for row in rows if row.size <= self._max_bytes)
        digests: list[bytes] = []
        expired = evicted = 0
        if uses:
            self._touch(uses)
        full_step = True
        while full_step:
            with self._transaction():
                gone = self._delete("expires_ms <= ?", now_ms)
                victims = self._insert(waiting, MOST_DELETED - gone)
            expired += gone
            evicted += victims
            digests += self._gone
            full_step = gone + victims >= MOST_DELETED
        return Removed(expired, evicted, digests)

    def raise_epoch(self, tenant: str | None) -> None:
        """Begin a purge of one tenant, or of all: once this returns, the new epoch holds, even after a power cut."""
        number = max(self._purges.values(), default=0) + 1
        purges = {**self._purges, tenant: number}
        self._writer.execute("PRAGMA synchronous = FULL")
        try:
            with self._transaction():
                self._note(purges)
        finally:
            self._writer.execute("PRAGMA synchronous = NORMAL")
        self._purges = purges

    def remove_all(self, tenant: str | None) -> int:
        """Remove every row of one tenant, or of all; how many there were."""
        condition, value = ("tenant = ?", tenant) if tenant is not None else ("?", 1)
        removed = 0
        full_step = True
        while full_step:
            with self._transaction():
                step = self._delete(condition, value)
            removed += step
            full_step = step >= MOST_DELETED
        return removed

    def start_anew(self) -> None:
        """Replace a file that is damaged by an empty one with the same epochs. Raises OSError too.

        After an error every call raises what is_damage() tells, until this has succeeded.
        """
        with self._read_lock:
            self._close()
            self._replace()
        with self._transaction():
            self._note(self._purges)

    def close(self) -> None:
        with self._read_lock:
            self._close()

    def _open(self) -> None:
        with contextlib.suppress(FileExistsError):
            sqlite_copy.make(self._path)
        with contextlib.ExitStack() as undo:
            self._writer = writer = connect(self._path)
            undo.callback(writer.close)
            self._prepare(writer)
            self._reader = reader = connect(self._path)
            undo.callback(reader.close)
            reader.execute("PRAGMA query_only = ON")
            reader.execute("PRAGMA busy_timeout = 0").fetchall()
            undo.pop_all()

    def _prepare(self, writer: sqlite3.Connection) -> None:
        """Check whose file it is, or make it ours if it is empty; then load what is kept in memory."""
        if not _records(writer, "SELECT 1 FROM sqlite_schema"):
            _create(writer)
        identity = _records(writer, "SELECT * FROM pragma_application_id, pragma_user_version")
        if identity != [(_APPLICATION_ID, _SCHEMA_VERSION)]:
            raise NotACache(f"{self._path} is no cache of this program")
        writer.execute("PRAGMA journal_mode = WAL").fetchall()
        writer.execute("PRAGMA synchronous = NORMAL")
        totals = _records(writer, "SELECT count(*), coalesce(sum(size), 0), coalesce(max(used), 0) FROM entries")
        self.entries, self.bytes, self.last_used = totals[0]
        self._purges = self._purges or dict(_records(writer, "SELECT tenant, number FROM purges"))

    def _replace(self) -> None:
        sqlite_copy.remove(self._path)
        self._open()

    def _close(self) -> None:
        self._reader.close()
        self._writer.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """What is done in the block is committed, or undone, the totals too; `_gone` are the rows it has removed."""
        before = self.entries, self.bytes
        self._gone: list[bytes] = []
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        except BaseException:
            self.entries, self.bytes = before
            if self._writer.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._writer.execute("ROLLBACK")
            raise

    def _note(self, purges: Mapping[str | None, int]) -> None:
        self._writer.execute("DELETE FROM purges")
        self._writer.executemany(
            "INSERT INTO purges VALUES (?, ?)", [(number, tenant) for tenant, number in purges.items()]
        )

    def _touch(self, uses: Mapping[bytes, int]) -> None:
        with self._transaction():
            self._writer.executemany(
                "UPDATE entries SET used = ? WHERE digest = ?", [(used, digest) for digest, used in uses.items()]
            )

    def _insert(self, waiting: deque[Row], most: int) -> int:
        """Insert what waits, and evict for it, until nothing waits or `most` rows are gone; how many are."""
        evicted = 0
        while waiting and evicted < most:
            row = waiting[0]
            self._delete("digest = ?", row.digest)
            surplus = self._rows_of(row.partition) + 1 - self._max_partition
            crowded_out = self._evict_from(row.partition, min(surplus, most - evicted))
            evicted += crowded_out
            evicted += self._evict(row.size, most - evicted)
            if crowded_out >= surplus and self.bytes + row.size <= self._max_bytes:
                self._writer.execute(_INSERT, (*row, row.size))
                self.entries += 1
                self.bytes += row.size
                waiting.popleft()
        return evicted + self._evict(0, most - evicted)

    def _rows_of(self, partition: bytes | None) -> int:
        counts = self._writer.execute('SELECT rows FROM partitions WHERE "partition" = ?', (partition,)).fetchall()
        return int(counts[0][0]) if counts else 0

    def _evict_from(self, partition: bytes | None, most: int) -> int:
        """Remove the least recently used rows of one partition, `most` of them; how many."""
        if partition is None or most <= 0:
            return 0
        least_used = f'SELECT id FROM entries WHERE "partition" = ? ORDER BY used LIMIT {most}'  # noqa: S608 - a number
        return self._delete(f"id IN ({least_used})", partition)

    def _evict(self, room_bytes: int, most: int) -> int:
        """Remove the least recently used rows until there is this room, but no more than `most`; how many.

        Where there is none to remove, somebody else has removed them: then the totals are those of an empty file.
        """
        excess = self.bytes + room_bytes - self._max_bytes
        if excess <= 0:
            return 0
        last = freed = 0
        oldest = self._writer.execute("SELECT used, size FROM entries ORDER BY used LIMIT ?", (most,))
        while freed < excess and (record := oldest.fetchone()):
            last, freed = record[0], freed + record[1]
        oldest.close()
        if most and not freed:
            self.entries = self.bytes = 0
        return self._delete("used <= ?", last)

    def _delete(self, condition: str, value: int | str | bytes) -> int:
        """Remove the rows for which the condition holds, but no more than MOST_DELETED; how many."""
        rows = self._writer.execute(
            f"""DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE {condition} LIMIT {MOST_DELETED})
                RETURNING digest, size""",  # noqa: S608 - conditions of our own
            (value,),
        ).fetchall()
        self.entries -= len(rows)
        self.bytes -= sum(size for _, size in rows)
        self._gone += [digest for digest, _ in rows]
        return len(rows)


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA:
        connection.execute(statement)
    connection.execute("COMMIT")


def _records(connection: sqlite3.Connection, sql: str) -> list[Any]:
    return connection.execute(sql).fetchall()
