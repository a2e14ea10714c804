"""The operator's log: one JSON object per line on stderr, bounded in length and in rate.

An exception is logged by its class and the places it passed through; its message only where it is our own or the
database's, because other messages may quote a prompt, a key or an answer. A line that cannot be written is counted.
"""

import json
import math
import select
import sqlite3
import sys
import threading
import traceback
from collections.abc import Mapping
from typing import TextIO

from gateway.clock import Clock

_MAX_CHARS = 2000
_CUT_CHARS = 900
"""Of JSON, which written as text within JSON takes at most two characters for each."""
_LINES_PER_S = 100
"""An outage of dozens of deployments, a line for each failure and each state, leaves room for what an operator does."""
_SELDOM_S = 60.0
_MOST_SELDOM = 1000
"""Lines that are remembered for _SELDOM_S; then all are forgotten, and may be written once more."""
_FRAMES = 8
_NOTHING: Mapping[str, object] = {}


class OpLog:
    """`_lock` guards all of it; the stream is only written to when that does not block.

    errors   exceptions that were to be logged, by a line each or by their number
    dropped  lines that were not written
    """

    def __init__(self, clock: Clock, stream: TextIO = sys.stderr) -> None:
        self._clock = clock
        self._stream = stream
        self._lock = threading.Lock()
        self._second = -1
        self._lines = 0
        self._due_s: dict[tuple[object, ...], float] = {}
        self.dropped = 0
        self.errors = 0

    def event(self, event: str, **facts: object) -> None:
        """Write one line; never raises. One that would be too long holds the beginning of its JSON as a text."""
        self._write(event, facts, most_per_s=_LINES_PER_S)

    def routine(self, event: str, **facts: object) -> None:
        """The same for what may happen in every request: half of each second's lines are left to what may not."""
        self._write(event, facts, most_per_s=_LINES_PER_S // 2)

    def seldom(self, event: str, *, beside: Mapping[str, object] = _NOTHING, **facts: object) -> None:
        """The same for what may go on for hours: no line if one of the same event and facts was due in the last minute.

        The facts must be hashable. What is told beside them may differ each time, and makes no other line due.
        """
        now_s = self._clock.now_s()
        same = (event, *facts.items())
        with self._lock:
            if now_s - self._due_s.get(same, -math.inf) < _SELDOM_S:
                return
            if len(self._due_s) >= _MOST_SELDOM:
                self._due_s.clear()
            self._due_s[same] = now_s
        self.event(event, **facts, **beside)

    def last_words(self, event: str, **facts: object) -> None:
        """The same for why the process ends: however many lines came before it in this second."""
        self._write(event, facts, most_per_s=math.inf)

    def _write(self, event: str, facts: Mapping[str, object], *, most_per_s: float) -> None:
        head = {"at_ms": self._clock.wall_ms(), "event": event}
        line = json.dumps(head | dict(facts), default=str)
        if len(line) > _MAX_CHARS:
            line = json.dumps(head | {"cut": line[:_CUT_CHARS]})
        with self._lock:
            second = int(self._clock.now_s())
            if second != self._second:
                self._second, self._lines = second, 0
            if self._lines >= most_per_s:
                self.dropped += 1
                return
            self._lines += 1
            try:
                if _takes_a_line(self._stream):
                    self._stream.write(line + "\n")
                    self._stream.flush()
                else:
                    self.dropped += 1
            except (OSError, ValueError):
                self.dropped += 1

    def error(self, error: BaseException, request_id: str | None = None) -> None:
        """Log an exception that is not an outcome of a request, with the id of the one that it has ended, if any."""
        self.count_error()
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        where = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
        facts: dict[str, object] = {"error": type(error).__name__, "where": where}
        if request_id is not None:
            facts["request"] = request_id
        if isinstance(error, sqlite3.Error):
            facts["detail"] = str(error)
        self.event("error", **facts)

    def count_error(self) -> None:
        """One more exception that is not an outcome of a request, and that somebody else tells of."""
        with self._lock:
            self.errors += 1


def _takes_a_line(stream: TextIO) -> bool:
    """Whether a write would not block: a pipe that polls as writable takes PIPE_BUF bytes, more than any line."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))
