"""A disk that fills up and is freed again, under a gateway that runs in a process of its own.

A limit on the size of files does it anywhere; a small file system of its own needs the right to mount. Runs only in
forked processes: see tests.support.forks.
"""

import contextlib
import errno
import io
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from gateway import sqlite_file, sqlite_store
from gateway.cli import main
from gateway.commands import CommandError
from gateway.context import Caller
from gateway.drive import drive
from gateway.errors import GatewayError, StoreUnavailable
from gateway.fake_provider import FakeProvider
from gateway.keys import ShownKey
from gateway.providers import ProviderAnswer, UpstreamCall
from gateway.store import Durability
from tests.support.connections import Fuse, disk_error, watched
from tests.support.world import CONFIG, RealWorld, chat, scripted

PATIENCE_S = 20.0
Act = Callable[[], None]


class ActingProvider:
    """A fake upstream that does something once, after a call has reached it."""

    name = "up"

    def __init__(self) -> None:
        self.fake = FakeProvider([{"text": "hello there friend"}])
        self.act: Act = lambda: None

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        answer = await self.fake.open(call, caller)
        act, self.act = self.act, lambda: None
        act()
        return answer


def limited_file_size(durability: str) -> None:
    """No file may grow any more, then it may again."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    DiskScenario(
        durability,
        fill=lambda path: resource.setrlimit(resource.RLIMIT_FSIZE, (_size(path / "ledger.db-wal"), hard)),
        free=lambda path: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)),
    ).run_all()


def small_file_system(durability: str) -> None:
    """A file system of half a megabyte that other files fill. Needs a mount namespace of its own."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", folder], check=True)
        ballast = Path(folder) / "ballast"
        try:
            with mock.patch.object(tempfile, "tempdir", folder):
                fill, free = lambda path: _write_until_full(ballast), lambda path: ballast.unlink()
                DiskScenario(durability, fill=fill, free=free).run_all()
        finally:
            subprocess.run(["umount", folder], check=True)


def _size(path: Path) -> int:
    return path.stat().st_size


def _write_until_full(path: Path) -> None:
    try:
        with path.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def backup_without_room() -> None:
    """No file may be as large as the ledger, so its copy cannot be either; then it may again."""
    case = unittest.TestCase()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with tempfile.TemporaryDirectory() as folder, RealWorld() as world:
        file, raw_key = Path(folder) / "backup", world.key("1")
        world.gateway.handle(raw_key, chat(max_tokens=20))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_size(world.path / "ledger.db") // 2, hard))
        with case.assertRaisesRegex(CommandError, "^.*/backup cannot be written: (database or disk is full|disk I/O)"):
            world.run("backup", file=str(file))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        case.assertEqual(list(Path(folder).iterdir()), [])
        world.gateway.handle(raw_key, chat(max_tokens=20))
        case.assertEqual(world.run("backup", file=str(file))["rows"], 2)


class DiskScenario(unittest.TestCase):
    """The scenario. `fill` and `free` are given the data directory."""

    def __init__(self, durability: str, *, fill: Callable[[Path], None], free: Callable[[Path], None]) -> None:
        super().__init__("run_all")
        self._config = f'{CONFIG}\n[store]\ndurability = "{durability}"\n'
        self._fill, self._free = fill, free
        self._committed = threading.Event()

    def run_all(self) -> None:
        """Nobody commits in the background at first: who comes once there is room waits behind no failed commit."""
        with mock.patch.object(sqlite_store, "FLUSH_AFTER_S", 3600.0):
            self.run_one(self.full_at_the_reservation)
        with mock.patch.object(sqlite_store, "RETRY_AFTER_S", 0.001):
            self.run_one(self.full_at_the_settlement)

    def run_one(self, scenario: Act) -> None:
        self.asked = self.were_refused = 0
        self.up = ActingProvider()
        with (
            watched(after=lambda sql: self._committed.set() if sql == "COMMIT" else None),
            RealWorld(config=self._config, providers={"up": self.up}) as self.world,
        ):
            self.raw_key = self.world.key("1")
            self.ask()
            self.world.books.store.flush()
            scenario()
            self.assertEqual(self.world.lost, [])
            report = self.world.run("ledger.verify")
            self.assertTrue(report["ok"], report["differences"])
            self.assertEqual((report["open_holds"], report["unresolved_holds"]), (0, 0))
            self.assertEqual((report["holds"], report["rows"]), (self.asked, self.asked + self.were_refused))

    def full_at_the_reservation(self) -> None:
        """Refused without a call; reading goes on; the first request after the disk is free is served."""
        calls, before = len(self.up.fake.calls), self.world.shown(self.raw_key)
        self.fill()
        for _ in range(3):
            self.refused()
        self.assertEqual(len(self.up.fake.calls), calls)
        self.assertRaises(StoreUnavailable, drive, self.world.books.ledger.touch())
        self.assertFalse(self.world.books.store.writable)
        self.assertEqual(self.world.books.keys.authenticate(ShownKey.of(self.raw_key)).tenant, "acme")
        self.free()
        drive(self.world.books.ledger.touch())
        self.assertTrue(self.world.books.store.writable)
        self.ask()
        after = self.world.shown(self.raw_key)
        self.assertEqual((after["spent_nanousd"], after["held_nanousd"]), (2 * before["spent_nanousd"], 0))

    def full_at_the_settlement(self) -> None:
        """The client has its answer; the hold stays and nothing new is sent, until the settlement commits by itself."""
        calls, before = len(self.up.fake.calls), self.world.shown(self.raw_key)
        self.up.act = self.fill
        self.ask()
        for _ in range(3):
            self.refused()
        self.assertEqual(len(self.up.fake.calls), calls + 1)
        self.operators_can_read()
        self._committed.clear()
        self.free()
        self.assertTrue(self._committed.wait(PATIENCE_S), "nobody tried the settlement again")
        after = self.world.shown(self.raw_key)
        self.assertEqual((after["spent_nanousd"], after["held_nanousd"]), (2 * before["spent_nanousd"], 0))
        self.ask()

    def fill(self) -> None:
        self._fill(self.world.path)

    def free(self) -> None:
        self._free(self.world.path)

    def ask(self) -> None:
        self.assertEqual(self.world.gateway.handle(self.raw_key, chat(max_tokens=20))["text"], "hello there friend")
        self.asked += 1

    def refused(self) -> None:
        with self.assertRaises(GatewayError) as refused:
            self.ask()
        self.assertEqual((refused.exception.status, refused.exception.code), (503, "store_unavailable"))
        self.were_refused += 1

    def operators_can_read(self) -> None:
        """The committed state, and that it is not all; what would change it is refused in words."""
        key_id = self.world.books.keys.authenticate(ShownKey.of(self.raw_key)).id
        for command in READING:
            notes: list[str] = []
            told = self.world.books.commands.run(command, {"id": key_id}, on_note=notes.append)
            self.assertRegex("".join(notes), "^the ledger cannot be written .*queued changes could not be applied")
            if command == "keys.show":
                self.assertGreater(told["held_nanousd"], 0)
        with self.assertRaisesRegex(CommandError, "^the ledger cannot be written: (database or disk is full|disk I/O)"):
            self.world.run("keys.block", id=key_id)


