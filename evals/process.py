"""Processes of a measurement: the gateway as people run it, and what stands before and behind it."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.tools import Tools, free_port
from evals import ROOT, SOURCES

START_S = 180.0
END_S = 60.0


class Child:
    """A process of ours that listens on `port`; it can be killed and started again. Ends with the block."""

    def __init__(self, command: Sequence[str], port: int, log: Path, extra: Mapping[str, str] | None = None) -> None:
        self._command = command
        self._env = environment() | dict(extra or {})
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port

    @property
    def pid(self) -> int:
        """Raises ProcessLookupError if it does not run."""
        if self._process is None:
            raise ProcessLookupError(f"{self._command[0]} does not run")
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until its port answers."""
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, cwd=self._log.parent, env=self._env, stdout=output, stderr=output
            )
        _wait_for_port(self.port)

    def kill(self) -> None:
        """SIGKILL: it has no say."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to end; returns its exit status."""
        return self._end(signal.SIGTERM)

    def __enter__(self) -> "Child":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _end(self, number: int) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.send_signal(number)
        try:
            return process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)
            raise


def environment() -> dict[str, str]:
    """That of a child: the checkout's packages, and nothing of whoever runs the measurement."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "GATEWAY_"))}
    return kept | {"PYTHONPATH": f"{SOURCES}{os.pathsep}{ROOT}"}


def _wait_for_port(port: int) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise SystemExit(f"nothing listens on port {port} after {START_S} s")


def gateway_child(folder: Path, config: str, *options: str) -> Child:
    """The gateway with this configuration; its data, its log and its configuration are in `folder`."""
    (folder / "gateway.toml").write_text(config)
    port = free_port()
    return Child([sys.executable, "-m", "gateway.api", "--port", str(port), *options], port, folder / "gateway.log")


def ask_gateway(data: Path, *command: str) -> Any:
    """The gateway's own command line on a data directory; a verify that found differences answers too."""
    line = [sys.executable, "-m", "gateway", *command, "--data-dir", str(data), "--json"]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=END_S, check=False)
    if not done.stdout:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def look(pid: int, data: Path) -> dict[str, int]:
    """What the system knows of a process and the files of its ledger."""
    process, ledger = Path(f"/proc/{pid}"), data / "ledger.db"
    log = data / "ledger.db-wal"
    return {
        "rss": int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"),
        "threads": sum(1 for _ in (process / "task").iterdir()),
        "fds": sum(1 for _ in (process / "fd").iterdir()),
        "wal": log.stat().st_size if log.exists() else 0,
        "ledger": ledger.stat().st_size,
    }


@dataclass(frozen=True, slots=True)
class Server:
    """A running gateway before bench's mock. `folder` holds its configuration and its data directory."""

    tools: Tools
    port: int
    upstream: int
    pid: int
    mock_pid: int
    folder: Path

    def key(self, tenant: str, *options: str) -> str:
        """Make a key with the command line; `options` are its flags."""
        return str(self.cli("keys", "create", "--tenant", tenant, *options)["key"])

    def cli(self, *arguments: str) -> Any:
        """The command line beside the running gateway, its JSON read."""
        return ask_gateway(self.folder / "gateway-data", *arguments)


@contextmanager
def serving(config: Callable[[int], str]) -> Iterator[Server]:
    """A gateway with the configuration that is made for the mock's port; both end with the block."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tools, upstream = Tools(folder), free_port()
        with (
            Child([str(folder / "mock"), str(upstream)], upstream, folder / "mock.log") as mock,
            gateway_child(folder, config(upstream)) as gateway,
        ):
            yield Server(tools, gateway.port, upstream, gateway.pid, mock.pid, folder)
