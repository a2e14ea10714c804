"""A backup of the ledger: one file that was looked at before it got its name.

inspect() is how far a ledger file is to be trusted: its structure, its books, and what it knows. Holds that are open in
a backup are those of requests that ran meanwhile; to whoever restores it their process is dead.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from gateway import audit, sqlite_copy
from gateway.data_dir import is_own_name
from gateway.drive import drive
from gateway.errors import StoreUnavailable
from gateway.sqlite_file import StoreRefused, check_identity, connect, schema_version
from gateway.sqlite_store import CopyTooSlow, SqliteStore
from gateway.store import Record, Value

FIRST_EPOCH = 1
"""Of a ledger that was never restored."""

_EPOCHS_SINCE = 2
"""The schema from which on a ledger knows its epoch."""

_UNTIL = """SELECT max(at_ms) FROM (
    SELECT max(started_ms) AS at_ms FROM boots UNION ALL SELECT max(stopped_ms) FROM boots
    UNION ALL SELECT max(created_ms) FROM keys UNION ALL SELECT max(deleted_ms) FROM keys
    UNION ALL SELECT max(opened_ms) FROM holds UNION ALL SELECT max(unresolved_ms) FROM holds
    UNION ALL SELECT max(resolved_ms) FROM holds UNION ALL SELECT max(ended_ms) FROM requests)"""


class BackupRefused(Exception):
    """No backup was written: the reason is a sentence for the operator."""


class Contents(Struct, frozen=True):
    """What a ledger file is: schema, epoch, the time of the last event that it knows, and how its books stand."""

    schema: int
    epoch: int
    until_ms: int
    report: audit.Report


class _Reader(Struct, frozen=True):
    """What the audit reads from: one connection."""

    connection: sqlite3.Connection

    async def read(self, sql: str, params: Sequence[Value] = ()) -> list[Record]:
        return self.connection.execute(sql, params).fetchall()


def inspect(connection: sqlite3.Connection, path: Path) -> Contents:
    """Look at a whole ledger of today's schema. Raises StoreRefused if it is damaged or none that we know."""
    try:
        check_identity(connection, path)
        reader = _Reader(connection)
        if damage := drive(audit.find_damage(reader, most=3)):
            raise StoreRefused(f"{path} is damaged: {'; '.join(damage)}")
        report = drive(audit.check_books(reader))
        return Contents(schema_version(connection), epoch_of(connection), until_ms_of(connection), report)
    except sqlite3.Error as error:
        raise StoreRefused(f"{path} is damaged, or cannot be read: {error}") from error


def epoch_of(connection: sqlite3.Connection) -> int:
    """How often this ledger was restored, counted from FIRST_EPOCH; its schema may be an older one."""
    if schema_version(connection) < _EPOCHS_SINCE:
        return FIRST_EPOCH
    return int(connection.execute(f"SELECT coalesce(max(number), {FIRST_EPOCH}) FROM epochs").fetchone()[0])  # noqa: S608 - a constant


def epochs_of(connection: sqlite3.Connection) -> list[Record]:
    """Every restore that this ledger knows of, oldest first, as audit.EPOCH_FIELDS; its schema may be an older one."""
    if schema_version(connection) < _EPOCHS_SINCE:
        return []
    return connection.execute(f"SELECT {', '.join(audit.EPOCH_FIELDS)} FROM epochs ORDER BY number").fetchall()  # noqa: S608 - constants


def until_ms_of(connection: sqlite3.Connection) -> int:
    """When the last event that the ledger knows happened; 0 if it knows none."""
    return int(connection.execute(_UNTIL).fetchone()[0] or 0)


class Backups:
    """Writes backups of one open ledger, one at a time; `_running` is held meanwhile.

    ledger  where it lies: in a data directory whose own files no backup may take the place of
    """

    def __init__(self, store: SqliteStore, ledger: Path) -> None:
        self._store = store
        self._ledger = ledger
        self._running = threading.Lock()

    def write(self, file: Path) -> dict[str, Any]:
        """Write a backup of all that is committed by now; what it holds. It is at `file`, or nothing is.

        Books that do not balance are backed up as they are, and reported. Raises BackupRefused.
        """
        _refuse_bad_place(file, self._ledger.parent)
        if not self._running.acquire(blocking=False):
            raise BackupRefused("another backup is being written: try again")
        try:
            return self._write(file)
        except FileExistsError as error:
            raise BackupRefused(f"{file} is there already: a backup overwrites nothing") from error
        except (OSError, sqlite3.Error) as error:
            raise BackupRefused(f"{file} cannot be written: {getattr(error, 'strerror', None) or error}") from error
        except (StoreRefused, CopyTooSlow) as error:
            raise BackupRefused(f"{file} was not written: {error}") from error
        except StoreUnavailable as error:
            raise BackupRefused(f"{file} was not written: the gateway is ending") from error
        finally:
            self._running.release()

    def _write(self, file: Path) -> dict[str, Any]:
        with sqlite_copy.drafted(file.with_name(f"{file.name}.{os.urandom(4).hex()}.draft")) as draft:
            self._store.copy_to(draft)
            with contextlib.closing(connect(draft)) as connection:
                contents = inspect(connection, self._ledger)
            size = draft.stat().st_size
            sqlite_copy.place(draft, file)
        return {
            "file": str(file),
            "bytes": size,
            "schema": contents.schema,
            "epoch": contents.epoch,
            "until_ms": contents.until_ms,
            "ok": contents.report.ok,
            **asdict(contents.report),
        }


def _refuse_bad_place(file: Path, directory: Path) -> None:
    """Raise BackupRefused for a path that no backup can be written to."""
    if file.is_dir():
        raise BackupRefused(f"{file} is a directory: name the file to write")
    if not file.parent.is_dir():
        raise BackupRefused(f"{file.parent} is no directory")
    if is_own_name(file.name) and file.parent.samefile(directory):
        raise BackupRefused(f"{file} is one of the data directory's own files: write the backup somewhere else")
    if os.path.lexists(file):
        raise BackupRefused(f"{file} is there already: a backup overwrites nothing")
