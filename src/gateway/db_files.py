"""Which files a SQLite database is: its own, and what SQLite may keep beside it. Opens none of them.

JOURNAL  undoes a transaction that was not finished; WAL holds commits that are not in the database yet; INDEX, the
         index of the WAL, holds nothing of its own
"""

import os
from pathlib import Path
from typing import Final

JOURNAL: Final = "-journal"
WAL: Final = "-wal"
INDEX: Final = "-shm"
SIDE_FILES: Final = (JOURNAL, WAL, INDEX)


def beside(path: Path, suffix: str) -> Path:
    """The file that SQLite keeps beside the database `path` under this suffix; the database itself for an empty one."""
    return path.with_name(path.name + suffix)


def suffixes_of(path: Path) -> list[str]:
    """Which files of the database are there: the suffixes of their names, its own empty one first.

    A symbolic link counts, wherever it leads.
    """
    return [suffix for suffix in ("", *SIDE_FILES) if os.path.lexists(beside(path, suffix))]


def size(path: Path) -> int:
    """The size of a file in bytes; 0 if there is none, or nobody can tell."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
