"""The statistics of the evals against values that are known from elsewhere."""

import unittest

from evals.stats import exact_interval, most_failures, paired_interval, percentile, points_lost


class PercentileTest(unittest.TestCase):
    """The nearest rank."""

    def test_it_is_a_value_that_was_measured(self) -> None:
        """The smallest that so many do not exceed, in any order."""
        values = [float(value) for value in range(100, 0, -1)]
        shares = (0.0, 0.01, 0.5, 0.95, 0.99, 1.0)
        self.assertEqual([percentile(values, share) for share in shares], [1, 1, 50, 95, 99, 100])
        self.assertEqual(percentile([7.0], 0.95), 7.0)

    def test_nothing_has_no_percentile(self) -> None:
        """It is an error, not a zero that would pass a gate."""
        with self.assertRaises(ValueError):
            percentile([], 0.5)


class MostFailuresTest(unittest.TestCase):
    """Clopper and Pearson, one-sided."""

    def test_none_of_many(self) -> None:
        """The closed form: 1 - 0.05 ** (1 / n), the rule of three."""
        for trials in (1, 10, 671):
            self.assertAlmostEqual(most_failures(0, trials), 1 - 0.05 ** (1 / trials), places=9)

    def test_some_of_some(self) -> None:
        """The table's values for 1 and 3 of 10."""
        self.assertAlmostEqual(most_failures(1, 10), 0.39416, places=5)
        self.assertAlmostEqual(most_failures(3, 10), 0.60662, places=5)

    def test_nothing_tried_proves_nothing(self) -> None:
        """Nor does failing always."""
        self.assertEqual((most_failures(0, 0), most_failures(4, 4)), (1.0, 1.0))

    def test_many_of_many(self) -> None:
        """Where the number of ways is beyond a float: the normal approximation is good to three digits."""
        self.assertAlmostEqual(most_failures(5_000, 10_000), 0.5 + 1.6449 * 0.005, places=3)


class IntervalTest(unittest.TestCase):
    """Clopper and Pearson, two-sided."""

    def test_it_is_what_the_tables_say(self) -> None:
        """Of 95 %: 0, 1, 5 and 10 of 10."""
        for successes, low, high in (
            (0, 0.0, 0.30850),
            (1, 0.00253, 0.44502),
            (5, 0.18709, 0.81291),
            (10, 0.69150, 1.0),
        ):
            with self.subTest(successes):
                found = exact_interval(successes, 10)
                self.assertAlmostEqual(found[0], low, places=5)
                self.assertAlmostEqual(found[1], high, places=5)

    def test_nothing_tried_says_nothing(self) -> None:
        """Any rate is possible."""
        self.assertEqual(exact_interval(0, 0), (0.0, 1.0))

    def test_more_confidence_is_a_wider_interval(self) -> None:
        """And it always holds the rate that was seen."""
        (low, high), (lower, higher) = exact_interval(61, 120), exact_interval(61, 120, 0.99)
        self.assertTrue(lower < low < 61 / 120 < high < higher)


class LossTest(unittest.TestCase):
    """Points lost, and how sure they are."""

    def test_points_are_of_a_hundred(self) -> None:
        """Three of four against one of four."""
        self.assertEqual(points_lost([True, True, True, False], [False, True, False, False]), 50.0)

    def test_the_interval_holds_the_loss_and_follows_the_seed(self) -> None:
        """Twenty of a hundred lost: about 12 to 28; the same seed gives the same."""
        better, other = [True] * 100, [False] * 20 + [True] * 80
        low, high = paired_interval(better, other, seed=1)
        self.assertTrue(10 <= low <= 14 and 26 <= high <= 30, (low, high))
        self.assertEqual(paired_interval(better, other, seed=1), (low, high))

    def test_the_same_answers_lose_nothing(self) -> None:
        """The pairs are kept together: chance alone shows no loss."""
        same = [True, False] * 20
        self.assertEqual(paired_interval(same, same, seed=1), (0.0, 0.0))
