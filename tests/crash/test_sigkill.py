"""kill -9 before and after every effect of a request, of a first start and of a recovery; then the books are read."""

import shutil
import signal
import tempfile
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from tests.crash import child
from tests.support.forks import ForkServer

_MEMORY = Path("/dev/shm")
"""A killed process loses nothing that the kernel has, so the files need no disk."""

_SERVERS = 2


class CrashCase(unittest.TestCase):
    """A ledger with one key, copied for each death."""

    server: ClassVar[ForkServer]
    pool: ClassVar[ThreadPoolExecutor]
    root: ClassVar[Path]
    raw_key: ClassVar[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = ForkServer(servers=_SERVERS)
        cls.addClassCleanup(cls.server.close)
        cls.pool = ThreadPoolExecutor(_SERVERS)
        cls.addClassCleanup(cls.pool.shutdown)
        folder = tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)
        cls.addClassCleanup(folder.cleanup)
        cls.root = Path(folder.name)
        (cls.root / "template").mkdir()
        cls.raw_key = cls.server.result(child.prepare, folder=str(cls.root / "template"))

    def home(self, source: str = "template") -> str:
        """A copy of a data directory, as its dead owner left it."""
        home = tempfile.mkdtemp(dir=self.root)
        shutil.copytree(self.root / source, home, dirs_exist_ok=True)
        return home

    def everywhere(self, labels: list[str], fate: Callable[[int], list[str]]) -> None:
        """Die before each effect and after the last one; `fate` does it and says what is wrong then."""
        deaths = [*labels, "the end"]
        for number, (label, found) in enumerate(zip(deaths, self.pool.map(fate, range(len(deaths))), strict=True)):
            with self.subTest(number=number, before=label):
                self.assertEqual(found, [])

    def effects(self, *, stream: bool, durability: str, ledger: str = "", home: str | None = None) -> list[str]:
        """The effects of a request that nobody kills."""
        arguments = {"stream": stream, "durability": durability, "ledger": ledger}
        home = home or self.home()
        return list(self.server.result(child.request, folder=home, raw_key=self.raw_key, die_at=None, **arguments))

    def die(self, die_at: int, *, stream: bool, durability: str, ledger: str = "") -> str:
        """Serve a request and die on the way; the data directory that is left."""
        arguments = {"stream": stream, "durability": durability, "ledger": ledger}
        home = self.home()
        ended = self.server.run(child.request, folder=home, raw_key=self.raw_key, die_at=die_at, **arguments)
        self.assertEqual((ended.signal, ended.error), (signal.SIGKILL, None))
        return home

    def faults(self, home: str, durability: str) -> list[str]:
        """Start again: what is wrong then."""
        found = self.server.result(child.faults, folder=home, raw_key=self.raw_key, durability=durability)
        shutil.rmtree(home)
        return list(found)


class RequestTest(CrashCase):
    """A request, killed at every step."""

    def test_killed_at_every_step_of_an_answer(self) -> None:
        """Full durability: nothing is charged twice, no hold is lost, and what was answered is settled."""
        self.kill_everywhere(stream=False, durability="full")

    def test_killed_at_every_step_of_a_stream(self) -> None:
        """The same while a stream goes out."""
        self.kill_everywhere(stream=True, durability="full")

    def test_killed_at_every_step_of_an_answer_with_queued_settlements(self) -> None:
        """Normal durability: a settlement that was only queued leaves its hold unresolved, and it counts."""
        self.kill_everywhere(stream=False, durability="normal")

    def test_killed_at_every_step_of_a_stream_with_queued_settlements(self) -> None:
        """The same while a stream goes out."""
        self.kill_everywhere(stream=True, durability="normal")

    def kill_everywhere(self, *, stream: bool, durability: str) -> None:
        labels = self.effects(stream=stream, durability=durability)
        self.assertGreaterEqual(labels.count("COMMIT"), 3, labels)
        self.assertEqual(labels.count("client send"), 1 + child.WORDS if stream else 0, labels)
        self.everywhere(labels, lambda at: self.faults(self.die(at, stream=stream, durability=durability), durability))

    def test_the_settlement_comes_before_the_last_byte(self) -> None:
        """Full durability, in the order of effects: the second COMMIT, then the end of the answer."""
        for stream in (False, True):
            labels = self.effects(stream=stream, durability="full")
            commits = [number for number, label in enumerate(labels) if label == "COMMIT"]
            self.assertLess(commits[1], labels.index("client end"))
            self.assertLess(commits[0], labels.index("upstream open"))

    def test_a_clean_end_leaves_nothing_to_recover(self) -> None:
        """Without a death the next start finds no open hold, and nothing is wrong."""
        for durability in ("full", "normal"):
            home = self.home()
            self.effects(stream=True, durability=durability, home=home)
            self.assertEqual(self.server.result(child.orphans, folder=home), 0)
            self.assertEqual(self.faults(home, durability), [])

    def test_twins_are_found(self) -> None:
        """Balances and hold in two transactions, a hold that stays: some death brings each of them to light."""
        for twin in ("BooksInTwoTransactions", "LeavesTheHold"):
            with self.subTest(twin=twin):
                deaths = range(len(self.effects(stream=False, durability="full", ledger=twin)))
                found = (
                    self.faults(self.die(at, stream=False, durability="full", ledger=twin), "full") for at in deaths
                )
                self.assertTrue(any(found))


class StartTest(CrashCase):
    """A start, killed at every step."""

    def test_killed_at_every_step_of_the_first_start(self) -> None:
        """The next start makes the ledger: no half of one is ever in the way."""
        labels = self.server.result(child.start, folder=tempfile.mkdtemp(dir=self.root), die_at=None)
        self.assertLess(labels.index("CREATE"), labels.index("rename"))

        def fate(at: int) -> list[str]:
            home = tempfile.mkdtemp(dir=self.root)
            self.kill_start(home, at)
            self.server.result(child.start, folder=home, die_at=None)
            return sorted({file.name for file in Path(home).iterdir()} ^ {"lock", "ledger.db", "cache.db"})

        self.everywhere(labels, fate)

    def test_killed_at_every_step_of_a_recovery(self) -> None:
        """The start after that resolves the dead hold once."""
        effects = self.effects(stream=True, durability="full")
        orphaned = Path(self.die(effects.index("client send") + 1, stream=True, durability="full")).name
        labels = self.server.result(child.start, folder=self.home(orphaned), die_at=None)
        self.assertIn("COMMIT", labels)

        def fate(at: int) -> list[str]:
            home = self.home(orphaned)
            self.kill_start(home, at)
            return self.faults(home, "full")

        self.everywhere(labels, fate)

    def kill_start(self, home: str, die_at: int) -> None:
        ended = self.server.run(child.start, folder=home, die_at=die_at)
        self.assertEqual((ended.signal, ended.error), (signal.SIGKILL, None))
