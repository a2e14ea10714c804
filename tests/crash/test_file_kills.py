"""kill -9 before and after every step of a migration and of a restore: the old ledger or the new one, never a mix."""

import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from gateway.migrations import MIGRATIONS
from tests.crash import child, files
from tests.crash.test_sigkill import CrashCase
from tests.support.forks import Ended
from tests.support.ledgers import at_schema, used_ledger


class FileCase(CrashCase):
    """Ledger files, looked at by processes of their own: what they tell is plain, as it comes out of JSON."""

    def ledger(self, path: str | Path) -> Any:
        """Schema and rows of a ledger as it lies there."""
        return self.server.result(files.looked_at, path=str(path))

    @staticmethod
    def expect_death(ended: Ended) -> list[str]:
        return [] if (ended.signal, ended.error) == (signal.SIGKILL, None) else [str(ended)]


class MigrationTest(FileCase):
    """A start on the ledger of an older release."""

    def test_killed_at_every_step(self) -> None:
        """The ledger has one schema or another, whole; the next start brings today's, with the same data and a copy."""
        content = used_ledger()
        for version in range(1, len(MIGRATIONS)):
            source = Path(tempfile.mkdtemp(dir=self.root))
            at_schema(version, source / "ledger.db", content)
            whole = [self.at_version(source.name, later) for later in range(version, len(MIGRATIONS) + 1)]
            self.assertTrue(whole[0][1]["requests"])
            labels = self.server.result(files.migrate, path=f"{self.home(source.name)}/ledger.db", die_at=None)
            self.assertLess(labels.index("link"), labels.index("CREATE"))
            self.assertEqual(labels.count("COMMIT"), len(MIGRATIONS) - version)

            def fate(at: int, source: str = source.name, whole: list[Any] = whole) -> list[str]:
                return self.fate(at, source, whole)

            with self.subTest(version=version):
                self.everywhere(labels, fate)

    def at_version(self, source: str, version: int) -> Any:
        """The ledger as the release of this schema makes it."""
        path = f"{self.home(source)}/ledger.db"
        self.server.result(files.migrate_to, path=path, version=version)
        return self.ledger(path)

    def fate(self, at: int, source: str, whole: list[Any]) -> list[str]:
        home = Path(self.home(source))
        found = self.expect_death(self.server.run(files.migrate, path=str(home / "ledger.db"), die_at=at))
        first = whole[0][0][0]
        kept = f"ledger.db.schema-{first}"
        paths = {"path": str(home / "ledger.db"), "kept": str(home / kept)}
        left, started, copied = self.server.result(files.aftermath_of_migration, **paths)
        if left not in whole:
            found.append("between two schemas")
        if started != whole[-1]:
            found.append("the next start does not bring the same ledger")
        if copied != whole[0]:
            found.append("the copy is not what the ledger was")
        starts = sorted({first, left[0][0]} - {len(MIGRATIONS)})
        names = sorted(file.name for file in home.iterdir())
        if names != ["ledger.db", *(f"ledger.db.schema-{version}" for version in starts)]:
            found.append(f"left behind: {names}")
        shutil.rmtree(home)
        return found


class BackupTest(FileCase):
    """A backup of a ledger that is in use."""

    def test_killed_at_every_step(self) -> None:
        """There is none, or a whole one; the ledger is what it was, and another backup can be written."""
        home = self.home()
        labels = self.server.result(files.back_up, folder=home, file=f"{home}/backup")
        self.assertGreater(labels.count("STEP"), 1)
        self.assertLess(labels.index("fsync"), labels.index("link"))

        def fate(at: int) -> list[str]:
            home = self.home()
            paths = {"folder": home, "file": f"{home}/backup"}
            found = self.expect_death(self.server.run(files.back_up, **paths, die_at=at))
            left, again = self.server.result(files.aftermath_of_backup, **paths)
            for each in (left, again):
                if each is not None and {**each[1], "boots": []} != whole:
                    found.append(f"not the whole ledger: {each}")
            if left is None and at > labels.index("link"):
                found.append("a backup that has its name is gone")
            shutil.rmtree(home)
            return found

        whole = {**self.ledger(f"{home}/backup")[1], "boots": []}
        self.assertTrue(whole["keys"])
        self.everywhere(labels, fate)


