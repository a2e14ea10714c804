"""Sinks: what is kept, what is counted as lost, and what reaches the file."""

import json
import tempfile
import threading
import unittest
from pathlib import Path

from tracekit.sinks import JsonlSink, MemorySink, Sink, SpanRecord, TeeSink
from tracekit.trace import Tracer


def _record(name: str = "work") -> SpanRecord:
    return SpanRecord(name, "1" * 32, "2" * 16, None, 10, 20, {"a": 1, "b": "é"}, None)


def _names(path: Path) -> list[str]:
    return [json.loads(line)["name"] for line in path.read_bytes().splitlines()]


class MemorySinkTest(unittest.TestCase):
    """The ring in memory."""

    def test_it_keeps_the_newest(self) -> None:
        """The oldest leaves a full ring and is counted."""
        sink = MemorySink(capacity=2)
        for name in "abc":
            sink.export(_record(name))
        self.assertEqual([record.name for record in sink.records()], ["b", "c"])
        self.assertEqual(sink.dropped, 1)

    def test_a_ring_that_is_just_full_has_lost_nothing(self) -> None:
        """Only an overwritten span is a loss."""
        sink = MemorySink(capacity=2)
        sink.export(_record())
        sink.export(_record())
        self.assertEqual(sink.dropped, 0)

    def test_the_list_is_a_copy(self) -> None:
        """Later spans do not change a list that was handed out."""
        sink = MemorySink()
        records = sink.records()
        sink.export(_record())
        self.assertEqual(records, [])

    def test_a_ring_needs_room(self) -> None:
        """A capacity below 1 is refused."""
        with self.assertRaises(ValueError):
            MemorySink(capacity=0)


