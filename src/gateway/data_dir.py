"""The data directory and its one owner: a lock that ends with the process, and a control file to reach it by.

DATA_DIR/lock       flock'ed by the living owner; its content means nothing
DATA_DIR/control    mode 0600: address, pid and a random secret of this start, for the command line
DATA_DIR/ledger.db  the ledger. `ledger.db.schema-1` is a copy from before a migration, `ledger.db.epoch-1.TIME` one
                    that a restore has replaced: both are kept until somebody takes them away
DATA_DIR/cache.db   answers that may be given again; may be deleted while nobody owns the directory
DATA_DIR/words.db   questions that some of them answer, for the semantic cache; may be deleted just so

All of them are for their user alone: each is made so, whatever the umask, and SQLite gives what it keeps beside a
database the database's own mode; what an owner finds wider is narrowed.
"""

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from msgspec import Struct
from msgspec.structs import asdict

_OWN_NAMES = ("lock", "control", "ledger.db", "cache.db", "words.db")

_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO

_HINT = "choose another with --data-dir or GATEWAY_DATA_DIR"


class DataDirInUse(Exception):
    """Another process owns the data directory. `owner` says which, as far as that is known."""

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(f"{path} belongs to {owner}: {_HINT}")
        self.owner = owner


class DataDirRefused(Exception):
    """The path cannot be used as a data directory: the reason is a sentence for the operator."""


class Control(Struct, frozen=True):
    """How to reach the living owner: its own listener, and the secret that it takes for its operator's."""

    host: str
    port: int
    pid: int
    secret: str


class DataDir:
    """An owned data directory; close() gives it up.

    is_new   there was no ledger in it
    exposed  files of its own that other users may read still, each with the reason
    """

    def __init__(self, path: Path, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd
        self.is_new = not _keeps_ledger(path)
        self.exposed = _narrow(path)

    @classmethod
    def own(cls, path: Path, *, make: bool = True) -> Self:
        """Become the owner of the directory; the control file of an owner that died is gone then.

        make  make the directory if it is not there; else one without a ledger is refused, and nothing is created
        Raises DataDirInUse, DataDirRefused.
        """
        lock_fd = _open_lock(path, make)
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock_fd)
            control = read_control(path)
            pid = f" (pid {control.pid})" if control else ""
            raise DataDirInUse(path, f"a gateway that is running{pid}") from error
        if not make and not _keeps_ledger(path):
            os.close(lock_fd)
            raise _no_ledger(path)
        _take_control_away(path)
        return cls(path, lock_fd)

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.db"

    @property
    def cache(self) -> Path:
        return self.path / "cache.db"

    @property
    def words(self) -> Path:
        return self.path / "words.db"

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
        _take_control_away(self.path)
        os.close(self._lock_fd)


def is_own_name(name: str) -> bool:
    """Whether a file of this name in a data directory is, or may become, one of its own."""
    return any(name == own or name.startswith((f"{own}.", f"{own}-")) for own in _OWN_NAMES)


def _open_lock(path: Path, make: bool) -> int:
    """The lock file, open. One that is there may be held by an owner that is about to make its first ledger."""
    try:
        if make:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        create = os.O_CREAT if make or _keeps_ledger(path) else 0
        return os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC | create, 0o600)
    except OSError as error:
        if not make and isinstance(error, FileNotFoundError):
            raise _no_ledger(path) from error
        why = "it is a file" if os.path.isfile(path) else error.strerror  # noqa: PTH113 - Path.is_file() may raise
        raise DataDirRefused(f"{path} cannot be used as a data directory: {why}: {_HINT}") from error


def _narrow(path: Path) -> tuple[str, ...]:
    """Take the own files of the directory from all other users; those that stay open to them, with the reason.

    A link leads to what somebody else may have put there: that is told, and left as it is.
    """
    exposed = []
    try:
        own = sorted(each for each in path.iterdir() if is_own_name(each.name))
    except OSError as error:
        return (f"what is in {path} cannot be told: {error.strerror}",)
    for file in own:
        try:
            mode = file.stat().st_mode
            if not stat.S_ISREG(mode) or not mode & _OF_OTHERS:
                continue
            if file.is_symlink():
                exposed.append(f"{file.name} leads to {file.resolve()}, which other users may open")
            else:
                file.chmod(stat.S_IMODE(mode) & ~_OF_OTHERS)
        except FileNotFoundError:
            continue
        except OSError as error:
            exposed.append(f"{file.name} cannot be taken from other users: {error.strerror}")
    return tuple(exposed)


def _keeps_ledger(path: Path) -> bool:
    """Whether there is a ledger, or what is left of one."""
    return any(path.glob("ledger.db*"))


def _no_ledger(path: Path) -> DataDirRefused:
    return DataDirRefused(f"there is no data directory of a gateway at {path.absolute()}: {_HINT}")


def _take_control_away(path: Path) -> None:
    with contextlib.suppress(OSError):
        (path / "control").unlink()


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


def data_dir_path(argument: str | None, env: Mapping[str, str]) -> Path:
    """Where the ledger lives: the flag, else GATEWAY_DATA_DIR, else ./gateway-data."""
    return Path(argument or env.get("GATEWAY_DATA_DIR") or "gateway-data")
