"""A gateway in a process of its own, started and ended by the test that uses it."""

import contextlib
import http.client
import io
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway.cli import main
from tests import _paths

WAIT_S = 60
"""Bound of every wait: far above what is needed, so that a bug fails instead of hanging."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: no upstream of the tester's own, and the packages of this checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "GATEWAY_"))}
    return kept | {"PYTHONPATH": str(_paths.SRC), "PYTHONUNBUFFERED": "1"} | dict(extra or {})


def run_cli(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """`python -m gateway ARGUMENTS`."""
    command = [sys.executable, "-W", "error", "-m", "gateway", *arguments]
    return subprocess.run(
        command, env=environment(env), capture_output=True, text=True, timeout=WAIT_S, check=False, cwd=os.sep
    )


def call_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, for commands that do not serve: an interpreter takes longer to start than they take."""
    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        status = main(arguments, environment())
    return subprocess.CompletedProcess(arguments, status, said.getvalue(), complained.getvalue())


class GatewayProcess:
    """`python -m gateway.api` in a folder of its own. Use as a context manager.

    config   the text of its gateway.toml; None starts the demo
    printed  its lines on stdout, and `errors` those on stderr; all of them after wait()
    """

    def __init__(
        self,
        config: str | None = None,
        *,
        folder: Path | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory() if folder is None else None
        self.folder = Path(self._temporary.name) if self._temporary else folder or Path()
        if config is not None:
            (self.folder / "gateway.toml").write_text(config)
        command = [sys.executable, "-W", "error", "-m", "gateway.api", "--port", "0", *arguments]
        self.child = subprocess.Popen(
            command, cwd=self.folder, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.printed: list[str] = []
        self.errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self.url = self.read_line("listening on ").removeprefix("listening on ")

    @property
    def data_dir(self) -> Path:
        return self.folder / "gateway-data"

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    def read_line(self, start: str) -> str:
        """The next line of its output that begins with `start`."""
        while True:
            try:
                line = self._lines.get(timeout=WAIT_S)
            except queue.Empty:
                raise AssertionError(f"no line {start!r}; stderr: {self.errors}") from None
            if line.startswith(start):
                return line

    def cli(self, *arguments: str) -> Any:
        """The command line against this gateway's data directory, its JSON read."""
        done = call_cli(*arguments, "--data-dir", str(self.data_dir), "--json")
        if done.returncode:
            raise AssertionError(f"{arguments}: {done.returncode} {done.stderr}")
        return json.loads(done.stdout)

    def command(self, name: str, **arguments: Any) -> Any:
        """What the command line asks the living owner for, without the start of another process."""
        secret = json.loads((self.data_dir / "control").read_text())["secret"]
        status, _, body = self.call("POST", "/control", {"command": name, "arguments": arguments}, key=secret)
        answer = json.loads(body)
        if status != 200:
            raise AssertionError(f"{name}: {status} {answer}")
        return answer["result"]

    def create_key(self, **arguments: Any) -> dict[str, str]:
        """A new key of the tenant acme."""
        return dict(self.command("keys.create", tenant="acme", **arguments))

    def call(
        self, method: str, path: str, body: Any = None, *, key: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers with lower-case names, body."""
        connection = http.client.HTTPConnection(*self.address, timeout=WAIT_S)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return (
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                response.read(),
            )
        finally:
            connection.close()

    def chat(self, key: str, **fields: Any) -> tuple[int, dict[str, str], bytes]:
        """One chat request."""
        body = {"model": "auto", "messages": [{"role": "user", "content": "hi"}]} | fields
        return self.call("POST", "/v1/chat/completions", body, key=key)

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; returns its exit status."""
        status = self.child.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        return status

    def __enter__(self) -> "GatewayProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.poll() is None:
            self.signal(signal.SIGKILL)
        self.wait()
        if self._temporary:
            self._temporary.cleanup()

    def _read_output(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout:
            for line in self.child.stdout:
                self.printed.append(line)
                self._lines.put(line.rstrip("\n"))

    def _read_errors(self) -> None:
        assert self.child.stderr is not None
        with self.child.stderr:
            self.errors.extend(self.child.stderr)

    def wait_for_event(self, event: str, nth: int = 1) -> dict[str, Any]:
        """The operator's log line of this event, the `nth` since the start."""
        pause = threading.Event()
        for _ in range(WAIT_S * 50):
            lines = [line for line in list(self.errors) if f'"event": "{event}"' in line]
            if len(lines) >= nth:
                return dict(json.loads(lines[nth - 1]))
            pause.wait(0.02)
        raise AssertionError(f"no event {event!r} in {self.errors}")
