"""How much the bench measures, and what of it is kept."""

import contextlib
import io
import unittest
from pathlib import Path
from unittest import mock

from bench import __main__ as command


class PlanTest(unittest.TestCase):
    """What is measured in which case."""

    def test_the_gateway_alone_is_the_shorter_one(self) -> None:
        """It knows nothing of peers, and so measures neither curve nor scale."""
        alone, beside = command.plan(False, None), command.plan(False, Path("peers"))
        self.assertIsNone(alone.peers)
        self.assertEqual(beside.peers, Path("peers"))
        self.assertLess(alone.repetitions, beside.repetitions)

    def test_a_look_is_known_as_one(self) -> None:
        """So that no test of what is kept can mistake it."""
        self.assertTrue(command.plan(True, Path("peers")).quick)
        self.assertFalse(command.plan(False, Path("peers")).quick or command.plan(False, None).quick)

    def test_a_look_is_not_kept(self) -> None:
        """Nothing is measured before that is said."""
        arguments = ["bench", "--quick", "--readme"]
        with (
            mock.patch("sys.argv", arguments),
            mock.patch.object(command, "measure") as measure,
            contextlib.redirect_stderr(io.StringIO()),
            self.assertRaises(SystemExit),
        ):
            command.main()
        measure.assert_not_called()
