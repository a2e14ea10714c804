"""How long retries wait, and how many there may be."""

import random
import unittest
from functools import partial

from gateway.retry import RetryBudget, backoff_s
from tests.support.backoffs import (
    capped_after_the_draw,
    check_full_jitter,
    distance_from_uniform,
    equal_jitter,
    no_jitter,
)

ALMOST_ONE = 1 - 2**-53


class BackoffTest(unittest.TestCase):
    """Full jitter."""

    def test_waits_are_uniform_up_to_a_doubling_and_capped_bound(self) -> None:
        """As a distribution, for each of the first retries and one far beyond the cap."""
        for retry, most_s in ((0, 0.25), (1, 0.5), (2, 1.0), (5, 8.0), (6, 8.0), (50, 8.0)):
            for seed in range(3):
                with self.subTest(retry=retry, seed=seed):
                    check_full_jitter(backoff_s, retry, most_s, seed)

    def test_other_ways_to_wait_are_found(self) -> None:
        """The same check finds a backoff without jitter, with half of it, and one that caps what was drawn."""
        for twin in (no_jitter, equal_jitter, capped_after_the_draw):
            with self.subTest(twin=twin.__name__), self.assertRaises(AssertionError):
                check_full_jitter(twin, 6, 8.0, seed=0)

    def test_the_distance_is_the_textbook_one(self) -> None:
        """Against values worked out by hand."""
        self.assertEqual(distance_from_uniform([0.5]), 0.5)
        self.assertEqual(distance_from_uniform([0.75, 0.25]), 0.25)
        self.assertEqual(distance_from_uniform([1.0, 1.0, 1.0]), 1.0)
        self.assertEqual(distance_from_uniform([0.0, 7.0]), 0.5)

    def test_the_ends_of_the_draw_are_the_ends_of_the_wait(self) -> None:
        """Nothing is added below or above."""
        self.assertEqual(backoff_s(3, base_s=0.25, cap_s=8.0, draw=lambda: 0.0), 0.0)
        self.assertLess(backoff_s(3, base_s=0.25, cap_s=8.0, draw=lambda: ALMOST_ONE), 2.0)

    def test_no_retry_is_too_many_for_the_arithmetic(self) -> None:
        """Powers of two that no double holds are beyond any cap."""
        for retry in (62, 1023, 1024, 10**6, 10**30):
            with self.subTest(retry):
                self.assertEqual(backoff_s(retry, base_s=0.25, cap_s=8.0, draw=lambda: 0.5), 4.0)
                self.assertEqual(backoff_s(retry, base_s=1e300, cap_s=8.0, draw=lambda: 0.5), 4.0)

    def test_the_smallest_base_doubles_like_any_other(self) -> None:
        """No doubling is left out below the cap."""
        self.assertEqual(backoff_s(1000, base_s=2.0**-1000, cap_s=8.0, draw=lambda: 0.5), 0.5)

    def test_a_base_of_nothing_waits_for_nothing(self) -> None:
        """Whatever the retry."""
        self.assertEqual(backoff_s(5000, base_s=0.0, cap_s=8.0, draw=lambda: 0.5), 0.0)

    def test_a_seeded_source_waits_the_same_again(self) -> None:
        """One draw per wait, from the source that was handed in."""
        wait = partial(backoff_s, 2, base_s=0.25, cap_s=8.0)
        first, second = (random.Random(7) for _ in range(2))
        self.assertEqual([wait(draw=first.random) for _ in range(5)], [wait(draw=second.random) for _ in range(5)])


def taken(budget: RetryBudget, now_s: float, asked: int = 2000) -> int:
    """How many of `asked` retries the budget has room for; takes them."""
    return sum(budget.take(now_s) for _ in range(asked))


class RetryBudgetTest(unittest.TestCase):
    """Retries as a fraction of requests."""

    def test_without_requests_there_is_the_floor(self) -> None:
        """For each minute."""
        budget = RetryBudget(20, 10)
        self.assertEqual([taken(budget, now_s) for now_s in (0.0, 59.9, 60.0, 119.9, 120.0)], [10, 0, 10, 0, 10])

    def test_requests_add_their_percentage_rounded_down(self) -> None:
        """At 20 %, nine requests make room for one retry and ten for two."""
        budget = RetryBudget(20, 0)
        for _ in range(9):
            budget.note_request(0.0)
        self.assertEqual(taken(budget, 0.0), 1)
        budget.note_request(0.0)
        self.assertEqual(taken(budget, 0.0), 1)

    def test_percentages_are_exact(self) -> None:
        """No float rounds a retry away or adds one."""
        for percent in range(101):
            budget = RetryBudget(percent, 0)
            for _ in range(100):
                budget.note_request(0.0)
            with self.subTest(percent):
                self.assertEqual(taken(budget, 0.0), percent)

    def test_nothing_allowed_is_nothing(self) -> None:
        """0 % and a floor of 0 turn retries off."""
        budget = RetryBudget(0, 0)
        budget.note_request(0.0)
        self.assertFalse(budget.take(0.0))

    def test_what_is_a_minute_old_is_forgotten(self) -> None:
        """Requests and retries alike, each in its own second."""
        budget = RetryBudget(100, 0)
        budget.note_request(0.5)
        budget.note_request(10.0)
        self.assertTrue(budget.take(10.0))
        self.assertFalse(budget.take(60.0))
        self.assertFalse(budget.take(69.9))
        budget.note_request(69.9)
        self.assertEqual(taken(budget, 70.0), 1)

    def test_seconds_before_zero_are_seconds(self) -> None:
        """Where a clock begins means nothing."""
        budget = RetryBudget(100, 0)
        budget.note_request(-0.5)
        self.assertFalse(budget.take(59.0))

    def test_a_far_jump_forgets_everything(self) -> None:
        """In one step, not in one per second."""
        budget = RetryBudget(100, 0)
        budget.note_request(-5.0)
        self.assertFalse(budget.take(1e15))
        budget.note_request(1e15)
        self.assertEqual(taken(budget, 1e15 + 59), 1)

    def test_a_clock_that_goes_backwards_stands_still(self) -> None:
        """Nothing comes back, and what is counted counts now."""
        budget = RetryBudget(100, 0)
        budget.note_request(0.0)
        self.assertFalse(budget.take(100.0))
        self.assertFalse(budget.take(0.0))
        budget.note_request(0.0)
        self.assertEqual(taken(budget, 159.0), 1)

    def test_a_storm_of_failures_makes_one_retry_for_five_requests(self) -> None:
        """1,000 requests in a minute, all of which fail and would retry twice."""
        budget = RetryBudget(20, 10)
        retries = 0
        for number in range(1000):
            now_s = number * 0.06
            budget.note_request(now_s)
            retries += budget.take(now_s) + budget.take(now_s)
        self.assertEqual(retries, 210)

    def test_every_decision_is_made_under_the_lock(self) -> None:
        """Counting and taking look at the budget only while they hold it."""
        seen: list[bool] = []

        class Watched(RetryBudget):
            def _advance(self, now_s: float) -> int:
                seen.append(self._lock.locked())
                return super()._advance(now_s)

        budget = Watched(20, 10)
        budget.note_request(0.0)
        budget.take(0.0)
        self.assertEqual(seen, [True, True])
