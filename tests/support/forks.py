"""Runs functions in processes that may die: a server without threads forks one for each call.

A fork costs a few milliseconds where an interpreter costs hundreds, so a test can afford a death at every step.
"""

import importlib
import json
import os
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
    """A process that forks for each call. `prefix` is a command that it is run under. Use as a context manager."""

    def __init__(self, *prefix: str) -> None:
        command = [*prefix, sys.executable, "-W", "error", "-m", "tests.support.forks"]
        environment = os.environ | {"PYTHONPATH": f"{_paths.SRC}:{_paths.ROOT}"}
        self._server = subprocess.Popen(
            command, env=environment, cwd=_paths.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, function: Callable[..., Any], **arguments: Any) -> Ended:
        """Call a module's `function` with plain arguments in a process of its own; its result must be plain, too."""
        order = {"module": function.__module__, "name": function.__name__, "arguments": arguments}
        assert self._server.stdin and self._server.stdout
        self._server.stdin.write(json.dumps(order) + "\n")
        self._server.stdin.flush()
        return Ended(**json.loads(self._server.stdout.readline()))

    def result(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """The result of a call that must not die."""
        ended = self.run(function, **arguments)
        if ended.signal is not None or ended.error is not None:
            raise AssertionError(f"{function.__name__} died of signal {ended.signal}: {ended.error}")
        return ended.result

    def close(self) -> None:
        self._server.communicate()

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
