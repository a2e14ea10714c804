"""How the process itself is doing, under the names that every Prometheus client uses."""

import resource
import sys
from pathlib import Path

from gateway.exposition import Family, Kind, Sample, counter, gauge

_VIRTUAL, _RESIDENT, _THREADS = 20, 21, 17
"""Fields of /proc/PID/stat, counted behind the name of the program, which is in brackets and may hold anything."""


def process_families(started_ms: int) -> list[Family]:
    """What the process uses; it started at `started_ms`, UTC milliseconds. Raises OSError where there is no /proc."""
    stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    used = resource.getrusage(resource.RUSAGE_SELF)
    most_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    resident = int(stat[_RESIDENT]) * resource.getpagesize()
    return [
        counter("process_cpu_seconds_total", "CPU, in user and system.", round(used.ru_utime + used.ru_stime, 6)),
        gauge("process_resident_memory_bytes", "Memory that is resident.", resident),
        gauge("process_virtual_memory_bytes", "Address space.", int(stat[_VIRTUAL])),
        gauge("process_open_fds", "Open file descriptors.", sum(1 for _ in Path("/proc/self/fd").iterdir())),
        gauge("process_max_fds", "Most file descriptors that may be open.", most_files),
        gauge("process_threads", "Threads.", int(stat[_THREADS])),
        gauge("process_start_time_seconds", "Start of the process, in seconds since 1970.", started_ms / 1000),
    ]


def build_families(version: str) -> list[Family]:
    """Which program this is."""
    labels = {"version": version, "python": ".".join(map(str, sys.version_info[:3]))}
    return [Family("gateway_build_info", Kind.GAUGE, "Always 1; the labels say what runs.", [Sample(labels, 1)])]
