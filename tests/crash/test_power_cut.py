"""The power fails at any moment: `full` loses nothing that was acknowledged, `normal` the tail, and nothing breaks."""

import random
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from gateway import sqlite_store
from gateway.clock import FakeClock
from gateway.drive import drive
from gateway.holds import Policy
from gateway.ledger import Ledger
from gateway.levels import Scope
from gateway.sqlite_file import StoreRefused
from gateway.sqlite_store import SqliteStore
from gateway.store import Durability
from gateway.types import Window
from tests.support.books import Book, ledger_folder, purpose, row
from tests.support.power import Disk, Entry, Kept, Mark, Sync, Tape, Write, taped

REQUESTS = 24
RANDOM_CUTS = 60
HELD, COST = 1000, 700


def recorded(claimed: Durability, real: str) -> tuple[dict[str, bytes], list[Entry]]:
    """The life of a ledger that claims a durability over a store that syncs as `real` says: its files before it, and
    all that happened to them.
    """
    with (
        ledger_folder() as folder,
        taped() as tape,
        mock.patch.object(sqlite_store, "COPY_AFTER", 5),
        mock.patch.object(sqlite_store, "FLUSH_AFTER_S", 3600.0),
    ):
        before = {"ledger.db": (folder / "ledger.db").read_bytes()}
        store = SqliteStore(folder / "ledger.db", durability=claimed)
        store._writer.execute(f"PRAGMA synchronous = {real}")
        live(Ledger(store, FakeClock(), durability=claimed), tape)
        store.close()
        return before, tape.entries


def live(ledger: Ledger, tape: Tape) -> None:
    """A life with every kind of step. What is acknowledged is on the tape: the state and the cost of each hold."""
    drive(ledger.open(pid=1, machine_boot="first"))
    for scope, name in ((Scope.GLOBAL, ""), (Scope.TENANT, "acme"), (Scope.KEY, "key1")):
        drive(ledger.set_level(scope, name, Window.TOTAL, None))
    account = ledger.account("acme", "key1")
    for number in range(REQUESTS):
        request = f"req_{number}"
        reservation = drive(ledger.reserve(account, HELD, purpose(request)))
        tape.mark(reservation.id, "open", 0)
        if number % 4 == 0:
            drive(ledger.void(reservation, row(request)))
            tape.mark(reservation.id, "void", 0)
        elif number % 4 == 1:
            drive(ledger.leave_unresolved(reservation, "timeout", row(request)))
            tape.mark(reservation.id, "unresolved", 0)
        else:
            drive(ledger.settle(reservation, COST, row(request)))
            tape.mark(reservation.id, "settled", COST)
        if number == REQUESTS // 2:
            drive(ledger.sweep(hold_ttl_s=0, unresolved_after_s=0, policy=Policy.ASSUME_SPENT))
            drive(ledger.resolve_by_admin(drive(ledger.reserve(account, HELD, purpose("req_x"))).id, COST))
    drive(ledger.close())


class Cut(NamedTuple):
    """A moment of the tape, the files that are left of it, and what was acknowledged before it."""

    where: str
    files: dict[str, bytes]
    told: list[Mark]


def cuts(before: dict[str, bytes], tape: list[Entry], seed: int) -> Iterator[Cut]:
    """Before and after every sync, and at random writes, in every variant."""
    chance = random.Random(seed)
    writes = [number for number, entry in enumerate(tape) if isinstance(entry, Write)]
    at = {number + after for number, entry in enumerate(tape) if isinstance(entry, Sync) for after in (0, 1)}
    at |= set(chance.sample(writes, min(RANDOM_CUTS, len(writes)))) | {len(tape)}
    disk, told = Disk(before.copy()), list[Mark]()
    for number, entry in enumerate([*tape, None]):
        if number in at:
            for kept in Kept if any(disk.unsynced.values()) else (Kept.NOTHING,):
                where = f"before {number} of {len(tape)}, {kept.value} is kept"
                yield Cut(where, disk.cut(kept, chance), told.copy())
        if isinstance(entry, Mark):
            told.append(entry)
        elif entry is not None:
            disk.play(entry)


def lost(cut: Cut, root: Path) -> list[str]:
    """Start over what a cut left: what was acknowledged and is not there. Raises if it does not open, or is wrong."""
    folder = Path(tempfile.mkdtemp(dir=root))
    for name, content in cut.files.items():
        if not name.endswith("-shm"):
            (folder / name).write_bytes(content)
    book = Book(folder)
    try:
        report = book.verify()
        if not report.ok:
            raise AssertionError(report.differences)
        found = {hold: (state, cost) for hold, state, cost in book.select("SELECT id, state, cost_nanousd FROM holds")}
    finally:
        book.close()
    promised = {mark.fact[0]: mark.fact[1:] for mark in cut.told}
    return [f"hold {hold}: {fact}" for hold, fact in promised.items() if not keeps(fact, found.get(hold))]


def keeps(promised: tuple[Any, ...], found: tuple[Any, ...] | None) -> bool:
    """Whether what is found is what was promised, or what may come after it."""
    if found is None or promised == found:
        return promised == found
    return bool(promised[0] == "open") or (promised[0], found[0]) == ("unresolved", "settled")


class PowerCutTest(unittest.TestCase):
    """One life of a ledger, cut at every sync and at random writes."""

    def setUp(self) -> None:
        self.root = self.enterContext(ledger_folder())

    def each_cut(self, claimed: Durability, real: str) -> Iterator[Cut]:
        before, tape = recorded(claimed, real)
        self.assertEqual(sum(isinstance(entry, Mark) for entry in tape), 2 * REQUESTS)
        return cuts(before, tape, seed=7)

    def test_full_loses_nothing_that_was_acknowledged(self) -> None:
        """Every hold and every settlement that somebody was told of is there after any cut."""
        for cut in self.each_cut(Durability.FULL, "FULL"):
            with self.subTest(cut.where):
                self.assertEqual(lost(cut, self.root), [])

    def test_normal_may_lose_the_tail_and_never_breaks(self) -> None:
        """After any cut the file opens, and the book is right; something is taken, or this would prove nothing."""
        missing = []
        for cut in self.each_cut(Durability.NORMAL, "NORMAL"):
            with self.subTest(cut.where):
                missing += lost(cut, self.root)
        self.assertTrue(missing)

    def test_a_claim_of_full_without_its_syncs_is_found(self) -> None:
        """A store that does not sync each commit, under a ledger that says so: acknowledged settlements are missing."""
        missing = [fact for cut in self.each_cut(Durability.FULL, "NORMAL") for fact in lost(cut, self.root)]
        self.assertTrue(any("settled" in fact for fact in missing))

    def test_a_store_without_any_sync_is_found(self) -> None:
        """Some cut of it does not open, or opens with a book that is wrong."""
        with self.assertRaises((StoreRefused, AssertionError)):
            for cut in self.each_cut(Durability.FULL, "OFF"):
                lost(cut, self.root)
