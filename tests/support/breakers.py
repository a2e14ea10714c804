"""What breakers must keep under threads, as a check that raises AssertionError, and breakers that are wrong on purpose.

A twin overrides as little as possible.
"""

import threading
from collections.abc import Callable

from gateway.breaker import Breaker, BreakerState, Permit, _Outcome

PATIENCE_S = 10.0
"""A bug makes a test fail after this; nothing waits for it otherwise."""

MakeBreaker = Callable[[int, float], Breaker]


def opened(make: MakeBreaker, *, threshold: int = 1, cooldown_s: float = 30.0) -> Breaker:
    """A breaker that opened at 0."""
    breaker = make(threshold, cooldown_s)
    for _ in range(threshold):
        given(breaker.permit(0.0)).failure(0.0)
    return breaker


def given(permit: Permit | None) -> Permit:
    """The permit, which must be one."""
    if permit is None:
        raise AssertionError("no permit was given")
    return permit


def check_one_probe(make: MakeBreaker, callers: int) -> None:
    """Of many callers who meet when the cooldown is over exactly one gets a permit."""
    breaker = opened(make)
    start = threading.Barrier(callers)
    answers: list[Permit | None] = []

    def ask() -> None:
        start.wait(PATIENCE_S)
        answers.append(breaker.permit(30.0))

    threads = [threading.Thread(target=ask) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    permits = sum(answer is not None for answer in answers)
    if len(answers) != callers or permits != 1:
        raise AssertionError(f"{permits} probes for {len(answers)} of {callers} callers")


# --- broken twins -------------------------------------------------------------------------------------------------


class HalfOpenWithoutGate(Breaker):
    """Once the cooldown is over everybody may call."""

    def permit(self, now_s: float) -> Permit | None:
        permit = super().permit(now_s)
        if permit is None and self.state(now_s) is BreakerState.HALF_OPEN:
            return Permit(self, self._generation)
        return permit


class LooksThenGrants(Breaker):
    """Looks whether the cooldown is over, then grants the probe; the first two callers meet between the two."""

    def __init__(self, threshold: int, cooldown_s: float) -> None:
        super().__init__(threshold, cooldown_s)
        self._meeting = threading.Barrier(2)
        self._met = 0

    def permit(self, now_s: float) -> Permit | None:
        if self._state is BreakerState.CLOSED:
            return super().permit(now_s)
        if self.wait_s(now_s):
            return None
        with self._lock:
            self._met += 1
            meets = self._met <= 2
        if meets:
            self._meeting.wait(PATIENCE_S)
        with self._lock:
            self._enter(BreakerState.HALF_OPEN, round((now_s + 30.0) * 1_000_000_000))
        return Permit(self, self._generation)


class CountsReleases(Breaker):
    """A caller who learnt nothing counts as a failure."""

    def _answer(self, permit: Permit, outcome: _Outcome, now_s: float) -> None:
        super()._answer(permit, _Outcome.FAILURE if outcome is _Outcome.RELEASE else outcome, now_s)


class ForgetsReleases(Breaker):
    """The place of a probe that was released stays taken until it expires."""

    def _answer(self, permit: Permit, outcome: _Outcome, now_s: float) -> None:
        if outcome is not _Outcome.RELEASE:
            super()._answer(permit, outcome, now_s)


class BelievesLateResults(Breaker):
    """A permit of an earlier state counts in this one."""

    def _answer(self, permit: Permit, outcome: _Outcome, now_s: float) -> None:
        if permit._generation >= 0:
            permit._generation = self._generation
        super()._answer(permit, outcome, now_s)


class CountsEveryAnswer(Breaker):
    """A permit can be answered again and again."""

    def _answer(self, permit: Permit, outcome: _Outcome, now_s: float) -> None:
        super()._answer(Permit(self, permit._generation), outcome, now_s)


class ForgetsLostProbes(Breaker):
    """A probe that lost its place has no say at all: answers that last longer than the cooldown never close it."""

    def _probed(self, generation: int) -> bool:
        return False


class WaitsForTheProbe(Breaker):
    """A probe that never comes back keeps its place for ever."""

    def _enter(self, state: BreakerState, until_ns: int) -> None:
        super()._enter(state, until_ns * (1_000_000 if state is BreakerState.HALF_OPEN else 1))


class NeverForgives(Breaker):
    """Counts failures, in a row or not."""

    def _learn(self, outcome: _Outcome, now_ns: int) -> None:
        failures = self._failures
        super()._learn(outcome, now_ns)
        if outcome is _Outcome.SUCCESS:
            self._failures = failures


TWINS: tuple[type[Breaker], ...] = (
    HalfOpenWithoutGate,
    CountsReleases,
    ForgetsReleases,
    BelievesLateResults,
    CountsEveryAnswer,
    ForgetsLostProbes,
    WaitsForTheProbe,
    NeverForgives,
)
"""Those that one thread can catch."""
