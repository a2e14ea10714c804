"""The token bucket, number by number, and under threads at full speed."""

import unittest
from fractions import Fraction

from gateway import limits
from gateway.context import RateState
from gateway.limits import TokenBucket
from tests.support.buckets import MakeBucket, NoLock, check_together


def taken(bucket: TokenBucket, now_s: float, most: int = 100) -> int:
    """How many units are there at `now_s`; takes them."""
    count = 0
    while count < most and bucket.take(now_s).admitted:
        count += 1
    return count


class TakeTest(unittest.TestCase):
    """Taking units."""

    def test_a_full_bucket_holds_exactly_its_burst(self) -> None:
        """At the first instant, and after any idle time, `burst` units are there and not one more."""
        bucket = TokenBucket(Fraction(2), 5)
        self.assertEqual(taken(bucket, 0.0), 5)
        self.assertEqual(taken(bucket, 86_400.0), 5)

    def test_units_come_back_at_the_rate(self) -> None:
        """Two per second are one at half a second, and not one just before it."""
        bucket = TokenBucket(Fraction(2), 3)
        taken(bucket, 10.0)
        self.assertFalse(bucket.take(10.499).admitted)
        self.assertEqual(taken(bucket, 10.5), 1)
        self.assertEqual(taken(bucket, 11.5), 2)

    def test_a_refusal_says_when_the_next_unit_is_there(self) -> None:
        """retry_after_s is exact: a unit is there then."""
        bucket = TokenBucket(Fraction(1, 4), 1)
        bucket.take(0.0)
        refused = bucket.take(1.0)
        self.assertEqual((refused.admitted, refused.retry_after_s), (False, 3.0))
        self.assertTrue(bucket.take(1.0 + refused.retry_after_s).admitted)

    def test_a_refusal_takes_nothing(self) -> None:
        """However often one asks in vain, the next unit comes when it would have come."""
        bucket = TokenBucket(Fraction(1), 1)
        bucket.take(0.0)
        for ms in range(1, 1000):
            self.assertFalse(bucket.take(ms / 1000).admitted)
        self.assertTrue(bucket.take(1.0).admitted)

    def test_the_state_counts_what_is_left(self) -> None:
        """limit, remaining and reset_s are those of the rate-limit headers, refusals included."""
        bucket = TokenBucket(Fraction(1), 2)
        self.assertEqual(
            [bucket.take(0.0).state for _ in range(3)],
            [RateState(2, 1, 1.0), RateState(2, 0, 2.0), RateState(2, 0, 2.0)],
        )

    def test_slow_and_fast_rates_are_exact(self) -> None:
        """One unit in eleven days and a million a second keep the same rule."""
        slow = TokenBucket(Fraction(1, 1_000_000), 1)
        slow.take(0.0)
        self.assertFalse(slow.take(999_999.999).admitted)
        self.assertTrue(slow.take(1_000_000.0).admitted)
        fast = TokenBucket(Fraction(1_000_000), 1)
        self.assertEqual(sum(fast.take(us / 1_000_000).admitted for us in range(1000)), 1000)

    def test_a_rate_that_is_no_whole_number_of_nanoseconds_is_rounded_down(self) -> None:
        """Three per second: a third of a second in whole nanoseconds is not enough for the next unit."""
        bucket = TokenBucket(Fraction(3), 1)
        bucket.take(0.0)
        self.assertFalse(bucket.take(0.333333333).admitted)
        self.assertTrue(bucket.take(0.333333334).admitted)

    def test_a_clock_read_too_early_gives_no_time_twice(self) -> None:
        """A caller that read its clock before another took its unit sees the other's instant."""
        bucket = TokenBucket(Fraction(1), 1)
        bucket.take(1.0)
        self.assertTrue(bucket.take(2.0).admitted)
        self.assertFalse(bucket.take(1.0).admitted)
        self.assertFalse(bucket.take(2.999).admitted)


