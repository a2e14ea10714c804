"""A process may die before any effect of a request; the next one finds books that balance."""

import itertools
import unittest

from gateway.store import Durability
from tests.sim.schedules import check_crash_point


class CrashPointsTest(unittest.TestCase):
    """One request, killed before each of its effects in turn."""

    def test_the_books_survive_a_crash_before_any_effect(self) -> None:
        """The hold of the dead is unresolved and counted, what the upstream bills is covered, and there is one row."""
        for stream, durability in itertools.product((False, True), Durability):
            effects = check_crash_point(None, stream=stream, durability=durability)
            self.assertGreater(effects, 10)
            for point in range(effects):
                with self.subTest(stream=stream, durability=durability, point=point):
                    self.assertEqual(point, check_crash_point(point, stream=stream, durability=durability))


if __name__ == "__main__":
    unittest.main()
