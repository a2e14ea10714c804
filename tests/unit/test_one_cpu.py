"""A process is kept on one CPU where the system can do that."""

import os
import unittest
from unittest import mock

from gateway import one_cpu


class PinTest(unittest.TestCase):
    """pin()."""

    def test_it_is_the_last_of_those_that_the_process_may_use(self) -> None:
        """Not of those that the machine has."""
        with (
            mock.patch.object(os, "sched_getaffinity", lambda pid: {1, 2}, create=True),
            mock.patch.object(os, "sched_setaffinity", create=True) as chosen,
        ):
            self.assertEqual(one_cpu.pin(), 2)
        chosen.assert_called_once_with(0, {2})

    def test_a_system_that_cannot_or_will_not_changes_nothing(self) -> None:
        """The start goes on, and tells it."""
        with mock.patch.object(os, "sched_setaffinity", side_effect=PermissionError, create=True):
            self.assertIsNone(one_cpu.pin())
        with mock.patch.object(os, "sched_getaffinity", side_effect=AttributeError, create=True):
            self.assertIsNone(one_cpu.pin())


if __name__ == "__main__":
    unittest.main()
