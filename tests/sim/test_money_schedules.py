"""Every seeded schedule of requests, failures, operators and crashes leaves the money right."""

import unittest

from tests.sim.schedules import check_race, check_schedule


class MoneySchedulesTest(unittest.TestCase):
    """Three to five requests that want money for one to three, and whatever may happen to them."""

    SEEDS = 500

    def test_money_is_right_whatever_the_schedule(self) -> None:
        """No limit is ever passed, nothing is lost or charged twice, and each request has one row."""
        happened: set[str] = set()
        for seed in range(self.SEEDS):
            with self.subTest(seed=seed):
                happened |= check_schedule(seed)
        everything = {"routed", "failed", "client_gone", "rejected", "settled", "void", "unresolved", "none"}
        everything |= {"full", "normal", "crashed", "decided", "estimated", "overage", "exact"}
        self.assertEqual(everything, happened, "a schedule that never happens checks nothing")

    def test_one_of_three_that_resolve_a_hold_wins(self) -> None:
        """The request, an admin and the sweeper come at once: the hold is resolved once, the row says by whom."""
        for seed in range(self.SEEDS // 5):
            with self.subTest(seed=seed):
                check_race(seed)


if __name__ == "__main__":
    unittest.main()