READING = ("keys.list", "keys.show", "ledger.verify", "ledger.balances", "ledger.rows", "ledger.holds", "ledger.epochs")
"""Commands that change nothing."""


def commands_beside_nobody() -> None:
    """A gateway has ended, and none of its files may grow any more; or has died, and its log may not. Operators ask."""
    case = unittest.TestCase()
    with tempfile.TemporaryDirectory() as folder:
        ended, died, data = (Path(folder) / name for name in ("ended", "died", "data"))
        with RealWorld(folder=ended, providers=scripted({"text": "hello"}, repeat=True)) as world:
            key = world.key("5")
            while world.books.store.wal_bytes <= INDEX_BYTES:
                world.gateway.handle(key, chat(max_tokens=20))
            key_id = world.shown(key)["id"]
            expected = {command: json.loads(json.dumps(world.run(command, id=key_id))) for command in READING}
            shutil.copytree(ended, died)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for left, most_bytes in ((ended, 0), (died, _size(died / "ledger.db-wal"))):
            for command, result in expected.items():
                shutil.copytree(left, data)
                words = [*command.split("."), *([key_id] if command == "keys.show" else ())]
                status, out, err = _run_limited(most_bytes, *words, "--data-dir", str(data), "--json")
                told = json.loads(out)
                if isinstance(told, dict):
                    case.assertEqual(told.pop("notes"), [err.rstrip()])
                case.assertEqual((status, told), (0, result))
                case.assertRegex(err, "the ledger cannot be written .*so this may be older")
                shutil.rmtree(data)
            shutil.copytree(left, data)
            status, out, err = _run_limited(most_bytes, "keys", "block", key_id, "--data-dir", str(data))
            case.assertEqual((status, out), (1, ""))
            case.assertRegex(err, "^the ledger cannot be written: d")
            shutil.rmtree(data)


INDEX_BYTES = 32_768
"""The size of the index that SQLite makes of a log."""


def _run_limited(most_bytes: int, *arguments: str) -> tuple[int, str, str]:
    """Exit status and output of the command line, while no file may be larger than this."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            return main(arguments), out.getvalue(), err.getvalue()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def opened_by_python() -> list[str]:
    """The files of the ledger that were opened past SQLite in the life of a gateway, a disk that breaks included."""
    opened: list[str] = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and Path(str(arguments[0])).name in ("ledger.db", "ledger.db-wal", "ledger.db-shm"):
            opened.append(str(arguments[0]))

    sys.addaudithook(look)
    fuse = Fuse("COMMIT", lambda: disk_error(sqlite3.SQLITE_IOERR_WRITE))
    with watched(before=fuse), RealWorld() as world:
        raw_key = world.key("1")
        fuse.times = 1
        for _ in range(2):
            with contextlib.suppress(GatewayError):
                world.gateway.handle(raw_key, chat(max_tokens=20))
        world.run("ledger.verify")
        world.books.store.check_files()
        if not world.books.store.wal_bytes or not world.errors:
            opened.append("nothing happened")
    return opened


def read_only(folder: str, *, name: str) -> str:
    """Open a ledger where this user may not write `name`, as a user who is bound by that; what it is told."""
    path = Path(folder)
    if os.geteuid() == 0:
        for entry in (path, *path.iterdir()):
            os.chown(entry, 65534, 65534)
        os.setuid(65534)
    mode = (path / name).stat().st_mode
    (path / name).chmod(mode & ~0o222)
    try:
        sqlite_file.connect_writer(path / "ledger.db", Durability.FULL)
    except sqlite_file.StoreRefused as refused:
        return str(refused)
    finally:
        (path / name).chmod(mode)
    return "it was opened"
