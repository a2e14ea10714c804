"""The retry budget against a list of everything that ever happened."""

import unittest

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.retry import RetryBudget

STEPS_S = st.sampled_from([0.0, 0.0, 0.3, 1.0, 7.7, 30.0, 58.9, 59.0, 60.0, 61.0, 3600.0, -5.0])
STEPS = st.lists(st.tuples(STEPS_S, st.integers(0, 6), st.integers(0, 4)), max_size=40)


class RetryBudgetPropertyTest(unittest.TestCase):
    """All runs of requests and retries."""

    @settings(max_examples=500, deadline=None)
    @given(st.sampled_from([0, 1, 20, 33, 100, 150]), st.integers(0, 3), STEPS)
    def test_it_decides_as_the_whole_history_does(
        self, percent: int, floor: int, steps: list[tuple[float, int, int]]
    ) -> None:
        """A retry is given if, with it, the last 60 whole seconds hold no more than floor and percentage."""
        budget = RetryBudget(percent, floor)
        requests: list[int] = []
        retries: list[int] = []
        now_s, present = 0.0, 0
        for step_s, calls, asked in steps:
            now_s = max(now_s + step_s, 0.0)
            if calls or asked:  # it learns of time by being called
                present = max(present, int(now_s))
            for _ in range(calls):
                budget.note_request(now_s)
                requests.append(present)
            for _ in range(asked):
                recent = [sum(at > present - 60 for at in history) for history in (requests, retries)]
                fits = recent[1] + 1 <= floor + percent * recent[0] // 100
                self.assertEqual(budget.take(now_s), fits)
                retries += [present] * fits