class RestoreTest(FileCase):
    """A restore over a ledger that its dead owner has left, with a log and an open hold."""

    backup: ClassVar[str]
    old: ClassVar[Any]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.backup = str(cls.root / "backup")
        cls.server.result(files.back_up, folder=str(cls.root / "template"), file=cls.backup)
        request = {"raw_key": cls.raw_key, "stream": True, "durability": "full"}
        rehearsal = shutil.copytree(cls.root / "template", cls.root / "rehearsal")
        effects = cls.server.result(child.request, folder=str(rehearsal), die_at=None, **request)
        die_at = effects.index("client send")
        cls.server.run(child.request, folder=str(cls.root / "template"), die_at=die_at, **request)
        old = shutil.copytree(cls.root / "template", cls.root / "old")
        cls.old = cls.server.result(files.looked_at, path=str(old / "ledger.db"))

    def restore(self, home: str, die_at: int | None, *, links: bool = True) -> Ended:
        return self.server.run(files.restored, folder=home, file=self.backup, die_at=die_at, links=links)

    def rehearse(self, source: str = "template", *, links: bool = True) -> tuple[list[str], Any]:
        """A restore that nobody kills: its effects, and the ledger after it."""
        home = self.home(source)
        ended = self.restore(home, None, links=links)
        self.assertIsNone(ended.error)
        new = self.ledger(f"{home}/ledger.db")
        self.assertEqual(([row[0] for row in new[1]["epochs"]], new[1]["holds"]), ([2], []))
        return list(ended.result), new

    def fate(self, source: str, die_at: int, *, links: bool = True) -> tuple[list[str], Any, Any]:
        """Die: what is wrong whatever the ledger was, the ledger after the next start, and the one that was kept."""
        home = self.home(source)
        found = self.expect_death(self.restore(home, die_at, links=links))
        after = self.server.result(files.aftermath, folder=home, file=self.backup)
        if after["epoch"] not in (2, 3):
            found.append(f"another restore reaches epoch {after['epoch']}")
        shutil.rmtree(home)
        return found, after["state"], after["kept"]

    def test_the_old_ledger_has_a_log_and_an_open_hold(self) -> None:
        """Otherwise these tests would prove little."""
        self.assertTrue((self.root / "template" / "ledger.db-wal").stat().st_size)
        self.assertEqual([row[13] for row in self.old[1]["holds"]], ["open"])

    def test_killed_at_every_step(self) -> None:
        """The next start finds the ledger that was, or the restored one; the replaced one is kept then."""
        labels, new = self.rehearse()
        self.assertGreater(labels.count("STEP"), 1)
        self.assertEqual([labels.count(name) for name in ("link", "rename", "replace")], [1, 0, 1])

        def fate(at: int) -> list[str]:
            found, state, kept = self.fate("template", at)
            if state not in (self.old, new):
                found.append(f"neither the old ledger nor the new one: {state}")
            if state == new and kept != self.old:
                found.append("the replaced ledger is not what it was")
            return found

        self.everywhere(labels, fate)

    def test_killed_at_every_step_on_a_file_system_without_links(self) -> None:
        """There may be no ledger for a moment: no start takes that for a new directory, and no commit is lost."""
        labels, new = self.rehearse(links=False)
        self.assertEqual([labels.count(name) for name in ("rename", "replace")], [1, 1])
        first = labels.index("PRAGMA", labels.index("fsync"))

        def fate(number: int) -> list[str]:
            found, state, kept = self.fate("template", first + number, links=False)
            if isinstance(state, str) and "is gone but ledger.db.epoch-1" in state:
                state = kept
            if state not in (self.old, new):
                found.append(f"neither the old ledger nor the new one: {state}")
            return found

        self.everywhere(labels[first:], fate)

    def test_killed_at_every_step_over_a_damaged_ledger(self) -> None:
        """No start succeeds before that of the restored one: the damaged file without its log would be another."""
        damaged = self.damaged()
        labels, new = self.rehearse(damaged.name)
        self.assertEqual([labels.count(name) for name in ("link", "rename", "replace")], [2, 0, 1])
        _, clean = self.rehearse()
        self.assertEqual({**new[1], "epochs": []}, {**clean[1], "epochs": []})
        first = labels.index("fsync")

        def fate(number: int) -> list[str]:
            found, state, _ = self.fate(damaged.name, first + number)
            if not isinstance(state, str) and state != new:
                found.append(f"a start on neither ledger: {state}")
            return found

        self.everywhere(labels[first:], fate)

    def test_a_damaged_ledger_and_its_log_are_kept_as_they_are(self) -> None:
        """Beside each other, so that whoever can mend the file has its last commits."""
        damaged = self.damaged()
        content = {suffix: (damaged / f"ledger.db{suffix}").read_bytes() for suffix in ("", "-wal")}
        self.assertIsNone(self.restore(str(damaged), None).error)
        kept = "ledger.db.epoch-1.20260101T000000Z"
        self.assertEqual({suffix: (damaged / f"{kept}{suffix}").read_bytes() for suffix in content}, content)

    def damaged(self) -> Path:
        """The old ledger, written over at its beginning."""
        damaged = Path(self.home())
        with (damaged / "ledger.db").open("r+b") as file:
            file.write(b"damaged!" * 512)
        return damaged
