"""What the documents name exists."""

import re
import unittest

from bench import report
from tests import _paths

NOTES = (_paths.ROOT / "DESIGN_NOTES.md").read_text(encoding="utf-8")
README = (_paths.ROOT / "README.md").read_text(encoding="utf-8")


class DesignNotesTest(unittest.TestCase):
    """DESIGN_NOTES.md."""

    def test_every_invariant_and_promise_is_guarded_by_a_test_that_exists(self) -> None:
        """A test that was renamed leaves its invariant unguarded until the notes follow."""
        rows = re.findall(r"^\| [IP]-\d+ \|.*$", NOTES, re.MULTILINE)
        self.assertGreaterEqual(len(rows), 40)
        for row in rows:
            names = re.findall(r"`(tests\.[\w.]+)`", row)
            self.assertTrue(names, row)
            for name in names:
                with self.subTest(name):
                    suite = unittest.defaultTestLoader.loadTestsFromName(name)
                    self.assertEqual(suite.countTestCases(), 1)
                    self.assertNotIn("_FailedTest", repr(suite))

    def test_decisions_are_numbered_without_a_gap(self) -> None:
        """Newest last."""
        numbers = [int(number) for number in re.findall(r"^### D-(\d{3}) ", NOTES, re.MULTILINE)]
        self.assertEqual(numbers, list(range(1, len(numbers) + 1)))

    def test_its_figures_are_those_of_the_committed_measurement(self) -> None:
        """They are written by the same command as the README's."""
        self.assertEqual(report.render_notes(NOTES, report.load()), NOTES)


class ReadmeFilesTest(unittest.TestCase):
    """README.md."""

    def test_every_file_it_links_to_exists(self) -> None:
        """Relative links only."""
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
            self.assertTrue((_paths.ROOT / target).exists(), target)
