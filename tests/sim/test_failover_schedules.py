"""Every seeded schedule of requests that fail over, leave and die leaves the money right; broken twins are caught."""

import itertools
import unittest
from functools import partial
from unittest import mock

from gateway.store import Durability
from tests.sim.failovers import check_crash_point, check_schedule
from tests.sim.test_failover import CarriesTheUnknown
from tests.sim.test_twins import caught_at
from tests.support import twins


class FailoverSchedulesTest(unittest.TestCase):
    """Three to five requests over three upstreams, with money for one to three holds."""

    SEEDS = 300

    def test_money_is_right_whatever_fails(self) -> None:
        """No limit is ever passed, both meters are covered, and each request has one row."""
        happened: set[str] = set()
        for seed in range(self.SEEDS):
            with self.subTest(seed=seed):
                happened |= check_schedule(seed)
        everything = {"routed", "retried", "failed_over", "escalated", "failed", "client_gone", "rejected"}
        everything |= {"settled", "void", "unresolved", "none", "crashed", "several calls", "several holds", "exact"}
        self.assertEqual(everything, happened, "a schedule that never happens checks nothing")


class CrashPointsTest(unittest.TestCase):
    """One request with three calls and two holds, killed before each of its effects in turn."""

    def test_the_books_survive_a_crash_before_any_effect(self) -> None:
        """What the upstreams bill is covered, nothing is held, and there is one row."""
        for stream, durability in itertools.product((False, True), Durability):
            effects = check_crash_point(None, stream=stream, durability=durability)
            self.assertGreater(effects, 20)
            for point in range(effects):
                with self.subTest(stream=stream, durability=durability, point=point):
                    self.assertEqual(point, check_crash_point(point, stream=stream, durability=durability))


class TwinsTest(unittest.TestCase):
    """What is wrong on purpose fails the very checks that the right one passes."""

    SEEDS = 60

    def test_schedules_catch_every_twin(self) -> None:
        """Read-then-write, a row count that nobody asks for, holds that stay or stand alone, money given back."""
        for twin in (
            twins.ReadsThenAdds,
            twins.IgnoresRowCount,
            twins.LeavesTheHold,
            twins.BooksInTwoTransactions,
            twins.ForgetsTheGivenUp,
        ):
            with self.subTest(twin=twin.__name__):
                self.assertIsNotNone(caught_at(partial(check_schedule, ledger_type=twin), range(self.SEEDS)))

    def test_schedules_catch_a_hold_that_two_calls_share(self) -> None:
        """The first of which may have been billed."""
        with mock.patch("gateway.gateway.Settlement", CarriesTheUnknown):
            self.assertIsNotNone(caught_at(check_schedule, range(self.SEEDS)))

    def test_crash_points_catch_what_is_not_one_transaction(self) -> None:
        """Between the balance and the hold of a reservation."""
        check = partial(check_crash_point, stream=True, durability=Durability.FULL)
        for twin in (twins.LeavesTheHold, twins.BooksInTwoTransactions):
            with self.subTest(twin=twin.__name__):
                self.assertIsNotNone(caught_at(partial(check, ledger_type=twin), range(self.SEEDS)))


if __name__ == "__main__":
    unittest.main()
