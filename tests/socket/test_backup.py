"""Backups of a gateway that serves, and gateways over what was restored: real processes and a real upstream's meter."""

import json
import signal
import tempfile
import threading
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gateway.books import open_books
from gateway.clock import RealClock
from gateway.data_dir import DataDir
from gateway.restore import restore
from probes.upstream import COST_NANOUSD, Call, Upstream, completion
from tests.support.process import WAIT_S, GatewayProcess, run_cli

CALLERS = 4


def config(upstream: Upstream, durability: str = "full") -> str:
    """One deployment at 1 and 4 USD per million tokens."""
    return f"""
[server]
announce_s = 0
drain_s = 5

[store]
durability = "{durability}"

[[providers]]
name = "up"
base_url = "{upstream.url}"
api_key_env = "UP_KEY"

[[deployments]]
name = "mini"
provider = "up"
model = "gw-mini"
price = {{ input = 1, output = 4 }}
"""


def bills(call: Call) -> None:
    """A whole answer, metered before it is sent."""
    call.answer(completion("hello", call.bill()))


class Load:
    """Callers that ask again and again. acknowledged  how many answers they have got"""

    def __init__(self, gateway: GatewayProcess, key: str) -> None:
        self._gateway = gateway
        self._key = key
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self.acknowledged = 0
        self.refused: list[Any] = []
        self._threads = [threading.Thread(target=self._ask) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    def wait(self, count: int) -> None:
        """Until so many answers have come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.acknowledged >= count, WAIT_S):
                raise AssertionError(f"{self.acknowledged} answers, refused {self.refused[:3]}")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(WAIT_S)

    def _ask(self) -> None:
        while not self._stop.is_set():
            status, _, body = self._gateway.chat(self._key, model="mini", max_tokens=10)
            with self._changed:
                if status == 200:
                    self.acknowledged += 1
                else:
                    self.refused.append((status, body))
                self._changed.notify_all()


class BackupUnderLoadTest(unittest.TestCase):
    """`gateway backup` beside a gateway that serves."""

    def setUp(self) -> None:
        self.upstream = Upstream(bills)
        self.addCleanup(self.upstream.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_a_backup_holds_all_that_was_acknowledged_and_no_more_than_was_billed(self) -> None:
        """Its money lies between what clients had before it began and what the upstream's meter says after it."""
        for durability in ("normal", "full"):
            with self.subTest(durability=durability):
                self.upstream.calls.clear()
                self.back_up_under_load(durability, self.folder / f"{durability}.backup")

    def back_up_under_load(self, durability: str, file: Path) -> None:
        with GatewayProcess(config(self.upstream, durability), env={"UP_KEY": "sk-up"}) as gateway:
            load = Load(gateway, gateway.create_key()["key"])
            try:
                load.wait(30)
                sent, acknowledged = self.upstream.metered_nanousd, load.acknowledged
                told = gateway.cli("backup", str(file))
                billed = self.upstream.metered_nanousd
                load.wait(load.acknowledged + 10)
            finally:
                load.stop()
            self.assertEqual(load.refused, [])
        self.assertEqual((told["ok"], told["epoch"], told["bytes"]), (True, 1, file.stat().st_size))
        with self.restored(file) as books:
            report = books.commands.run("ledger.verify", {})
            self.assertEqual((report["ok"], report["open_holds"]), (True, 0))
            self.assertEqual(report["unresolved_holds"], told["open_holds"])
            levels = books.commands.run("ledger.balances", {})
            self.assertEqual({level["spent_nanousd"] for level in levels}, {told["rows"] * COST_NANOUSD})
            for level in levels:
                spent, unresolved = level["spent_nanousd"], level["unresolved_nanousd"]
                self.assertLessEqual(acknowledged * COST_NANOUSD, spent)
                self.assertLessEqual(spent, billed)
                self.assertLessEqual(sent, spent + unresolved)

    @contextmanager
    def restored(self, file: Path) -> Iterator[Any]:
        owned = DataDir.own(self.folder / f"{file.name}.restored")
        restore(owned, file, RealClock(), replace=False)
        books = open_books(owned, None)
        try:
            yield books
        finally:
            books.close()
            owned.close()


class RestoreTest(unittest.TestCase):
    """`gateway restore`, and the gateway after it."""

    def test_a_restored_ledger_serves_nobody_until_it_is_confirmed(self) -> None:
        """Not beside its owner, not without --yes; then 503 without a call, and business as usual after the word."""
        upstream = Upstream(bills)
        self.addCleanup(upstream.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        home, file = Path(folder.name), str(Path(folder.name) / "backup")
        env = {"UP_KEY": "sk-up"}
        with GatewayProcess(config(upstream), folder=home, env=env) as gateway:
            made = gateway.create_key()
            self.assertEqual(gateway.chat(made["key"], model="mini")[0], 200)
            gateway.cli("backup", file)
            self.assertEqual(gateway.chat(made["key"], model="mini")[0], 200)
            gateway.command("keys.block", id=made["id"])
            refused = run_cli("restore", file, "--data-dir", str(gateway.data_dir), "--yes")
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertRegex(refused.stderr, f"^stop the gateway first: .* \\(pid {gateway.child.pid}\\)$")
            gateway.signal(signal.SIGTERM)
            self.assertEqual(gateway.wait(), 0)
        arguments = ("restore", file, "--data-dir", str(home / "gateway-data"), "--json")
        asked, done = run_cli(*arguments), run_cli(*arguments, "--yes")
        self.assertEqual((asked.returncode, done.returncode), (1, 0), done.stderr)
        self.assertIn("say --yes", asked.stderr)
        told = json.loads(done.stdout)
        self.assertEqual(
            (told["restored"], told["epoch"], told["replaced_is_readable"], json.loads(asked.stdout)["restored"]),
            (True, 2, True, False),
        )
        self.assertEqual(told["keys_valid_again"], [{"id": made["id"], "tenant": "acme", "after": "blocked"}])
        self.assertEqual([level["missing_nanousd"] for level in told["missing"]], [COST_NANOUSD] * 3)
        with GatewayProcess(folder=home, env=env) as gateway:
            reasons = self.readiness(gateway, 503)
            self.assertEqual(reasons, ["ledger restored from a backup: gateway ledger confirm 2"])
            status, headers, body = gateway.chat(made["key"], model="mini")
            self.assertEqual((status, json.loads(body)["error"]["code"]), (503, "store_unavailable"))
            self.assertEqual((headers["retry-after"], headers["x-gateway-exit"]), ("30", "rejected"))
            self.assertEqual(len(upstream.calls), 2)
            gateway.wait_for_event("ledger_unconfirmed")
            self.assertEqual(gateway.cli("ledger", "confirm", "2"), {"epoch": 2, "confirmed": True})
            self.assertEqual(self.readiness(gateway, 200), [])
            self.assertEqual(gateway.chat(made["key"], model="mini")[0], 200)
            [epoch] = gateway.command("ledger.epochs")
            self.assertEqual(epoch["differences"]["missing"], told["missing"])
            self.assertTrue(gateway.command("ledger.verify")["ok"])

    def readiness(self, gateway: GatewayProcess, status: int) -> list[str]:
        answer = gateway.call("GET", "/readyz")
        self.assertEqual(answer[0], status)
        return list(json.loads(answer[2])["reasons"])
