"""Processes that are started on loopback, waited for, and stopped at the end, the last one first."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from types import TracebackType

from bench.tools import free_port
from harness.install import ROOT, WORK

START_S = 180
STOP_S = 60
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opens loopback addresses, whatever proxy the environment names."""


class Processes:
    """A context manager: what was started inside it is stopped when it ends."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._running):
            _stop(process)

    def start(self, name: str, command: Sequence[str], ready: str, extra: Mapping[str, str] | None = None) -> None:
        """Start `command`, its output in NAME.log, and wait until the address `ready` answers anything at all."""
        log = WORK / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=WORK, env=environment(extra or {}), stdout=output, stderr=subprocess.STDOUT
            )
        self._running.append(process)
        deadline = time.monotonic() + START_S
        while not _answers(ready):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{name} did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, with the gateway's sources and `extra`."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **extra}


def free_address() -> tuple[str, str]:
    """The URL and the port of a loopback address that nobody listens on just now."""
    port = str(free_port())
    return f"http://127.0.0.1:{port}", port


def _answers(url: str) -> bool:
    try:
        OPENER.open(url, timeout=2).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, then insist."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
