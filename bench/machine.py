"""The machine a measurement ran on, what processes took of it, and who else used it. Reads /proc; Linux only."""

import os
import platform
import re
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.tools import ROOT

LAST_CPU = (os.cpu_count() or 1) - 1
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
FSYNCS = 200


def machine() -> dict[str, Any]:
    """What figures must be read with: the builds, the processors, and the commit that was measured."""
    commit = _git("rev-parse", "--short", "HEAD")
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cpu": _field(Path("/proc/cpuinfo"), "model name"),
        "cpus": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "commit": commit + ("+" if _git("status", "--porcelain", "src") else ""),
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _field(file: Path, name: str) -> str | None:
    found = re.search(rf"^{name}\s*: (.*)$", file.read_text(), re.MULTILINE)
    return found[1] if found else None


def fsync_us(folder: Path) -> float:
    """Median of what one write and fsync of 4 KiB costs here: the bound that `full` is to be compared with."""
    times: list[float] = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(FSYNCS):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1e6, 1)


def family(pid: int) -> list[int]:
    """A process and all that descend from it, as they are now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                children.setdefault(int(_stat(int(entry.name))[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may hold anything: state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu_s(*pids: int) -> float:
    """CPU seconds of these processes so far, and of those that descend from them, user and system."""
    ticks = 0
    for pid in (each for root in pids for each in family(root)):
        with suppress(OSError):
            fields = _stat(pid)
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def rss_mib(pid: int) -> float:
    """Resident memory of a process and of those that descend from it."""
    pages = 0
    for each in family(pid):
        with suppress(OSError):
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


@contextmanager
def one_cpu(*pids: int) -> Iterator[None]:
    """Everything that takes part on the last CPU: these processes, and whoever calls and what it starts."""
    everywhere = os.sched_getaffinity(0)
    pin((os.getpid(), *pids), {LAST_CPU})
    try:
        yield
    finally:
        pin((os.getpid(), *pids), everywhere)


def pin(pids: Sequence[int], cpus: set[int]) -> None:
    """Every thread of these processes, and of those that descend from them, on `cpus`."""
    for pid in (each for root in pids for each in family(root)):
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), cpus)


class Foreign:
    """How much of the machine others used: of what is measured, `pids`, and of this process, all is ours."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._began_s = time.monotonic()
        self._before_s = self._foreign_s()

    def cpus(self) -> float:
        """CPU seconds per second that were not ours since this was made."""
        took_s = time.monotonic() - self._began_s
        return round(max(self._foreign_s() - self._before_s, 0) / took_s, 2)

    def _foreign_s(self) -> float:
        ours = os.times()
        mine_s = ours.user + ours.system + ours.children_user + ours.children_system
        return _busy_s() - mine_s - cpu_s(*self._pids)


def _busy_s() -> float:
    """All CPU time of the machine so far that was neither idle nor taken by its host."""
    with Path("/proc/stat").open() as file:
        user, nice, system, _, _, irq, softirq = (int(field) for field in file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS_PER_S
