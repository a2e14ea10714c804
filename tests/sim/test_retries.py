"""The same deployment again: when, how soon, how often at most, and what a wait is worth to a client."""

from itertools import pairwise
from typing import Any

from gateway.errors import ClientGone, Draining, GatewayError
from tests.sim.fleet import COST, GOOD, REFUSED, AnOutcome, Fails, FleetStories
from tests.sim.test_stories import At, Outcome
from tests.support.world import chat

BUSY: dict[str, Any] = {"status": 500}
PATIENT = "threshold = 1000"


def limited(seconds: float) -> dict[str, Any]:
    """A 429 that asks for so much time."""
    return {"status": 429, "retry_after": seconds}


class InPlaceTest(FleetStories):
    """A failure that soon passes."""

    BREAKER = PATIENT

    def test_a_retry_that_is_answered_is_told_as_one(self) -> None:
        """Exit, route, attempts; one hold, paid once."""
        several: list[list[AnOutcome]] = [[BUSY, GOOD], [BUSY, BUSY, GOOD], [REFUSED, GOOD]]
        for outcomes in several:
            for stream in (False, True):
                with self.subTest(outcomes=outcomes, stream=stream):
                    self.fleet(one=outcomes)
                    outcome = self.ask(stream=stream)
                    self.assertIsNone(outcome.error)
                    self.assertEqual(outcome.facts.hops, ["one=server"] * (len(outcomes) - 1) + ["one=ok"])
                    self.assert_row(exit="retried", attempts=len(outcomes), cost_nanousd=COST, state="settled")
                    self.assertEqual(self.hold_states(), ["settled"])

    def test_the_wait_doubles_and_is_drawn(self) -> None:
        """Each is somewhere between nothing and 0.25 s, 0.5 s, 1 s, 1 s."""
        self.RETRY = "max_retries = 4\ncap_s = 1\nbudget_floor = 1000"
        self.fleet(one=BUSY)
        waits: list[list[float]] = [[], [], [], []]
        for _ in range(40):
            first = len(self.upstreams["one"].times)
            self.ask()
            times = self.upstreams["one"].times[first:]
            for retry, (before, after) in enumerate(pairwise(times)):
                waits[retry].append(after - before)
        for drawn, most_s in zip(waits, (0.25, 0.5, 1.0, 1.0), strict=True):
            self.assertTrue(all(0 <= wait < most_s for wait in drawn), drawn)
            self.assertTrue(min(drawn) < most_s / 4 and max(drawn) > most_s * 3 / 4, drawn)

    def test_a_503_that_asks_for_time_gets_it(self) -> None:
        """Within retry_after_max_s; beyond, it is not asked again."""
        for asked_s, calls in ((10, 2), (10.1, 1)):
            with self.subTest(asked_s=asked_s):
                self.fleet(one=[{"status": 503, "retry_after": asked_s}, GOOD])
                self.ask()
                times = self.upstreams["one"].times
                self.assertEqual(len(times), calls)
                self.assertTrue(calls == 1 or 10 <= times[1] - times[0] < 10.25, times)

    def test_a_wait_beyond_the_deadline_is_not_begun(self) -> None:
        """The client is told what happened, not that it was late."""
        self.fleet(one=[{"status": 503, "retry_after": 4}, GOOD])
        outcome = self.ask(timeout_s=4)
        self.assertEqual((outcome.told, self.order), ((503, "all_providers_failed"), ["one"]))
        self.assertLess(self.row()["duration_ms"], 1)

    def test_no_call_begins_after_the_deadline(self) -> None:
        """Neither here nor elsewhere."""
        for latency_s in (3, 4):
            self.fleet(one=Fails("server", status=500, latency_s=latency_s), two=GOOD)
            outcome = self.ask(timeout_s=3)
            self.assertEqual((outcome.told, self.order), ((504, "upstream_timeout"), ["one"]))
            self.assert_row(exit="failed", status=504, attempts=1, state="void")

    def test_what_was_not_sent_is_not_retried_where_another_can_serve(self) -> None:
        """A connection that is refused now will be refused in a moment."""
        self.fleet(one=[REFUSED, GOOD], two=GOOD)
        self.assertEqual(self.ask().facts.hops, ["one=server", "two=ok"])

    def test_the_breaker_ends_the_retries_too(self) -> None:
        """The failure that opens it is the last call."""
        self.RETRY, self.BREAKER = "max_retries = 10\nbudget_floor = 1000", "threshold = 3"
        self.fleet(one=BUSY)
        self.ask()
        outcome = self.ask()
        self.assertEqual((self.order, outcome.facts.hops), (["one"] * 12, ["one=server"]))
        self.assertEqual(self.state("one"), "open")

    def test_one_request_that_reaches_nobody_opens_a_breaker(self) -> None:
        """A connection that is refused is no fault of a request's."""
        self.RETRY, self.BREAKER = "max_retries = 2", "threshold = 3"
        self.fleet(one=REFUSED)
        self.ask()
        self.assertEqual((self.state("one"), self.order), ("open", ["one"] * 3))

    def test_one_request_alone_opens_no_breaker(self) -> None:
        """What fails may be the request itself: others are served as before, but with a threshold of one."""
        poisoned: list[AnOutcome] = [*[{"status": 500}] * 3, GOOD]
        for threshold, state, answered in ((3, "closed", True), (2, "closed", True), (1, "open", False)):
            with self.subTest(threshold=threshold):
                self.RETRY, self.BREAKER = "max_retries = 2", f"threshold = {threshold}"
                self.fleet(one=poisoned, two=poisoned)
                self.assertEqual(self.ask().told, (503, "all_providers_failed"))
                self.assertEqual((self.state("one"), self.state("two")), (state, state))
                self.assertEqual(self.ask().error is None, answered)


