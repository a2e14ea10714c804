"""The operator's log: lines of JSON, bounded, without secrets."""

import io
import json
import os
import sqlite3
import unittest
from typing import Any

from gateway.clock import FakeClock
from gateway.oplog import OpLog


class BrokenStream(io.StringIO):
    """A stream whose disk is full."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


class OpLogTest(unittest.TestCase):
    """Lines as they are written."""

    def setUp(self) -> None:
        self.clock = FakeClock()
        self.stream = io.StringIO()
        self.log = OpLog(self.clock, self.stream)

    def lines(self) -> list[dict[str, Any]]:
        """What was written, line by line."""
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def test_an_event_is_one_line_of_json(self) -> None:
        """With its time and its facts; line ends in a fact make no second line."""
        self.log.event("reloaded", warnings=["a\nb"], count=2, path=None)
        self.assertEqual(
            self.lines(),
            [{"at_ms": self.clock.wall_ms(), "event": "reloaded", "warnings": ["a\nb"], "count": 2, "path": None}],
        )

    def test_errors_are_counted(self) -> None:
        """Also those for which there was no line; events are none."""
        for _ in range(200):
            self.log.error(ValueError("secret"))
        self.log.event("reloaded")
        self.assertEqual((self.log.errors, self.log.dropped), (200, 101))

    def test_what_is_told_seldom_is_told_once_a_minute(self) -> None:
        """For each set of facts; what was not told is forgotten in time, and takes no memory without end."""
        for second in range(119):
            self.log.seldom("call_failed", deployment="a", status=404)
            if second == 30:
                self.log.seldom("call_failed", deployment="a", status=500)
            self.clock.advance(1)
        self.assertEqual([line["status"] for line in self.lines()], [404, 500, 404])
        self.log.seldom("call_failed", deployment="a", status=404, beside={"cost_nanousd": 7})
        self.log.seldom("call_failed", deployment="b", status=404, beside={"cost_nanousd": 7})
        self.log.seldom("call_failed", deployment="b", status=404, beside={"cost_nanousd": 8})
        self.assertEqual([line.get("cost_nanousd") for line in self.lines()], [None, None, None, 7])
        for number in range(5000):
            self.log.seldom("call_failed", deployment=number)
        self.assertLessEqual(len(self.log._due_s), 1000)

    def test_any_value_can_be_a_fact(self) -> None:
        """What JSON does not know is written as its text; the line is ASCII."""
        self.log.event("x", where=ValueError("why"), text="é\ud83d\u2028")
        self.assertTrue(self.stream.getvalue().isascii())
        self.assertEqual(self.lines()[0]["where"], "why")

    def test_a_long_line_is_cut_and_is_still_json(self) -> None:
        """A file with hundreds of faults does not flood the log, and a collector can read the line."""
        for filler in ("x", '"', "\\", "é", "\n"):
            self.log.event("reload_refused", faults=[filler * 5000])
        for text, line in zip(self.stream.getvalue().splitlines(), self.lines(), strict=True):
            self.assertLessEqual(len(text), 2000)
            self.assertEqual(line["event"], "reload_refused")
            self.assertIn("faults", line["cut"])

    def test_a_flood_is_cut_off_each_second(self) -> None:
        """What is left out is counted."""
        for number in range(110):
            self.log.event("flood", number=number)
        self.assertEqual((len(self.lines()), self.log.dropped), (100, 10))

    def test_the_last_words_are_written_in_any_flood(self) -> None:
        """Why the process ends is not left out."""
        for number in range(110):
            self.log.event("flood", number=number)
        self.log.last_words("store_lost", reason="the disk")
        self.assertEqual((self.lines()[-1]["reason"], self.log.dropped), ("the disk", 10))
        self.clock.advance(1)
        self.log.event("after")
        self.assertEqual((self.lines()[-1]["event"], self.log.dropped), ("after", 10))

    def test_routine_leaves_room_for_the_rest(self) -> None:
        """Half of the lines of a second."""
        for number in range(60):
            self.log.routine("hit", number=number)
        for number in range(25):
            self.log.event("fault", number=number)
        told = [line["event"] for line in self.lines()]
        self.assertEqual((told.count("hit"), told.count("fault")), (50, 25))
        self.clock.advance(1)
        self.log.routine("hit")
        self.assertEqual(self.lines()[-1]["event"], "hit")

    def test_a_line_that_cannot_be_written_is_counted(self) -> None:
        """And never raised: logging is no reason to fail."""
        closed = io.StringIO()
        closed.close()
        for stream in (BrokenStream(), closed):
            log = OpLog(self.clock, stream)
            log.event("x")
            self.assertEqual(log.dropped, 1)

    def test_an_error_is_told_by_its_class_and_places(self) -> None:
        """Not by its message, which may quote a prompt or a key."""
        try:
            raise ValueError("CANARY")
        except ValueError as error:
            self.log.error(error)
        [line] = self.lines()
        self.assertEqual((line["event"], line["error"]), ("error", "ValueError"))
        self.assertRegex(line["where"][-1], r"^test_oplog.py:\d+ test_an_error_is_told")
        self.assertNotIn("CANARY", self.stream.getvalue())

    def test_an_error_that_has_ended_a_request_is_found_by_its_id(self) -> None:
        """One that has ended none has no such field."""
        self.log.error(KeyError("CANARY"), "req_1")
        self.log.error(KeyError())
        self.assertEqual([line.get("request", "none") for line in self.lines()], ["req_1", "none"])
        self.assertNotIn("CANARY", self.stream.getvalue())

    def test_the_databases_own_words_are_told(self) -> None:
        """They name tables and disks, never values."""
        self.log.error(sqlite3.OperationalError("disk I/O error"))
        self.assertEqual(self.lines()[0]["detail"], "disk I/O error")

    def test_a_deep_traceback_keeps_its_end(self) -> None:
        """The place that raised is the last."""

        def dig(depth: int) -> None:
            if depth == 0:
                raise KeyError("CANARY")
            dig(depth - 1)

        try:
            dig(50)
        except KeyError as error:
            self.log.error(error)
        [line] = self.lines()
        self.assertEqual(len(line["where"]), 8)
        self.assertTrue(line["where"][-1].endswith(" dig"))

    def test_a_reader_that_does_not_read_blocks_nobody(self) -> None:
        """A full pipe loses lines, which are counted; once it is read, lines come through again."""
        reading, writing = os.pipe()
        self.addCleanup(os.close, reading)
        with os.fdopen(writing, "w", encoding="utf-8") as stream:
            log = OpLog(self.clock, stream)
            while not log.dropped:
                log.event("filler", text="x" * 1000)
                self.clock.advance(1)
            os.read(reading, 1 << 20)
            log.event("after")
            self.assertIn(b'"after"', os.read(reading, 1 << 20))
