"""The circuit breaker, rule by rule."""

import unittest

from gateway.breaker import Breaker, BreakerState
from tests.support.breakers import given, opened

CLOSED, OPEN, HALF_OPEN = BreakerState


class ClosedTest(unittest.TestCase):
    """While all is well."""

    def test_everybody_gets_a_permit(self) -> None:
        """However many are out."""
        breaker = Breaker(3, 30.0)
        self.assertNotIn(None, [breaker.permit(0.0) for _ in range(100)])
        self.assertEqual((breaker.state(0.0), breaker.wait_s(0.0)), (CLOSED, 0.0))

    def test_as_many_failures_in_a_row_as_the_threshold_open_it(self) -> None:
        """Not one fewer."""
        breaker = Breaker(3, 30.0)
        for expected in (CLOSED, CLOSED, OPEN):
            given(breaker.permit(0.0)).failure(0.0)
            self.assertIs(breaker.state(0.0), expected)

    def test_a_success_starts_the_count_anew(self) -> None:
        """Failures that are not in a row do not add up."""
        breaker = Breaker(2, 30.0)
        for _ in range(10):
            given(breaker.permit(0.0)).failure(0.0)
            given(breaker.permit(0.0)).success(0.0)
        self.assertIs(breaker.state(0.0), CLOSED)

    def test_a_release_changes_nothing(self) -> None:
        """It is neither a failure nor a success."""
        breaker = Breaker(2, 30.0)
        given(breaker.permit(0.0)).failure(0.0)
        for _ in range(10):
            given(breaker.permit(0.0)).release(0.0)
        self.assertIs(breaker.state(0.0), CLOSED)
        given(breaker.permit(0.0)).failure(0.0)
        self.assertIs(breaker.state(0.0), OPEN)

    def test_only_the_first_answer_counts(self) -> None:
        """One call cannot fail twice, nor be forgiven afterwards."""
        breaker = Breaker(2, 30.0)
        permit = given(breaker.permit(0.0))
        permit.failure(0.0)
        permit.failure(0.0)
        self.assertIs(breaker.state(0.0), CLOSED)
        permit.success(0.0)
        given(breaker.permit(0.0)).failure(0.0)
        self.assertIs(breaker.state(0.0), OPEN)


class OpenTest(unittest.TestCase):
    """While the deployment is left alone."""

    def test_nobody_gets_a_permit_until_the_cooldown_is_over(self) -> None:
        """And everybody is told how long that takes."""
        breaker = opened(Breaker, cooldown_s=30.0)
        self.assertIsNone(breaker.permit(29.999))
        self.assertEqual((breaker.state(10.0), breaker.wait_s(10.0)), (OPEN, 20.0))
        self.assertEqual((breaker.state(30.0), breaker.wait_s(30.0)), (HALF_OPEN, 0.0))
        self.assertEqual(breaker.wait_s(1000.0), 0.0)
        self.assertIsNotNone(breaker.permit(30.0))

    def test_the_cooldown_ends_on_the_nanosecond(self) -> None:
        """Sums of decimals that a float cannot hold do not delay it."""
        breaker = Breaker(1, 0.2)
        given(breaker.permit(0.1)).failure(0.1)
        self.assertGreater(0.1 + 0.2, 0.3)
        self.assertIsNotNone(breaker.permit(0.3))

    def test_late_results_of_the_closed_state_change_nothing(self) -> None:
        """Calls that were out when it opened neither close it nor make it wait longer."""
        breaker = Breaker(1, 30.0)
        failing, succeeding, failed = (given(breaker.permit(0.0)) for _ in range(3))
        failed.failure(0.0)
        failing.failure(20.0)
        succeeding.success(20.0)
        self.assertEqual((breaker.state(20.0), breaker.wait_s(20.0)), (OPEN, 10.0))


