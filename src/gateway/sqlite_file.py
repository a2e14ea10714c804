"""The ledger's file: made whole or not at all, checked before anything in it is changed, migrated step by step."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

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

WAL_KEPT_BYTES: Final = 16 << 20
"""A write-ahead log that had to grow beyond this is cut back to it once it has been copied."""


class StoreRefused(Exception):
    """The database file cannot be used: the reason is a sentence for the operator."""


class FileMoved(sqlite3.DatabaseError):
    """A file of the ledger that is open is not, or no longer, the one at its path: what is written to it is lost."""

    sqlite_errorcode = sqlite3.SQLITE_READONLY_DBMOVED


class OpenFiles:
    """The files that the connections of one ledger have open, by device and inode.

    SQLite writes on into a write-ahead log that was deleted, without an error, so somebody has to look.
    """

    def __init__(self, path: Path) -> None:
        """Call while a connection is open: it keeps all three files in their places."""
        self._paths = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
        self._known = [_identity(file) for file in self._paths]

    @property
    def wal_bytes(self) -> int:
        """The size of the write-ahead log; 0 if there is none."""
        return _size(self._paths[1])

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


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


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
        raise StoreRefused(f"{path} cannot be used: {error}") from error


def _create(path: Path) -> None:
    """Make an empty ledger, whole or not at all: a process that dies on the way leaves only a draft behind."""
    if path.with_name(path.name + "-wal").exists():
        raise StoreRefused(f"{path} is gone but its write-ahead log is there: restore it or move the log away")
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)
    with contextlib.closing(connect(draft)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
        migrate(connection)
    draft.rename(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the names in it durable, where the file system can do that at all."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _connect(path: Path, durability: Durability) -> sqlite3.Connection:
    if path.stat().st_size == 0:
        raise StoreRefused(f"{path} is empty: a ledger is never that; restore it or move it away")
    for needed in (path, path.parent):
        if not os.access(needed, os.W_OK):
            raise StoreRefused(f"{needed} cannot be written by this user")
    if _size(path.with_name(path.name + "-wal")):
        _check_remains(path)
    connection = connect(path)
    try:
        _check_identity(connection, path)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(f"PRAGMA journal_size_limit = {WAL_KEPT_BYTES}").fetchall()
        connection.execute(f"PRAGMA synchronous = {'FULL' if durability is Durability.FULL else 'NORMAL'}")
        connection.execute("PRAGMA foreign_keys = ON")
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_identity(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreRefused unless the database is a ledger that this program knows. Changes nothing."""
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreRefused(f"{path} belongs to another program")
    version = _pragma(connection, "user_version")
    if version > len(MIGRATIONS):
        raise StoreRefused(f"{path} has schema {version}, this program knows {len(MIGRATIONS)}: use a newer one")


def _check_remains(path: Path) -> None:
    """Raise StoreRefused if a ledger that was not closed is not ours, or contradicts itself. Changes no file.

    SQLite takes the write-ahead log away at a clean end, so one that is there says that the last owner died, perhaps
    because of its disk. A connection that may write would copy the log as soon as it is closed.
    """
    index = path.with_name(path.name + "-shm")
    had_index = index.exists()
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_TIMEOUT_S)) as connection:
            _check_identity(connection, path)
            _check_structure(connection, path)
    finally:
        if not had_index:
            index.unlink(missing_ok=True)


def _check_structure(connection: sqlite3.Connection, path: Path) -> None:
    whole = _pragma(connection, "page_count") * _pragma(connection, "page_size") <= CHECKED_WHOLE_BYTES
    for check in ("quick_check",) if whole else (f"quick_check({table})" for table in _READ_BY_EVERY_REQUEST):
        found = connection.execute(f"PRAGMA {check}").fetchone()[0]
        if found != "ok":
            raise StoreRefused(f"{path} is damaged and was not changed; restore it from a copy: {found}")


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the schema to this program's version, one transaction per step."""
    for step in range(_pragma(connection, "user_version"), len(MIGRATIONS)):
        connection.execute("BEGIN IMMEDIATE")
        for statement in MIGRATIONS[step]:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {step + 1}")
        connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose transactions are begun by hand, for any thread."""
    return sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=BUSY_TIMEOUT_S, cached_statements=256
    )


def run(connection: sqlite3.Connection, sql: str, params: Sequence[Value]) -> Result:
    """One statement, and what it did."""
    cursor = connection.execute(sql, params)
    records: list[Record] = cursor.fetchall() if cursor.description else []
    return Result(records, len(records) if cursor.description else cursor.rowcount, cursor.lastrowid or 0)
