"""Token buckets over all intervals: never more than burst + rate x t, whatever is given back when."""

import unittest
from fractions import Fraction

from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from gateway.limits import TokenBucket
from tests.support.buckets import (
    FixedWindow,
    GiveBack,
    MakeBucket,
    StaleSlots,
    Step,
    Take,
    Wait,
    WholeUnitBack,
    check_all_pairs,
)

RATES = st.sampled_from([Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(10), Fraction(1000, 7)])
EVEN_RATES = st.sampled_from([Fraction(1, 2), Fraction(1), Fraction(4), Fraction(100)])
"""Their intervals are whole nanoseconds, so that a model may be compared decision by decision."""
BURSTS = st.integers(1, 4)
WAITS = st.sampled_from([1, 10, 100, 400, 500, 999, 1000, 1001, 3000, 60_000]).map(Wait)
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.one_of(st.just(Take()), st.just(Take()), WAITS, st.integers(0, 5).map(GiveBack)), max_size=40
)


RETURNS_OUT_OF_STEP: list[Step] = [Take(), Take(), GiveBack(0), Wait(1000), Take(), GiveBack(0), Take(), Take()]
"""The second unit's slot moves up by the first return; what is left of it afterwards is nothing."""


def search(make: MakeBucket) -> None:
    """Look for a run in which `make`'s bucket over-admits; AssertionError if there is one."""

    @settings(max_examples=500, database=None, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
    @example(Fraction(1), 2, RETURNS_OUT_OF_STEP)
    @given(RATES, BURSTS, STEPS)
    def run(rate: Fraction, burst: int, steps: list[Step]) -> None:
        check_all_pairs(make, rate, burst, steps)

    run()


class BucketPropertyTest(unittest.TestCase):
    """All runs of takes, waits and returns."""

    def test_no_interval_holds_more_than_burst_and_refill(self) -> None:
        """Units that are taken and not given back keep burst + rate x t over every interval."""
        search(TokenBucket)

    def test_broken_buckets_are_found(self) -> None:
        """The same search finds a fixed window, a whole unit given back late, and slots that do not move up."""
        for twin in (FixedWindow, WholeUnitBack, StaleSlots):
            with self.subTest(twin=twin.__name__), self.assertRaises(AssertionError):
                search(twin)

    @settings(max_examples=200, deadline=None)
    @given(EVEN_RATES, BURSTS, st.lists(st.one_of(st.just(Take()), WAITS), max_size=40))
    def test_it_decides_as_a_bucket_of_fractions_does(
        self, rate: Fraction, burst: int, steps: list[Take | Wait]
    ) -> None:
        """Without returns every decision, and the units left, are those of the textbook bucket."""
        bucket, level, now_ms = TokenBucket(rate, burst), Fraction(burst), 0
        for step in steps:
            if isinstance(step, Wait):
                now_ms += step.ms
                level = min(level + rate * Fraction(step.ms, 1000), Fraction(burst))
                continue
            decision = bucket.take(now_ms / 1000)
            self.assertEqual(decision.admitted, level >= 1)
            level -= decision.admitted
            self.assertEqual(decision.state.remaining, level // 1)

    @settings(max_examples=200, deadline=None)
    @given(EVEN_RATES, BURSTS, st.lists(st.tuples(WAITS, st.permutations(range(3))), max_size=12))
    def test_units_given_back_at_once_were_never_taken(
        self, rate: Fraction, burst: int, rounds: list[tuple[Wait, list[int]]]
    ) -> None:
        """Refused requests that overlap cost nothing, in whatever order their units come back."""
        bucket, untouched, now_s = TokenBucket(rate, burst), TokenBucket(rate, burst), 0.0
        for wait, order in rounds:
            now_s += wait.ms / 1000
            refused = [bucket.take(now_s) for _ in order]
            for at in order:
                bucket.give_back(refused[at], now_s)
            ours, theirs = bucket.take(now_s), untouched.take(now_s)
            self.assertEqual((ours.admitted, ours.state), (theirs.admitted, theirs.state))
