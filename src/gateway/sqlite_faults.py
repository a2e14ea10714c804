"""What an error of SQLite says about the ledger's storage, and which ones the process must not outlive.

Decides by result code alone; does not know what was being done. Rules:

- A statement's own error comes again however healthy the disk is: it concerns one piece of work.
- A failed sync is final. The kernel may have marked the pages as clean though they were never written, so a second sync
  would succeed and prove nothing. Only a new start, which reads the file again, knows what is there.
- Damage, and a file that is no longer the one at its path, do not heal by waiting.
- A failed write or read may be tried again: what was refused was refused aloud, and nothing was acknowledged. SQLite
  tells a full disk apart (SQLITE_FULL), but not a limit on the size of files, so such an error is only believed to be
  the device's if there is room, and it comes twice in a row.
- Everything else passes: locks, a disk that is full, a file that may not be written now.
"""

import contextlib
import errno
import sqlite3
from enum import Enum, auto
from pathlib import Path
from typing import Final

from gateway.db_files import WAL, beside, size

_OWN_CODES: Final = frozenset(
    (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
)
_FINAL_CODES: Final = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
_FINAL_EXTENDED: Final = frozenset(
    (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC, sqlite3.SQLITE_READONLY_DBMOVED)
)
_NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))

_PROBE_BYTES: Final = 1 << 16
"""Written to see whether a file may grow: more than the frames of a usual commit."""


class Fault(Enum):
    """Whose an error is, and what it says of the storage."""

    OWN = auto()
    """One statement's: its neighbours are untouched."""
    PASSING = auto()
    """The storage refuses now, and may accept again."""
    DEVICE = auto()
    """Reading or writing failed: the device is broken, unless there is no room."""
    FINAL = auto()
    """Nothing may be committed or acknowledged any more; the process must end."""


def fault_of(error: BaseException) -> Fault:
    """What an exception out of a transaction says. One that is not SQLite's is the work's own."""
    if not isinstance(error, sqlite3.Error):
        return Fault.OWN
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    code = extended & 0xFF
    if code in _OWN_CODES:
        return Fault.OWN
    if code in _FINAL_CODES or extended in _FINAL_EXTENDED:
        return Fault.FINAL
    if code == sqlite3.SQLITE_IOERR and extended != sqlite3.SQLITE_IOERR_NOMEM:
        return Fault.DEVICE
    return Fault.PASSING


def has_room(path: Path) -> bool:
    """Whether a file beside `path` may grow as large as that one and its log are, and a little larger. It is tried.

    Only a want of room is a no: any other error is not told by this.
    """
    draft = path.with_name(path.name + ".room")
    try:
        with draft.open("wb", buffering=0) as file:
            file.seek(max(size(path), size(beside(path, WAL))))
            written = file.write(bytes(_PROBE_BYTES))
        draft.unlink()
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        return error.errno not in _NO_ROOM
    return written == _PROBE_BYTES
