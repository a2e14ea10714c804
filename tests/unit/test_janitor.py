"""The sweep: it looks at the ledger's files, and tells of a write-ahead log that nobody copies back."""

import io
import json
import unittest
from unittest import mock

from gateway import janitor
from gateway.clock import FakeClock
from gateway.errors import StoreUnavailable
from gateway.janitor import Janitor
from gateway.oplog import OpLog
from tests.support.world import RealWorld


class SweepTest(unittest.TestCase):
    """One sweep after another, by hand."""

    def setUp(self) -> None:
        self.world = self.enterContext(RealWorld())
        self.stderr = io.StringIO()
        self.janitor = Janitor(self.world.books, self.world.config, OpLog(FakeClock(), self.stderr))
        self.addCleanup(self.janitor.close)

    def told(self) -> list[str]:
        return [json.loads(line)["event"] for line in self.stderr.getvalue().splitlines()]

    def test_a_large_log_is_told_once(self) -> None:
        """And again after it has been small."""
        self.janitor._sweep()
        self.assertEqual(self.told(), [])
        for _ in range(2):
            with mock.patch.object(janitor, "LARGE_WAL_BYTES", 0):
                self.janitor._sweep()
                self.janitor._sweep()
            self.janitor._sweep()
        self.assertEqual(self.told(), ["large_wal", "large_wal"])

    def test_a_ledger_that_was_replaced_is_lost(self) -> None:
        """Within the sweep, and nothing more is written to it."""
        ledger = self.world.path / "ledger.db"
        ledger.rename(ledger.with_name("aside")).read_bytes()
        ledger.write_bytes(ledger.with_name("aside").read_bytes())
        with self.assertRaises(StoreUnavailable):
            self.janitor._sweep()
        self.assertEqual(len(self.world.lost), 1)
        self.assertIn("was replaced while it was open", self.world.lost[0])
