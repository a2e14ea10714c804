"""The bounds of speed, and what a measurement says of each."""

import copy
import unittest
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.gates import Gate, Spread, gates, number, spread
from tests.support.measurements import artifact


def judged(figures: dict[str, Any]) -> dict[str, str]:
    """The status of each gate."""
    return {gate.what: gate.status for gate in gates(figures)}


class SpreadTest(unittest.TestCase):
    """The median, and how far the repetitions lie apart."""

    def test_it_is_the_median_with_the_least_and_the_most(self) -> None:
        """Of nothing there is none."""
        self.assertEqual(spread([3.0, 9.0, 4.0]), Spread(4.0, 3.0, 9.0))
        self.assertIsNone(spread([]))

    def test_repetitions_that_agree_are_one_number(self) -> None:
        """With its unit, if it has one."""
        self.assertEqual(Spread(3, 3, 3).text("us"), "3 us")
        self.assertEqual(Spread(3, 2, 4).text(), "3 (2 to 4)")

    def test_three_digits_and_no_more(self) -> None:
        """Whole numbers keep all of theirs."""
        shown = [number(value) for value in (0.1234, 12.345, 123.4, 6000.0, 12345.6)]
        self.assertEqual(shown, ["0.123", "12.3", "123", "6,000", "12,346"])


class GateTest(unittest.TestCase):
    """One bound."""

    def test_the_bound_itself_is_reached(self) -> None:
        """From above and from below; the median decides."""
        for at_least, measured, status in (
            (False, Spread(5, 1, 9), "passed"),
            (False, Spread(5.1, 1, 9), "failed"),
            (True, Spread(5, 1, 9), "passed"),
            (True, Spread(4.9, 1, 9), "failed"),
        ):
            with self.subTest(at_least=at_least, measured=measured):
                self.assertEqual(Gate("x", "us", 5, measured, at_least=at_least).status, status)

    def test_what_was_not_measured_is_neither_and_says_why(self) -> None:
        """It never counts as passed."""
        gate = Gate("x", "us", 5, None, why="portkey: not installed")
        self.assertEqual(gate.status, "not measured")
        self.assertIn("portkey: not installed", gate.row)
        self.assertIn("| - | not measured |", Gate("x", "us", 5, None).row)


