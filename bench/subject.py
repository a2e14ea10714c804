"""What is measured, as the load client sees it: the mock itself, the gateway, another gateway."""

import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.tools import FAST, QUESTION, Tools, call, end

PATH = "/v1/chat/completions"
ANY_KEY = "sk-bench"
LOOK_S = 0.002


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that answers chat requests.

    port         where it listens, on 127.0.0.1
    pid          its process; those that descend from it count with it
    keys         taken in turn, request by request
    headers      `name: value`, sent with every request
    fixed_model  the one model that it can be asked for; the mock then finds the model's name in the question
    one_cpu      many callers find it on one CPU: a threaded Python process is faster there
    ours         it has a cache to hit and a deployment that refuses
    """

    name: str
    port: int
    pid: int
    keys: tuple[str, ...] = (ANY_KEY,)
    headers: tuple[str, ...] = ()
    fixed_model: str | None = None
    one_cpu: bool = False
    ours: bool = False

    def load(self, tools: Tools, *, model: str = FAST, stream: bool = False, **options: Any) -> dict[str, Any]:
        """Tools.load with what this subject wants to be asked."""
        body = asked(self.fixed_model, model, stream)
        return tools.load(self.port, *self.keys, body=body, headers=self.headers, **options)

    def hit(self, tools: Tools, **options: Any) -> dict[str, Any]:
        """The same question again and again, so that the cache answers all but the first."""
        return tools.load(self.port, *self.keys, body=call(temperature=0), headers=self.headers, **options)


def asked(fixed_model: str | None, model: str, stream: bool) -> dict[str, Any]:
    """A request that leads the mock to `model`; its length is the same either way."""
    if fixed_model is None:
        return call(model, stream=stream)
    return call(fixed_model, question=f"{QUESTION[: -len(model) - 1]} {model}", stream=stream)


class NotStarted(Exception):
    """It gave no answer in the time it had; the message is the last thing that was seen of it."""


@dataclass(frozen=True, slots=True)
class Start:
    """How something is started, and asked for the first time."""

    command: Sequence[str]
    env: Mapping[str, str]
    folder: Path
    port: int
    key: str = ANY_KEY
    headers: tuple[str, ...] = ()
    fixed_model: str | None = None
    patience_s: float = 60


@contextmanager
def started(start: Start) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """The process for as long as the block lasts, and the seconds from its start to its first good answer.

    Raises NotStarted.
    """
    start.folder.mkdir(parents=True, exist_ok=True)
    with (start.folder / "log").open("wb") as log:
        began_s = time.monotonic()
        process = subprocess.Popen(
            start.command, cwd=start.folder, env=start.env, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _first_answer(start, process, began_s + start.patience_s)
        yield process, time.monotonic() - began_s
    finally:
        _end_family(process)


def _first_answer(start: Start, process: subprocess.Popen[bytes], deadline_s: float) -> None:
    seen = "nothing listens"
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            log = (start.folder / "log").read_text(errors="replace").strip()
            raise NotStarted(f"it ended with {process.returncode}: {log[-200:]}")
        try:
            status, answer = _ask(start)
            if status == 200:
                return
            seen = f"{status} {answer[:200]!r}"
        except OSError:
            time.sleep(LOOK_S)
        except http.client.HTTPException as error:
            seen = repr(error)
    raise NotStarted(f"no answer within {start.patience_s:g} s: {seen}")


def _ask(start: Start) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", start.port, timeout=10)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {start.key}"}
    headers |= {name.strip(): value.strip() for name, _, value in (each.partition(":") for each in start.headers)}
    try:
        connection.request("POST", PATH, json.dumps(asked(start.fixed_model, FAST, False)), headers)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _end_family(process: subprocess.Popen[bytes]) -> None:
    """Some leave others of their group behind when they are asked to end."""
    end(process)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
