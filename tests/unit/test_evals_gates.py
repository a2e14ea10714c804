"""Bounds are read from what was written down before, and a number on the wrong side of one is called failed."""

import copy
import json
import unittest
from typing import Any

from evals import report
from evals.gates import PREREGISTRATION, Check, Gate, Measured, gates
from evals.labels import LABELS

DOCUMENT = """
| gate | | bound | unit | why |
|---|---|---|---|---|
| speed.p50 | <= | 150 | us | so |
| savings.share | >= | 40 | % | so |

| scenario | success, % | attempts per request | calls to the primary | p95, s | why |
|---|---|---|---|---|---|
| down | 0 | 1.4 | 10 | 2 | so |
"""
DOWN = {
    "scenarios.down.success": 0.0,
    "scenarios.down.attempts": 1.1,
    "scenarios.down.primary_calls": 10.0,
    "scenarios.down.p95_s": 0.5,
    "scenarios.down.stray_unresolved": 0.0,
}


def status(name: str, measured: Measured) -> str:
    """The status of one gate of DOCUMENT."""
    return next(gate.status for gate in gates(DOCUMENT, measured) if gate.name == name)


def down(measured: Measured) -> Gate:
    """The scenario of DOCUMENT."""
    return next(gate for gate in gates(DOCUMENT, measured) if gate.name == "scenarios.down")


class GateTest(unittest.TestCase):
    """One bound, one number."""

    def test_the_bound_itself_is_kept(self) -> None:
        """At most and at least include the bound."""
        self.assertEqual(status("speed.p50", {"speed.p50": 150}), "passed")
        self.assertEqual(status("savings.share", {"savings.share": 40}), "passed")

    def test_the_wrong_side_of_a_bound_is_failed(self) -> None:
        """However near it is."""
        self.assertEqual(status("speed.p50", {"speed.p50": 150.1}), "failed")
        self.assertEqual(status("savings.share", {"savings.share": 39.9}), "failed")

    def test_what_was_not_measured_never_passes(self) -> None:
        """No number, or None for one."""
        self.assertEqual(status("speed.p50", {}), "not measured")
        self.assertEqual(status("speed.p50", {"speed.p50": None}), "not measured")
        self.assertEqual(Gate("empty", ()).status, "not measured")

    def test_one_failed_check_fails_its_gate(self) -> None:
        """Also beside checks that hold, or that were not measured."""
        self.assertEqual(status("scenarios.down", DOWN), "passed")
        for name in DOWN:
            with self.subTest(name):
                self.assertEqual(status("scenarios.down", DOWN | {name: 11.0}), "failed")
                self.assertEqual(status("scenarios.down", {name: 11.0}), "failed")
                self.assertEqual(status("scenarios.down", DOWN | {name: None}), "not measured")

    def test_in_brief_a_gate_has_two_checks_and_those_that_do_not_hold(self) -> None:
        """Whatever decides its status is still there, so that the status is the same."""
        self.assertEqual([check.unit for check in down(DOWN).brief.checks], ["% success", "calls/request"])
        for name in DOWN:
            for value in (None, 11.0):
                with self.subTest(name, value=value):
                    gate = down(DOWN | {name: value})
                    self.assertEqual(gate.brief.status, gate.status)
                    self.assertLessEqual(len(gate.brief.checks), 3)

    def test_the_failures_of_a_gate_are_the_checks_that_do_not_hold(self) -> None:
        """Neither those that hold nor those that were not measured."""
        gate = down(DOWN | {"scenarios.down.p95_s": 11.0, "scenarios.down.attempts": None})
        self.assertEqual([check.unit for check in gate.failures.checks], ["s p95"])
        self.assertEqual([single.status for single in gate.singly].count("failed"), 1)

    def test_an_answer_where_everything_is_down_is_a_failure(self) -> None:
        """Success is bounded from both sides."""
        self.assertEqual(status("scenarios.down", DOWN | {"scenarios.down.success": 2.0}), "failed")

    def test_an_unknown_relation_is_an_error(self) -> None:
        """A slip in the document must not read as passed."""
        with self.assertRaises(ValueError):
            Check("<", 1, "us", 0).holds  # noqa: B018 - raises


