"""Database connections that a test watches: it sees every statement before and after it runs, and may make it fail.

A backup through such a connection is a statement, too, and each of its steps is one that is only seen afterwards.
"""

import contextlib
import functools
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

Hook = Callable[[str], None]
"""Is given the SQL of a statement; what it raises is raised by the statement."""


def nothing(sql: str) -> None:
    """The hook that does not care."""


@contextlib.contextmanager
def watched(*, before: Hook = nothing, after: Hook = nothing) -> Iterator[None]:
    """Every connection that a store opens in this block is watched, for as long as it lives."""

    class WatchedCursor(sqlite3.Cursor):
        def execute(self, sql: str, parameters: Any = (), /) -> "WatchedCursor":
            before(sql)
            super().execute(sql, parameters)
            after(sql)
            return self

    class Watched(sqlite3.Connection):
        def cursor(self, *_: object) -> sqlite3.Cursor:  # type: ignore[override]
            return super().cursor(WatchedCursor)

        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            return self.cursor().execute(sql, parameters)

        def backup(self, target: sqlite3.Connection, *, progress: Any = None, **options: Any) -> None:
            def step(*facts: int) -> None:
                after("STEP")
                progress(*facts)

            before("BACKUP")
            super().backup(target, progress=step, **options)
            after("BACKUP")

    with mock.patch.object(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Watched)):
        yield


def disk_error(code: int = sqlite3.SQLITE_FULL, message: str = "database or disk is full") -> sqlite3.OperationalError:
    """The error that SQLite raises for a fault of the storage; one that passes, unless `code` says otherwise."""
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = code
    return error


class Fuse:
    """A hook that fails the statements that begin with `words`, as often as it was set to."""

    def __init__(self, words: str = "COMMIT", error: Callable[[], BaseException] = disk_error) -> None:
        self._words = words
        self._error = error
        self.times = 0

    def __call__(self, sql: str) -> None:
        if self.times > 0 and sql.startswith(self._words):
            self.times -= 1
            raise self._error()
