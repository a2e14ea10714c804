"""What is remembered of the windows that levels have reached."""

import math
import unittest

from gateway.reached import Reached, ReachedWindows

DAY_MS = 86_400_000
LEVELS = (1, 2, 3)


def day(number: int, balance: int) -> Reached:
    return Reached(number, (number + 1) * DAY_MS, balance)


class ReachedWindowsTest(unittest.TestCase):
    """Memory stands for the table only where the table cannot say anything else."""

    def setUp(self) -> None:
        self.windows = ReachedWindows()
        self.windows.learn([(1, day(5, 11)), (2, Reached(0, math.inf, 12)), (3, day(5, 13))])

    def at(self, number: int) -> tuple[int, ...] | None:
        return self.windows.balances(LEVELS, number * DAY_MS)

    def test_balances_come_in_the_order_that_was_asked_for(self) -> None:
        """Key, tenant, global."""
        self.assertEqual(self.at(5), (11, 12, 13))
        self.assertEqual(self.windows.balances((3, 1, 2), 5 * DAY_MS), (13, 11, 12))

    def test_a_window_that_nobody_has_opened_is_not_known(self) -> None:
        """Nor is a level that nobody has read; the ledger looks then."""
        self.assertEqual(self.windows.balances(LEVELS, 6 * DAY_MS - 1), (11, 12, 13))
        self.assertIsNone(self.at(6))
        self.assertIsNone(self.windows.balances((1, 2, 4), 5 * DAY_MS))

    def test_a_clock_that_is_set_back_stays_in_the_window_that_was_reached(self) -> None:
        """Each number is granted once."""
        self.assertEqual(self.at(4), (11, 12, 13))

    def test_old_news_changes_nothing(self) -> None:
        """Two threads may read one after the other and tell it the other way round."""
        self.windows.learn([(1, day(4, 7))])
        self.assertEqual(self.at(5), (11, 12, 13))

    def test_news_are_told_at_once(self) -> None:
        """Also of levels that were asked for before."""
        self.assertEqual(self.at(5), (11, 12, 13))
        self.windows.learn([(1, day(6, 21))])
        self.assertEqual(self.at(5), (21, 12, 13))

    def test_nothing_is_known_while_a_window_is_opened(self) -> None:
        """What was read before the commit is not learned after it, whatever the clock says meanwhile."""
        self.assertEqual(self.at(5), (11, 12, 13))
        self.windows.opens(1, 6)
        self.assertIsNone(self.at(5))
        self.windows.learn([(1, day(5, 11))])
        self.assertIsNone(self.at(5))
        self.windows.learn([(1, day(6, 21))])
        self.windows.learn([(1, day(5, 11))])
        self.assertEqual(self.at(5), (21, 12, 13))

    def test_a_window_is_opened_by_the_latest_of_many(self) -> None:
        """One that opens it again, or an earlier one, leaves the mark where it was."""
        self.windows.opens(1, 7)
        self.windows.opens(1, 6)
        self.windows.learn([(1, day(6, 21))])
        self.assertIsNone(self.at(5))