class BudgetTest(FleetStories):
    """Retries are a fraction of the traffic."""

    BREAKER = "threshold = 1000000"

    def test_a_thousand_requests_that_fail_make_few_retries(self) -> None:
        """A fifth more calls than requests, and the floor."""
        self.RETRY = "base_s = 0\nmax_retries = 2"
        self.fleet(one=BUSY)
        self.many(1000, self.ask)
        self.assertLessEqual(len(self.order), 1.2 * 1000 + 10)
        self.assertGreaterEqual(len(self.order), 1.2 * 1000)

    def test_a_budget_of_nothing_is_no_retry(self) -> None:
        """Whatever max_retries says."""
        self.RETRY = "max_retries = 5\nbudget_percent = 0\nbudget_floor = 0"
        self.fleet(one=[BUSY, GOOD], two=GOOD)
        self.ask()
        self.assertEqual(self.order, ["one", "two"])


class RateLimitTest(FleetStories):
    """An upstream that says: not now."""

    def wait_of(self, outcome: Outcome) -> float | None:
        """The Retry-After of an error."""
        assert isinstance(outcome.error, GatewayError), outcome.error
        return outcome.error.retry_after_s

    def test_a_paused_deployment_gets_no_call_while_another_serves(self) -> None:
        """For exactly as long as it asked; its breaker stays closed."""
        self.fleet(one=[limited(7), GOOD], two=GOOD)
        started_s = self.world.clock.now_s()

        def ask_and_wait() -> None:
            self.assertIsNone(self.ask().error)
            self.world.clock.advance(0.125)

        self.many(80, ask_and_wait)
        first, second, *_ = self.upstreams["one"].times
        self.assertEqual((first - started_s, second - started_s), (0, 7))
        self.assertEqual(self.upstreams["two"].times[-1] - started_s, 7 - 0.125)
        self.assertEqual(self.state("one"), "closed")
        self.assertEqual(self.world.rows()[1]["exit"], "failed_over")

    def test_alone_it_is_waited_for(self) -> None:
        """If the wait fits the deadline and the limit; one hold, and the client sees a retry."""
        self.fleet(one=[limited(7), GOOD])
        outcome = self.ask(timeout_s=60)
        self.assertIsNone(outcome.error)
        before, after = self.upstreams["one"].times
        self.assertTrue(7 <= after - before < 7.25)
        self.assert_row(exit="retried", cost_nanousd=COST, attempts=2)

    def test_a_wait_that_does_not_fit_is_the_clients_to_make(self) -> None:
        """429 with the time that is left, and the next request is refused without a call."""
        for seconds, timeout_s in ((7, 5), (11, None)):
            with self.subTest(seconds=seconds):
                self.fleet(one=limited(seconds))
                outcome = self.ask(timeout_s=timeout_s)
                self.assertEqual((outcome.told, self.wait_of(outcome)), ((429, "rate_limit_exceeded"), seconds))
                self.world.clock.advance(2)
                outcome = self.ask()
                self.assertEqual((outcome.told, self.wait_of(outcome)), ((429, "rate_limit_exceeded"), seconds - 2))
                self.assertEqual((self.order, outcome.facts.hops), (["one"], ["one=rate_limited"]))
                self.assert_row(exit="failed", status=429, attempts=0, state="none")

    def test_all_limited_is_429_with_the_soonest(self) -> None:
        """Nobody is waited for: the client does better than a thread."""
        self.fleet(one=limited(7), two=limited(3))
        outcome = self.ask()
        self.assertEqual((outcome.told, self.wait_of(outcome)), ((429, "rate_limit_exceeded"), 3))
        self.assertEqual(self.order, ["one", "two"])
        self.world.clock.advance(3)
        self.ask()
        self.assertEqual(self.order, ["one", "two", "two"])

    def test_limited_and_down_is_503(self) -> None:
        """A client that waits for a limit would wait for the wrong thing."""
        self.RETRY = "max_retries = 0"
        for one, two in ((limited(7), BUSY), (BUSY, limited(7))):
            self.fleet(one=one, two=two)
            self.assertEqual(self.ask().told, (503, "all_providers_failed"))

    def test_a_limit_that_names_no_time_is_paused_for_a_stated_one(self) -> None:
        """`pause_s`."""
        self.RETRY = "pause_s = 4\nmax_retries = 0"
        self.fleet(one=[{"status": 429}, GOOD], two=GOOD)
        self.ask()
        self.world.clock.advance(3.9)
        self.ask()
        self.world.clock.advance(0.1)
        self.ask()
        self.assertEqual(self.order, ["one", "two", "two", "one"])