class JsonlSinkTest(unittest.TestCase):
    """The file of JSON lines."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "spans.jsonl"
        self.former = Path(folder.name) / "spans.jsonl.1"

    def write(self, *names: str, max_bytes: int = 1 << 20) -> JsonlSink:
        """Export spans of these names through a sink of their own and close it."""
        sink = JsonlSink(self.path, max_bytes=max_bytes)
        for name in names:
            sink.export(_record(name))
        sink.close()
        return sink

    def test_a_line_is_the_whole_record(self) -> None:
        """Every field under its own name."""
        self.write("work")
        self.assertEqual(
            json.loads(self.path.read_bytes()),
            {
                "name": "work",
                "trace_id": "1" * 32,
                "span_id": "2" * 16,
                "parent_id": None,
                "start_ns": 10,
                "duration_ns": 20,
                "attributes": {"a": 1, "b": "é"},
                "error": None,
            },
        )

    def test_close_writes_what_is_queued_in_order(self) -> None:
        """Many batches, none lost, and closing twice is harmless."""
        names = [str(number) for number in range(1000)]
        sink = self.write(*names)
        sink.close()
        self.assertEqual(_names(self.path), names)
        self.assertEqual(sink.dropped, 0)

    def test_spans_reach_the_file_while_it_is_open(self) -> None:
        """A reader need not wait for the close: the writer wakes by itself."""
        written = threading.Event()

        class Watched(JsonlSink):
            def _write(self, batch: list[SpanRecord]) -> None:
                super()._write(batch)
                written.set()

        sink = Watched(self.path)
        self.addCleanup(sink.close)
        sink.export(_record("early"))
        self.assertTrue(written.wait(60))
        self.assertEqual(_names(self.path), ["early"])

    def test_a_full_queue_drops_and_counts(self) -> None:
        """With a disk that hangs, the caller goes on at once and every span is either written or counted."""
        disk = threading.Event()

        class Stalled(JsonlSink):
            def _write(self, batch: list[SpanRecord]) -> None:
                disk.wait()
                super()._write(batch)

        sink = Stalled(self.path, queue_size=4)
        for _ in range(100):
            sink.export(_record())
        self.assertGreaterEqual(sink.dropped, 92)  # at most one batch of 4 in the writer's hands and 4 waiting
        disk.set()
        sink.close()
        self.assertEqual(len(_names(self.path)) + sink.dropped, 100)

    def test_many_threads_lose_nothing_uncounted(self) -> None:
        """Written and dropped add up to what was exported."""
        sink = JsonlSink(self.path, queue_size=50)
        barrier = threading.Barrier(8)

        def export_many() -> None:
            barrier.wait()
            for _ in range(500):
                sink.export(_record())

        threads = [threading.Thread(target=export_many) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sink.close()
        self.assertEqual(len(_names(self.path)) + sink.dropped, 4000)

    def test_a_file_that_cannot_be_opened_drops_and_counts(self) -> None:
        """Nothing is raised."""
        self.path = self.path.parent / "missing" / "spans.jsonl"
        self.assertEqual(self.write("a", "b").dropped, 2)

    def test_a_full_disk_drops_and_counts(self) -> None:
        """Nothing is raised when the write itself fails."""
        self.path = Path("/dev/full")
        self.assertEqual(self.write("a", "b").dropped, 2)

    def test_a_disk_that_recovers_is_written_again(self) -> None:
        """The file is opened anew after a failure; what a failed write left is cut off."""
        disk = threading.Semaphore(0)
        done = threading.Semaphore(0)

        class Stepped(JsonlSink):
            def _write(self, batch: list[SpanRecord]) -> None:
                disk.acquire()
                super()._write(batch)
                done.release()

            def _append(self, data: bytes) -> None:
                if b"torn" not in data:
                    return super()._append(data)
                file = self._file or self._open()
                file.write(data[:20])
                raise OSError("no space left")

        sink = Stepped(self.path)
        for name in ("first", "torn", "last"):
            sink.export(_record(name))
            disk.release()
            self.assertTrue(done.acquire(timeout=60))
        disk.release()
        sink.close()
        self.assertEqual(_names(self.path), ["first", "last"])
        self.assertEqual(sink.dropped, 1)

    def test_an_attribute_that_json_cannot_hold_costs_only_its_span(self) -> None:
        """The neighbours in the batch are written."""
        sink = JsonlSink(self.path)
        sink.export(_record("a"))
        sink.export(SpanRecord("bad", "1", "2", None, 0, 0, {"x": b"bytes"}))  # type: ignore[dict-item]
        sink.export(SpanRecord("nan", "1", "2", None, 0, 0, {"x": float("nan")}))
        sink.export(_record("b"))
        sink.close()
        self.assertEqual(_names(self.path), ["a", "b"])
        self.assertEqual(sink.dropped, 2)

    def test_after_the_close_every_span_is_dropped(self) -> None:
        """And counted."""
        sink = self.write("a")
        sink.export(_record("late"))
        self.assertEqual(_names(self.path), ["a"])
        self.assertEqual(sink.dropped, 1)

    def test_a_file_is_continued(self) -> None:
        """A restart appends."""
        self.write("a")
        self.write("b")
        self.assertEqual(_names(self.path), ["a", "b"])

    def test_half_a_line_of_a_killed_process_stays_alone(self) -> None:
        """The first new span starts a line of its own."""
        self.path.write_bytes(b'{"name":"cut')
        self.write("a")
        self.assertEqual(json.loads(self.path.read_bytes().splitlines()[1])["name"], "a")

    def test_a_file_at_its_limit_makes_way(self) -> None:
        """It becomes the former one, and only two are kept; a span larger than the limit makes way for nothing."""
        self.write("a", max_bytes=10)
        self.assertFalse(self.former.exists())
        self.write("b", max_bytes=10)
        self.assertEqual((_names(self.former), _names(self.path)), (["a"], ["b"]))
        self.write("c", max_bytes=10)
        self.assertEqual((_names(self.former), _names(self.path)), (["b"], ["c"]))

    def test_a_file_below_its_limit_stays(self) -> None:
        """Up to the last byte."""
        self.write("a")
        size = self.path.stat().st_size
        self.write("b", max_bytes=2 * size)
        self.assertFalse(self.former.exists())
        self.write("c", max_bytes=2 * size)
        self.assertEqual((_names(self.former), _names(self.path)), (["a", "b"], ["c"]))

    def test_the_file_is_for_its_owner_only(self) -> None:
        """Spans tell who asked what model when."""
        self.write("a")
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o600)

    def test_bounds_below_one_are_refused(self) -> None:
        """Before any thread is started."""
        before = threading.active_count()
        for bounds in ({"queue_size": 0}, {"max_bytes": 0}):
            with self.assertRaises(ValueError):
                JsonlSink(self.path, **bounds)
        self.assertEqual(threading.active_count(), before)


class TeeSinkTest(unittest.TestCase):
    """Several sinks at once."""

    def test_every_sink_gets_every_span(self) -> None:
        """And the losses add up."""
        small, large = MemorySink(capacity=1), MemorySink()
        tee = TeeSink(small, large)
        tee.export(_record("a"))
        tee.export(_record("b"))
        self.assertEqual([record.name for record in small.records()], ["b"])
        self.assertEqual([record.name for record in large.records()], ["a", "b"])
        self.assertEqual(tee.dropped, 1)

    def test_every_sink_fits_a_tracer(self) -> None:
        """A tee may hold a tee."""
        memory = MemorySink()
        sink: Sink = TeeSink(TeeSink(memory))
        Tracer(sink).start("work").end()
        self.assertEqual([record.name for record in memory.records()], ["work"])


if __name__ == "__main__":
    unittest.main()
