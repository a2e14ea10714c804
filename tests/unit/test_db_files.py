"""Which files a database is."""

import tempfile
import unittest
from pathlib import Path

from gateway.db_files import INDEX, JOURNAL, WAL, beside, size, suffixes_of


class FilesTest(unittest.TestCase):
    """A database and what lies beside it."""

    def setUp(self) -> None:
        self.path = Path(self.enterContext(tempfile.TemporaryDirectory())) / "ledger.db"

    def test_every_trace_is_seen(self) -> None:
        """Its own file first; one that only looks like one is none, and a link that leads nowhere is one."""
        self.assertEqual(suffixes_of(self.path), [])
        self.path.with_name("ledger.db.new").touch()
        for suffix in (INDEX, WAL, JOURNAL):
            beside(self.path, suffix).touch()
        self.assertEqual(suffixes_of(self.path), [JOURNAL, WAL, INDEX])
        self.path.symlink_to("/nowhere")
        self.assertEqual(suffixes_of(self.path), ["", JOURNAL, WAL, INDEX])

    def test_what_is_not_there_has_no_size(self) -> None:
        """Nor has what nobody can look at."""
        self.assertEqual(size(self.path), 0)
        self.path.write_bytes(b"123")
        self.assertEqual((size(self.path), size(self.path / "below")), (3, 0))


if __name__ == "__main__":
    unittest.main()
