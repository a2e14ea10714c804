"""Where tests import from."""

import tempfile
import unittest
from pathlib import Path

from tests import _paths


class KitFoldersTest(unittest.TestCase):
    """Kits that are developed apart."""

    def setUp(self) -> None:
        self.scratch = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_without_a_folder_there_are_none(self) -> None:
        """Not set, or nothing in it."""
        self.assertEqual((_paths._kit_folders(None), _paths._kit_folders(str(self.scratch))), ([], []))

    def test_a_home_holds_its_package_or_is_it(self) -> None:
        """Either way the kit can be imported from what comes back."""
        (self.scratch / "llmkit").mkdir()
        (self.scratch / "aip2work/tracekit/src").mkdir(parents=True)
        wanted = [str(self.scratch / "llmkit"), str(self.scratch / "aip2work/tracekit/src")]
        self.assertEqual(_paths._kit_folders(str(self.scratch)), wanted)
        (self.scratch / "llmkit/__init__.py").touch()
        self.assertEqual(_paths._kit_folders(str(self.scratch)), [str(self.scratch), wanted[1]])