class HalfOpenTest(unittest.TestCase):
    """While one caller finds out."""

    def setUp(self) -> None:
        """The cooldown of 30 s is just over at 30."""
        self.breaker = opened(Breaker, threshold=2, cooldown_s=30.0)

    def test_one_probe_at_a_time(self) -> None:
        """Others wait for it, at most until it expires."""
        self.assertIsNotNone(self.breaker.permit(30.0))
        self.assertIsNone(self.breaker.permit(30.0))
        self.assertIsNone(self.breaker.permit(59.9))
        self.assertEqual((self.breaker.state(50.0), self.breaker.wait_s(50.0)), (HALF_OPEN, 10.0))

    def test_its_success_closes(self) -> None:
        """With a new count: one failure more than the old ones opens nothing."""
        given(self.breaker.permit(30.0)).success(31.0)
        self.assertEqual((self.breaker.state(31.0), self.breaker.wait_s(31.0)), (CLOSED, 0.0))
        given(self.breaker.permit(31.0)).failure(31.0)
        self.assertIs(self.breaker.state(31.0), CLOSED)

    def test_its_failure_opens_for_a_full_cooldown(self) -> None:
        """One is enough, whatever the threshold; the cooldown begins with it."""
        given(self.breaker.permit(30.0)).failure(40.0)
        self.assertEqual((self.breaker.state(40.0), self.breaker.wait_s(40.0)), (OPEN, 30.0))

    def test_its_release_gives_the_place_back_at_once(self) -> None:
        """The next caller is the probe; the released one has no say any more."""
        probe = given(self.breaker.permit(30.0))
        probe.release(31.0)
        self.assertEqual((self.breaker.state(31.0), self.breaker.wait_s(31.0)), (HALF_OPEN, 0.0))
        self.assertIsNotNone(self.breaker.permit(31.0))
        self.assertIsNone(self.breaker.permit(31.0))
        probe.success(31.0)
        self.assertIs(self.breaker.state(31.0), HALF_OPEN)

    def test_a_lost_probe_expires_after_one_more_cooldown(self) -> None:
        """The next caller gets its place, and a release or a failure of the lost one changes nothing."""
        lost = given(self.breaker.permit(30.0))
        self.assertIsNone(self.breaker.permit(59.999))
        probe = given(self.breaker.permit(60.0))
        lost.release(61.0)
        self.assertIsNone(self.breaker.permit(61.0))
        probe.success(62.0)
        self.assertIs(self.breaker.state(62.0), CLOSED)

    def test_the_success_of_a_probe_that_lost_its_place_closes(self) -> None:
        """Else a deployment whose answers all take longer than the cooldown would never be readmitted."""
        long, other = given(self.breaker.permit(30.0)), given(self.breaker.permit(60.0))
        given(self.breaker.permit(90.0))
        long.success(95.0)
        self.assertIs(self.breaker.state(95.0), CLOSED)
        for permit in (other, long):
            permit.failure(96.0)
            self.assertIs(self.breaker.state(96.0), CLOSED)

    def test_the_failure_of_a_probe_that_lost_its_place_opens_nothing(self) -> None:
        """The one that has the place decides."""
        lost, probe = given(self.breaker.permit(30.0)), given(self.breaker.permit(60.0))
        lost.failure(61.0)
        self.assertEqual((self.breaker.state(61.0), self.breaker.wait_s(61.0)), (HALF_OPEN, 29.0))
        probe.success(62.0)
        self.assertIs(self.breaker.state(62.0), CLOSED)

    def test_a_probe_from_before_it_opened_again_has_no_say(self) -> None:
        """Its deployment has failed since."""
        lost, also_lost = given(self.breaker.permit(30.0)), given(self.breaker.permit(60.0))
        given(self.breaker.permit(90.0)).failure(91.0)
        lost.success(92.0)
        probe = given(self.breaker.permit(121.0))
        also_lost.success(122.0)
        self.assertIs(self.breaker.state(122.0), HALF_OPEN)
        probe.failure(123.0)
        self.assertEqual((self.breaker.state(123.0), self.breaker.wait_s(123.0)), (OPEN, 30.0))

    def test_a_late_probe_counts_until_somebody_takes_its_place(self) -> None:
        """A deployment that answered slowly has answered."""
        given(self.breaker.permit(30.0)).success(1000.0)
        self.assertIs(self.breaker.state(1000.0), CLOSED)

    def test_late_results_of_earlier_states_change_nothing(self) -> None:
        """Nor do those of the time before it opened, once it is closed again."""
        breaker = Breaker(1, 30.0)
        old, failed = given(breaker.permit(0.0)), given(breaker.permit(0.0))
        failed.failure(0.0)
        probe = given(breaker.permit(30.0))
        probe.success(30.0)
        probe.failure(30.0)
        old.failure(31.0)
        self.assertIs(breaker.state(31.0), CLOSED)

    def test_states_have_the_words_of_the_health_pages(self) -> None:
        """Underscore, not hyphen."""
        self.assertEqual([str(state) for state in BreakerState], ["closed", "open", "half_open"])


class LockTest(unittest.TestCase):
    """What threads rely on."""

    def test_every_change_is_made_under_the_lock(self) -> None:
        """Whoever asks or answers."""
        seen: list[bool] = []

        class Watched(Breaker):
            def _enter(self, state: BreakerState, until_ns: int) -> None:
                seen.append(self._lock.locked())
                super()._enter(state, until_ns)

        breaker = opened(Watched)
        given(breaker.permit(30.0)).success(30.0)
        self.assertEqual(seen, [True, True, True])
