"""A measurement as people read it."""

import json
import re
import tempfile
import unittest
from pathlib import Path

from bench import report
from bench.gates import gates
from tests.support.measurements import artifact


class LinesTest(unittest.TestCase):
    """The tables."""

    def setUp(self) -> None:
        self.figures = artifact()

    def text(self) -> str:
        """All of it."""
        return "\n".join(report.lines(self.figures))

    def test_every_gate_has_one_row(self) -> None:
        """With its bound and its status."""
        rows = [line for line in report.lines(self.figures) if line.endswith(("| passed |", "| failed |"))]
        self.assertEqual(rows, [gate.row for gate in gates(self.figures)])

    def test_every_table_is_one(self) -> None:
        """As many cells in each row as in its head."""
        widths = [line.count("|") for line in report.lines(self.figures) if line.startswith("|")]
        self.assertEqual(len(set(widths)), 3)
        for table in re.split(r"\n(?!\|)", self.text()):
            rows = [line.count("|") for line in table.splitlines() if line.startswith("|")]
            self.assertLessEqual(len(set(rows)), 1, table)

    def test_everything_that_was_compared_stands_beside_the_others(self) -> None:
        """Ours first, each with its share of our requests; a peer that was not there is named with the reason."""
        text = self.text()
        self.assertLess(text.index("| **normal** |"), text.index("| portkey 1.2.3 |"))
        self.assertIn("| 2,000 (1,800 to 2,400) | 0.333 x |", text)
        self.assertIn("Not measured: vllm-router: not installed.", text)
        self.assertNotIn("| vllm-router", text)

    def test_the_machine_and_who_else_used_it_are_told(self) -> None:
        """A figure says nothing without."""
        for part in (
            "2 CPUs (some CPU)",
            "24 GiB",
            "Linux 6.1.2,",
            "commit abcdef0",
            "150 us (140 to 190)",
            "0.1 CPUs",
        ):
            self.assertIn(part, self.text())

    def test_the_gateway_alone_is_shown_without_the_others(self) -> None:
        """No empty tables, and no pictures that were not drawn."""
        self.figures["subjects"] = {name: self.figures["subjects"][name] for name in ("normal", "full")}
        self.figures["scale"] = {}
        self.assertEqual(sum(line.startswith("|---") for line in report.lines(self.figures)), 1)
        self.assertNotIn("![", report.render("<!-- figures -->\n<!-- /figures -->", self.figures))

    def test_a_gate_that_fails_is_named_first(self) -> None:
        """At the top of the README."""
        self.assertEqual(report.failing(self.figures), "Every gate that was measured passed.")
        self.figures["install_mb"] = 7.0
        self.assertIn("installation", report.failing(self.figures))

    def test_failures_are_counted_and_stand_together(self) -> None:
        """Those of one figure under its name, so that the first screen stays one."""
        for run in self.figures["subjects"]["normal"]["runs"]:
            run.update(added_p50_us=1e6, added_p99_us=1e6)
        said = report.failing(self.figures)
        measured = sum(gate.measured is not None for gate in gates(self.figures))
        self.assertIn(f"2 of {measured} gates fail", said)
        self.assertIn("added latency (one caller, p50, `normal` / one caller, p99, `normal`).", said)


class FilesTest(unittest.TestCase):
    """The artifact, and what it is put into."""

    def test_the_artifact_survives_being_written(self) -> None:
        """One line for each repetition."""
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "latest.json"
            report.write(path, artifact())
            text = path.read_text(encoding="utf-8")
        self.assertEqual(json.loads(text), artifact())
        self.assertEqual(len([line for line in text.splitlines() if "added_p50_us" in line]), 15)

    def test_only_what_is_between_the_markers_changes(self) -> None:
        """The rest of a document is somebody's own words."""
        before = "a\n<!-- failing -->\nold\n<!-- /failing -->\nb\n<!-- figures -->\nold\n<!-- /figures -->\nc"
        after = report.render(before, artifact())
        for kept in ("a\n<!-- failing -->\n", "\n<!-- /failing -->\nb\n<!-- figures -->\n", "\n<!-- /figures -->\nc"):
            self.assertIn(kept, after)
        self.assertNotIn("old", after)
        self.assertEqual(report.render(after, artifact()), after)

    def test_the_pictures_are_those_that_are_drawn(self) -> None:
        """Both of them, where there is something to draw them with."""
        try:
            from bench import plots
        except ImportError:
            self.skipTest("the extra [evals] is not installed")
        figures = artifact()
        for about in figures["subjects"].values():
            if "curve" in about:
                about["curve"] = {"1": [{"p50_us": 9, "p99_us": 12, "requests_per_s": 100.0}]}
        with tempfile.TemporaryDirectory() as name:
            drawn = plots.draw(figures, Path(name))
            self.assertEqual([path.name for path in drawn], list(report.PICTURES))
            self.assertTrue(all(path.stat().st_size for path in drawn))
