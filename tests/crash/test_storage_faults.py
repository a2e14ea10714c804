"""What the storage can do to a gateway: full disks, foreign locks, files that are no ledger. No hold is ever lost."""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from gateway import sqlite_file, sqlite_store
from gateway.books import open_books
from gateway.config import load
from gateway.data_dir import DataDir
from gateway.errors import GatewayError, StoreUnavailable
from gateway.sqlite_file import StoreRefused, connect_writer
from gateway.store import Durability
from tests.crash import full_disk
from tests.support.connections import watched
from tests.support.forks import ForkServer
from tests.support.world import CONFIG, RealWorld, chat

DURABILITIES = ("full", "normal")


def can_mount() -> bool:
    """Whether this user may make a mount namespace and mount in it."""
    command = (
        'folder=$(mktemp -d) && mount -t tmpfs none "$folder" && umount "$folder"; done=$?; rmdir "$folder"; exit $done'
    )
    try:
        return subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


class FullDiskTest(unittest.TestCase):
    """Disks without room."""

    def test_a_limit_on_the_size_of_files(self) -> None:
        """Reservations are refused without a call, settlements wait in memory; both go on when there is room."""
        with ForkServer() as server:
            for durability in DURABILITIES:
                with self.subTest(durability=durability):
                    server.result(full_disk.limited_file_size, durability=durability)

    def test_a_backup_without_room(self) -> None:
        """It says so, leaves no half of a file, and nothing in the gateway has noticed."""
        with ForkServer() as server:
            server.result(full_disk.backup_without_room)

    def test_commands_beside_nobody(self) -> None:
        """The gateway is down and its disk is full: what it has left can be read, and nothing is changed."""
        with ForkServer() as server:
            server.result(full_disk.commands_beside_nobody)

    @unittest.skipUnless(can_mount(), "needs the right to mount")
    def test_a_file_system_without_space(self) -> None:
        """The same on a real file system that other files fill."""
        with ForkServer("unshare", "-m") as server:
            for durability in DURABILITIES:
                with self.subTest(durability=durability):
                    server.result(full_disk.small_file_system, durability=durability)


class Foreigner:
    """Another process that has the ledger open, and does what it is told."""

    _CODE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
for line in sys.stdin:
    connection.execute(line).fetchall()
    print("done", flush=True)
