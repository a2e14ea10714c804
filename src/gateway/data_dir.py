"""The data directory and its one owner: a lock that ends with the process, and a control file to reach it by.

DATA_DIR/lock       flock'ed by the living owner; its content means nothing
DATA_DIR/control    mode 0600: address, pid and a random secret of this start, for the command line
DATA_DIR/ledger.db  the ledger
DATA_DIR/cache.db   answers that may be given again; may be deleted while nobody owns the directory
"""

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


class DataDirInUse(Exception):
    """Another process owns the data directory."""


@dataclass(frozen=True, slots=True)
class Control:
    """How to reach the living owner: its own listener, and the secret that it takes for its operator's."""

    host: str
    port: int
    pid: int
    secret: str


class DataDir:
    """An owned data directory; close() gives it up."""

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    @classmethod
    def own(cls, path: Path) -> Self:
        """Make the directory if it is not there, and become its owner. Raises DataDirInUse, OSError."""
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock_fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock_fd)
            raise DataDirInUse(f"{path} belongs to a gateway that is running") from error
        return cls(path, lock_fd)

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.db"

    @property
    def cache(self) -> Path:
        return self.path / "cache.db"

    def publish(self, control: Control) -> None:
        """Write the control file, whole or not at all."""
        draft = self.path / "control.new"
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(control), file)
        draft.replace(self.path / "control")

    def close(self) -> None:
        """Take the control file away and let go of the lock."""
        with contextlib.suppress(OSError):
            (self.path / "control").unlink()
        os.close(self._lock_fd)


def read_control(path: Path) -> Control | None:
    """The control file of the owner of `path`; None if there is none that can be read."""
    try:
        return Control(**json.loads((path / "control").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def machine_boot_id() -> str:
    """The kernel's id of this boot of the machine; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
