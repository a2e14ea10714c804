"""Spans: ids, times, status, attributes, and W3C trace context."""

import unittest
from collections.abc import Callable

from tracekit.sinks import MemorySink
from tracekit.trace import MAX_TEXT, Attr, SpanContext, Tracer, parse_traceparent

_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
_SPAN = "00f067aa0ba902b7"


class _Clocks:
    """A wall clock and a monotonic one, moved by hand."""

    def __init__(self) -> None:
        self.wall_ns = 1_700_000_000_000_000_000
        self.monotonic_ns = 5_000

    def advance(self, ns: int) -> None:
        self.wall_ns += ns
        self.monotonic_ns += ns


def _counting_bytes() -> Callable[[int], bytes]:
    state = [0]

    def next_bytes(size: int) -> bytes:
        state[0] += 1
        return state[0].to_bytes(size, "big")

    return next_bytes


class TraceparentTest(unittest.TestCase):
    """W3C trace context, strictly."""

    def test_a_valid_header_is_read(self) -> None:
        """Both ids and the sampled flag come from their fields."""
        self.assertEqual(parse_traceparent(f"00-{_TRACE}-{_SPAN}-01"), SpanContext(_TRACE, _SPAN, sampled=True))
        self.assertEqual(parse_traceparent(f"00-{_TRACE}-{_SPAN}-00"), SpanContext(_TRACE, _SPAN, sampled=False))

    def test_only_the_lowest_flag_means_sampled(self) -> None:
        """Other flag bits are reserved."""
        self.assertEqual(parse_traceparent(f"00-{_TRACE}-{_SPAN}-fe"), SpanContext(_TRACE, _SPAN, sampled=False))
        self.assertEqual(parse_traceparent(f"00-{_TRACE}-{_SPAN}-ff"), SpanContext(_TRACE, _SPAN, sampled=True))

    def test_a_later_version_may_have_more_fields(self) -> None:
        """They are ignored; version 00 must not have any."""
        self.assertEqual(parse_traceparent(f"cc-{_TRACE}-{_SPAN}-01-what"), SpanContext(_TRACE, _SPAN, sampled=True))
        self.assertEqual(parse_traceparent(f"cc-{_TRACE}-{_SPAN}-01"), SpanContext(_TRACE, _SPAN, sampled=True))

    def test_everything_else_is_no_parent(self) -> None:
        """A header that breaks the grammar anywhere starts a new trace."""
        good = f"00-{_TRACE}-{_SPAN}-01"
        for bad in (
            None,
            "",
            "00",
            good.upper(),
            f" {good}",
            f"{good} ",
            f"{good}\n",
            f"{good}-more",
            f"{good}-",
            f"cc{good[2:]}.more",
            f"ff-{_TRACE}-{_SPAN}-01",
            f"0-{_TRACE}-{_SPAN}-01",
            f"00-{'0' * 32}-{_SPAN}-01",
            f"00-{_TRACE}-{'0' * 16}-01",
            f"00-{_TRACE[:-1]}-{_SPAN}-01",
            f"00-{_TRACE}-{_SPAN}0-01",
            f"00-{_TRACE}-{_SPAN}-1",
            f"00-{_TRACE}-{_SPAN}-0g",
            f"00_{_TRACE}_{_SPAN}_01",
            good.replace("4", "\u0664"),
        ):
            with self.subTest(header=bad):
                self.assertIsNone(parse_traceparent(bad))

    def test_what_is_written_can_be_read(self) -> None:
        """traceparent() and parse_traceparent() are inverse."""
        for sampled in (True, False):
            context = SpanContext(_TRACE, _SPAN, sampled=sampled)
            self.assertEqual(parse_traceparent(context.traceparent()), context)
        self.assertEqual(SpanContext(_TRACE, _SPAN).traceparent(), f"00-{_TRACE}-{_SPAN}-01")


