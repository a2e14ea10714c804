"""`python -m probes`: what it prints, what it exits with, and what a verdict is."""

import ast
import contextlib
import io
import json
import unittest

from probes.__main__ import main
from probes.catalog import PROBES
from probes.lab import Lab, Probe, run
from tests import _paths


def harmless(lab: Lab) -> str:
    """Finds nothing.

    And says so.
    """
    lab.check(True, "never told")
    return f"waited {lab.seconds:g} s"


def alarmed(lab: Lab) -> str:
    """Finds six faults."""
    for number in range(6):
        lab.check(False, f"fault {number}")
    return "never told"


def broken(lab: Lab) -> str:
    """Cannot do its work."""
    raise ConnectionError("nobody\nthere")


HARMLESS, ALARMED, BROKEN = (
    Probe("harmless", "calm", harmless),
    Probe("alarmed", "loud", alarmed),
    Probe("broken", "loud", broken),
)


class MainTest(unittest.TestCase):
    """The command line, with probes that need no gateway."""

    def output(self, *arguments: str, probes: tuple[Probe, ...] = (HARMLESS, ALARMED, BROKEN)) -> tuple[int, list[str]]:
        """Exit status and lines of a run."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = main(arguments, probes)
        return status, printed.getvalue().splitlines()

    def test_a_line_for_each_probe_and_a_status(self) -> None:
        """1 as soon as one has found something."""
        status, lines = self.output()
        self.assertEqual(status, 1)
        self.assertEqual(
            lines,
            [
                "not found  harmless: waited 6 s",
                "FOUND      alarmed: fault 0; fault 1; fault 2; fault 3; and 2 more",
                "FOUND      broken: the probe could not go on: ConnectionError: nobody there",
                "3 probes, 2 found something",
            ],
        )
        status, lines = self.output("--seconds", "2", probes=(HARMLESS,))
        self.assertEqual((status, lines), (0, ["not found  harmless: waited 2 s", "1 probes, 0 found something"]))

    def test_some_are_chosen_by_name_or_area(self) -> None:
        """More than one of either; a name that nobody has is an error, so that a typing error is no success."""
        self.assertEqual(len(self.output("--only", "loud")[1]), 3)
        self.assertEqual(len(self.output("--only", "loud", "--only", "harmless")[1]), 4)
        self.assertEqual(self.output("--only", "harmless")[0], 0)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as told:
            self.output("--only", "harmles")
        self.assertIn("harmles", told.getvalue())

    def test_what_there_is_can_be_listed(self) -> None:
        """Area, name and aim; nothing runs."""
        status, lines = self.output("--list")
        self.assertEqual((status, len(lines)), (0, 3))
        self.assertEqual(lines[0].split(maxsplit=2), ["calm", "harmless", "Finds nothing."])

    def test_verdicts_as_json(self) -> None:
        """One object per line and nothing else."""
        _, lines = self.output("--json", "--only", "calm")
        self.assertEqual(
            [json.loads(line) for line in lines],
            [{"name": "harmless", "area": "calm", "verdict": "not found", "seen": "waited 6 s"}],
        )


class CatalogTest(unittest.TestCase):
    """The probes that there are."""

    def test_each_has_a_name_of_its_own_and_an_aim(self) -> None:
        """One line that says what it tries."""
        self.assertEqual(len({probe.name for probe in PROBES}), len(PROBES))
        for probe in PROBES:
            self.assertRegex(probe.aim, r"^[A-Z0-9].*[.]$", probe.name)

    def test_probes_do_not_lean_on_the_tests(self) -> None:
        """What both need is written twice rather than believed once."""
        for file in (_paths.ROOT / "probes").glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                self.assertFalse([name for name in names if name.partition(".")[0] == "tests"], file.name)


class BooksTest(unittest.TestCase):
    """What the lab looks at by itself, once a probe is done."""

    def test_a_gateway_that_reported_an_error_is_found(self) -> None:
        """Whatever the probe itself has seen."""

        def careless(lab: Lab) -> str:
            lab.inside(lab.upstream()).errors.append(ValueError("nobody asked"))
            return "all is well"

        verdict = run(Probe("careless", "calm", careless), Lab())
        self.assertTrue(verdict.found)
        self.assertIn("nobody asked", verdict.seen)
