"""Two runs of the bench, held against each other."""

import unittest
from typing import Any

from bench.repeat import pairs
from tests.support.measurements import artifact


def strays(old: dict[str, Any], new: dict[str, Any]) -> list[tuple[str, str]]:
    """The figures that do not repeat."""
    return [(pair.subject, pair.name) for pair in pairs(old, new) if not pair.repeats]


class RepeatTest(unittest.TestCase):
    """A figure repeats if the repetitions of both runs meet."""

    def setUp(self) -> None:
        self.old, self.new = artifact(), artifact()

    def test_a_run_repeats_itself(self) -> None:
        """Every figure of every subject that both have is compared."""
        self.assertEqual(strays(self.old, self.new), [])
        compared = {(pair.subject, pair.name) for pair in pairs(self.old, self.new)}
        self.assertIn(("normal", "added_p50_us"), compared)
        self.assertIn(("portkey", "streams_ttfb_p99_us"), compared)
        self.assertNotIn("vllm-router", {subject for subject, _ in compared})

    def test_a_figure_outside_the_others_spread_does_not(self) -> None:
        """Above or below; one repetition that meets the others is enough."""
        runs = self.new["subjects"]["normal"]["runs"]
        for run, rate in zip(runs, (7201.0, 9000.0, 8000.0), strict=True):
            run["c32_requests_per_s"] = rate
        self.assertEqual(strays(self.old, self.new), [("normal", "c32_requests_per_s")])
        self.assertEqual(strays(self.new, self.old), [("normal", "c32_requests_per_s")])
        runs[0]["c32_requests_per_s"] = 7200.0
        self.assertEqual(strays(self.old, self.new), [])

    def test_what_others_used_is_no_figure_of_ours(self) -> None:
        """It differs between any two runs."""
        for run in self.new["subjects"]["normal"]["runs"]:
            run["foreign_cpus"] = 1.5
        self.assertEqual(strays(self.old, self.new), [])

    def test_a_peer_that_is_missing_in_one_run_is_not_compared(self) -> None:
        """It is no figure that does not repeat."""
        self.new["subjects"]["portkey"] = {"ours": False, "note": "n", "missing": "not installed"}
        self.assertNotIn("portkey", {pair.subject for pair in pairs(self.old, self.new)})
