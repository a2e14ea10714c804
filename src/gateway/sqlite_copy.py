"""Copies of a database, made through SQLite alone, and put where they belong whole or not at all.

A database file must never be opened but by SQLite while a connection to it is open: closing it would drop the locks of
the whole process. Knows no schema.
"""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.db_files import SIDE_FILES, beside

STEP_PAGES = 4096
"""Pages copied at a time, 8 MiB of a ledger: far longer than the waits for the interpreter between two steps, and short
enough for whoever wants the copying to end."""


def copy(source: sqlite3.Connection, draft: Path, *, between: Callable[[], object] = lambda: None) -> None:
    """Copy what is committed at the beginning into the empty file `draft`, in as many steps as there are pages for.

    source   nobody else uses it meanwhile, and no transaction is open
    between  is called after each step; what it raises ends the copying
    It is read in one transaction: nothing that others write, or roll back, starts it anew. Until it ends, the
    write-ahead log of the source cannot begin anew and grows by all that is committed. Nothing is synced. Raises
    sqlite3.Error.
    """
    with (
        contextlib.closing(sqlite3.connect(draft, isolation_level=None, check_same_thread=False)) as target,
        _snapshot(source),
    ):
        target.execute("PRAGMA journal_mode = OFF").fetchall()
        target.execute("PRAGMA synchronous = OFF")
        source.backup(target, pages=STEP_PAGES, progress=lambda *_: between())
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as target:
        target.execute("PRAGMA synchronous = OFF")
        target.execute("PRAGMA journal_mode = DELETE").fetchall()


@contextlib.contextmanager
def _snapshot(source: sqlite3.Connection) -> Iterator[None]:
    """In this block `source` reads what is committed at its beginning: the first read opens the transaction."""
    source.execute("BEGIN")
    try:
        source.execute("SELECT 1 FROM sqlite_schema").fetchall()
        yield
    finally:
        if source.in_transaction:
            source.execute("ROLLBACK")


@contextlib.contextmanager
def drafted(draft: Path) -> Iterator[Path]:
    """`draft` as an empty file for its user alone. What lay there is removed, and after the block what is left."""
    remove(draft)
    make(draft)
    try:
        yield draft
    finally:
        remove(draft)


def make(path: Path) -> None:
    """Make an empty file for its user alone: what SQLite keeps beside it gets the same mode. Raises FileExistsError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def remove(path: Path) -> None:
    """Remove a database file with what SQLite keeps beside it, as far as it is there; nobody has it open."""
    for suffix in ("", *SIDE_FILES):
        beside(path, suffix).unlink(missing_ok=True)


def place(draft: Path, path: Path) -> None:
    """Give a finished draft its name, durably. Raises FileExistsError if the name is taken, OSError; nothing is there
    then.
    """
    sync(draft)
    try:
        os.link(draft, path)
    except FileExistsError:
        raise
    except OSError:
        _move(draft, path)
    draft.unlink(missing_ok=True)
    sync(path.parent)


def _move(draft: Path, path: Path) -> None:
    """What a file system without links can do: another program may take the name at the last moment."""
    if os.path.lexists(path):
        raise FileExistsError(path)
    draft.rename(path)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, survive a power cut; names where the file system can do that at all."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def free_name(path: Path) -> Path:
    """`path`, or the first of `path.2`, `path.3`, ... that is not taken."""
    number, free = 1, path
    while os.path.lexists(free):
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free
