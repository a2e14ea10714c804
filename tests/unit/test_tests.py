"""What the tests promise each other."""

import contextlib
import io
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tests import _paths
from tests.side_by_side import Outcome, conclude, main, modules, run_all, run_module

IMPORT = re.compile(r"^\s*(?:from|import) hypothesis\b", re.MULTILINE)


class HypothesisTest(unittest.TestCase):
    """Where properties stand."""

    def test_only_properties_use_hypothesis(self) -> None:
        """Elsewhere it would run without its profile, and make each process that is started slower."""
        tests = _paths.ROOT / "tests"
        users = {file.relative_to(tests).parts[0] for file in tests.rglob("*.py") if IMPORT.search(file.read_text())}
        self.assertEqual(users, {"property"})


PASSES = """import unittest
class ATest(unittest.TestCase):
    def test_a(self): self.assertTrue(True)
    @unittest.skip("not here")
    def test_b(self): self.fail()
"""
FAILS = """import unittest
class ATest(unittest.TestCase):
    def test_a(self): self.fail("as it must")
    def test_b(self): self.assertTrue(True)
"""
LEAVES = """import unittest
class Left:
    def __del__(self): raise ResourceWarning("left open")
class ATest(unittest.TestCase):
    def test_a(self): Left()
"""
DIES = "import os\nos._exit(3)\n"


def outcome(module: str, run: int = 1, *, passed: bool = True) -> Outcome:
    """A module that is over."""
    return Outcome(module, run, 0, passed, "", 0.1)


class SideBySideTest(unittest.TestCase):
    """Modules in several processes."""

    def printed(self, outcomes: list[Outcome], floor: int) -> tuple[int, str]:
        """Exit status and last line."""
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = conclude(outcomes, floor, 1.0)
        return status, said.getvalue().splitlines()[-1]

    def test_no_module_is_lost(self) -> None:
        """What unittest discovers is what is run, each once."""
        found = modules(_paths.ROOT / "tests")
        files = {file.relative_to(_paths.ROOT) for file in (_paths.ROOT / "tests").rglob("test*.py")}
        self.assertEqual({Path(*name.split(".")).with_suffix(".py") for name in found}, files)
        self.assertEqual(len(found), len(files))

    def test_each_module_is_told_as_it_ended(self) -> None:
        """Failures whole, at once; one without a test, that leaves anything open, or whose process dies has failed."""
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "path", [folder, *sys.path]):
            texts = {"passes": PASSES, "fails": FAILS, "leaves": LEAVES, "empty": "", "dies": DIES}
            for name, text in texts.items():
                (Path(folder) / f"{name}_side_by_side.py").write_text(text)
            names = [f"{name}_side_by_side" for name in texts]
            with contextlib.redirect_stdout(io.StringIO()) as said:
                done = {one.module.partition("_")[0]: one for one in run_all(names, 1)}
        self.assertEqual(
            {name: (one.run, one.skipped, one.passed) for name, one in done.items()},
            {
                "passes": (2, 1, True),
                "fails": (2, 0, False),
                "leaves": (1, 0, False),
                "empty": (0, 0, False),
                "dies": (0, 0, False),
            },
        )
        for words in (
            "--- fails_side_by_side",
            "AssertionError: as it must",
            "--- leaves_side_by_side",
            "ResourceWarning('left open')",
            "--- dies_side_by_side",
            "a process died",
        ):
            self.assertIn(words, said.getvalue())

    def test_a_module_that_cannot_be_imported_has_failed(self) -> None:
        """Its error is in what it said."""
        missing = run_module("tests.unit.test_of_nothing")
        self.assertFalse(missing.passed)
        self.assertIn("test_of_nothing", missing.said)

    def test_modules_that_are_named_are_run_alone(self) -> None:
        """They need not be many."""
        with contextlib.redirect_stdout(io.StringIO()) as said:
            status = main(["--jobs", "1", "tests.unit.test_money"])
        self.assertEqual((status, said.getvalue().splitlines()[-1]), (0, "OK"))
        self.assertIn("of 1 modules", said.getvalue())

    def test_all_must_pass_and_none_may_be_missing(self) -> None:
        """The last line says why."""
        self.assertEqual(self.printed([outcome("a", 2), outcome("b")], 3), (0, "OK"))
        self.assertEqual(self.printed([outcome("b", passed=False), outcome("a")], 1), (1, "FAILED: b"))
        self.assertEqual(self.printed([outcome("a", 2)], 3), (1, "FAILED: at least 3 tests were expected"))
