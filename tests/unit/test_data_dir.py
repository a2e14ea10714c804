"""One owner of a data directory, and how the command line finds it."""

import json
import tempfile
import unittest
from pathlib import Path

from msgspec.structs import asdict

from gateway.data_dir import Control, DataDir, DataDirInUse, DataDirRefused, read_control

CONTROL = Control("127.0.0.1", 8080, 123, "token")


class DataDirTest(unittest.TestCase):
    """Owning, publishing, giving up."""

    def setUp(self) -> None:
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "a" / "data"

    def test_a_directory_has_one_owner(self) -> None:
        """Until that one gives it up; the refusal names the place."""
        first = DataDir.own(self.path)
        with self.assertRaises(DataDirInUse) as refused:
            DataDir.own(self.path)
        self.assertIn(str(self.path), str(refused.exception))
        first.close()
        DataDir.own(self.path).close()

    def test_a_refusal_says_who_owns_it(self) -> None:
        """If the owner said so; what one that died had said counts no more."""
        self.path.mkdir(parents=True)
        (self.path / "control").write_text(json.dumps(asdict(CONTROL)))
        owned = DataDir.own(self.path)
        self.addCleanup(owned.close)
        with self.assertRaisesRegex(DataDirInUse, "gateway that is running: .*--data-dir"):
            DataDir.own(self.path)
        owned.publish(CONTROL)
        with self.assertRaisesRegex(DataDirInUse, r"gateway that is running \(pid 123\): .*--data-dir"):
            DataDir.own(self.path)

    def test_a_directory_without_a_ledger_is_refused_unless_it_may_be_made(self) -> None:
        """The place and the ways to name another are told, and nothing is created, there or anywhere else."""
        with self.assertRaisesRegex(DataDirRefused, f"{self.path}: .*--data-dir or GATEWAY_DATA_DIR"):
            DataDir.own(self.path, make=False)
        self.assertFalse(self.path.parent.exists())
        self.path.mkdir(parents=True)
        for names in ([], ["lock"], ["lock", "cache.db"]):
            for name in names:
                (self.path / name).touch()
            with self.subTest(names), self.assertRaisesRegex(DataDirRefused, "no data directory"):
                DataDir.own(self.path, make=False)
            self.assertEqual(sorted(entry.name for entry in self.path.iterdir()), sorted(names))

    def test_a_directory_that_is_just_being_made_has_an_owner(self) -> None:
        """Though there is no ledger in it yet."""
        owned = DataDir.own(self.path)
        self.addCleanup(owned.close)
        with self.assertRaises(DataDirInUse):
            DataDir.own(self.path, make=False)

    def test_a_ledger_that_was_put_there_is_enough(self) -> None:
        """A restored one, or the log that is left of one: what to do about that is told by whoever opens it."""
        for name in ("ledger.db", "ledger.db-wal"):
            with self.subTest(name):
                path = self.path / name
                path.mkdir(parents=True)
                (path / name).touch()
                DataDir.own(path, make=False).close()

    def test_a_place_that_cannot_be_one_is_told_in_words(self) -> None:
        """A file, a path below one, a name that no directory can have; whether it may be made or not."""
        self.path.parent.mkdir()
        self.path.write_text("mine")
        for path, why in (
            (self.path, "it is a file"),
            (self.path / "below", "Not a directory"),
            (self.path.parent / ("x" * 300), "File name too long"),
        ):
            for make in (True, False):
                with self.subTest(path.name[:9], make=make), self.assertRaises(DataDirRefused) as refused:
                    DataDir.own(path, make=make)
                for words in (str(path), why, "--data-dir or GATEWAY_DATA_DIR"):
                    self.assertIn(words, str(refused.exception))
                self.assertNotIn("Errno", str(refused.exception))
        self.assertEqual(self.path.read_text(), "mine")

    def test_a_parent_that_takes_no_directory_is_told_in_words(self) -> None:
        """Not as a directory that is not there."""
        with self.assertRaisesRegex(DataDirRefused, "^/proc/gateway cannot be used"):
            DataDir.own(Path("/proc/gateway"))

    def test_what_it_makes_is_for_its_user_alone(self) -> None:
        """The directory, the lock and the control file."""
        owned = DataDir.own(self.path)
        self.addCleanup(owned.close)
        owned.publish(CONTROL)
        self.assertEqual(self.path.stat().st_mode & 0o777, 0o700)
        for name in ("lock", "control"):
            self.assertEqual((self.path / name).stat().st_mode & 0o777, 0o600)
        self.assertEqual(owned.ledger, self.path / "ledger.db")

    def test_what_was_published_can_be_read(self) -> None:
        """Each time anew, also over what a dead process left half written."""
        owned = DataDir.own(self.path)
        self.addCleanup(owned.close)
        (self.path / "control.new").write_text("half")
        (self.path / "control").write_text("old")
        for secret in ("first", "second"):
            control = Control("::1", 1, 2, secret)
            owned.publish(control)
            self.assertEqual(read_control(self.path), control)
        self.assertFalse((self.path / "control.new").exists())

    def test_giving_up_takes_the_control_file_away(self) -> None:
        """Whether it was ever written or not."""
        owned = DataDir.own(self.path)
        owned.publish(CONTROL)
        owned.close()
        self.assertIsNone(read_control(self.path))
        DataDir.own(self.path).close()

    def test_a_control_file_that_says_nothing_is_none(self) -> None:
        """Absent, empty, foreign or of another version."""
        self.path.mkdir(parents=True)
        self.assertIsNone(read_control(self.path))
        for text in ("", "{}", "[]", "null", "{", json.dumps({"host": "x"}), json.dumps({"extra": 1}), "\x00"):
            with self.subTest(text):
                (self.path / "control").write_text(text)
                self.assertIsNone(read_control(self.path))
        (self.path / "control").write_bytes(b"\xff")
        self.assertIsNone(read_control(self.path))
