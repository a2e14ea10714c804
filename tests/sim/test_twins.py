"""Ledgers that are wrong on purpose fail the very checks that the right one passes."""

import unittest
from collections.abc import Callable, Iterable
from functools import partial

from gateway.store import Durability
from tests.sim.schedules import check_crash_point, check_race, check_schedule
from tests.support import twins


def caught_at(check: Callable[[int], object], numbers: Iterable[int]) -> int | None:
    """The first number for which `check` raises AssertionError."""
    for number in numbers:
        try:
            check(number)
        except AssertionError:
            return number
    return None


class TwinsTest(unittest.TestCase):
    """Each twin, and the harness that must catch it."""

    SEEDS = 50

    def test_schedules_catch_every_twin(self) -> None:
        """Read-then-write, a row count that nobody asks for, missing guards, holds that stay or stand alone."""
        for twin in (
            twins.ReadsThenAdds,
            twins.ReadsThenSets,
            twins.IgnoresRowCount,
            twins.SettlesUnguarded,
            twins.GuardsOutside,
            twins.LeavesTheHold,
            twins.BooksInTwoTransactions,
        ):
            with self.subTest(twin=twin.__name__):
                self.assertIsNotNone(caught_at(partial(check_schedule, ledger_type=twin), range(self.SEEDS)))

    def test_a_race_of_resolvers_catches_missing_guards(self) -> None:
        """No guard at all, and a guard that was read before the transaction."""
        for twin in (twins.SettlesUnguarded, twins.GuardsOutside):
            with self.subTest(twin=twin.__name__):
                self.assertIsNotNone(caught_at(partial(check_race, ledger_type=twin), range(self.SEEDS)))

    def test_crash_points_catch_what_is_not_one_transaction(self) -> None:
        """Between the balance and the hold of a reservation lies a crash that no schedule of survivors shows."""
        check = partial(check_crash_point, stream=True, durability=Durability.FULL)
        for twin in (twins.LeavesTheHold, twins.BooksInTwoTransactions):
            with self.subTest(twin=twin.__name__):
                self.assertIsNotNone(caught_at(partial(check, ledger_type=twin), range(self.SEEDS)))


if __name__ == "__main__":
    unittest.main()