"""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", self._CODE, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def execute(self, sql: str) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(sql + "\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            raise RuntimeError(f"the foreign process did not {sql}")

    def lock(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def unlock(self) -> None:
        self.execute("ROLLBACK")

    def unlock_after_work(self) -> None:
        """Unlock after a calculation that takes longer than it takes to ask for the lock."""
        self.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000) SELECT max(i) FROM n"
        )
        self.unlock()

    def close(self) -> None:
        self._process.communicate()


class ForeignLockTest(unittest.TestCase):
    """A process that is not ours holds the write lock. What is queued is carried by requests alone: nobody who comes
    after the lock is in line behind a commit that it has failed.
    """

    def setUp(self) -> None:
        self.enterContext(mock.patch.object(sqlite_file, "BUSY_TIMEOUT_S", 0.05))
        self.enterContext(mock.patch.object(sqlite_store, "FLUSH_AFTER_S", 3600.0))
        self.at_begin: Callable[[], object] = lambda: None

    @contextlib.contextmanager
    def world(self, durability: str) -> Iterator[None]:
        self.up = full_disk.ActingProvider()
        config = f'{CONFIG}\n[store]\ndurability = "{durability}"\n'
        with watched(before=self._watch), RealWorld(config=config, providers={"up": self.up}) as self.gateway_world:
            self.raw_key = self.gateway_world.key("1")
            self.foreigner = Foreigner(self.gateway_world.path / "ledger.db")
            try:
                yield
            finally:
                self.foreigner.close()
            self.gateway_world.books.store.check_files()
            self.assertEqual(self.gateway_world.lost, [], "whoever comes and goes takes no file away")
            report = self.gateway_world.run("ledger.verify")
            self.assertTrue(report["ok"], report["differences"])
            self.assertEqual((report["open_holds"], report["unresolved_holds"]), (0, 0))
            self.assertEqual(report["holds"], len(self.up.fake.calls))

    def _watch(self, sql: str) -> None:
        if sql.startswith("BEGIN"):
            act, self.at_begin = self.at_begin, lambda: None
            act()

    def test_a_short_lock_is_waited_for(self) -> None:
        """A request that comes while the file is locked is served once it is not."""
        with mock.patch.object(sqlite_file, "BUSY_TIMEOUT_S", 20.0), self.world("full"):
            self.foreigner.lock()
            unlocking = threading.Thread(target=self.foreigner.unlock_after_work)
            self.at_begin = unlocking.start
            self.ask()
            unlocking.join()
            self.assertEqual(len(self.up.fake.calls), 1)

    def test_a_long_lock_refuses_without_a_call(self) -> None:
        """503 with Retry-After, and not ready; after the lock everything goes on."""
        for durability in DURABILITIES:
            with self.subTest(durability=durability), self.world(durability):
                self.foreigner.lock()
                for _ in range(2):
                    self.refused()
                self.assertFalse(self.gateway_world.books.store.writable)
                self.assertEqual(list(self.up.fake.calls), [])
                self.foreigner.unlock()
                self.ask()
                self.assertTrue(self.gateway_world.books.store.writable)

    def test_a_lock_at_the_settlement_keeps_the_hold(self) -> None:
        """The answer goes out, the hold counts until the settlement is committed, once."""
        for durability in DURABILITIES:
            with self.subTest(durability=durability), self.world(durability):
                self.up.act = self.foreigner.lock
                self.ask()
                self.refused()
                self.foreigner.unlock()
                self.gateway_world.books.store.flush()
                shown = self.gateway_world.shown(self.raw_key)
                self.assertEqual(shown["held_nanousd"], 0)
                self.assertEqual([row["cost_nanousd"] for row in self.rows("settled")], [shown["spent_nanousd"]])

    def test_a_start_under_a_lock_is_refused_and_leaves_nothing_open(self) -> None:
        """StoreUnavailable after the bounded wait, no thread and no connection stays, and the next start succeeds."""
        with tempfile.TemporaryDirectory() as folder:
            data_dir = DataDir.own(Path(folder))
            open_books(data_dir, None).close()
            foreigner = Foreigner(data_dir.ledger)
            foreigner.lock()
            with self.assertRaises(StoreUnavailable):
                open_books(data_dir, load(CONFIG, {}))
            self.assertNotIn("ledger-flush", [thread.name for thread in threading.enumerate()])
            foreigner.unlock()
            foreigner.close()
            open_books(data_dir, None).close()
            data_dir.close()

    def ask(self) -> None:
        self.gateway_world.gateway.handle(self.raw_key, chat(max_tokens=20))

    def refused(self) -> None:
        with self.assertRaises(GatewayError) as refused:
            self.ask()
        self.assertEqual((refused.exception.status, refused.exception.code), (503, "store_unavailable"))
        self.assertIsNotNone(refused.exception.retry_after_s)

    def rows(self, state: str) -> list[dict[str, Any]]:
        return [row for row in self.gateway_world.rows() if row["state"] == state]


class OpenTest(unittest.TestCase):
    """Who opens the ledger."""

    def test_nobody_opens_it_but_sqlite(self) -> None:
        """A close() of the same file anywhere in the process would drop SQLite's locks."""
        with ForkServer() as server:
            self.assertEqual(server.result(full_disk.opened_by_python), [])


