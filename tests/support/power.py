"""A machine whose power fails: everything that SQLite asks of its files is on a tape, and any moment of it can be cut.

The connections are apsw's, over a VFS that writes the tape; around them the store, its pragmas and its statements are
the real ones. A cut leaves what was synced, and of the rest nothing, a part with a torn end, or scattered pieces: disks
write in any order between two syncs.
"""

import contextlib
import random
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import apsw

from gateway import sqlite_file, sqlite_store


class Kept(Enum):
    """What a cut leaves of the bytes that were not synced."""

    NOTHING = "nothing"
    PREFIX = "a prefix, its last write torn"
    SCATTERED = "scattered pieces"


class Write(NamedTuple):
    """Bytes that were written, but not yet synced; None cuts the file at `at`."""

    file: str
    at: int
    data: bytes | None


class Sync(NamedTuple):
    """All that was written to the file before is on the disk now."""

    file: str


class Delete(NamedTuple):
    """The file was taken away, but its folder was not synced."""

    file: str


class Mark(NamedTuple):
    """Somebody was told something."""

    fact: tuple[Any, ...]


Entry = Write | Sync | Delete | Mark


@dataclass(slots=True)
class Disk:
    """What is on the disk, and what only the kernel has."""

    synced: dict[str, bytes] = field(default_factory=dict)
    unsynced: dict[str, list[Write | Delete]] = field(default_factory=dict)

    def play(self, entry: Entry) -> None:
        """Let one entry of the tape happen."""
        if isinstance(entry, Write | Delete):
            self.unsynced.setdefault(entry.file, []).append(entry)
        elif isinstance(entry, Sync):
            self._set(self.synced, entry.file, self.unsynced.pop(entry.file, []))

    def cut(self, kept: Kept, chance: random.Random) -> dict[str, bytes]:
        """The files that a cut at this moment leaves."""
        left = dict(self.synced)
        for file, entries in self.unsynced.items():
            self._set(left, file, _survivors(entries, kept, chance))
        return left

    def _set(self, files: dict[str, bytes], file: str, entries: Sequence[Write | Delete]) -> None:
        content: bytearray | None = bytearray(files.pop(file)) if file in files else None
        for entry in entries:
            content = None if isinstance(entry, Delete) else _written(content or bytearray(), entry)
        if content is not None:
            files[file] = bytes(content)


def _survivors(entries: Sequence[Write | Delete], kept: Kept, chance: random.Random) -> list[Write | Delete]:
    if kept is Kept.NOTHING:
        return []
    if kept is Kept.SCATTERED:
        return [_torn(entry, chance) for entry in entries if chance.random() < 0.5]
    whole = chance.randint(0, len(entries))
    return [*entries[:whole], *(_torn(entry, chance) for entry in entries[whole : whole + 1])]


def _torn(entry: Write | Delete, chance: random.Random) -> Write | Delete:
    if isinstance(entry, Delete) or entry.data is None:
        return entry
    return entry._replace(data=entry.data[: chance.randint(0, len(entry.data))])


def _written(content: bytearray, entry: Write) -> bytearray:
    if entry.data is None:
        return content[: entry.at]
    content.extend(bytes(max(entry.at - len(content), 0)))
    content[entry.at : entry.at + len(entry.data)] = entry.data
    return content


class Tape(apsw.VFS):
    """What happened, in order."""

    def __init__(self) -> None:
        super().__init__("tape", "")
        self.entries: list[Entry] = []

    def mark(self, *fact: Any) -> None:
        """Somebody is told this now."""
        self.entries.append(Mark(fact))

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's name
        return _TapedFile(name, flags, self.entries)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - apsw's name
        super().xDelete(filename, syncdir)
        self.entries.append(Delete(Path(filename).name))


class _TapedFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], entries: list[Entry]) -> None:
        super().__init__("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(path or "").name
        self._entries = entries

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - apsw's name
        super().xWrite(data, offset)
        self._entries.append(Write(self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - apsw's name
        super().xTruncate(newsize)
        self._entries.append(Write(self._name, newsize, None))

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's name
        super().xSync(flags)
        self._entries.append(Sync(self._name))


class _Cursor:
    """What the store asks of sqlite3's cursor, over apsw's; each statement runs to its end at once."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._apsw = connection
        self.description: list[Any] = []
        self.records: list[Any] = []
        self.rowcount = self.lastrowid = 0

    def execute(self, sql: str, params: Sequence[Any] = ()) -> "_Cursor":
        cursor = self._apsw.cursor()
        self.description = []

        def look(cursor: apsw.Cursor, sql: str, bindings: Any) -> bool:
            self.description.extend(cursor.get_description())
            return True

        cursor.exec_trace = look
        try:
            self.records = list(cursor.execute(sql, tuple(params)))
        except apsw.Error as error:
            raise _translated(error) from error
        self.rowcount, self.lastrowid = self._apsw.changes(), self._apsw.last_insert_rowid()
        return self

    def fetchall(self) -> list[Any]:
        return self.records

    def fetchone(self) -> Any:
        return self.records[0] if self.records else None


class _Connection:
    """What the store asks of sqlite3's connection, over apsw's."""

    def __init__(self, path: Path) -> None:
        self._apsw = apsw.Connection(str(path), vfs="tape")

    @property
    def in_transaction(self) -> bool:
        return self._apsw.in_transaction

    @property
    def total_changes(self) -> int:
        return self._apsw.total_changes()

    def cursor(self) -> _Cursor:
        return _Cursor(self._apsw)

    def execute(self, sql: str, params: Sequence[Any] = ()) -> _Cursor:
        return self.cursor().execute(sql, params)

    def close(self) -> None:
        self._apsw.close()


def _translated(error: apsw.Error) -> sqlite3.Error:
    kind = sqlite3.IntegrityError if isinstance(error, apsw.ConstraintError) else sqlite3.OperationalError
    translated = kind(str(error))
    translated.sqlite_errorcode = getattr(error, "extendedresult", sqlite3.SQLITE_ERROR)
    return translated


@contextlib.contextmanager
def taped() -> Iterator[Tape]:
    """Every store that is opened in this block is on the tape."""
    tape = Tape()
    with (
        mock.patch.object(sqlite_file, "connect", _Connection),
        mock.patch.object(sqlite_store, "connect", _Connection),
    ):
        yield tape
    tape.unregister()
