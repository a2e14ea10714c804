"""Migrations and restores in a process that kills itself at a chosen effect. Runs only in forked processes.

Every statement, every step of a copy and every change of a directory is one effect; those of other threads, which are
the cache's and not about money, are none.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from gateway import sqlite_copy, sqlite_file
from gateway.clock import FakeClock
from gateway.data_dir import DataDir
from gateway.migrations import MIGRATIONS
from gateway.restore import restore
from gateway.sqlite_file import StoreRefused, connect_writer
from gateway.store import Durability
from tests.crash.child import CONFIGS, Effects, opened
from tests.support.connections import watched
from tests.support.ledgers import dump, schema

_CALLS = ("link", "rename", "replace", "unlink", "fsync")


@contextlib.contextmanager
def _every_step(effects: Effects, *, links: bool = True) -> Iterator[None]:
    """In this block every step counts. links  whether the file system has them"""

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            effects.begin(name)
            if name == "link" and not links:
                raise PermissionError
            return real(*arguments, **options)

        return call

    def begin(sql: str) -> None:
        if threading.current_thread() is threading.main_thread():
            effects.begin(sql.split(None, 1)[0])

    with contextlib.ExitStack() as stack:
        for name in _CALLS:
            stack.enter_context(mock.patch.object(os, name, counted(name)))
        stack.enter_context(mock.patch.object(sqlite_copy, "STEP_PAGES", 8))
        stack.enter_context(watched(before=begin, after=lambda sql: begin(sql) if sql == "STEP" else None))
        yield


def migrate(path: str, *, die_at: int | None) -> list[str]:
    """Open the ledger as a start does, unless death comes first. Returns the effects."""
    effects = Effects(die_at, armed=True)
    with _every_step(effects):
        connect_writer(Path(path), Durability.FULL).close()
        return effects.last()


def migrate_to(path: str, *, version: int) -> None:
    """Open the ledger as the release of this schema does."""
    with mock.patch.object(sqlite_file, "MIGRATIONS", MIGRATIONS[:version]):
        connect_writer(Path(path), Durability.FULL).close()


def restored(folder: str, file: str, *, die_at: int | None, links: bool = True) -> list[str]:
    """Restore the backup, unless death comes first. Returns the effects."""
    effects = Effects(die_at, armed=True)
    owned = DataDir.own(Path(folder))
    with _every_step(effects, links=links):
        restore(owned, Path(file), FakeClock(), replace=True)
        effects.last()
    owned.close()
    return effects.labels


def back_up(folder: str, file: str, *, die_at: int | None = None) -> list[str]:
    """Write a backup, unless death comes first. Returns the effects."""
    effects = Effects(die_at)
    with _every_step(effects), opened(Path(folder), CONFIGS["full"]) as books:
        effects.armed = True
        books.commands.run("backup", {"file": file})
        effects.armed = False
        return effects.last()


def looked_at(path: str) -> Any:
    """Schema and rows of a ledger as it is."""
    return [schema(Path(path)), dump(Path(path))]


def started(path: str) -> Any:
    """The same, after whatever a start does to the file; or why there can be no start."""
    try:
        connect_writer(Path(path), Durability.FULL).close()
    except StoreRefused as refused:
        return str(refused)
    return looked_at(path)


def aftermath_of_backup(folder: str, file: str) -> list[Any]:
    """After a backup that died: what lies at its place, and what another one leaves there."""
    found = looked_at(file) if Path(file).exists() else None
    Path(file).unlink(missing_ok=True)
    back_up(folder, file)
    return [found, looked_at(file)]


def aftermath_of_migration(path: str, kept: str) -> list[Any]:
    """After a migration that died: the ledger as it lies there, after a start, and the copy from before."""
    return [looked_at(path), started(path), looked_at(kept)]


def aftermath(folder: str, file: str) -> dict[str, Any]:
    """After a restore that died: the ledger after a start, the one that was set aside, and the epoch that another
    restore reaches.
    """
    ledger = Path(folder) / "ledger.db"
    found = {"state": started(str(ledger)), "kept": None}
    for path in Path(folder).glob("ledger.db.epoch-1.*"):
        if path.suffix.endswith("Z"):
            with contextlib.suppress(sqlite3.DatabaseError):
                found["kept"] = looked_at(str(path))
    restored(folder, file, die_at=None)
    return found | {"epoch": looked_at(str(ledger))[1]["epochs"][-1][0]}
