"""One owner of a data directory, and how the command line finds it."""

import json
import tempfile
import unittest
from pathlib import Path

from gateway.data_dir import Control, DataDir, DataDirInUse, read_control

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
