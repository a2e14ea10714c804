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

STEP_PAGES = 64
"""Pages copied at a time: about a millisecond in which no other statement of the connection runs."""

BUSY_PAUSE_S = 0.001
"""A step that meets an open transaction of its own connection is tried again after this."""


def copy(source: sqlite3.Connection, draft: Path, *, between: Callable[[], object] = lambda: None) -> None:
    """Copy the committed state of `source`, as of the end of the copying, into the empty file `draft`.

    between  is called after each step; what it raises ends the copying
    Other threads may write through `source` meanwhile: what they commit is in the copy, and no read transaction is open
    between two steps. Writes by another connection would start the copying anew. Nothing is synced. Raises
    sqlite3.Error.
    """
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None, check_same_thread=False)) as target:
        target.execute("PRAGMA journal_mode = OFF").fetchall()
        target.execute("PRAGMA synchronous = OFF")
        source.backup(target, pages=STEP_PAGES, progress=lambda *_: between(), sleep=BUSY_PAUSE_S)
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as target:
        target.execute("PRAGMA synchronous = OFF")
        target.execute("PRAGMA journal_mode = DELETE").fetchall()


@contextlib.contextmanager
def drafted(draft: Path) -> Iterator[Path]:
    """`draft` as an empty file for its user alone. What lay there is removed, and after the block what is left."""
    remove(draft)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        yield draft
    finally:
        remove(draft)


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