class LeavingTest(FleetStories):
    """A client that leaves, or a process that ends, between two calls and in the second."""

    RETRY, BREAKER = "max_retries = 1", PATIENT

    def end(self, moment: At, error: type[Exception], second: AnOutcome) -> Outcome:
        """End the request at a moment; it must come."""
        self.fleet(one=[BUSY, second])
        outcome = self.play(chat(max_tokens=50) | {"model": "all"}, at=moment, error=error)
        self.assertTrue(outcome.interrupted)
        return outcome

    def test_during_the_wait_nothing_is_owed(self) -> None:
        """The first call is proven unbilled, and the second was never made."""
        outcome = self.end(At("sleep"), ClientGone, GOOD)
        self.assertIsInstance(outcome.error, ClientGone)
        self.assert_row(exit="client_gone", status=499, state="void", cost_nanousd=0, attempts=1)
        outcome = self.end(At("sleep"), Draining, GOOD)
        self.assertEqual(outcome.told, (503, "draining"))
        self.assert_row(exit="failed", state="void", cost_nanousd=0, attempts=1)
        self.assertEqual(self.order, ["one"])

    def test_during_the_second_call_it_is_paid_for(self) -> None:
        """What may have been written, as for a first call; unresolved if the process ends."""
        slow = {**GOOD, "latency_s": 5}
        outcome = self.end(At("sleep", 2), ClientGone, slow)
        self.assertIsInstance(outcome.error, ClientGone)
        self.assert_row(exit="client_gone", state="settled", estimated=True, attempts=2)
        outcome = self.end(At("sleep", 2), Draining, slow)
        self.assertEqual(outcome.told, (503, "draining"))
        self.assert_row(exit="failed", state="unresolved", attempts=2)

    def test_a_deployment_learns_nothing_from_a_client_that_left(self) -> None:
        """Its breaker stays closed, and the row of failures goes on."""
        self.BREAKER = "threshold = 2"
        self.RETRY = "max_retries = 0"
        self.fleet(one=[BUSY, {**GOOD, "latency_s": 5}, BUSY])
        self.ask()
        self.play(chat(max_tokens=50) | {"model": "all"}, at=At("sleep"))
        self.assertEqual(self.state("one"), "closed")
        self.ask()
        self.assertEqual(self.state("one"), "open")
