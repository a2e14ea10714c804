"""The project's tests. `python -m unittest` from the root runs them all and fails if fewer than FLOOR were found;
`python -m tests` does the same in several processes.
"""

import unittest
from pathlib import Path

from tests import _paths

FLOOR = 1500
SUITES = ("unit", "contract", "property", "sim", "socket", "stress", "crash")


class FloorTest(unittest.TestCase):
    """A suite that lost its tests must not look green."""

    found = 0

    def test_no_test_went_missing(self) -> None:
        """At least FLOOR tests were collected."""
        self.assertGreaterEqual(self.found, FLOOR)


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
    """Collect every suite below this folder, then the floor; pattern is the file name pattern of the run."""
    here = Path(__file__).parent
    for name in SUITES:
        tests.addTest(loader.discover(str(here / name), pattern or "test*.py", top_level_dir=str(_paths.ROOT)))
    FloorTest.found = tests.countTestCases()
    tests.addTest(FloorTest("test_no_test_went_missing"))
    return tests
