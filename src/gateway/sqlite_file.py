"""The ledger's file: made whole or not at all, checked before anything in it is changed, migrated step by step.

Before a ledger is migrated it is copied: `ledger.db.schema-1` is what it was at schema 1. Such copies, and ledgers that
a restore has replaced, are kept until somebody takes them away; where one of them is, no empty ledger is ever made.
"""

import contextlib
import filecmp
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from gateway import sqlite_copy
from gateway.db_files import INDEX, JOURNAL, WAL, beside, size
from gateway.migrations import APPLICATION_ID, MIGRATIONS
from gateway.store import Durability, Record, Result, Value

PAGE_BYTES = 2048
"""A commit writes whole pages, about six per request; at SQLite's own 4096 it costs nearly twice as much (D-024)."""

BUSY_TIMEOUT_S = 2.0
"""How long a foreign lock on the file is waited for before a request is refused with 503."""


CHECKED_WHOLE_BYTES: Final = 64 << 20
"""A ledger up to this size, some 150,000 requests, is checked whole after an unclean end, in about two seconds; of a
larger one only the tables that every request reads."""

_READ_BY_EVERY_REQUEST: Final = ("boots", "tenants", "keys", "levels", "balances")

_NO_ROOM: Final = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR))

_RESTORE: Final = "restore a backup (gateway restore FILE --yes)"
"""What an operator can do where there is no ledger to go on with. What is there is kept under another name."""

WAL_KEPT_BYTES: Final = 16 << 20
"""A write-ahead log that had to grow beyond this is cut back to it once it has been copied."""


class StoreRefused(Exception):
    """The database file cannot be used: the reason is a sentence for the operator."""


class NoRoomToOpen(StoreRefused):
    """The ledger may be in order, but the storage refuses what is needed beside it to open it for writing."""


class FileMoved(sqlite3.DatabaseError):
    """A file of the ledger that is open is not, or no longer, the one at its path: what is written to it is lost."""

    sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED


class NotSynced(sqlite3.DatabaseError):
    """A file of the ledger could not be synced: what of it is on the disk, nobody knows."""

    sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    sqlite_errorname = "SQLITE_IOERR_FSYNC"


