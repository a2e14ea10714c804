"""A disk that breaks under the ledger: a failed sync is final, and the next start finds all that was acknowledged."""

import contextlib
import http.client
import json
import signal
import sqlite3
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from gateway.serve import STORE_LOST
from tests.crash import lost_ledger
from tests.support.broken_disk import BrokenDisk, compile_into
from tests.support.forks import ForkServer
from tests.support.process import GatewayProcess
from tests.support.world import CONFIG


class BrokenDiskCase(unittest.TestCase):
    """A folder, in memory where the machine has such a place, and a disk that can break."""

    root: ClassVar[Path]
    disk: ClassVar[BrokenDisk]

    @classmethod
    def setUpClass(cls) -> None:
        memory = Path("/dev/shm")
        cls.root = Path(cls.enterClassContext(tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)))
        cls.disk = BrokenDisk(compile_into(cls.root), cls.root / "broken")

    def setUp(self) -> None:
        self.disk.heal()


class LostLedgerTest(BrokenDiskCase):
    """In a process without a front."""

    server: ClassVar[ForkServer]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        assignments = [f"{name}={value}" for name, value in cls.disk.environment.items()]
        cls.server = cls.enterClassContext(ForkServer("env", *assignments))

    def run_in(self, scenario: Callable[..., None], **facts: str) -> str:
        """Run a scenario over a ledger of its own; returns its folder."""
        folder = tempfile.mkdtemp(dir=self.root)
        self.disk.heal()
        self.server.result(scenario, folder=folder, **facts)
        return folder

    def found(self, folder: str) -> dict[str, Any]:
        """What the next start finds, where the book is right and nothing is open."""
        found = dict(self.server.result(lost_ledger.next_start, folder=folder))
        self.assertEqual((found.pop("differences"), found.pop("open")), ([], 0))
        return found

    def test_a_failed_sync_at_a_reservation(self) -> None:
        """Refused, and lost; the next start has what was settled before, and a hold that nobody was told of at most."""
        for call in ("sync", "lose"):
            with self.subTest(call):
                found = self.found(self.run_in(lost_ledger.sync_at_the_reservation, call=call))
                self.assertEqual(found["rows"][0], ["settled", found["spent"]])
                self.assertEqual(len(found["rows"]), 1 if call == "lose" else 2)

    def test_a_failed_sync_at_a_settlement(self) -> None:
        """The next start finds it settled, or its hold, which counts."""
        for call, second in (("sync", "settled"), ("lose", "unresolved")):
            with self.subTest(call):
                found = self.found(self.run_in(lost_ledger.sync_at_the_settlement, call=call))
                self.assertEqual([state for state, _ in found["rows"]], ["settled", second])
                cost = found["rows"][0][1]
                self.assertGreaterEqual(found["spent"] + found["unresolved"], 2 * cost)

    def test_a_failed_sync_while_the_log_is_copied(self) -> None:
        """Of the database or of the log, whatever the durability: SQLite by itself would go on without a word."""
        for suffix, durability in (("ledger.db", "full"), ("ledger.db", "normal"), ("ledger.db-wal", "normal")):
            with self.subTest(suffix, durability=durability):
                found = self.found(self.run_in(lost_ledger.sync_while_copying, suffix=suffix, durability=durability))
                self.assertEqual(found["rows"], [["settled", found["spent"]]])

    def test_a_failed_sync_ahead_of_the_copying(self) -> None:
        """As final as any; what was queued is settled by then, or its hold counts."""
        found = self.found(self.run_in(lost_ledger.sync_ahead))
        self.assertEqual(found["rows"][0][0], "settled")
        self.assertGreaterEqual(found["spent"] + found["unresolved"], 2 * found["rows"][0][1])

    def test_a_write_that_fails_twice_is_the_device(self) -> None:
        """Once is survived, as nothing was acknowledged; every settlement that was is there at the next start."""
        found = self.found(self.run_in(lost_ledger.device))
        self.assertEqual([state for state, _ in found["rows"]], ["settled"] * 4)

    def test_a_read_that_fails_is_told_and_passes(self) -> None:
        """It is the command's misfortune alone."""
        self.run_in(lost_ledger.reading)

    def test_the_name_of_a_new_ledger_is_synced(self) -> None:
        """Or a power cut could leave its log without it."""
        found = self.server.result(lost_ledger.first_start, folder=tempfile.mkdtemp(dir=self.root))
        self.assertEqual(found, ["[Errno 5] Input/output error", "ledger.db"])

    def test_a_cache_on_a_broken_disk_breaks_no_request(self) -> None:
        """Whatever fails: the gateway serves on without it."""
        for call, suffix in (("write", "cache.db-wal"), ("read", "cache.db-wal"), ("write", "cache.db")):
            with self.subTest(call, suffix=suffix):
                self.run_in(lost_ledger.cache, call=call, suffix=suffix)
        self.run_in(lost_ledger.purge)


