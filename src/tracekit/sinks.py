"""Where finished spans go: memory, a file of JSON lines, or several places.

Decides what is kept, for how long, and what is dropped when there is no room. Knows nothing of how a span is timed or
what its attributes mean.

Rules. A sink never raises into the caller and never makes it wait for a disk. Every sink has a bound, and every span
that is lost is counted in `dropped`.
"""

import itertools
import json
import os
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Protocol

from msgspec import Struct

Attr = str | int | float | bool | None

_BATCH = 256  # spans per write: one system call for many spans, and a known step for the size check
_LINGER_S = 0.05  # a batch gathers this long before it is written: one wake-up of the writer, not one per span
_CLOSE_S = 10.0  # how long close() waits for a disk that hangs
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class SpanRecord(Struct, frozen=True):
    """A finished span.

    trace_id, span_id, parent_id  lower-case hex of 16, 8 and 8 bytes; parent_id is None for a root.
    start_ns     wall clock, nanoseconds since the Unix epoch.
    duration_ns  measured on the monotonic clock, >= 0.
    error        None, or what `error.type` says: a class name, an HTTP status, `timeout`.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ns: int
    duration_ns: int
    attributes: Mapping[str, Attr]
    error: str | None = None


class Sink(Protocol):
    """Takes finished spans; safe from any thread."""

    @property
    def dropped(self) -> int:
        """Spans lost since the start, for want of room or by a fault of the disk."""

    def export(self, record: SpanRecord) -> None:
        """Take one span; never raises and never waits for a disk."""


class MemorySink:
    """The last `capacity` spans, for tests and for a look at a running process.

    A span that the ring overwrites counts as dropped. Nobody waits: to draw a number and to append are atomic, and what
    the ring has lost follows from the numbers that it holds.
    """

    def __init__(self, capacity: int = 2048) -> None:
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        self._numbers = itertools.count(1)
        self._ring: deque[tuple[int, SpanRecord]] = deque(maxlen=capacity)

    @property
    def dropped(self) -> int:
        """Spans that newer ones pushed out."""
        held = list(self._ring)
        return max([number for number, _ in held], default=0) - len(held)

    def export(self, record: SpanRecord) -> None:
        """Keep the span; the oldest leaves when the ring is full."""
        self._ring.append((next(self._numbers), record))

    def records(self) -> list[SpanRecord]:
        """The spans that are held, in the order they ended."""
        return [record for _, record in list(self._ring)]


class JsonlSink:
    """One JSON object per line in a file, written by a thread of its own.

    path        the file, appended to, made with mode 0600. At `max_bytes` it becomes `path` + ".1" (the former one
                goes) and a new file starts, so the two together stay near 2 x max_bytes.
    queue_size  spans that may wait for the writer; one more is dropped.

    A batch that the disk refuses is dropped whole and cut off the file again, so that every line is a whole span; the
    next batch opens the file anew. Spans reach the file about 50 ms after they end; a killed process loses those.

    `_lock` guards `_waiting`, `_closed` and `_dropped`; `_file` and `_size` belong to the writer.
    """

    def __init__(self, path: str | os.PathLike[str], *, queue_size: int = 4096, max_bytes: int = 64 << 20) -> None:
        if queue_size < 1 or max_bytes < 1:
            raise ValueError("queue_size and max_bytes must be at least 1")
        self._path = Path(path)
        self._queue_size = queue_size
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._waiting: deque[SpanRecord] = deque()
        self._closed = False
        self._dropped = 0
        self._file: FileIO | None = None
        self._size = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._writer = threading.Thread(target=self._run, name="tracekit-jsonl", daemon=True)
        self._writer.start()

    @property
    def dropped(self) -> int:
        """Spans lost: the queue was full, the disk failed, or the sink was closed."""
        return self._dropped

    def export(self, record: SpanRecord) -> None:
        """Queue the span, or drop it when the queue is full or the sink is closed."""
        with self._lock:
            if self._closed or len(self._waiting) >= self._queue_size:
                self._dropped += 1
                return
            self._waiting.append(record)
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Write what is queued and stop; idempotent. Waits at most 10 s for a disk that hangs."""
        with self._lock:
            self._closed = True
        self._closing.set()
        self._wake.set()
        self._writer.join(_CLOSE_S)

    def _run(self) -> None:
        closing = False
        while not closing:
            self._wake.wait()
            self._closing.wait(_LINGER_S)
            self._wake.clear()
            closing = self._closing.is_set()
            while batch := self._take():
                self._write(batch)
        self._release()

    def _take(self) -> list[SpanRecord]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]

    def _write(self, batch: list[SpanRecord]) -> None:
        lines = [line for record in batch if (line := _line(record)) is not None]
        lost = len(batch) - len(lines)
        try:
            self._append(b"".join(lines))
        except OSError:
            lost = len(batch)
            self._undo()
        with self._lock:
            self._dropped += lost

    def _append(self, data: bytes) -> None:
        file = self._file or self._open()
        if self._size and self._size + len(data) > self._max_bytes:
            self._release()
            self._path.replace(f"{self._path}.1")
            file = self._open()
        _write_all(file, data)
        self._size += len(data)

    def _open(self) -> FileIO:
        file = FileIO(self._path, "a+", opener=_private)
        try:
            self._size = _end_of_lines(file)
        except OSError:
            file.close()
            raise
        self._file = file
        return file

    def _undo(self) -> None:
        """Cut off what a failed write left; if even that fails, the next open starts a new line after it."""
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(self._size)
        self._release()

    def _release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


class TeeSink:
    """Hands every span to each of several sinks, in order."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    @property
    def dropped(self) -> int:
        """The sum over the sinks: a span that two of them lost counts twice."""
        return sum(sink.dropped for sink in self._sinks)

    def export(self, record: SpanRecord) -> None:
        """Give the span to every sink."""
        for sink in self._sinks:
            sink.export(record)


def _line(record: SpanRecord) -> bytes | None:
    """The record as one line of JSON, or None when an attribute is of a type that JSON has no word for."""
    fields = {
        "name": record.name,
        "trace_id": record.trace_id,
        "span_id": record.span_id,
        "parent_id": record.parent_id,
        "start_ns": record.start_ns,
        "duration_ns": record.duration_ns,
        "attributes": dict(record.attributes),
        "error": record.error,
    }
    try:
        return _encode(fields).encode() + b"\n"
    except (TypeError, ValueError):
        return None


def _end_of_lines(file: FileIO) -> int:
    """The size of the file, after ending the half line that a killed process may have left."""
    size = file.seek(0, os.SEEK_END)
    if not size or os.pread(file.fileno(), 1, size - 1) == b"\n":
        return size
    _write_all(file, b"\n")
    return size + 1


def _write_all(file: FileIO, data: bytes) -> None:
    """Write every byte; raises OSError when the disk refuses. A file near its limit takes only a part at first."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