class PreregistrationTest(unittest.TestCase):
    """The document and the evals name the same things."""

    def test_every_gate_is_measured_by_an_eval_and_every_number_has_a_gate(self) -> None:
        """Neither a bound that nobody checks, nor a number that nobody bounds."""
        artifacts = report.load()
        self.assertEqual(set(artifacts), set(report.TITLES))
        measured: dict[str, float | None] = {}
        for experiment in report.EXPERIMENTS:
            measured |= experiment.measured(artifacts[experiment.NAME])
        document = PREREGISTRATION.read_text(encoding="utf-8")
        judged = gates(document, measured)
        self.assertNotIn("not measured", {gate.status for gate in judged})
        doubled = {name: None if value is None else value + 1e12 for name, value in measured.items()}
        moved = {name for name in measured if gates(document, measured | {name: doubled[name]}) != judged}
        self.assertEqual(moved, set(measured))

    def test_every_gate_has_words_of_its_own(self) -> None:
        """No gate without a label, no label without a gate, no two alike."""
        names = [gate.name for gate in gates(PREREGISTRATION.read_text(encoding="utf-8"), {})]
        self.assertEqual(list(LABELS), names)
        self.assertEqual(len(set(LABELS.values())), len(names))


class ReportTest(unittest.TestCase):
    """What people are told."""

    def setUp(self) -> None:
        self.artifacts: dict[str, Any] = dict(report.load())

    def test_a_failed_gate_is_named_above_the_fold(self) -> None:
        """With its value and its bound."""
        spoilt = copy.deepcopy(self.artifacts["waterfall"])
        spoilt["workloads"]["synthetic"]["steps"]["routed_and_cached"]["hit"]["wrong"] = 1
        said = report.failing(report.judged(self.artifacts | {"waterfall": spoilt}))
        self.assertIn("savings: wrong answers from the exact cache (1 answers; bound <= 0 answers)", said)
        self.assertNotIn("savings: wrong answers", report.failing(report.judged(self.artifacts)))

    def test_of_a_failed_scenario_only_what_failed_is_named(self) -> None:
        """In the sentence; in the table it stands beside success and calls."""
        played = self.artifacts["scenarios"]["scenarios"]
        slow = {"scenarios": played | {"slow": played["slow"] | {"p95_s": 4.6}}}
        judged = report.judged(self.artifacts | {"scenarios": self.artifacts["scenarios"] | slow})
        self.assertIn("outage: the primary is slow (4.6 s p95; bound <= 4.5 s p95)", report.failing(judged))
        row = next(line for line in report.table(judged) if "the primary is slow" in line)
        self.assertTrue(row.endswith("| 100 % success, 1 calls/request, 4.6 s p95 | failed |"), row)

    def test_programs_are_told_the_names(self) -> None:
        """Words are for people only, and may change."""
        told = json.loads(report.as_json(self.artifacts))["gates"]
        self.assertEqual({gate["name"] for gate in told}, set(LABELS))
        self.assertEqual({len(gate["checks"]) for gate in told}, {1, 5})

    def test_a_missing_artifact_is_not_measured(self) -> None:
        """And stands in the table as that."""
        del self.artifacts["router"]
        rows = report.table(report.judged(self.artifacts))
        self.assertIn("| router: points lost against always strong | <= 2 points | - points | not measured |", rows)

    def test_a_gate_that_passed_and_fails_now_is_a_regression(self) -> None:
        """One that failed before is not; nor is a time of the wall clock, which a busy machine changes."""
        case = dict(self.artifacts["concurrency"]["cases"][0], over_admitted=1)
        worse = {
            "concurrency": self.artifacts["concurrency"] | {"cases": [case]},
            "overhead": self.artifacts["overhead"],
            "router": self.artifacts["router"],
        }
        self.assertEqual(report.regressions(self.artifacts, worse), ["concurrency.over_admitted"])
        fast = [dict(run, added_p50_us=1) for run in self.artifacts["overhead"]["runs"]]
        before = self.artifacts | {"overhead": self.artifacts["overhead"] | {"runs": fast}}
        self.assertEqual(report.regressions(before, self.artifacts), [])