class SpanTest(unittest.TestCase):
    """What a span records."""

    def setUp(self) -> None:
        self.clocks = _Clocks()
        self.sink = MemorySink()
        self.tracer = Tracer(
            self.sink,
            wall_ns=lambda: self.clocks.wall_ns,
            monotonic_ns=lambda: self.clocks.monotonic_ns,
            random_bytes=_counting_bytes(),
        )

    def test_a_span_is_exported_once_when_it_ends(self) -> None:
        """end() is idempotent, also inside a with block."""
        with self.tracer.start("work") as span:
            self.assertEqual(self.sink.records(), [])
            span.end()
            span.end()
        self.assertEqual([record.name for record in self.sink.records()], ["work"])

    def test_a_root_has_fresh_ids_and_no_parent(self) -> None:
        """16 random bytes in lower-case hex, of which the last eight name the root; those of a child are its own."""
        with self.tracer.start("work") as root:
            root.child("part").end()
        child, record = self.sink.records()
        self.assertEqual((record.trace_id, record.span_id, record.parent_id), (f"{1:032x}", f"{1:016x}", None))
        self.assertEqual(child.span_id, f"{2:016x}")

    def test_an_id_is_never_all_zero(self) -> None:
        """Zeros mean "no parent" to a reader."""
        for random_bytes in (bytes, lambda size: bytes([255] * (size - 8) + [0] * 8)):
            Tracer(self.sink, random_bytes=random_bytes).start("work").end()
            record = self.sink.records()[-1]
            self.assertEqual((record.trace_id, record.span_id), (f"{1:032x}", f"{1:016x}"))

    def test_a_span_below_a_remote_parent_continues_its_trace(self) -> None:
        """The trace id and the sampled flag are inherited, the span id is new, and the span is recorded."""
        for sampled in (True, False):
            span = self.tracer.start("work", parent=SpanContext(_TRACE, _SPAN, sampled=sampled))
            span.end()
            record = self.sink.records()[-1]
            self.assertEqual((record.trace_id, record.parent_id), (_TRACE, _SPAN))
            self.assertNotEqual(record.span_id, _SPAN)
            self.assertEqual(span.context, SpanContext(_TRACE, record.span_id, sampled=sampled))

    def test_a_child_names_its_parent(self) -> None:
        """Children share the trace and take attributes with dots, `name` among them."""
        attributes: dict[str, Attr] = {"a.b": 1, "name": "x"}
        with self.tracer.start("parent") as parent, parent.child("child", **attributes):
            pass
        child, root = self.sink.records()
        self.assertEqual((child.trace_id, child.parent_id), (root.trace_id, root.span_id))
        self.assertEqual((child.name, child.attributes), ("child", attributes))

    def test_the_duration_is_monotonic_time(self) -> None:
        """A wall clock that jumps changes neither the duration nor the start."""
        span = self.tracer.start("work")
        started_ns = self.clocks.wall_ns
        self.clocks.advance(70)
        self.clocks.wall_ns -= 1_000_000
        span.end()
        (record,) = self.sink.records()
        self.assertEqual((record.start_ns, record.duration_ns), (started_ns, 70))

    def test_a_child_never_starts_before_its_parent(self) -> None:
        """Its start is the root's wall clock plus monotonic time, though the wall clock was set back in between."""
        with self.tracer.start("parent") as parent:
            self.clocks.advance(30)
            self.clocks.wall_ns -= 3_600_000_000_000
            parent.child("child").end()
        child, root = self.sink.records()
        self.assertEqual(child.start_ns - root.start_ns, 30)

    def test_an_exception_leaves_its_class_but_not_its_message(self) -> None:
        """The exception goes on; the message, which may quote a prompt, is nowhere in the record."""
        with self.assertRaises(KeyError), self.tracer.start("work"):
            raise KeyError("the secret prompt")
        (record,) = self.sink.records()
        self.assertEqual((record.error, record.attributes), ("KeyError", {"error.type": "KeyError"}))
        self.assertNotIn("secret", repr(record))

    def test_a_failure_that_was_named_is_kept(self) -> None:
        """fail() knows better than the exception that follows."""
        with self.assertRaises(OSError), self.tracer.start("work") as span:
            span.fail("timeout")
            raise OSError
        (record,) = self.sink.records()
        self.assertEqual((record.error, record.attributes["error.type"]), ("timeout", "timeout"))

    def test_a_span_without_failure_has_no_error(self) -> None:
        """Neither a status nor error.type."""
        with self.tracer.start("work"):
            pass
        (record,) = self.sink.records()
        self.assertEqual((record.error, record.attributes), (None, {}))

    def test_attributes_are_set_at_the_start_and_later(self) -> None:
        """A later value replaces an earlier one."""
        with self.tracer.start("work", attributes={"a": 1, "b": None}) as span:
            span.set("a", 2)
            span.update({"c": True, "d": 0.5})
        (record,) = self.sink.records()
        self.assertEqual(record.attributes, {"a": 2, "b": None, "c": True, "d": 0.5})

    def test_long_text_is_cut(self) -> None:
        """Names, string attributes and error types keep 256 characters, wherever they come in."""
        long = "x" * (MAX_TEXT + 1)
        with self.tracer.start(long, attributes={"a": long}) as span:
            span.set("b", long)
            span.update({"c": long})
            span.fail(long)
            span.child(long, d=long).end()
        child, record = self.sink.records()
        self.assertEqual(MAX_TEXT, 256)
        texts = [record.name, child.name, record.error, *record.attributes.values(), *child.attributes.values()]
        self.assertEqual(texts, ["x" * MAX_TEXT] * 8)

    def test_a_float_that_is_not_finite_becomes_text(self) -> None:
        """JSON has no number for it."""
        with self.tracer.start("work", attributes={"a": float("nan"), "b": float("-inf")}):
            pass
        self.assertEqual(self.sink.records()[0].attributes, {"a": "nan", "b": "-inf"})

    def test_an_ended_span_never_changes(self) -> None:
        """What was exported is final."""
        span = self.tracer.start("work")
        span.end()
        span.set("a", 1)
        span.update({"b": 1})
        span.fail("late")
        (record,) = self.sink.records()
        self.assertEqual((record.attributes, record.error), ({}, None))

    def test_a_tracer_alone_works(self) -> None:
        """Without arguments it keeps spans in memory, with real clocks and random ids."""
        tracer = Tracer()
        with tracer.start("one") as one, tracer.start("two") as two:
            self.assertNotEqual(one.context.trace_id, two.context.trace_id)
        self.assertIsNotNone(parse_traceparent(one.context.traceparent()))
        self.assertEqual(tracer.sink.dropped, 0)


if __name__ == "__main__":
    unittest.main()
