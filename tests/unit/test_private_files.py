"""What a data directory holds is for its user alone."""

import os
import stat
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from gateway.books import open_books
from gateway.config import load
from gateway.data_dir import DataDir
from tests.support.process import call_cli
from tests.support.world import CONFIG, RealWorld, chat

EVERYTHING = CONFIG + "\n[cache]\nsemantic = true\n"


def modes(path: Path) -> dict[str, str]:
    """The mode of each file."""
    return {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in sorted(path.iterdir())}


class PrivateFilesTest(unittest.TestCase):
    """A directory that others may enter, and a umask that takes nothing away."""

    def setUp(self) -> None:
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.path.chmod(0o755)
        self.addCleanup(os.umask, os.umask(0))

    def assert_private(self, *names: str) -> None:
        """Each file is its user's, those of these names among them."""
        found = modes(self.path)
        self.assertLessEqual(set(names), set(found))
        self.assertEqual(found, dict.fromkeys(found, "0o600"))

    def own(self) -> DataDir:
        """The directory, until the end of the test."""
        owned = DataDir.own(self.path)
        self.addCleanup(owned.close)
        return owned

    def test_what_a_gateway_makes_is_private(self) -> None:
        """The ledger and both caches, with what SQLite keeps beside them while they are open, and a backup."""
        with RealWorld(config=EVERYTHING, folder=self.path) as world:
            world.gateway.handle(world.key(), chat("What is rain?", temperature=0))
            world.books.cache.flush()
            world.run("backup", file=str(self.path / "backup"))
            databases = ("ledger.db", "cache.db", "words.db")
            beside = [f"{name}{suffix}" for name in databases for suffix in ("-wal", "-shm")]
            self.assert_private("backup", *databases, *beside)

    def test_a_cache_that_is_made_anew_is_private(self) -> None:
        """In the place of one that was damaged."""
        (self.path / "cache.db").write_bytes(b"no database" * 100)
        with RealWorld(folder=self.path):
            self.assert_private("cache.db", "cache.db-wal")

    def test_a_restore_is_private(self) -> None:
        """And what it has set aside, though that was open to others."""
        data = ("--data-dir", str(self.path))
        self.assertEqual(call_cli("keys", "create", "--tenant", "acme", *data).returncode, 0)
        self.assertEqual(call_cli("backup", str(self.path / "copy"), *data).returncode, 0)
        (self.path / "ledger.db").chmod(0o644)
        self.assertEqual(call_cli("restore", str(self.path / "copy"), "--yes", *data).returncode, 0)
        self.assertIn("ledger.db.epoch-1", " ".join(modes(self.path)))
        self.assert_private("ledger.db", "copy")

    def test_what_was_open_to_others_is_narrowed(self) -> None:
        """By the next owner, whoever made it; a file that is none of the gateway's is left alone."""
        ours = ("ledger.db", "ledger.db-wal", "ledger.db.schema-2", "cache.db", "words.db-shm", "lock")
        for name in (*ours, "notes.txt"):
            (self.path / name).touch(0o666)
        self.assertEqual(self.own().exposed, ())
        self.assertEqual(modes(self.path), {**dict.fromkeys(ours, "0o600"), "notes.txt": "0o666"})

    def test_what_the_user_may_not_do_stays_so(self) -> None:
        """A ledger that is only read stays one."""
        (self.path / "ledger.db").touch(0o444)
        self.own()
        self.assertEqual(modes(self.path)["ledger.db"], "0o400")

    def test_what_cannot_be_narrowed_is_told(self) -> None:
        """With the reason; a link leads to what may be somebody else's, and only that is told."""
        other = Path(self.enterContext(tempfile.TemporaryDirectory())) / "theirs"
        other.touch(0o644)
        (self.path / "cache.db").symlink_to(other)
        (self.path / "words.db").symlink_to(self.path / "nowhere")
        (self.path / "ledger.db").touch(0o640)
        with mock.patch.object(Path, "chmod", side_effect=PermissionError(1, "Operation not permitted")):
            cache, ledger = self.own().exposed
        self.assertEqual(cache, f"cache.db leads to {other}, which other users may open")
        self.assertEqual(ledger, "ledger.db cannot be taken from other users: Operation not permitted")
        self.assertEqual(stat.S_IMODE(other.stat().st_mode), 0o644)

    def test_a_directory_that_cannot_be_listed_is_told(self) -> None:
        """It is owned all the same: what it needs may be there."""
        with mock.patch.object(Path, "iterdir", side_effect=PermissionError(13, "Permission denied")):
            (told,) = self.own().exposed
        self.assertEqual(told, f"what is in {self.path} cannot be told: Permission denied")

    def test_a_ledger_that_cannot_be_made_is_told_in_words(self) -> None:
        """Whatever refuses its draft."""
        owned = self.own()
        (self.path / "ledger.db.new").mkdir()
        with self.assertRaisesRegex(Exception, "ledger.db cannot be used: Is a directory"):
            open_books(owned, load(CONFIG, {}))
