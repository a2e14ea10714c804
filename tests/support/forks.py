"""Runs functions in processes that may die: servers without threads fork one for each call.

A fork costs a few milliseconds where an interpreter costs hundreds, so a test can afford a death at every step.
"""

import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from tests import _paths

PATIENCE_S = 60
"""A forked process that runs longer is killed by SIGALRM; nothing waits for it otherwise."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a forked process ended: killed by `signal`, or with a `result`, or with the traceback of an `error`."""

    signal: int | None
    result: Any
    error: str | None


class ForkServer:
    """Forks for each call, in as many processes at a time as it has servers. Safe from any thread.

    prefix   a command that the servers are run under
    servers  how many there are, each with one call at a time
    """

    def __init__(self, *prefix: str, servers: int = 1) -> None:
        command = [*prefix, sys.executable, "-W", "error", "-m", "tests.support.forks"]
        environment = os.environ | {"PYTHONPATH": f"{_paths.SRC}:{_paths.ROOT}"}
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        for _ in range(servers):
            self._idle.put(
                subprocess.Popen(
                    command, env=environment, cwd=_paths.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )

    def run(self, function: Callable[..., Any], **arguments: Any) -> Ended:
        """Call a module's `function` with plain arguments in a process of its own; its result must be plain, too."""
        order = {"module": function.__module__, "name": function.__name__, "arguments": arguments}
        server = self._idle.get()
        assert server.stdin and server.stdout
        try:
            server.stdin.write(json.dumps(order) + "\n")
            server.stdin.flush()
            return Ended(**json.loads(server.stdout.readline()))
        finally:
            self._idle.put(server)

    def result(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """The result of a call that must not die."""
        ended = self.run(function, **arguments)
        if ended.signal is not None or ended.error is not None:
            raise AssertionError(f"{function.__name__} died of signal {ended.signal}: {ended.error}")
        return ended.result

    def close(self) -> None:
        """End the servers; no call may be running."""
        while not self._idle.empty():
            self._idle.get().communicate()

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve() -> None:
    """Fork for each order on standard input; answer on standard output."""
    for line in sys.stdin:
        order = json.loads(line)
        function = getattr(importlib.import_module(order["module"]), order["name"])
        print(_forked(function, order["arguments"]), flush=True)


def _forked(function: Callable[..., Any], arguments: dict[str, Any]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _report(writing, function, arguments)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return json.dumps({"signal": os.WTERMSIG(status), "result": None, "error": None})
    return said


def _report(writing: int, function: Callable[..., Any], arguments: dict[str, Any]) -> NoReturn:
    signal.alarm(PATIENCE_S)
    said: dict[str, Any] = {"signal": None, "result": None, "error": None}
    try:
        said["result"] = function(**arguments)
    except BaseException:
        said["error"] = traceback.format_exc()
    os.write(writing, json.dumps(said).encode())
    os._exit(0)


if __name__ == "__main__":
    serve()
