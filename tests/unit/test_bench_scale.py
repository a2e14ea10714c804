"""How the cost of a request is compared between sizes."""

import unittest
from unittest import mock

from bench import scale
from bench.measure import Bench, Figures
from bench.subject import Subject
from bench.tools import Tools


class TurnsTest(unittest.TestCase):
    """A repetition is many short turns."""

    def setUp(self) -> None:
        self.asked: list[Subject] = []
        self.bench = Bench(mock.create_autospec(Tools), Subject("mock", 1, 1), 3.0, ())
        self.subjects = {"1": Subject("1", 2, 2), "9": Subject("9", 3, 3, keys=tuple("abcdefghi"))}

    def one_turn(self, bench: Bench, subject: Subject, hits: bool) -> Figures:
        """Slower each time, and one request in the third turn went wrong."""
        self.asked.append(subject)
        self.assertEqual((bench.seconds, hits), (3.0 / scale.TURNS, True))
        number = len(self.asked)
        return {"p50_us": float(number), "bad": float(number == 3)}

    def repetition(self) -> dict[str, Figures]:
        """One, with turns that are not measured."""
        with mock.patch.object(scale, "once", self.one_turn):
            return scale.repetition(self.bench, self.subjects, True)

    def test_a_figure_is_the_median_of_its_turns_and_faults_are_summed(self) -> None:
        """So that one slow turn says nothing, and no fault is lost."""
        figures = self.repetition()
        self.assertEqual(figures, {"1": {"p50_us": 6.5, "bad": 0.0}, "9": {"p50_us": 6.5, "bad": 1.0}})

    def test_another_begins_each_time(self) -> None:
        """Nobody is always the one behind another."""
        self.repetition()
        self.assertEqual([subject.name for subject in self.asked][:6], ["1", "9", "9", "1", "1", "9"])

    def test_short_turns_meet_all_keys(self) -> None:
        """Each turn goes on elsewhere, and none loses a key."""
        self.repetition()
        turns = ["".join(subject.keys) for subject in self.asked if subject.name == "9"]
        self.assertEqual([keys[0] for keys in turns], list("abdegh"))
        self.assertEqual({"".join(sorted(keys)) for keys in turns}, {"abcdefghi"})


class AxesTest(unittest.TestCase):
    """What grows."""

    def test_every_axis_goes_from_small_to_large(self) -> None:
        """The gate compares the ends."""
        for axis in scale.AXES:
            with self.subTest(axis.name):
                self.assertEqual(sorted(axis.sizes), list(axis.sizes))
                self.assertGreaterEqual(axis.sizes[-1], 1000 * axis.sizes[0])


if __name__ == "__main__":
    unittest.main()
