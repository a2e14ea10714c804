"""The README says what the committed artifacts say, and nothing else."""

import json
import unittest

from bench import report
from tests import _paths

README = (_paths.ROOT / "README.md").read_text(encoding="utf-8")


class ReadmeTest(unittest.TestCase):
    """Its numbers."""

    def test_the_numbers_are_those_of_the_committed_measurement(self) -> None:
        """`python -m bench --readme` writes them; editing them by hand turns this red."""
        figures = json.loads(report.RESULTS.read_text(encoding="utf-8"))
        self.assertEqual(report.render(README, figures), README)

    def test_another_measurement_would_turn_this_red(self) -> None:
        """Each figure that is shown comes from the artifact."""
        figures = json.loads(report.RESULTS.read_text(encoding="utf-8"))
        figures["normal"]["added_p50_us"] += 1000
        self.assertNotEqual(report.render(README, figures), README)

    def test_failing_gates_stand_above_the_fold(self) -> None:
        """Before the first section."""
        self.assertLess(README.index("<!-- failing -->"), README.index("\n## "))
