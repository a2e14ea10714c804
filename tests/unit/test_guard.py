"""The guard over a request's instructions: what it reads, and what it decides."""

import contextlib
import io
import json
import tempfile
import unittest
from pathlib import Path

from bench import guard
from tests import _paths


def found(**counts: int) -> dict[str, object]:
    """A measurement with these counts."""
    return {"build": {"python": "3.11"}, "instructions_per_request": counts}


class TotalTest(unittest.TestCase):
    """What a dump of callgrind says."""

    def test_it_is_the_line_that_sums_up(self) -> None:
        """Of two such lines, the last."""
        self.assertEqual(guard.total("events: Ir\nsummary: 12\nfn=(1)\n5 7\ntotals: 13\n"), 13)

    def test_a_dump_of_a_thread_that_did_nothing_counts_nothing(self) -> None:
        """It may have no such line at all."""
        self.assertEqual(guard.total("events: Ir\n"), 0)

    def test_a_number_elsewhere_is_not_read(self) -> None:
        """Only at the start of a line."""
        self.assertEqual(guard.total("cmd: totals: 99\ntotals: 1\n"), 1)


class VerdictTest(unittest.TestCase):
    """Within the bound or not."""

    def test_a_tenth_more_passes_and_anything_beyond_fails(self) -> None:
        """The bound itself is allowed."""
        for now, passes in ((900_000, True), (1_100_000, True), (1_100_100, False)):
            with self.subTest(now):
                self.assertEqual(guard.Verdict("call", now, 1_000_000).passed, passes)

    def test_the_line_says_both_counts_and_the_rise(self) -> None:
        """So that a red build needs no second run to be understood."""
        line = guard.Verdict("call", 1_250_000, 1_000_000).line
        self.assertTrue(line.startswith("FAILED"))
        for part in ("1,250,000", "1,000,000", "+25.0 %"):
            self.assertIn(part, line)

    def test_every_kind_of_the_baseline_is_judged(self) -> None:
        """One that is not counted any more is an error, not a pass."""
        self.assertEqual([each.kind for each in guard.verdicts({"call": 1, "stream": 2}, {"stream": 2})], ["stream"])
        with self.assertRaises(KeyError):
            guard.verdicts({"call": 1}, {"call": 1, "stream": 2})

    def test_the_spread_is_from_the_least_to_the_most(self) -> None:
        """In percent of the median."""
        self.assertEqual(guard.spread_percent([98, 100, 103]), 5.0)


class CompareTest(unittest.TestCase):
    """Against a baseline in a file."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.baseline = Path(folder.name) / "baseline.json"

    def compare(self, now: dict[str, object]) -> bool:
        """What compare() says, without its output."""
        with contextlib.redirect_stdout(io.StringIO()):
            return guard.compare(now, self.baseline)

    def test_one_kind_above_the_bound_fails_the_whole(self) -> None:
        """Whatever the others did."""
        self.baseline.write_text(json.dumps(found(call=1000, stream=1000)))
        self.assertTrue(self.compare(found(call=1000, stream=1100)))
        self.assertFalse(self.compare(found(call=500, stream=1101)))

    def test_another_build_is_not_compared(self) -> None:
        """Other instructions do the same work there."""
        self.baseline.write_text(json.dumps(found(call=1000) | {"build": {"python": "3.12"}}))
        with self.assertRaisesRegex(guard.NotMeasured, "another build"):
            self.compare(found(call=1000))

    def test_without_a_baseline_nothing_is_measured(self) -> None:
        """It says how one is made."""
        with self.assertRaisesRegex(guard.NotMeasured, "--write"):
            self.compare(found(call=1000))

    def test_the_committed_baseline_has_every_kind(self) -> None:
        """And each is the least of its windows."""
        self.assertEqual(guard.BASELINE, _paths.ROOT / "bench" / "results" / "baseline.json")
        committed = json.loads(guard.BASELINE.read_text(encoding="utf-8"))
        self.assertEqual(set(committed["instructions_per_request"]), set(guard.KINDS))
        for kind, windows in committed["windows"].items():
            self.assertEqual(round(min(windows)), committed["instructions_per_request"][kind])