class RefusedFileTest(unittest.TestCase):
    """Files that a gateway must not start on."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "ledger.db"

    def ledger(self, *statements: str) -> None:
        """A ledger that somebody changed."""
        connect_writer(self.path, Durability.FULL).close()
        self.database(*statements)

    def database(self, *statements: str) -> None:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def assert_refused(self, reason: str) -> None:
        """Told by a plain sentence that names the file; nothing was changed, and no file was added."""
        before = self.files()
        for _ in range(2):
            with self.assertRaises(StoreRefused) as refused:
                connect_writer(self.path, Durability.FULL)
            self.assertIn(reason, str(refused.exception))
            self.assertIn(str(self.path), str(refused.exception))
            self.assertEqual(self.files(), before)

    def files(self) -> dict[str, bytes | None]:
        """Every file; of the index of a log, which is a part of the memory of processes, only that it is there."""
        return {
            file.name: file.read_bytes() if file.is_file() and not file.name.endswith("-shm") else None
            for file in self.path.parent.iterdir()
        }

    def test_an_empty_file(self) -> None:
        """SQLite would take it for a new database."""
        self.path.touch()
        self.assert_refused("is empty")

    def test_a_file_that_is_no_database(self) -> None:
        """Text, and a page of noise."""
        for content in (b"not a database\n" * 400, bytes(range(256)) * 16):
            self.path.write_bytes(content)
            self.assert_refused("cannot be used: file is not a database")

    def test_a_database_of_another_program(self) -> None:
        """With a mark of its own, or with none."""
        self.database("CREATE TABLE notes (text)", "PRAGMA user_version = 1", "PRAGMA application_id = 7")
        self.assert_refused("belongs to another program")
        self.path.unlink()
        self.database("CREATE TABLE notes (text)")
        self.assert_refused("belongs to another program")

    def test_a_ledger_of_a_newer_program(self) -> None:
        """It may mean what we do not know."""
        self.ledger("PRAGMA user_version = 999")
        self.assert_refused("has schema 999")

    def test_a_ledger_that_was_cut_short(self) -> None:
        """Half of a ledger is none."""
        self.ledger()
        content = self.path.read_bytes()
        self.path.write_bytes(content[: len(content) // 2])
        self.assert_refused("malformed")

    def test_a_ledger_that_was_not_closed_is_left_as_it_is(self) -> None:
        """One of a newer program, and one that contradicts itself; a part of each is in the log, and stays there."""
        for change, reason in (
            (("PRAGMA user_version = 999",), "has schema 999"),
            (("PRAGMA writable_schema = 1", "UPDATE sqlite_schema SET rootpage = 3 WHERE name = 'keys'"), "is damaged"),
        ):
            with self.subTest(reason):
                self.die_after(*change)
                self.assert_refused(reason)
                self.path.with_name("ledger.db-shm").unlink()
                self.assert_refused(reason)

    def die_after(self, *statements: str) -> None:
        """Leave a ledger behind whose owner died after these statements."""
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.closing(connect_writer(Path(folder) / "ledger.db", Durability.FULL)) as writer,
        ):
            for statement in statements:
                writer.execute(statement)
            shutil.copytree(folder, self.path.parent, dirs_exist_ok=True)

    def test_damage_is_looked_for_after_an_unclean_end(self) -> None:
        """Whole, where the ledger is not large; of a large one, the tables that every request reads."""
        for whole_bytes in (sqlite_file.CHECKED_WHOLE_BYTES, 0):
            for table, found in (("requests", bool(whole_bytes)), ("keys", True)):
                with (
                    self.subTest(table, whole_bytes=whole_bytes),
                    mock.patch.object(sqlite_file, "CHECKED_WHOLE_BYTES", whole_bytes),
                ):
                    self.die_after("INSERT INTO tenants VALUES ('acme', 0)")
                    self.damage(table)
                    if found:
                        self.assert_refused("malformed")
                    else:
                        connect_writer(self.path, Durability.FULL).close()

    def damage(self, table: str) -> None:
        """Make the first page of a table say that it is what no page is."""
        with contextlib.closing(sqlite3.connect(f"file:{self.path}?immutable=1", uri=True)) as connection:
            sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
            [(page,)] = connection.execute(sql, (table,)).fetchall()
        with self.path.open("r+b") as file:
            file.seek((page - 1) * sqlite_file.PAGE_BYTES)
            file.write(bytes(64))

    def test_a_folder(self) -> None:
        """A folder where the file should be."""
        self.path.mkdir()
        self.assert_refused("cannot be used: unable to open")

    def test_a_log_without_its_ledger(self) -> None:
        """The last commits are in the log: a new ledger beside it would lose them, or worse, take them."""
        for name, what in (("ledger.db-wal", "write-ahead log"), ("ledger.db-journal", "journal")):
            with self.subTest(name):
                log = self.path.with_name(name)
                log.write_bytes(b"commits")
                self.assert_refused(f"is gone but its {what} {name} is there: put ledger.db back beside it, or restore")
                self.assert_refused("gateway restore FILE --yes")
                log.unlink()

    def test_a_link_that_leads_nowhere(self) -> None:
        """A disk that is not mounted, perhaps: a new ledger in the place of the link would be an empty one."""
        self.path.symlink_to("/nowhere/ledger.db")
        self.assert_refused("is a link to /nowhere/ledger.db, which is not there")
        self.assertTrue(self.path.is_symlink())

    def test_a_ledger_that_may_not_be_written(self) -> None:
        """A user without the right to write it, or its folder, is told so."""
        self.ledger()
        memory = Path("/dev/shm")
        with ForkServer() as server:
            for name in ("ledger.db", ""):
                folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
                self.addCleanup(shutil.rmtree, folder)
                shutil.copy(self.path, folder)
                told = server.result(full_disk.read_only, folder=str(folder), name=name)
                self.assertEqual(told, f"{folder / name} cannot be written by this user")
                self.assertEqual([file.name for file in folder.iterdir()], ["ledger.db"])
                self.assertEqual((folder / "ledger.db").read_bytes(), self.path.read_bytes())

    def test_a_draft_that_was_left_behind_is_no_ledger(self) -> None:
        """A start that died while it made the file does not stand in the way of the next."""
        self.path.with_name("ledger.db.new").write_bytes(b"half a draft")
        connect_writer(self.path, Durability.FULL).close()
        self.assertEqual(list(self.files()), ["ledger.db"])
