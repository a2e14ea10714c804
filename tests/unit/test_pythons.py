"""Which other Pythons of a machine the tests are run under."""

import contextlib
import io
import os
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path
from unittest import mock

from tests import _paths, pythons
from tests.pythons import NOT_RUN, Python, claimed, conclude, find, requirements, supported

PROJECT = tomllib.loads((_paths.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


class FindTest(unittest.TestCase):
    """On the PATH and among pyenv's versions."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)

    def put(self, path: str, answer: str, *, status: int = 0) -> None:
        """A program that says who it is."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\necho {answer}\nexit {status}\n")
        file.chmod(0o755)

    def found(self, *path: str, **environment: str) -> list[tuple[tuple[int, ...], str]]:
        """Version and place of each."""
        joined = os.pathsep.join(str(self.home / folder) for folder in path)
        there = find({"PATH": joined, **environment}, self.home)
        return [(python.version, str(python.path.relative_to(self.home))) for python in there]

    def test_each_version_once_and_the_oldest_first(self) -> None:
        """By number, not by name; that of the PATH goes first."""
        self.put("a/python3.9", "cpython 3 9 1")
        self.put("b/python3", "cpython 3 11 2")
        self.put("b/python3.11", "cpython 3 11 2")
        self.put(".pyenv/versions/3.11.2/bin/python3", "cpython 3 11 2")
        self.put(".pyenv/versions/3.11.10/bin/python3", "cpython 3 11 10")
        expected = [
            ((3, 9, 1), "a/python3.9"),
            ((3, 11, 2), "b/python3"),
            ((3, 11, 10), ".pyenv/versions/3.11.10/bin/python3"),
        ]
        self.assertEqual(self.found("a", "b", "nowhere"), expected)

    def test_pyenv_may_be_elsewhere_and_its_shims_are_no_pythons(self) -> None:
        """A shim stands for one of the versions, or for none."""
        self.put("env/shims/python3", "cpython 3 12 1")
        self.put("env/versions/3.12.1/bin/python3.12", "cpython 3 12 1")
        place = ((3, 12, 1), "env/versions/3.12.1/bin/python3.12")
        self.assertEqual(self.found("env/shims", PYENV_ROOT=str(self.home / "env")), [place])

    def test_what_is_no_plain_python_is_left_out(self) -> None:
        """Other implementations and builds, other programs, and what does not start."""
        self.put("a/python3", "pypy 3 11 2")
        self.put("a/python3.13", "cpythont 3 13 0")
        self.put("a/python3.12", "not found", status=127)
        self.put("a/python3.11-config", "cpython 3 11 2")
        (self.home / "a/python3.10").write_text("no program")
        self.assertEqual(self.found("a"), [])

    def test_the_one_that_runs_this_is_told_right(self) -> None:
        """A real one."""
        there = find({"PATH": str(Path(sys.executable).parent)}, self.home)
        self.assertIn(sys.version_info[:3], [python.version for python in there])


class ChoiceTest(unittest.TestCase):
    """Which of them are meant, and with what."""

    def test_those_of_a_claimed_release_but_for_the_one_that_runs(self) -> None:
        """Another patch of the same release is another Python."""
        found = [Python(version, Path("p")) for version in ((3, 10, 9), (3, 11, 2), (3, 11, 7), (3, 13, 0), (3, 14, 0))]
        chosen = supported(found, {(3, 11), (3, 13)}, (3, 11, 7))
        self.assertEqual([python.version for python in chosen], [(3, 11, 2), (3, 13, 0)])

    def test_the_project_names_its_releases(self) -> None:
        """The least is the one that an installation asks for."""
        releases = claimed(PROJECT)
        self.assertEqual(PROJECT["requires-python"], ">=" + ".".join(map(str, min(releases))))
        self.assertGreaterEqual(len(releases), 3)

    def test_what_is_installed_is_what_the_project_pins(self) -> None:
        """All that runs, and each tool that is needed."""
        needed = requirements(PROJECT)
        self.assertEqual(needed[: len(PROJECT["dependencies"])], PROJECT["dependencies"])
        self.assertEqual(len(needed), len(PROJECT["dependencies"]) + len(pythons.NEEDED))

    def test_every_telling_test_exists(self) -> None:
        """One that was renamed would be a failure everywhere."""
        for name in pythons.TELLING:
            with self.subTest(name):
                suite = unittest.defaultTestLoader.loadTestsFromName(f"tests.{name}")
                self.assertGreater(suite.countTestCases(), 0)
                self.assertNotIn("_FailedTest", repr(suite))


class StatusTest(unittest.TestCase):
    """What the end says."""

    def test_a_failure_counts_more_than_what_was_not_run(self) -> None:
        """To have found no other Python is no fault; to have run none of those that are there is another thing."""
        for statuses, expected in (
            ([], 0),
            ([0, NOT_RUN], 0),
            ([NOT_RUN], NOT_RUN),
            ([NOT_RUN, 2], 1),
            ([0, -9], 1),
        ):
            with self.subTest(statuses):
                self.assertEqual(conclude(statuses), expected)

    def test_what_was_not_run_is_said(self) -> None:
        """One that nothing can be installed for says why; then others that are there, and releases that are not."""
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as said:
            broken = Path(folder) / "python3"
            broken.write_text("#!/bin/sh\necho no venv >&2\nexit 1\n")
            broken.chmod(0o755)
            there = [Python((3, 11, 99), broken), Python((3, 12, 99), broken)]
            with (
                mock.patch.object(pythons, "find", lambda *_: there),
                mock.patch.object(pythons, "claimed", lambda _: {(3, 11), (3, 12), (3, 99)}),
            ):
                status = pythons.main(["--oldest"])
        self.assertEqual(status, NOT_RUN)
        first, *others = said.getvalue().splitlines()
        self.assertRegex(first, r"^Python 3\.11\.99 \(.*\): not run, `.* -m venv .*`: no venv$")
        self.assertRegex(others[0], r"^Not run, since only the oldest was asked for: 3\.12\.99 ")
        self.assertEqual(others[1:], ["Not on this machine: Python 3.99"])


if __name__ == "__main__":
    unittest.main()
