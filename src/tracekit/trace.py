"""Spans: what happened, when, under which parent. W3C trace context in and out.

Decides ids, times and the status of a span. Does not know where spans go (sinks) or what their attributes mean.

Rules. A span is exported exactly once, when it ends; strings are cut at 256 characters then. An exception leaves its
class name in the span, never its message; prompts, answers and keys are for the caller to keep out. All spans below
one local root take their wall-clock start from that root's single reading plus monotonic time, so a clock that is set
back never puts a child before its parent. A span that begins a trace is named by the last half of the trace's id, as
Jaeger does it. The sampled flag of a remote parent is passed on and otherwise not obeyed: a remote caller cannot switch
off the record of this process.
"""

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from msgspec import Struct

from tracekit.sinks import Attr, MemorySink, Sink, SpanRecord

__all__ = ["MAX_TEXT", "Attr", "Span", "SpanContext", "SpanRecord", "Tracer", "parse_traceparent"]

MAX_TEXT = 256  # characters of a name or a string attribute: enough for any id, too little for a prompt

_NEVER_LONG = frozenset({int, bool, type(None)})

_TRACEPARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace>[0-9a-f]{32})-(?!0{16})(?P<span>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?",
    re.DOTALL,
)


class SpanContext(Struct, frozen=True):
    """What crosses a process boundary: lower-case hex ids of 16 and 8 bytes, never all zero, and the sampled flag."""

    trace_id: str
    span_id: str
    sampled: bool = True

    def traceparent(self) -> str:
        """The value of a W3C `traceparent` header, version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"


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
        epoch_ns = self._wall_ns() - now_ns
        kept = {} if attributes is None else dict(attributes)
        if parent is None:
            trace_id = self._hex_id(16)
            return Span(self, name, trace_id, trace_id[16:], None, True, now_ns, epoch_ns, kept)
        trace_id, above, sampled = parent.trace_id, parent.span_id, parent.sampled
        return Span(self, name, trace_id, self._hex_id(8), above, sampled, now_ns, epoch_ns, kept)

    def _hex_id(self, size: int) -> str:
        """An id whose last 16 digits, which name a root, are not all zeros: these mean "none" in W3C trace context."""
        text = self._random_bytes(size).hex()
        return text if text[-16:].strip("0") else f"{1:0{2 * size}x}"


class Span(Struct, eq=False):
    """One timed piece of work; a context manager. Made by `Tracer.start` and `Span.child`.

    Belongs to one thread at a time. After its end it never changes: later calls do nothing.
    """

    _tracer: Tracer
    _name: str
    _trace_id: str
    _span_id: str
    _parent_id: str | None
    _sampled: bool
    _start_ns: int
    _epoch_ns: int
    _attributes: dict[str, Attr]
    _error: str | None = None
    _ended: bool = False

    @property
    def context(self) -> SpanContext:
        """What a span below this one in another process has to know of it."""
        return SpanContext(self._trace_id, self._span_id, self._sampled)

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
        tracer = self._tracer
        return Span(
            tracer,
            name,
            self._trace_id,
            tracer._hex_id(8),
            self._span_id,
            self._sampled,
            tracer._monotonic_ns(),
            self._epoch_ns,
            attributes,
        )

    def fail(self, error_type: str) -> None:
        """Mark the span as failed and set `error.type`: an HTTP status, a class name, `timeout` or `_OTHER`."""
        if not self._ended:
            self._error = self._attributes["error.type"] = error_type[:MAX_TEXT]

    def end(self) -> None:
        """Stop the clock and export the span; only the first call does anything."""
        if self._ended:
            return
        self._ended = True
        _clean(self._attributes)
        self._tracer.sink.export(
            SpanRecord(
                self._name[:MAX_TEXT],
                self._trace_id,
                self._span_id,
                self._parent_id,
                self._epoch_ns + self._start_ns,
                self._tracer._monotonic_ns() - self._start_ns,
                self._attributes,
                self._error,
            )
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
        if type(value) is str:
            if len(value) > MAX_TEXT:
                attributes[key] = value[:MAX_TEXT]
        elif type(value) not in _NEVER_LONG:
            attributes[key] = _cleaned(value)


def _cleaned(value: Attr) -> Attr:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value
