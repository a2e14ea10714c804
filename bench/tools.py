"""What a measurement is made with: the mock upstream and the load client in C, and processes that end with it."""

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCES = ROOT / "src"

START_S = 180.0
END_S = 120.0

PORTS = range(10_000, 30_000)
"""The system gives none of them to a connection or to who listens on any port, as it does with those from 32,768 on: a
port that is free stays so until its process listens, and while that is away.
"""

_TRIED = itertools.count(os.getpid() * 17)
"""So that processes that ask at the same time are told different ones."""

FAST, SLOW = "mock-fast", "mock-slow"
"""Models of the mock: an answer at once, and a stream of 20 events with a quarter of a second between two."""

QUESTION = "Tell me in one sentence what the quick brown fox did to the lazy dog, and why it matters to typists."


def call(model: str = FAST, *, question: str = QUESTION, stream: bool = False, **more: object) -> dict[str, Any]:
    """The request of every measurement: 300 bytes that ask for no more than 64 tokens, and that no cache may answer."""
    return {
        "model": model,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant that answers briefly."},
            {"role": "user", "content": question},
        ],
        "max_tokens": 64,
        "temperature": 0.2,
        "stream": stream,
        **more,
    }


class Tools:
    """The two C programs, compiled into `folder`."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise SystemExit("a C compiler is needed to build the mock upstream and the load client")
        for name in ("mock", "load"):
            subprocess.run([compiler, "-O2", "-o", folder / name, HERE / f"{name}.c"], check=True)
        self.folder = folder

    def load(
        self,
        port: int,
        *keys: str,
        callers: int,
        seconds: float,
        body: Mapping[str, Any] | None = None,
        requests: int | None = None,
        headers: Sequence[str] = (),
        varied: bool = False,
        patience_s: float = 60,
    ) -> dict[str, Any]:
        """Closed-loop load; what load.c prints, times in microseconds. Safe from several threads at once.

        keys      taken in turn, request by request
        body      what is asked for; the answer is judged as a stream if it asks for one
        requests  no more than so many
        varied    no head is like another: one that comes again on its connection is cheaper to read
        """
        asked = call() if body is None else body
        command = [str(self.folder / "load"), "-p", str(port), "-c", str(callers), "-d", str(seconds)]
        command += ["-t", str(patience_s), *(part for header in headers for part in ("-H", header))]
        if asked.get("stream"):
            command.append("-s")
        if varied:
            command.append("-v")
        if requests is not None:
            command += ["-n", str(requests)]
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            keys_file, body_file = Path(name) / "keys", Path(name) / "body"
            keys_file.write_text("\n".join(keys))
            body_file.write_text(json.dumps(asked, separators=(",", ":")))
            command += ["-k", str(keys_file), "-b", str(body_file)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        return dict(json.loads(done.stdout))


@contextmanager
def running(
    command: Sequence[str], log: Path, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours, in the folder of its log, for as long as the block lasts."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=env, cwd=log.parent)
    try:
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and do not wait for ever."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port of PORTS on which nobody listens now; another one each time. Raises OSError if there is none."""
    for _ in PORTS:
        port = PORTS[next(_TRIED) % len(PORTS)]
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("every port is taken")


def wait_for(port: int, seconds: float = START_S) -> None:
    """Return once somebody listens there. Raises SystemExit after so many seconds."""
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.01)
        else:
            return
    raise SystemExit(f"nothing listens on port {port} after {seconds:g} s")
