"""Gateways whose disk breaks under the ledger or the cache, and the process that comes after them.

Runs only in processes that broken_disk.so was preloaded into, forked for each scenario: see tests.support.forks.
"""

import contextlib
import threading
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from gateway import sqlite_store
from gateway.commands import CommandError
from gateway.drive import drive
from gateway.errors import GatewayError, StoreUnavailable
from gateway.sqlite_file import StoreRefused, connect_writer
from gateway.store import Durability
from tests.crash.full_disk import ActingProvider
from tests.support.broken_disk import BrokenDisk
from tests.support.world import CONFIG, RealWorld, chat

ANSWER = "hello there friend"


def config(durability: str) -> str:
    return f'{CONFIG}\n[store]\ndurability = "{durability}"\n'


class Gateway(unittest.TestCase):
    """A gateway over `folder` that has answered one request; its death is that of its process, which closes nothing."""

    def __init__(self, folder: str, durability: str = "full") -> None:
        super().__init__("ask")
        self.disk = BrokenDisk.of_this_process()
        self.up = ActingProvider()
        self.world = RealWorld(config=config(durability), providers={"up": self.up}, folder=Path(folder))
        self.store = self.world.books.store
        self.raw_key = self.world.key("1")
        self.ask()
        self.store.flush()

    def ask(self, **fields: Any) -> None:
        self.assertEqual(self.world.gateway.handle(self.raw_key, chat(max_tokens=20, **fields))["text"], ANSWER)

    def refused(self) -> None:
        """503, and nothing is sent upstream."""
        calls = len(self.up.fake.calls)
        with self.assertRaises(GatewayError) as refused:
            self.ask()
        self.assertEqual((refused.exception.status, refused.exception.code), (503, "store_unavailable"))
        self.assertEqual(len(self.up.fake.calls), calls)

    def is_lost(self, name: str) -> None:
        """For good, told once by SQLite's name of the fault, and the file is left alone from then on."""
        self.disk.heal()
        self.refused()
        self.assertFalse(self.store.writable)
        self.assertRaises(StoreUnavailable, self.store.flush)
        self.assertEqual(len(self.world.lost), 1, self.world.lost)
        self.assertIn(name, self.world.lost[0])
        self.store.close()
        self.assertEqual(self.disk.later, [])

    def is_served(self) -> None:
        """The next request is, and nothing is lost."""
        self.ask()
        self.assertTrue(self.store.writable)
        self.assertEqual(self.world.lost, [])


def sync_at_the_reservation(folder: str, *, call: str) -> None:
    """The request is refused without a call."""
    gateway = Gateway(folder)
    gateway.disk.fail(call, "ledger.db-wal")
    gateway.refused()
    gateway.is_lost("SQLITE_IOERR_FSYNC")


def sync_at_the_settlement(folder: str, *, call: str) -> None:
    """The hold is on the disk, so the money counts whatever became of its settlement."""
    gateway = Gateway(folder)
    gateway.up.act = lambda: gateway.disk.fail(call, "ledger.db-wal")
    gateway.ask()
    gateway.is_lost("SQLITE_IOERR_FSYNC")


def sync_while_copying(folder: str, *, suffix: str, durability: str) -> None:
    """The log is copied after a commit, where SQLite's own copying would have told nobody."""
    gateway = Gateway(folder, durability)
    gateway.disk.fail("sync", suffix)
    with mock.patch.object(sqlite_store, "COPY_AFTER", 1):
        drive(gateway.world.books.ledger.touch())
    gateway.is_lost("SQLITE_IOERR_FSYNC")


def sync_ahead(folder: str) -> None:
    """The log is synced between two commits, by nobody who is waited for.

    From the call on nobody commits but the one who syncs: what another writes while a sync fails is no fault. That one
    may have been awake before the call, and have looked for work already: it is woken until it has looked again.
    """
    gateway = Gateway(folder, "normal")
    with contextlib.ExitStack() as patches:

        def act() -> None:
            gateway.disk.fail("sync", "ledger.db-wal")
            patches.enter_context(mock.patch.object(sqlite_store, "SYNC_AFTER", 1))

        gateway.up.act = act
        gateway.ask()
        for _ in range(2000):
            if gateway.world.lost:
                break
            gateway.store._alarm()
            threading.Event().wait(0.01)
        gateway.is_lost("SQLITE_IOERR_FSYNC")


def device(folder: str) -> None:
    """A write that fails once is tried again; twice in a row, with room on the disk, the device is broken."""
    with mock.patch.object(sqlite_store, "FLUSH_AFTER_S", 3600.0):
        gateway = Gateway(folder)
        for _ in range(3):
            gateway.disk.fail("write", "ledger.db-wal")
            gateway.refused()
            gateway.disk.heal()
            gateway.is_served()
        gateway.disk.fail("write", "ledger.db-wal")
        gateway.refused()
        gateway.refused()
        gateway.is_lost("SQLITE_IOERR_WRITE")


def reading(folder: str) -> None:
    """A command is refused with SQLite's words; requests need no reading, and go on."""
    gateway = Gateway(folder)
    gateway.disk.fail("read", "ledger.db-wal")
    with gateway.assertRaisesRegex(CommandError, "cannot be read or written: database disk image is malformed"):
        gateway.world.rows()
    gateway.is_served()
    gateway.disk.heal()
    gateway.assertEqual(len(gateway.world.rows()), 2)


def cache(folder: str, *, call: str, suffix: str) -> None:
    """No request fails, nothing is kept while the disk is broken, and it is again after that."""
    gateway = Gateway(folder)
    remembers = gateway.world.books.cache
    gateway.disk.fail(call, suffix)
    gateway.ask(temperature=0)
    remembers.flush()
    gateway.ask(temperature=0)
    gateway.disk.heal()
    gateway.ask(temperature=0)
    remembers.flush()
    gateway.ask(temperature=0)
    gateway.is_served()
    gateway.assertGreater(remembers.stats()["hits"], 0)


def purge(folder: str) -> None:
    """A purge that could not be synced is refused aloud, and requests go on."""
    gateway = Gateway(folder)
    gateway.disk.fail("sync", "cache.db-wal")
    with gateway.assertRaisesRegex(CommandError, "cache cannot be written"):
        gateway.world.run("cache.purge", all=True)
    gateway.is_served()


def first_start(folder: str) -> list[str]:
    """A ledger whose name did not reach the disk is refused; what the second start finds."""
    path = Path(folder) / "ledger.db"
    BrokenDisk.of_this_process().fail("sync", path.parent.name)
    try:
        connect_writer(path, Durability.FULL)
    except StoreRefused as refused:
        connect_writer(path, Durability.FULL).close()
        return [str(refused.__cause__), *(file.name for file in path.parent.iterdir())]
    return ["it was opened"]


def next_start(folder: str) -> dict[str, Any]:
    """What the next process finds: whether the book is right, the states of all rows, and what counts in the key."""
    with RealWorld(config=config("full"), folder=Path(folder)) as world:
        (key,) = [key for key in world.run("keys.list") if key["limit_nanousd"]]
        report = world.run("ledger.verify")
        return {
            "differences": report["differences"],
            "open": report["open_holds"],
            "rows": [(row["state"], row["cost_nanousd"]) for row in world.rows() if row["state"] != "none"],
            "spent": key["spent_nanousd"],
            "unresolved": key["unresolved_nanousd"],
        }