class LostProcessTest(BrokenDiskCase):
    """The process as people start it."""

    config = "[server]\nannounce_s = 0\n" + CONFIG

    def setUp(self) -> None:
        super().setUp()
        self.home = Path(tempfile.mkdtemp(dir=self.root))

    def test_a_disk_that_hangs_holds_up_no_third_signal(self) -> None:
        """The ledger cannot be closed; what was answered is settled all the same."""
        with GatewayProcess(self.config, folder=self.home, env=self.disk.environment) as gateway:
            answered = self.ask(gateway, gateway.create_key()["key"])
            self.disk.fail("hang", "ledger.db")
            gateway.signal(signal.SIGTERM)
            gateway.wait_for_event("drained")
            for number in (signal.SIGINT, signal.SIGTERM):  # the order in which two that wait are heard
                self.assertIsNone(gateway.child.poll())
                gateway.signal(number)
            self.assertEqual(gateway.wait(), 128 + signal.SIGTERM)
        self.disk.heal()
        rows = gateway.cli("ledger", "rows")
        self.assertEqual([(row["request_id"], row["state"]) for row in rows], [(answered, "settled")])

    def test_a_failed_sync_ends_the_process(self) -> None:
        """Status 74 and one line that says why; the next start serves on, with every answer that was given settled."""
        with GatewayProcess(self.config, folder=self.home, env=self.disk.environment) as gateway:
            key = gateway.create_key()["key"]
            answered = [self.ask(gateway, key), self.ask(gateway, key)]
            self.disk.fail("sync", "ledger.db-wal")
            with self.assertRaises((OSError, http.client.HTTPException)):
                gateway.chat(key, model="mini")
            self.assertEqual(gateway.wait(), STORE_LOST)
            self.assertEqual(self.disk.later, [])
            self.assert_told(gateway, "SQLITE_IOERR_FSYNC")
        self.pretend_that_the_machine_restarted(gateway)
        config = self.config + '[store]\ndurability = "normal"\n'
        with GatewayProcess(config, folder=self.home) as gateway:
            self.assertEqual(gateway.wait_for_event("store_opened")["sqlite"], sqlite3.sqlite_version)
            self.assertIn("may be missing", gateway.wait_for_event("machine_restarted")["detail"])
            answered.append(self.ask(gateway, key))
            self.assertTrue(gateway.command("ledger.verify")["ok"])
            settled = [row["request_id"] for row in gateway.command("ledger.rows") if row["state"] == "settled"]
            self.assertLessEqual(set(answered), set(settled))
            self.assertGreater(json.loads(gateway.call("GET", "/readyz")[2])["wal_bytes"], 0)

    def pretend_that_the_machine_restarted(self, gateway: GatewayProcess) -> None:
        """A power cut, for all that the next start can see."""
        with contextlib.closing(sqlite3.connect(gateway.data_dir / "ledger.db")) as connection, connection:
            self.assertEqual(connection.execute("SELECT stopped_ms FROM boots ORDER BY id").fetchall(), [(None,)])
            connection.execute("UPDATE boots SET machine_boot = 'before'")

    def test_a_ledger_that_was_taken_away_ends_the_process(self) -> None:
        """Its log was deleted under it, which SQLite would not notice; within one sweep."""
        with GatewayProcess(self.config, folder=self.home) as gateway:
            self.ask(gateway, gateway.create_key()["key"])
            (gateway.data_dir / "ledger.db-wal").unlink()
            self.assertEqual(gateway.wait(), STORE_LOST)
            self.assert_told(gateway, "ledger.db-wal was taken away while it was open")

    def ask(self, gateway: GatewayProcess, key: str) -> str:
        """The id of a request that was answered."""
        status, headers, _ = gateway.chat(key, model="mini")
        self.assertEqual(status, 200)
        return headers["x-request-id"]

    def assert_told(self, gateway: GatewayProcess, why: str) -> None:
        lines = [line for line in gateway.errors if '"event": "store_lost"' in line]
        self.assertEqual(len(lines), 1, gateway.errors)
        self.assertIn(why, json.loads(lines[0])["reason"])
