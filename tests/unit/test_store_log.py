"""The operator's log of the storage: when it fails and when it works again, with how much failed meanwhile."""

import io
import json
import unittest
from typing import Any

from gateway.clock import FakeClock
from gateway.oplog import OpLog
from gateway.store import Doing
from gateway.store_log import StoreLog
from tests.support.connections import disk_error


class StoreLogTest(unittest.TestCase):
    """Lines as they are written."""

    def setUp(self) -> None:
        self.clock = FakeClock()
        self.stream = io.StringIO()
        self.log = OpLog(self.clock, self.stream)
        self.store_log = StoreLog(self.log, self.clock)

    def lines(self) -> list[dict[str, Any]]:
        """What was written, without the time."""
        return [
            {name: value for name, value in json.loads(line).items() if name != "at_ms"}
            for line in self.stream.getvalue().splitlines()
        ]

    def test_a_disk_that_is_full_for_hours_is_two_lines(self) -> None:
        """Each failure is counted; the second line says how many there were."""
        for _ in range(3):
            for _ in range(1000):
                self.store_log.failed(Doing.COMMIT, disk_error())
                self.clock.advance(1)
            self.store_log.works(Doing.COMMIT)
        failed = {"event": "store_failed", "doing": "commit", "reason": "database or disk is full (OperationalError)"}
        works = {"event": "store_works_again", "doing": "commit", "failed_times": 1000, "failed_for_s": 1000.0}
        self.assertEqual(self.lines(), [failed, works] * 3)
        self.assertEqual((self.log.errors, self.log.dropped), (3000, 0))

    def test_reading_and_writing_fail_apart(self) -> None:
        """That commits work again says nothing of reads."""
        for doing in Doing:
            self.store_log.failed(doing, disk_error())
        self.store_log.works(Doing.COMMIT)
        self.store_log.failed(Doing.READ, disk_error())
        self.store_log.works(Doing.READ)
        told = [(line["event"], line["doing"]) for line in self.lines()]
        self.assertEqual(told[:3], [("store_failed", doing) for doing in Doing])
        self.assertEqual(told[3:], [("store_works_again", "commit"), ("store_works_again", "read")])
        self.assertEqual(self.lines()[4]["failed_times"], 2)

    def test_what_never_failed_is_not_told(self) -> None:
        """The store may say so all the same, after a fault of its own."""
        self.store_log.works(Doing.COMMIT)
        self.assertEqual(self.lines(), [])


if __name__ == "__main__":
    unittest.main()