class GatesTest(unittest.TestCase):
    """All of them."""

    def setUp(self) -> None:
        self.figures = artifact()

    def assert_fails(self, part_of_name: str, change: Callable[[dict[str, Any]], object]) -> None:
        """This change, and nothing else, makes exactly these gates fail."""
        figures = copy.deepcopy(self.figures)
        change(figures)
        failed = [what for what, status in judged(figures).items() if status == "failed"]
        self.assertTrue(failed, part_of_name)
        for what in failed:
            self.assertIn(part_of_name, what)

    def test_a_good_measurement_passes_every_gate(self) -> None:
        """So that each change below is what fails."""
        self.assertEqual(set(judged(self.figures).values()), {"passed"})

    def test_each_figure_decides_its_own_gate(self) -> None:
        """One that is too bad turns one row red, and no other."""
        for name, value, part in (
            ("added_p99_us", 401, "p99, `normal`"),
            ("cpu_us_per_request", 201.0, "CPU per request, one caller"),
            ("c32_cpu_us_per_request", 251.0, "CPU per request, 32 callers"),
            ("stream_added_ttfb_p50_us", 251, "stream's first byte"),
            ("hit_added_p50_us", 121, "exact-cache hit"),
            ("failover_added_p50_us", 1001, "failover"),
            ("c32_p99_us", 20_001, "p99 with 32 callers, `normal`"),
            ("c32_streams_per_s", 1999.0, "20-event streams/s"),
        ):
            with self.subTest(name):
                self.assert_fails(part, partial(_set, subject="normal", name=name, value=value))

    def test_one_wrong_answer_in_one_repetition_is_too_many(self) -> None:
        """All repetitions count."""
        self.assert_fails("went wrong in all", lambda figures: _runs(figures, "normal")[1].update(bad=1.0))

    def test_full_may_cost_two_syncs_more_than_normal(self) -> None:
        """100 us of `normal`, twice the median of the syncs, and 50."""
        self.assert_fails("`full`", lambda figures: _set(figures, "full", "added_p50_us", 451))
        _set(self.figures, "full", "added_p50_us", 450)
        self.assertEqual(set(judged(self.figures).values()), {"passed"})

    def test_many_callers_are_held_against_the_peers_of_the_same_run(self) -> None:
        """Repetition by repetition: a machine that was slow for a while was slow for all."""
        for durability, times, peer in (
            ("normal", 2, "portkey"),
            ("full", 1.5, "portkey"),
            ("normal", 25, "litellm"),
            ("full", 25, "litellm"),
        ):
            with self.subTest(durability, peer=peer):
                enough = (6000.0 if durability == "normal" else 4000.0) / times
                for rate, status in ((enough, "passed"), (enough + 1, "failed")):
                    _set(figures := artifact(), peer, "c32_requests_per_s", rate)
                    said = [each for what, each in judged(figures).items() if f"`{durability}`, over {peer}'s" in what]
                    self.assertEqual(said, [status])
        slow = [{**run, "c32_requests_per_s": run["c32_requests_per_s"] / 10} for run in _runs(self.figures, "normal")]
        slow_peer = [
            {**run, "c32_requests_per_s": run["c32_requests_per_s"] / 10} for run in _runs(self.figures, "portkey")
        ]
        _runs(self.figures, "normal")[0], _runs(self.figures, "portkey")[0] = slow[0], slow_peer[0]
        ratio = next(gate for gate in gates(self.figures) if "`normal`, over portkey's" in gate.what)
        self.assertEqual(ratio.measured, Spread(3.0, 3.0, 3.0))

    def test_sizes_have_bounds_too(self) -> None:
        """Memory, start, installation, and that nothing grows."""
        changes: dict[str, Callable[[dict[str, Any]], object]] = {
            "memory, idle": lambda figures: figures["subjects"]["normal"].update(rss_mib=45.1),
            "memory with 500": lambda figures: figures["subjects"]["normal"]["streams"][0].update(streams_rss_mib=91),
            "complete": lambda figures: figures["subjects"]["normal"]["streams"][0].update(streams_complete=499),
            "time to the first byte, p99": lambda figures: figures["subjects"]["normal"]["streams"][0].update(
                streams_ttfb_p99_us=400_001
            ),
            "memory growth": lambda figures: figures["growth"].update(mib=5.1),
            "start to first answer": lambda figures: figures["subjects"]["normal"].update(start_s=[0.36, 0.3, 0.4]),
            "installation": lambda figures: figures.update(install_mb=6.1),
            "1,000,000 ledger rows": lambda figures: [
                run.update(p50_us=130) for run in figures["scale"]["ledger rows"]["1000000"]
            ],
        }
        for part, change in changes.items():
            with self.subTest(part):
                self.assert_fails(part, change)

    def test_without_peers_the_comparisons_are_not_measured(self) -> None:
        """And say what was missing; without a scale and a soak, neither is what grows."""
        del self.figures["subjects"]["portkey"]
        self.figures["subjects"]["litellm"] = {"ours": False, "note": "n", "missing": "not installed"}
        self.figures |= {"scale": {}, "growth": {"mib": None, "commit": None}, "install_mb": "pip: no index"}
        open_ = {gate.what: gate.why for gate in gates(self.figures) if gate.status == "not measured"}
        self.assertEqual(len(open_), 8)
        said = " ".join(open_.values())
        for why in ("portkey: not run", "litellm: not installed", "pip: no index", "no soak was so long"):
            self.assertIn(why, said)

    def test_a_peer_that_answers_nothing_is_not_beaten(self) -> None:
        """A rate of zero would make any gateway endlessly faster."""
        for run in _runs(self.figures, "portkey"):
            del run["c32_streams_per_s"]
        gate = next(gate for gate in gates(self.figures) if gate.what.startswith("20-event"))
        self.assertEqual((gate.status, gate.why), ("not measured", "portkey: no good answer"))


def _runs(figures: dict[str, Any], subject: str) -> list[dict[str, float]]:
    runs: list[dict[str, float]] = figures["subjects"][subject]["runs"]
    return runs


def _set(figures: dict[str, Any], subject: str, name: str, value: float) -> None:
    for run in _runs(figures, subject):
        run[name] = value