class GiveBackTest(unittest.TestCase):
    """Giving units back."""

    def test_a_unit_given_back_at_once_is_there_again(self) -> None:
        """A request refused for another reason costs no unit."""
        bucket = TokenBucket(Fraction(1), 1)
        for _ in range(50):
            unit = bucket.take(0.0)
            self.assertTrue(unit.admitted)
            bucket.give_back(unit, 0.0)

    def test_only_what_time_has_not_refilled_comes_back(self) -> None:
        """A unit that time has refilled by half comes back by half."""
        bucket = TokenBucket(Fraction(1), 2)
        unit = bucket.take(0.0)
        bucket.take(0.0)
        bucket.give_back(unit, 0.5)
        self.assertEqual(bucket.take(0.5).state.reset_s, 2.0)
        self.assertFalse(bucket.take(0.5).admitted)

    def test_a_unit_that_is_refilled_brings_nothing(self) -> None:
        """After its slot has passed there is nothing to give back."""
        bucket = TokenBucket(Fraction(1), 2)
        unit = bucket.take(0.0)
        bucket.take(1.0)
        bucket.give_back(unit, 1.0)
        self.assertEqual(taken(bucket, 1.0), 1)

    def test_a_unit_that_was_refilled_long_ago_costs_nothing(self) -> None:
        """Giving back too late takes nothing away from others."""
        bucket = TokenBucket(Fraction(1), 2)
        unit = bucket.take(0.0)
        bucket.take(5.0)
        bucket.give_back(unit, 5.0)
        self.assertEqual(taken(bucket, 5.0), 1)

    def test_a_return_by_a_clock_read_too_early_gives_no_time_twice(self) -> None:
        """Only what is left at the latest instant anybody saw comes back."""
        bucket = TokenBucket(Fraction(1), 2)
        unit = bucket.take(5.0)
        bucket.take(5.75)
        bucket.give_back(unit, 5.0)
        self.assertEqual(taken(bucket, 5.75), 1)
        self.assertFalse(bucket.take(6.0).admitted)

    def test_units_behind_one_that_came_back_move_up(self) -> None:
        """Of two units that are given back, the second brings nothing once time has refilled it in its new place."""
        bucket = TokenBucket(Fraction(1), 2)
        first, second = bucket.take(0.0), bucket.take(0.0)
        bucket.give_back(first, 0.0)
        self.assertTrue(bucket.take(1.0).admitted)
        bucket.give_back(second, 1.0)
        self.assertEqual(taken(bucket, 1.0), 1)

    def test_the_second_time_is_nothing(self) -> None:
        """One unit comes back once."""
        bucket = TokenBucket(Fraction(1), 2)
        first = bucket.take(0.0)
        bucket.take(0.0)
        bucket.give_back(first, 0.0)
        bucket.give_back(first, 0.0)
        self.assertEqual(taken(bucket, 0.0), 1)

    def test_a_refusal_has_nothing_to_give_back(self) -> None:
        """Giving back what was not admitted changes nothing."""
        bucket = TokenBucket(Fraction(1), 1)
        bucket.take(0.0)
        bucket.give_back(bucket.take(0.0), 0.0)
        self.assertFalse(bucket.take(0.0).admitted)

    def test_what_is_remembered_is_bounded(self) -> None:
        """Past the bound the oldest unit can no longer be given back; later ones can, and the count stays exact."""
        bucket = TokenBucket(Fraction(1), limits.REMEMBERED + 2)
        units = [bucket.take(0.0) for _ in range(limits.REMEMBERED + 2)]
        bucket.give_back(units[0], 0.0)
        self.assertFalse(bucket.take(0.0).admitted)
        bucket.give_back(units[2], 0.0)
        self.assertTrue(bucket.take(0.0).admitted)


class TogetherTest(unittest.TestCase):
    """Threads at full speed."""

    def test_threads_at_full_speed_take_exactly_the_burst(self) -> None:
        """Sixteen threads share one bucket: not one unit too many or too few."""
        check_together(TokenBucket, burst=1000, threads=16, takes=200)

    def test_every_decision_is_made_under_the_lock(self) -> None:
        """Taking and giving back look at the bucket only while they hold its lock."""
        seen: list[bool] = []

        class Watched(TokenBucket):
            def _advance(self, now_s: float) -> int:
                seen.append(self._lock.locked())
                return super()._advance(now_s)

        bucket = Watched(Fraction(1), 1)
        bucket.give_back(bucket.take(0.0), 0.0)
        self.assertEqual(seen, [True, True])

    def test_a_bucket_without_a_lock_is_found(self) -> None:
        """The same check finds one that reads, then writes."""
        twin: MakeBucket = NoLock
        with self.assertRaises(AssertionError):
            check_together(twin, burst=1, threads=4, takes=3)
