"""A disk that breaks under some files of a process: compiles broken_disk.c, and is its switch."""

import errno
import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")


def compile_into(folder: Path) -> Path:
    """The library to preload. Skips the test where there is nothing to compile it with."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        raise unittest.SkipTest("needs a C compiler (cc) on Linux")
    library = folder / "broken_disk.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


class BrokenDisk:
    """The switch. `environment` makes a new process one whose disk obeys it."""

    def __init__(self, library: Path, switch: Path) -> None:
        self._switch = switch
        self._later = switch.with_name(switch.name + ".later")
        self.environment = {"LD_PRELOAD": str(library), "BROKEN_DISK": str(switch)}

    @classmethod
    def of_this_process(cls) -> "BrokenDisk":
        """For a process that was started with its environment."""
        return cls(Path(os.environ["LD_PRELOAD"]), Path(os.environ["BROKEN_DISK"]))

    def fail(self, call: str, suffix: str, code: int = errno.EIO) -> None:
        """From now on `call` (read, write, sync or lose; hang: a sync waits) fails on files that end with `suffix`."""
        self._later.unlink(missing_ok=True)
        draft = self._switch.with_name(self._switch.name + ".new")
        draft.write_text(f"{call} {suffix} {code}\n")
        draft.replace(self._switch)

    def heal(self) -> None:
        """Every call succeeds again."""
        self._switch.unlink(missing_ok=True)

    @property
    def later(self) -> list[str]:
        """The writes and syncs of database files since the last fail(), after a fault, such as `sync ledger.db-wal`."""
        return self._later.read_text().splitlines() if self._later.exists() else []