class OpenFiles:
    """The files that the connections of one ledger have open, by device and inode.

    SQLite writes on into a write-ahead log that was deleted, without an error, so somebody has to look.
    """

    def __init__(self, path: Path) -> None:
        """Call while a connection is open: it keeps all three files in their places."""
        self._paths = [beside(path, suffix) for suffix in ("", WAL, INDEX)]
        self._known = [_identity(file) for file in self._paths]

    @property
    def wal_bytes(self) -> int:
        """The size of the write-ahead log; 0 if there is none."""
        return size(self._paths[1])

    def sync_log(self) -> None:
        """Bring what was written to the log until now to the disk. Raises NotSynced.

        One that cannot be opened is left as it is. To open and close it does no harm: SQLite has no lock on it, unlike
        on the other two, which it would lose.
        """
        try:
            log = os.open(self._paths[1], os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.fdatasync(log)
        except OSError as error:
            raise NotSynced(f"{self._paths[1]} was not synced: {error.strerror}") from error
        finally:
            os.close(log)

    def check(self) -> None:
        """Raise FileMoved if one of them is gone from its path, or another is there; OSError if nobody can tell."""
        for path, known in zip(self._paths, self._known, strict=True):
            found = _identity(path)
            if found != known:
                raise FileMoved(f"{path} was {'replaced' if found else 'taken away'} while it was open")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def has_wal_reset_bug(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> bool:
    """Whether this SQLite can damage a write-ahead log that two connections write, or copy back, at the same moment."""
    fixed = {(3, 44): 6, (3, 50): 7}.get(version[:2])
    return version[2] < fixed if fixed is not None else version < (3, 51, 3)


def connect_writer(path: Path, durability: Durability) -> sqlite3.Connection:
    """Open, check and migrate the ledger at `path`, creating it if there is no such file.

    Raises StoreRefused for a file that is not a ledger, is damaged, cannot be written or is newer than this program;
    it was not changed then.
    """
    try:
        if not path.exists():
            _create(path)
        return _connect(path, durability)
    except sqlite3.Error as error:
        kind = NoRoomToOpen if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_ROOM else StoreRefused
        raise kind(f"{path} cannot be used: {error}") from error
    except OSError as error:
        raise StoreRefused(f"{path} cannot be used: {error.strerror or error}") from error


def connect_unchanged(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing. Without a log beside it no other program can be writing to the file."""
    return _connect_read_only(path, is_whole=not any(beside(path, suffix).exists() for suffix in (WAL, JOURNAL)))


def connect_as_it_is(path: Path) -> sqlite3.Connection:
    """A connection that changes nothing, to a ledger of today's schema that this process owns.

    A log that is empty is what an attempt to open the ledger has left. Raises StoreRefused, sqlite3.Error.
    """
    connection = _connect_read_only(path, is_whole=not any(size(beside(path, suffix)) for suffix in (WAL, JOURNAL)))
    try:
        check_identity(connection, path)
        if (version := schema_version(connection)) != len(MIGRATIONS):
            raise StoreRefused(f"{path} has schema {version}, and cannot be brought to {len(MIGRATIONS)} now")
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_read_only(path: Path, *, is_whole: bool) -> sqlite3.Connection:
    """A connection for reading; one that is whole needs nothing beside it, and nothing is locked or looked for."""
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if is_whole else ''}"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S)


def _create(path: Path) -> None:
    """Make an empty ledger, whole or not at all: a process that dies on the way leaves only a draft behind."""
    if path.is_symlink():
        raise StoreRefused(f"{path} is a link to {path.readlink()}, which is not there")
    for suffix, what in ((WAL, "write-ahead log"), (JOURNAL, "journal")):
        if (log := beside(path, suffix)).exists():
            raise StoreRefused(
                f"{path} is gone but its {what} {log.name} is there: put {path.name} back beside it, or {_RESTORE} "
                f"(the {what} is kept)"
            )
    draft = draft_of(path)
    kept = sorted(each.name for each in path.parent.glob(f"{path.name}.*") if not each.name.startswith(draft.name))
    if kept:
        raise StoreRefused(
            f"{path} is gone but {kept[-1]} is there: {_RESTORE}, that file or a newer one; or move it away"
        )
    with sqlite_copy.drafted(draft):
        with contextlib.closing(connect(draft)) as connection:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
            migrate(connection)
        draft.rename(path)
        sqlite_copy.sync(path.parent)


def draft_of(path: Path) -> Path:
    """Where the file that is to be at `path` is made; what lies there is worth nothing."""
    return path.with_name(path.name + ".new")


def _connect(path: Path, durability: Durability) -> sqlite3.Connection:
    if path.stat().st_size == 0:
        raise StoreRefused(f"{path} is empty, which a ledger never is: {_RESTORE}, or move the empty file away")
    for needed in (path, path.parent):
        if not os.access(needed, os.W_OK):
            raise StoreRefused(f"{needed} cannot be written by this user")
    if size(beside(path, WAL)):
        _check_remains(path)
    connection = connect(path)
    try:
        check_identity(connection, path)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}").fetchall()
        connection.execute(f"PRAGMA synchronous = {'FULL' if durability is Durability.FULL else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        _copy_before_migration(connection, path)
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _copy_before_migration(connection: sqlite3.Connection, path: Path) -> None:
    """Keep what the ledger was before a newer program changes its schema. A copy that is there already is enough."""
    version = schema_version(connection)
    if version == len(MIGRATIONS):
        return
    draft, kept = draft_of(path), path.with_name(f"{path.name}.schema-{version}")
    try:
        with sqlite_copy.drafted(draft):
            sqlite_copy.copy(connection, draft)
            copies = path.parent.glob(f"{kept.name}*")
            if not any(filecmp.cmp(draft, each, shallow=False) for each in copies):
                sqlite_copy.place(draft, sqlite_copy.free_name(kept))
    except OSError as error:
        raise StoreRefused(f"{path} cannot be copied before its schema is changed: {error}") from error


def check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreRefused unless the database is a ledger that this program knows. Changes nothing."""
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreRefused(f"{path} belongs to another program")
    version = schema_version(connection)
    if version > len(MIGRATIONS):
        raise StoreRefused(f"{path} has schema {version}, this program knows {len(MIGRATIONS)}: use a newer one")


def _check_remains(path: Path) -> None:
    """Raise StoreRefused if a ledger that was not closed is not ours, or contradicts itself. Changes no file.

    SQLite takes the write-ahead log away at a clean end, so one that is there says that the last owner died, perhaps
    because of its disk. A connection that may write would copy the log as soon as it is closed.
    """
    index = beside(path, INDEX)
    had_index = index.exists()
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
            check_identity(connection, path)
            _check_structure(connection, path)
    finally:
        if not had_index:
            index.unlink(missing_ok=True)


def _check_structure(connection: sqlite3.Connection, path: Path) -> None:
    whole = _pragma(connection, "page_count") * _pragma(connection, "page_size") <= CHECKED_WHOLE_BYTES
    for check in ("quick_check",) if whole else (f"quick_check({table})" for table in _READ_BY_EVERY_REQUEST):
        found = connection.execute(f"PRAGMA {check}").fetchone()[0]
        if found != "ok":
            raise StoreRefused(f"{path} is damaged and was not changed: {_RESTORE}; {found}")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to this program's version, one transaction per step."""
    for step in range(schema_version(connection), len(MIGRATIONS)):
        connection.execute("BEGIN IMMEDIATE")
        for statement in MIGRATIONS[step]:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {step + 1}")
        connection.execute("COMMIT")


def schema_version(connection: sqlite3.Connection) -> int:
    """How many steps of the schema the database has."""
    return _pragma(connection, "user_version")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose transactions are begun by hand, for any thread."""
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S, cached_statements=256
    )


def run(cursor: sqlite3.Cursor, sql: str, params: Sequence[Value]) -> Result:
    """One statement, and what it did. The cursor may be used for the next one then."""
    cursor.execute(sql, params)
    if cursor.description:
        records: list[Record] = cursor.fetchall()
        return Result(records, len(records), cursor.lastrowid or 0)
    return Result([], cursor.rowcount, cursor.lastrowid or 0)
