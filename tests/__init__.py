"""The project's tests. `python -m unittest` from the root runs them all and fails if fewer than FLOOR were found.

Properties are tried with the same examples in every run, however slow the machine is. To look for new ones:
HYPOTHESIS_PROFILE=explore.
"""

import os
import unittest
from pathlib import Path

from hypothesis import HealthCheck, settings

from tests import _paths

settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

FLOOR = 1500
_SUITES = ("unit", "contract", "property", "sim", "socket", "stress", "crash")


class FloorTest(unittest.TestCase):
    """A suite that lost its tests must not look green."""

    found = 0

    def test_no_test_went_missing(self) -> None:
        """At least FLOOR tests were collected."""
        self.assertGreaterEqual(self.found, FLOOR)


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
    """Collect every suite below this folder, then the floor; pattern is the file name pattern of the run."""
    here = Path(__file__).parent
    for name in _SUITES:
        tests.addTest(loader.discover(str(here / name), pattern or "test*.py", top_level_dir=str(_paths.ROOT)))
    FloorTest.found = tests.countTestCases()
    tests.addTest(FloorTest("test_no_test_went_missing"))
    return tests
