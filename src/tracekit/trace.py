"""Spans: what happened, when, under which parent. W3C trace context in and out.

Decides ids, times and the status of a span. Does not know where spans go (sinks) or what their attributes mean.

Rules. A span is exported exactly once, when it ends; strings are cut at 256 characters then. An exception leaves its
class name in the span, never its message; prompts, answers and keys are for the caller to keep out. All spans below
one local root take their wall-clock start from that root's single reading plus monotonic time, so a clock that is set
back never puts a child before its parent. The sampled flag of a remote parent is passed on and otherwise not obeyed:
a remote caller cannot switch off the record of this process.
"""

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Self

from tracekit.sinks import Attr, MemorySink, Sink, SpanRecord

__all__ = ["MAX_TEXT", "Attr", "Span", "SpanContext", "SpanRecord", "Tracer", "parse_traceparent"]

MAX_TEXT = 256  # characters of a name or a string attribute: enough for any id, too little for a prompt

_TRACEPARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.DOTALL,
)


class SpanContext(NamedTuple):
    """What crosses a process boundary: lower-case hex ids of 16 and 8 bytes, never all zero, and the sampled flag."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def traceparent(self) -> str:
        """The value of a W3C `traceparent` header, version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{self.sampled:02x}"


def parse_traceparent(value: str | None) -> SpanContext | None:
    """Read a `traceparent` header; None when it is absent or breaks the W3C grammar in any way.

    Version 00 has exactly four fields; a later version may have more, which are ignored. Version ff, upper-case hex,
    all-zero ids and surrounding space are refused.
    """
    match = _TRACEPARENT.fullmatch(value) if value else None
    if match is None or (match["version"] == "00" and match["more"] is not None):
        return None
    return SpanContext(match["trace"], match["span"], sampled=bool(int(match["flags"], 16) & 1))


class Tracer:
    """Starts spans. Immutable: safe from any thread as far as its sink, clocks and random source are.

    wall_ns       nanoseconds since the Unix epoch, read once per local root.
    monotonic_ns  nanoseconds that never run backwards.
    random_bytes  n random bytes, for ids.
    """

    def __init__(
        self,
        sink: Sink | None = None,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_ns: Callable[[], int] = time.monotonic_ns,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.sink: Sink = MemorySink() if sink is None else sink
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._random_bytes = random_bytes

    def start(
        self, name: str, *, parent: SpanContext | None = None, attributes: Mapping[str, Attr] | None = None
    ) -> "Span":
        """Start a local root: of a new trace, or below a remote parent. End it with `with` or `end()`."""
        now_ns = self._monotonic_ns()
        trace_id, parent_id, sampled = parent or (self._hex_id(16), None, True)
        context = SpanContext(trace_id, self._hex_id(8), sampled)
        return Span(self, name, context, parent_id, now_ns, self._wall_ns() - now_ns, dict(attributes or {}))

    def _hex_id(self, size: int) -> str:
        text = self._random_bytes(size).hex()
        return text if text.strip("0") else f"{1:0{2 * size}x}"  # an id of zeros means "none" in W3C trace context


class Span:
    """One timed piece of work; a context manager. Made by `Tracer.start` and `Span.child`; the
    attributes that they hand over become its own.

    Belongs to one thread at a time. After its end it never changes: later calls do nothing.
    """

    __slots__ = (
        "_attributes",
        "_ended",
        "_epoch_ns",
        "_error",
        "_name",
        "_parent_id",
        "_start_ns",
        "_tracer",
        "context",
    )

    def __init__(
        self,
        tracer: Tracer,
        name: str,
        context: SpanContext,
        parent_id: str | None,
        start_ns: int,
        epoch_ns: int,
        attributes: dict[str, Attr],
    ) -> None:
        self.context = context
        self._tracer = tracer
        self._name = name
        self._parent_id = parent_id
        self._start_ns = start_ns
        self._epoch_ns = epoch_ns
        self._attributes = attributes
        self._error: str | None = None
        self._ended = False

    def set(self, key: str, value: Attr) -> None:
        """Set one attribute; a longer string is cut at 256 characters, a float that is not finite becomes its name."""
        if not self._ended:
            self._attributes[key] = value

    def update(self, attributes: Mapping[str, Attr]) -> None:
        """Set several attributes, as `set` does."""
        if not self._ended:
            self._attributes.update(attributes)

    def child(self, name: str, /, **attributes: Attr) -> "Span":
        """Start a span below this one; names with dots go in as `**{"a.b": 1}`."""
        tracer, (trace_id, span_id, sampled) = self._tracer, self.context
        context = SpanContext(trace_id, tracer._hex_id(8), sampled)
        return Span(tracer, name, context, span_id, tracer._monotonic_ns(), self._epoch_ns, attributes)

    def fail(self, error_type: str) -> None:
        """Mark the span as failed and set `error.type`: an HTTP status, a class name, `timeout` or `_OTHER`."""
        if not self._ended:
            self._error = self._attributes["error.type"] = error_type[:MAX_TEXT]

    def end(self) -> None:
        """Stop the clock and export the span; only the first call does anything."""
        if self._ended:
            return
        self._ended = True
        tracer, (trace_id, span_id, _) = self._tracer, self.context
        start_ns, duration_ns = self._epoch_ns + self._start_ns, tracer._monotonic_ns() - self._start_ns
        name, attributes = self._name[:MAX_TEXT], self._attributes
        _clean(attributes)
        tracer.sink.export(
            SpanRecord(name, trace_id, span_id, self._parent_id, start_ns, duration_ns, attributes, self._error)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the span; an exception marks it as failed, unless `fail` said something more exact before."""
        if exc_type is not None and self._error is None:
            self.fail(exc_type.__name__)
        self.end()


def _clean(attributes: dict[str, Attr]) -> None:
    """Cut what is too long, and name what JSON has no number for."""
    for key, value in attributes.items():
        if isinstance(value, str):
            if len(value) > MAX_TEXT:
                attributes[key] = value[:MAX_TEXT]
        elif isinstance(value, float) and not math.isfinite(value):
            attributes[key] = repr(value)
