"""What the gateway adds to a call: latency at one caller, CPU per request, requests per second.

    python -m bench [--quick] [--readme]

A mock upstream in C, a load client in C, and the gateway as people run it, all on 127.0.0.1. Each repetition measures
the mock directly and through the gateway in turn; "added" is the difference of medians. With one caller, client,
gateway and mock share one CPU: what is left is the length of the path, which other load on the machine hardly moves.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench import report

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent / "src"
LAST_CPU = (os.cpu_count() or 1) - 1
DURABILITIES = ("normal", "full")


class Tools:
    """The two C programs, compiled into `folder`."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit("a C compiler is needed to build the mock upstream and the load client")
        for name in ("mock", "load"):
            subprocess.run([compiler, "-O2", "-w", "-o", folder / name, HERE / f"{name}.c"], check=True)
        self.folder = folder

    def load(self, port: int, key: str, *options: str, callers: int, seconds: float) -> dict[str, Any]:
        """Closed-loop load; times in microseconds. Options are those of load.c."""
        command = [str(self.folder / "load"), "-p", str(port), "-c", str(callers), "-d", str(seconds), "-k", key]
        done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
        return dict(json.loads(done.stdout))

    def cacheable(self) -> Path:
        """The body of a request that may be answered from the cache."""
        body = {"model": "mock-fast", "messages": [{"role": "user", "content": "Say hello."}], "temperature": 0}
        path = self.folder / "cacheable.json"
        path.write_text(json.dumps(body))
        return path


@contextmanager
def running(command: Sequence[str], log: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours for as long as the block lasts."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=env, cwd=log.parent)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@contextmanager
def one_cpu(*pids: int) -> Iterator[None]:
    """Everything that takes part on the last CPU."""
    everywhere = os.sched_getaffinity(0)
    _pin(pids, {LAST_CPU})
    try:
        yield
    finally:
        _pin(pids, everywhere)


def _pin(pids: Sequence[int], cpus: set[int]) -> None:
    for thread in (0, *_threads(pids)):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cpus)


def _threads(pids: Sequence[int]) -> list[int]:
    return [int(task.name) for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def config(upstream: int, nobody: int, durability: str) -> str:
    """`nobody` is a port on which nobody listens; the breaker never opens, so that each call there is made."""
    return f"""
[server]
announce_s = 0
[store]
durability = "{durability}"
[breaker]
threshold = 1000000000
[[providers]]
name = "mock"
base_url = "http://127.0.0.1:{upstream}/v1"
[[providers]]
name = "nobody"
base_url = "http://127.0.0.1:{nobody}/v1"
[[deployments]]
name = "mock-fast"
provider = "mock"
model = "mock-fast"
price = {{ input = 0.15, output = 0.60 }}
[[deployments]]
name = "refusing"
provider = "nobody"
model = "mock-fast"
price = {{ input = 0.15, output = 0.60 }}
[[aliases]]
name = "failing-over"
deployments = ["refusing", "mock-fast"]
[[tenants]]
name = "bench"
rate_per_s = 1000000
burst = 1000000
"""


def measure(
    tools: Tools, upstream: int, mock_pid: int, durability: str, seconds: float, repetitions: int
) -> dict[str, Any]:
    """One durability: start, then one caller pinned (calls, streams, hits, failovers), then 32 callers."""
    folder = Path(tempfile.mkdtemp(dir=tools.folder))
    (folder / "gateway.toml").write_text(config(upstream, free_port(), durability))
    port = free_port()
    env = os.environ | {"PYTHONPATH": str(SOURCES)}
    began = time.monotonic()
    with running([sys.executable, "-m", "gateway.api", "--port", str(port)], folder / "log", env) as gateway:
        wait_for(port)
        started_s = time.monotonic() - began
        key = create_key(folder, env)
        tools.load(port, key, callers=8, seconds=1)
        idle_mib = rss_mib(gateway.pid)
        runs: list[dict[str, float]] = []
        for _ in range(repetitions):
            with one_cpu(gateway.pid, mock_pid):
                direct = tools.load(upstream, key, callers=1, seconds=seconds / 3)
                before = cpu_s(gateway.pid)
                through = tools.load(port, key, callers=1, seconds=seconds)
                cpu = cpu_s(gateway.pid) - before
                direct_stream = tools.load(upstream, key, "-s", callers=1, seconds=seconds / 3)
                stream = tools.load(port, key, "-s", callers=1, seconds=seconds)
                hit = tools.load(port, key, "-b", str(tools.cacheable()), callers=1, seconds=seconds)
                failover = tools.load(port, key, "-m", "failing-over", callers=1, seconds=seconds)
            before = cpu_s(gateway.pid)
            crowd = tools.load(port, key, callers=32, seconds=seconds)
            crowd_cpu = cpu_s(gateway.pid) - before
            runs.append(
                {
                    "added_p50_us": through["p50"] - direct["p50"],
                    "added_p99_us": through["p99"] - direct["p99"],
                    "cpu_us_per_request": round(cpu * 1e6 / through["ok"], 1),
                    "stream_added_ttfb_p50_us": stream["ttfb50"] - direct_stream["ttfb50"],
                    "hit_added_p50_us": hit["p50"] - direct["p50"],
                    "failover_added_p50_us": failover["p50"] - through["p50"],
                    "c32_requests_per_s": crowd["rps"],
                    "c32_p99_us": crowd["p99"],
                    "c32_cpu_us_per_request": round(crowd_cpu * 1e6 / crowd["ok"], 1),
                    "bad": sum(load["bad"] for load in (through, stream, hit, failover, crowd)),
                }
            )
    medians = {name: round(statistics.median(run[name] for run in runs), 1) for name in runs[0]}
    return {"start_s": round(started_s, 2), "rss_mib": idle_mib, **medians, "runs": runs}


def create_key(folder: Path, env: dict[str, str], tenant: str = "bench", *options: str) -> str:
    command = [sys.executable, "-m", "gateway", "keys", "create", "--tenant", tenant, *options, "--json"]
    made = subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)
    return str(json.loads(made.stdout)["key"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for _ in range(6000):
        try:
            opener.open(f"http://127.0.0.1:{port}/healthz", timeout=5).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise SystemExit("the gateway did not start")


def fsync_us(folder: Path) -> float:
    """Median of what one write and fsync of 4 KiB costs here: the bound that `full` is to be compared with."""
    times: list[float] = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(200):
            began = time.perf_counter()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1e6, 1)


def machine() -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "commit": commit.stdout.strip(),
    }


def main() -> None:
    """Measure both durabilities and print, and perhaps write, the figures."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs, for a look")
    parser.add_argument(
        "--readme", action="store_true", help="write the figures to bench/results, the README and the notes"
    )
    arguments = parser.parse_args()
    seconds, repetitions = (1.0, 1) if arguments.quick else (3.0, 5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools, upstream = Tools(folder), free_port()
        with running([str(folder / "mock"), str(upstream)], folder / "mock.log") as mock:
            wait_for(upstream)
            figures = {
                "machine": machine(),
                "fsync_us": fsync_us(folder),
                "repetitions": repetitions,
                "seconds": seconds,
                **{mode: measure(tools, upstream, mock.pid, mode, seconds, repetitions) for mode in DURABILITIES},
            }
    text = json.dumps(figures, indent=1)
    print(text)
    if arguments.readme:
        report.RESULTS.parent.mkdir(exist_ok=True)
        report.RESULTS.write_text(text + "\n")
        for name, render in (("README.md", report.render), ("DESIGN_NOTES.md", report.render_notes)):
            document = HERE.parent / name
            document.write_text(render(document.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
