"""Backup and restore of a ledger: what is written, what is refused, and what an operator is told."""

import contextlib
import io
import json
import os
import shutil
import sqlite3
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from gateway import sqlite_copy, sqlite_file, sqlite_store
from gateway.books import open_books
from gateway.cli import main
from gateway.clock import FakeClock
from gateway.commands import CommandError
from gateway.data_dir import DataDir
from gateway.drive import drive
from gateway.errors import GatewayError, LedgerUnconfirmed, StoreUnavailable
from gateway.restore import RestoreRefused, restore
from gateway.sqlite_file import StoreRefused
from gateway.store import Transaction
from tests.support.connections import watched
from tests.support.ledgers import at_schema, dump, execute, of_columns, rows_of, used_ledger
from tests.support.world import CONFIG, USD, RealWorld, chat, scripted


class BackupCase(unittest.TestCase):
    """A gateway over a file of its own, and a folder for backups."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.file = self.folder / "backup"

    def world(self, **options: Any) -> RealWorld:
        return self.enterContext(RealWorld(**options))

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())


class BackupTest(BackupCase):
    """`gateway backup`."""

    def refusal(self, world: RealWorld, file: object) -> str:
        with self.assertRaises(CommandError) as refused:
            world.run("backup", file=file)
        return str(refused.exception)

    def test_it_is_the_whole_ledger_in_one_file(self) -> None:
        """For its user alone, with what was queued, and the books are told of."""
        world = self.world(config=f'{CONFIG}[store]\ndurability = "normal"\n', clock=FakeClock())
        with mock.patch.object(sqlite_store, "FLUSH_AFTER_S", 3600.0):
            world.gateway.handle(world.key(), chat())
            told = json.loads(json.dumps(world.run("backup", file=str(self.file))))
        expected = {"file": str(self.file), "bytes": self.file.stat().st_size, "schema": 4, "epoch": 1, "ok": True}
        expected |= {"balances": 3, "holds": 1, "rows": 1, "open_holds": 0, "unresolved_holds": 0, "differences": []}
        self.assertEqual({name: told[name] for name in expected}, expected)
        self.assertEqual(told["until_ms"], world.clock.wall_ms())
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.names(), ["backup"])
        world.books.close()
        before = dump(world.path / "ledger.db")
        self.assertEqual({**dump(self.file), "boots": before["boots"]}, before)

    def test_what_happens_meanwhile_is_not_in_it_and_does_not_start_it_anew(self) -> None:
        """A copy is that of its beginning, and every table fits the others: settlements, refusals, work undone."""
        steps = 0

        def seen(sql: str) -> None:
            nonlocal steps
            if sql == "STEP":
                steps += 1
                self.assertLess(steps, 500)
                world.gateway.handle(key, chat())
                with self.assertRaises(GatewayError):
                    world.gateway.handle(poor, chat())
                with self.assertRaises(StoreUnavailable):
                    drive(world.books.store.transact(undone))

        async def undone(transaction: Transaction) -> None:
            await transaction.execute("UPDATE boots SET pid = pid + 1")
            raise StoreUnavailable

        with mock.patch.object(sqlite_copy, "STEP_PAGES", 1), watched(after=seen):
            world = self.world()
            key, poor = world.key(), world.key("0.000000001")
            world.gateway.handle(key, chat())
            told = world.run("backup", file=str(self.file))
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as connection:
            [pages] = connection.execute("PRAGMA page_count").fetchone()
        self.assertEqual((told["ok"], told["rows"]), (True, 1))
        self.assertLessEqual(steps, pages + 1)
        self.assertEqual(len(rows_of(world.path / "ledger.db", "SELECT 1 FROM holds")), 1 + steps)

    def test_a_copy_that_is_too_slow_is_given_up(self) -> None:
        """The log must not grow for ever: it says so, leaves nothing, and the log begins anew."""

        def seen(sql: str) -> None:
            if sql == "STEP":
                world.gateway.handle(key, chat())

        with (
            mock.patch.object(sqlite_copy, "STEP_PAGES", 1),
            mock.patch.object(sqlite_store, "LEAST_GROWTH_BYTES", 0),
            mock.patch.object(sqlite_store, "COPY_AFTER", 1),
            watched(after=seen),
        ):
            world = self.world()
            key = world.key()
            self.assertRegex(self.refusal(world, str(self.file)), "committed before all was copied: take a faster disk")
            self.assertEqual(self.names(), [])
            world.gateway.handle(key, chat())
            grown = world.books.store.wal_bytes
            for _ in range(20):
                world.gateway.handle(key, chat())
            self.assertEqual(world.books.store.wal_bytes, grown)

    def test_bad_places_are_refused(self) -> None:
        """With a reason each; what is there stays, and nothing is added."""
        world = self.world()
        (self.folder / "taken").write_text("mine")
        (self.folder / "dangling").symlink_to(self.folder / "nowhere")
        own = [world.path / name for name in ("ledger.db", "ledger.db-wal", "ledger.db.new", "control", "cache.db-shm")]
        before = self.names(), sorted(path.name for path in world.path.iterdir())
        for path, reason in (
            (self.folder / "taken", "is there already"),
            (self.folder / "dangling", "is there already"),
            (self.folder, "is a directory"),
            (self.folder / "none" / "backup", "is no directory"),
            (self.folder / "taken" / "backup", "is no directory"),
            *((path, "one of the data directory's own files") for path in own),
            ("backup", "must be an absolute path"),
            ("/tmp/a\0b", "must be an absolute path"),
            (7, "must be an absolute path"),
            (None, "must be an absolute path"),
        ):
            with self.subTest(path=path):
                self.assertIn(reason, self.refusal(world, str(path) if isinstance(path, Path) else path))
        self.assertEqual((self.folder / "taken").read_text(), "mine")
        self.assertEqual((self.names(), sorted(path.name for path in world.path.iterdir())), before)
        world.run("backup", file=str(world.path / "ledger.backup"))

    def test_one_at_a_time(self) -> None:
        """A second one is refused while the first runs, and not after it."""
        world = self.world()
        copy_to, second = world.books.store.copy_to, str(self.folder / "second")
        told: list[str] = []

        def copying(draft: Path) -> None:
            told.append(self.refusal(world, second))
            copy_to(draft)

        with mock.patch.object(world.books.store, "copy_to", copying):
            world.run("backup", file=str(self.file))
        self.assertEqual(told, ["another backup is being written: try again"])
        world.run("backup", file=second)

    def test_a_copy_that_is_damaged_gets_no_name(self) -> None:
        """Nothing is left of it."""
        world = self.world()

        def damaging(source: sqlite3.Connection, draft: Path, **options: Any) -> None:
            sqlite_copy.copy(source, draft, **options)
            raw = bytearray(draft.read_bytes())
            raw[3 * 2048 : 4 * 2048] = b"\xff" * 2048
            draft.write_bytes(raw)

        with mock.patch.object(sqlite_store, "copy", damaging):
            self.assertIn("is damaged", self.refusal(world, str(self.file)))
        self.assertEqual(self.names(), [])

    def test_the_structure_of_the_copy_is_checked_once(self) -> None:
        """That reads all of it, and takes as long as all else."""
        checks: list[str] = []

        def seen(sql: str) -> None:
            if "integrity_check" in sql:
                checks.append(sql)

        with watched(before=seen):
            world = self.world()
            world.run("backup", file=str(self.file))
        self.assertEqual(len(checks), 1)

    def test_a_full_disk_leaves_nothing(self) -> None:
        """Neither while it is copied nor when it is synced."""
        world = self.world()
        full = OSError(28, "No space left on device")
        for patch in (
            mock.patch.object(sqlite_copy, "sync", side_effect=full),
            mock.patch.object(sqlite_store, "copy", side_effect=sqlite3.OperationalError("database or disk is full")),
        ):
            with self.subTest(), patch:
                self.assertRegex(self.refusal(world, str(self.file)), "cannot be written: .*(No space|disk is full)")
                self.assertEqual(self.names(), [])
        world.gateway.handle(world.key(), chat())

    def test_a_file_that_appears_meanwhile_is_not_overwritten(self) -> None:
        """With and without links on the file system."""
        world = self.world()
        link = os.link

        def appearing(links: bool) -> Callable[..., None]:
            def call(source: Path, target: Path) -> None:
                target.write_text("mine")
                if not links:
                    raise PermissionError
                link(source, target)

            return call

        for links in (True, False):
            with self.subTest(links=links), mock.patch.object(os, "link", appearing(links)):
                self.assertIn("is there already", self.refusal(world, str(self.file)))
                self.assertEqual((self.names(), self.file.read_text()), (["backup"], "mine"))
                self.file.unlink()

    def test_a_file_system_without_links(self) -> None:
        """The draft is renamed."""
        world = self.world()
        with mock.patch.object(os, "link", side_effect=PermissionError):
            world.run("backup", file=str(self.file))
        self.assertEqual(self.names(), ["backup"])

    def test_a_store_that_is_closed_is_not_copied(self) -> None:
        """A backup does not hold up an end."""
        with RealWorld() as world:
            pass
        self.file.touch()
        with self.assertRaises(StoreUnavailable):
            world.books.store.copy_to(self.file)

    def test_books_that_differ_are_backed_up_and_told(self) -> None:
        """They are evidence; the exit status says it. They are not restored."""
        data, written = self.folder / "data", io.StringIO()
        data.mkdir()
        (data / "ledger.db").write_bytes(used_ledger())
        execute(data / "ledger.db", "UPDATE balances SET spent_nanousd = spent_nanousd + 1")
        with contextlib.redirect_stdout(written):
            status = main(["backup", str(self.file), "--data-dir", str(data), "--json"])
        told = json.loads(written.getvalue())
        self.assertEqual((status, told["ok"], len(told["differences"])), (1, False, 3))
        with (
            contextlib.closing(DataDir.own(self.folder / "fresh")) as owned,
            self.assertRaisesRegex(RestoreRefused, "its books do not balance: balance 1 differs"),
        ):
            restore(owned, self.file, FakeClock(), replace=True)


class RestoreTest(BackupCase):
    """`gateway restore`, on a directory that nobody owns."""

    def setUp(self) -> None:
        super().setUp()
        self.clock = FakeClock()
        self.owned = DataDir.own(self.folder / "data")
        self.addCleanup(self.owned.close)

    def open(self) -> Any:
        """The books of the directory, until the block ends."""
        return contextlib.closing(open_books(self.owned, None, clock=self.clock))

    def make(self) -> str:
        """A ledger with a key and a backup of it; the key's id."""
        with self.open() as books:
            made = books.commands.run("keys.create", {"tenant": "acme", "budget_usd": "5"})
            books.commands.run("backup", {"file": str(self.file)})
        return str(made["id"])

    def restore(self, *, replace: bool = True) -> dict[str, Any]:
        self.clock.advance(60)
        return restore(self.owned, self.file, self.clock, replace=replace)

    def refusal(self) -> str:
        """What the operator is told; the directory is what it was."""
        before = {path.name: path.read_bytes() for path in self.owned.path.iterdir()}
        with self.assertRaises((RestoreRefused, sqlite3.Error)) as refused:
            self.restore()
        self.assertEqual({path.name: path.read_bytes() for path in self.owned.path.iterdir()}, before)
        return str(refused.exception)

    def page_of(self, index: str) -> int:
        """Where in the backup the root of an index lies, in pages."""
        return int(rows_of(self.file, f"SELECT rootpage FROM sqlite_schema WHERE name = '{index}'")[0][0]) - 1

    def test_what_is_no_backup_is_refused(self) -> None:
        """And the ledger is the one that it was, to the byte."""
        self.make()
        good = self.file.read_bytes()
        index = self.page_of("holds_of_request") * 2048
        for content, reason in (
            (b"", "belongs to another program"),
            (b"not a database\n" * 400, "file is not a database"),
            (good[: len(good) // 2], "malformed"),
            (good[:2048] + b"\xff" * 2048 + good[4096:], "malformed"),
            (good[:index] + b"\x0a" + b"\x01" * 7 + good[index + 8 :], "is damaged"),
        ):
            with self.subTest(reason=reason):
                self.file.write_bytes(content)
                self.assertIn(reason, self.refusal())
        self.file.write_bytes(good)
        execute(self.file, "PRAGMA user_version = 999")
        self.assertIn("has schema 999", self.refusal())
        execute(self.file, "PRAGMA application_id = 7")
        self.assertIn("belongs to another program", self.refusal())
        self.file.unlink()
        self.assertIn("there is no file", self.refusal())
        self.file = self.owned.ledger
        self.assertIn("is no backup", self.refusal())

    def test_a_ledger_that_somebody_has_open_is_not_replaced(self) -> None:
        """His lock is waited for, but not for long."""
        self.make()
        self.enterContext(mock.patch.object(sqlite_file, "BUSY_TIMEOUT_S", 0.01))
        with contextlib.closing(sqlite3.connect(self.owned.ledger, isolation_level=None)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            with self.assertRaisesRegex(sqlite3.OperationalError, "locked"):
                self.restore()
        with self.open() as books:
            self.assertIsNone(books.ledger.unconfirmed_epoch)

    def test_without_leave_nothing_is_changed(self) -> None:
        """What would be is told, but only where there is a ledger to replace."""
        self.make()
        before = {path.name: path.read_bytes() for path in self.owned.path.iterdir()}
        told = self.restore(replace=False)
        self.assertEqual((told["restored"], told["epoch"], bool(told["replaced"])), (False, 2, True))
        self.assertEqual({path.name: path.read_bytes() for path in self.owned.path.iterdir()}, before)
        self.owned.ledger.unlink()
        told = self.restore(replace=False)
        self.assertEqual((told["restored"], told["epoch"], told["replaced"]), (True, 2, None))

    def test_the_gap_is_on_record(self) -> None:
        """Times, files, and money by level; the replaced ledger is beside the restored one, whole."""
        self.make()
        self.clock.advance(3600)
        with self.open() as books:
            books.commands.run("keys.create", {"tenant": "acme"})
        until_ms = self.clock.wall_ms()
        before = dump(self.owned.ledger)
        told = self.restore()
        kept = self.owned.path / "ledger.db.epoch-1.20260101T010100Z"
        self.assertEqual((told["replaced"], dump(kept)), (kept.name, before))
        with self.open() as books:
            [epoch] = books.commands.run("ledger.epochs", {})
        self.assertEqual(epoch["number"], 2)
        self.assertEqual((epoch["backup"], epoch["replaced"]), (str(self.file), kept.name))
        self.assertEqual(
            (epoch["backup_until_ms"], epoch["replaced_until_ms"], epoch["restored_ms"]),
            (until_ms - 3_600_000, until_ms, until_ms + 60_000),
        )
        self.assertEqual(epoch["differences"]["missing"], [])
        self.assertEqual(
            sorted(path.name for path in self.owned.path.iterdir()), ["cache.db", "ledger.db", kept.name, "lock"]
        )

    def test_a_ledger_with_a_damaged_page_is_kept_as_it_is(self) -> None:
        """SQLite would open it; what it still says is not relied on."""
        self.make()
        root = rows_of(self.owned.ledger, "SELECT rootpage FROM sqlite_schema WHERE name = 'holds_of_request'")[0][0]
        with self.owned.ledger.open("r+b") as file:
            file.seek((root - 1) * 2048)
            file.write(b"\x05" * 8)
        damaged = self.owned.ledger.read_bytes()
        told = self.restore()
        self.assertIs(told["replaced_is_readable"], False)
        self.assertEqual((self.owned.path / told["replaced"]).read_bytes(), damaged)

    def test_the_epoch_is_above_all_that_were(self) -> None:
        """That of the backup, that of the ledger, and, where that cannot be read, those of the ledgers kept here."""
        self.make()
        self.assertEqual([self.restore()["epoch"] for _ in range(2)], [2, 3])
        for path in self.owned.path.glob("ledger.db.epoch-*"):
            path.unlink()
        self.assertEqual(self.restore()["epoch"], 4)
        self.owned.ledger.write_bytes(b"not a database\n" * 400)
        told = self.restore()
        self.assertEqual((told["epoch"], told["replaced_is_readable"]), (5, False))
        self.assertTrue(told["replaced"].startswith("ledger.db.epoch-4."))
        self.assertEqual((self.owned.path / told["replaced"]).read_bytes(), b"not a database\n" * 400)
        with self.open() as books:
            books.commands.run("backup", {"file": f"{self.file}-5"})
        shutil.copy(f"{self.file}-5", self.file)
        with contextlib.closing(DataDir.own(self.folder / "fresh")) as fresh:
            self.assertEqual(restore(fresh, self.file, self.clock, replace=False)["epoch"], 6)

    def test_people_are_told_in_words(self) -> None:
        """Moments in UTC, money in USD, what to do next; a refusal is one line and exit status 1."""
        data = str(self.folder / "told")
        Path(data).mkdir()
        self.file.write_bytes(used_ledger())
        self.assertEqual(self.run_main("restore", str(self.file), "--data-dir", data)[0], 0)
        execute(Path(data) / "ledger.db", "UPDATE balances SET spent_nanousd = spent_nanousd + 1500000000")
        status, out, err = self.run_main("restore", str(self.file), "--data-dir", data, "--yes")
        self.assertEqual(status, 0)
        self.assertEqual(
            err.splitlines(),
            [
                "nothing is sent until this is confirmed: gateway ledger confirm 3",
                "that confirms earlier restores, too, see gateway ledger epochs: 2",
            ],
        )
        self.assertRegex(out, r"(?m)^backup_until +20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        of_a_total = "scope {}, name {}, window total, window_ends -, missing 1.5 USD"
        missing = [line.removeprefix("missing").strip() for line in out.splitlines() if line.startswith("missing ")]
        self.assertIn(of_a_total.format("tenant", "acme"), missing)
        self.assertEqual(len(missing), 3)
        month = next(line for line in missing if line.startswith("scope global"))
        self.assertRegex(month, r"name -, window month, window_ends 20\d\d-\d\d-01T00:00:00Z, missing 1\.5 USD$")
        epochs = self.run_main("ledger", "epochs", "--data-dir", data)[1]
        self.assertEqual([line.split()[1] for line in epochs.splitlines() if line.startswith("number ")], ["2", "3"])
        self.assertEqual(
            [line.split() for line in epochs.splitlines() if line.startswith("  missing ")][-3:],
            [line.split() for line in out.splitlines() if line.startswith("missing ")],
        )
        for arguments, reason in (
            (("restore", str(self.folder / "none"), "--data-dir", data), "there is no file"),
            (("restore", str(self.folder), "--data-dir", data), "is a directory: name the backup in it"),
            (("restore", "/dev/null", "--data-dir", data), "is no file but a device, a pipe or a socket"),
            (
                ("restore", str(self.file), "--data-dir", str(self.owned.path)),
                f"stop the gateway first: {self.owned.path} belongs to a gateway that is running",
            ),
            (("ledger", "confirm", "7", "--data-dir", data), "epoch 7 does not wait to be confirmed, epoch 3 does"),
            (("restore", __file__, "--data-dir", data, "--yes"), "file is not a database"),
        ):
            status, out, err = self.run_main(*arguments)
            self.assertEqual((status, out, err.count("\n")), (1, "", 1))
            self.assertIn(reason, err)

        status, out, err = self.run_main("restore", str(self.file), "--data-dir", data)
        self.assertEqual((status, err.count("\n")), (1, 1))
        self.assertIn(f"nothing was changed: there is a ledger in {data}; to replace it, say --yes", err)
        self.assertRegex(out, r"(?m)^unconfirmed_epochs +2, 3, 4$")

    def run_main(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, and what is printed."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return main(arguments), out.getvalue(), err.getvalue()

    def test_what_was_done_to_keys_is_told(self) -> None:
        """Those that work again though they should not, and those that no longer do."""
        with self.open() as books:
            run = books.commands.run
            ids = {
                name: run("keys.create", {"tenant": "acme", "name": name})["id"]
                for name in ("deleted", "blocked", "rotated", "unblocked", "same", "gone before")
            }
            run("keys.block", {"id": ids["unblocked"]})
            run("keys.delete", {"id": ids["gone before"]})
            run("backup", {"file": str(self.file)})
            run("keys.delete", {"id": ids["deleted"]})
            run("keys.block", {"id": ids["blocked"]})
            run("keys.rotate", {"id": ids["rotated"]})
            run("keys.unblock", {"id": ids["unblocked"]})
            ids["created"] = run("keys.create", {"tenant": "new"})["id"]
            run("keys.delete", {"id": run("keys.create", {"tenant": "new"})["id"]})
        told = self.restore()
        again = {key["id"]: key["after"] for key in told["keys_valid_again"]}
        lost = {key["id"]: (key["after"], key["tenant"]) for key in told["keys_lost"]}
        self.assertEqual(again, {ids[name]: name for name in ("deleted", "blocked", "rotated")})
        self.assertEqual(lost, {ids["unblocked"]: ("unblocked", "acme"), ids["created"]: ("created", "new")})

    def test_budgets_that_are_what_they_were_are_told(self) -> None:
        """Whether the limit was changed since or its window; of a key that is gone nobody asks."""
        with self.open() as books:
            run = books.commands.run
            make = {"tenant": "acme", "budget_usd": "5", "budget_window": "day"}
            lower, wider, same, gone = (run("keys.create", make)["id"] for _ in range(4))
            run("keys.delete", {"id": gone})
            run("backup", {"file": str(self.file)})
            run("keys.budget", {"id": lower, "usd": "1"})
            run("keys.budget", {"id": wider, "no_limit": True, "window": "month"})
            run("keys.budget", {"id": same, "usd": "7"})
            run("keys.budget", {"id": same, "usd": "5"})
        was = {"tenant": "acme", "window": "day", "limit_nanousd": 5_000_000_000}
        self.assertCountEqual(self.restore()["budgets_again"], [{"id": lower} | was, {"id": wider} | was])

    def test_what_a_first_restore_has_forgotten_is_on_record_after_a_second(self) -> None:
        """Whoever restores again before anybody has confirmed is told all that is missing, not the last step alone."""
        id_ = self.make()
        with self.open() as books:
            books.commands.run("keys.delete", {"id": id_})
        self.assertEqual(self.restore()["unconfirmed_epochs"], [2])
        self.assertEqual(self.restore()["unconfirmed_epochs"], [2, 3])
        with self.open() as books:
            first, second = books.commands.run("ledger.epochs", {})
            books.commands.run("ledger.confirm", {"epoch": 3})
            confirmed = books.commands.run("ledger.epochs", {})
        self.assertEqual(first["differences"]["keys_valid_again"], [{"id": id_, "tenant": "acme", "after": "deleted"}])
        self.assertEqual(
            second["differences"], {"missing": [], "keys_valid_again": [], "keys_lost": [], "budgets_again": []}
        )
        self.assertEqual({epoch["confirmed_ms"] for epoch in confirmed}, {self.clock.wall_ms()})

    def test_every_restore_is_on_record_whatever_was_restored(self) -> None:
        """Older backups, newer ones, and one of an epoch that was confirmed after it: in order, none twice."""
        self.make()
        oldest = self.file
        backups = [oldest]
        for epoch in range(2, 6):
            self.file = backups[(epoch * 7) % len(backups)]
            self.assertEqual(self.restore()["epoch"], epoch)
            with self.open() as books:
                self.file = self.folder / f"backup-{epoch}"
                books.commands.run("backup", {"file": str(self.file)})
                backups.append(self.file)
                books.commands.run("ledger.confirm", {"epoch": epoch})
                before = books.commands.run("ledger.epochs", {})
        for self.file in (oldest, backups[-1], backups[2]):
            told = self.restore()
            with self.open() as books:
                after = books.commands.run("ledger.epochs", {})
            self.assertEqual([epoch["number"] for epoch in after], list(range(2, told["epoch"] + 1)))
            self.assertEqual((after[:4], after[-1]["confirmed_ms"]), (before, None))
            self.assertEqual(after[-1]["backup"], str(self.file))

    def test_a_replaced_ledger_of_an_older_schema_has_no_epochs(self) -> None:
        """It is replaced all the same."""
        self.make()
        self.owned.ledger.unlink()
        at_schema(1, self.owned.ledger, used_ledger())
        self.assertEqual((self.restore()["epoch"], self.restore()["epoch"]), (2, 3))

    def test_nothing_is_reserved_until_an_operator_confirms(self) -> None:
        """That very epoch, once; also after another start."""
        self.make()
        self.restore()
        for _ in range(2):
            with self.open() as books:
                self.assertEqual(books.ledger.unconfirmed_epoch, 2)
        with self.open() as books:
            for epoch in (1, 3):
                with self.assertRaisesRegex(CommandError, f"^epoch {epoch} does not wait .*, epoch 2 does.*: see "):
                    books.commands.run("ledger.confirm", {"epoch": epoch})
            self.assertEqual(books.commands.run("ledger.confirm", {"epoch": 2}), {"epoch": 2, "confirmed": True})
            self.assertIsNone(books.ledger.unconfirmed_epoch)
        with self.open() as books:
            self.assertIsNone(books.ledger.unconfirmed_epoch)
            with self.assertRaisesRegex(CommandError, "epoch 2 does not wait to be confirmed, no epoch does"):
                books.commands.run("ledger.confirm", {"epoch": 2})
            self.assertIsNotNone(books.commands.run("ledger.epochs", {})[0]["confirmed_ms"])

    def test_no_remembered_answer_outlives_a_restore(self) -> None:
        """It may have been given to a key or a tenant that is another one now."""
        self.make()
        for file in (self.owned.cache, self.owned.words):
            file.with_name(f"{file.name}-wal").touch()
        self.restore()
        self.assertEqual([*self.owned.path.glob("cache.db*"), *self.owned.path.glob("words.db*")], [])

    def test_a_backup_of_an_older_schema_is_migrated(self) -> None:
        """The file itself stays what it was."""
        at_schema(1, self.file, used_ledger())
        before = dump(self.file)
        self.restore()
        after = dump(self.owned.ledger)
        self.assertEqual(of_columns(after, before), before)
        self.assertEqual(dump(self.file), before)

    def test_a_ledger_with_its_log_is_a_backup_too(self) -> None:
        """As somebody copies it from a machine that died: the last commits are in the log."""
        self.make()
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as dead:
            dead.execute("PRAGMA journal_mode = WAL").fetchall()
            dead.execute("PRAGMA wal_autocheckpoint = 0").fetchall()
            dead.execute("UPDATE keys SET name = 'in the log'")
            for suffix in ("", "-wal"):
                shutil.copy(f"{self.file}{suffix}", f"{self.folder / 'copied'}{suffix}")
        self.file = self.folder / "copied"
        self.restore()
        self.assertEqual(rows_of(self.owned.ledger, "SELECT name FROM keys"), [("in the log",)])

    def test_a_ledger_that_died_at_its_first_start_is_read(self) -> None:
        """Its journal, which undoes a switch that was not finished, is brought in before it is looked at."""
        self.make()
        copied = self.folder / "copied"
        with contextlib.closing(sqlite3.connect(self.owned.ledger, isolation_level=None)) as dead:
            dead.execute("PRAGMA journal_mode = DELETE").fetchall()
            dead.execute("PRAGMA cache_size = 1").fetchall()
            dead.execute("BEGIN IMMEDIATE")
            dead.execute("UPDATE keys SET name = 'not committed'")
            dead.execute(
                "INSERT INTO boots (started_ms, pid, machine_boot) SELECT 1, 1, hex(randomblob(9999)) FROM levels"
            )
            shutil.copy(self.owned.ledger, copied)
            shutil.copy(f"{self.owned.ledger}-journal", f"{copied}-journal")
        self.owned.ledger.unlink()
        copied.rename(self.owned.ledger)
        Path(f"{copied}-journal").rename(f"{self.owned.ledger}-journal")
        told = self.restore()
        self.assertTrue(told["replaced_is_readable"])
        self.assertEqual(rows_of(self.owned.path / told["replaced"], "SELECT name FROM keys"), [(None,)])

    def test_a_log_whose_ledger_is_gone_is_not_taken_for_the_new_ones(self) -> None:
        """It is set aside like a ledger."""
        self.make()
        log = self.owned.ledger.with_name("ledger.db-wal")
        self.owned.ledger.unlink()
        log.write_bytes(b"commits")
        with self.assertRaises(StoreRefused):
            open_books(self.owned, None)
        self.assertEqual(self.restore()["replaced"], "ledger.db.epoch-1.20260101T000100Z-wal")
        self.assertFalse(log.exists())
        [kept] = self.owned.path.glob("ledger.db.epoch-*")
        self.assertEqual((kept.name[-4:], kept.read_bytes()), ("-wal", b"commits"))
        with self.open() as books:
            self.assertEqual(books.ledger.unconfirmed_epoch, 2)

    def test_what_is_left_of_a_ledger_is_not_replaced_without_leave(self) -> None:
        """Whichever of its files that is, or a link that leads nowhere; with leave all but the index is kept."""
        self.make()
        self.owned.ledger.unlink()
        for suffixes in (["-wal"], ["-shm"], ["-journal"], ["-journal", "-wal", "-shm"]):
            for suffix in suffixes:
                self.owned.ledger.with_name(f"ledger.db{suffix}").write_text("left")
            before = self.contents()
            with self.subTest(suffixes):
                told = self.restore(replace=False)
                self.assertEqual((told["restored"], told["replaced_is_readable"]), (False, False))
                self.assertEqual(self.contents(), before)
                told = self.restore()
                kept = [f"ledger.db.epoch-{told['epoch'] - 1}.{{}}{suffix}" for suffix in suffixes if suffix != "-shm"]
                names = [path.name for path in self.owned.path.glob(f"ledger.db.epoch-{told['epoch'] - 1}.*")]
                stamp = f"20260101T00{self.clock.wall_ms() // 60_000 % 60:02}00Z"
                self.assertEqual(sorted(names), sorted(name.format(stamp) for name in kept))
                self.assertEqual(told["replaced"], kept[0].format(stamp) if kept else None)
                self.assertEqual([path.name for path in self.owned.path.glob("ledger.db-*")], [])
            self.owned.ledger.unlink()
        self.owned.ledger.symlink_to("/nowhere")
        for replace in (False, True):
            with self.assertRaisesRegex(sqlite3.OperationalError, "unable to open"):
                self.restore(replace=replace)

    def contents(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.owned.path.iterdir()}


class UnconfirmedTest(unittest.TestCase):
    """A request to a gateway whose ledger waits."""

    def test_it_is_refused_without_a_call_and_without_a_hold(self) -> None:
        """503 store_unavailable; settlements and rows are written all the same."""
        up = scripted({"text": "hello"}, repeat=True)
        with RealWorld(providers=up) as world:
            raw = world.key("5")
            world.books.ledger.unconfirmed_epoch = 2
            with self.assertRaises(LedgerUnconfirmed) as refused:
                world.gateway.handle(raw, chat())
            self.assertEqual((refused.exception.status, refused.exception.code), (503, "store_unavailable"))
            self.assertEqual(len(up["up"].calls), 0)  # type: ignore[attr-defined]
            [row] = world.rows()
            self.assertEqual((row["exit"], row["state"], row["cost_nanousd"]), ("rejected", "none", 0))
            self.assertEqual(world.shown(raw)["limit_nanousd"], 5 * USD)
