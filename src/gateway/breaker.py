"""A circuit breaker: whether a deployment may be called now, decided from how its last calls ended.

    closed      every caller gets a permit; `threshold` failures in a row open the breaker
    open        nobody does, until `cooldown_s` is over
    half-open   one caller at a time does, the probe: its success closes, its failure opens again for a full cooldown

A permit belongs to the state in which it was given: once that has changed, its answer changes nothing. A probe that is
not answered within one more cooldown loses its place to the next caller, and its say but for a success: a stream may
last longer than the cooldown, and a deployment whose probes all did would never be readmitted.
What is a failure is not known here. Time is handed in.
"""

import threading
from enum import Enum, StrEnum, auto

from msgspec import Struct

_NS = 1_000_000_000
_ANSWERED = -1


class BreakerState(StrEnum):
    """What the breaker does with callers."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class _Outcome(Enum):
    SUCCESS = auto()
    FAILURE = auto()
    RELEASE = auto()


_CLOSED, _OPEN, _HALF_OPEN = BreakerState
_SUCCESS, _FAILURE, _RELEASE = _Outcome


class Permit(Struct, eq=False):
    """Leave to make one call. Answer it exactly once; only the first answer counts. The breaker's lock guards it."""

    _breaker: "Breaker"
    _generation: int

    def success(self, now_s: float) -> None:
        """The deployment answered: the count of failures starts anew; a probe closes the breaker."""
        self._breaker._answer(self, _SUCCESS, now_s)

    def failure(self, now_s: float) -> None:
        """The deployment is sick: one more failure in a row; a probe opens the breaker for a full cooldown."""
        self._breaker._answer(self, _FAILURE, now_s)

    def release(self, now_s: float) -> None:
        """Nothing was learnt of the deployment: nothing changes; a probe's place is free at once."""
        self._breaker._answer(self, _RELEASE, now_s)


class Breaker:
    """The breaker of one deployment, safe from any thread. `_lock` guards all that changes, the permits too. Whoever
    would change nothing does not take it: a caller while it is closed, a success while there is no failure to forgive.

    threshold   failures in a row that open it, >= 1
    cooldown_s  seconds for which it stays open, and that a probe has for its answer

    Unless it is closed, nobody gets a permit before `_until_ns`. Each change of state, and each probe, begins a new
    `_generation`; those of the probes since it last opened are from `_first_probe` on.
    """

    def __init__(self, threshold: int, cooldown_s: float) -> None:
        self._threshold = threshold
        self._cooldown_ns = round(cooldown_s * _NS)
        self._lock = threading.Lock()
        self._state = _CLOSED
        self._generation = 0
        self._first_probe = 0
        self._failures = 0
        self._until_ns = 0

    def permit(self, now_s: float) -> Permit | None:
        """Leave to call the deployment at monotonic `now_s`, or None. A permit is to be answered on every way out."""
        generation, state = self._generation, self._state  # in this order: the generation is never a later state's
        if state is _CLOSED:
            return Permit(self, generation)
        now_ns = round(now_s * _NS)
        with self._lock:
            if self._state is not _CLOSED:
                if now_ns < self._until_ns:
                    return None
                if self._state is _OPEN:
                    self._first_probe = self._generation + 1
                self._enter(_HALF_OPEN, now_ns + self._cooldown_ns)
            return Permit(self, self._generation)

    def wait_s(self, now_s: float) -> float:
        """Seconds until a caller gets a permit, 0.0 if now. While a probe is out: until it expires, at the latest."""
        state = self._state
        if state is _CLOSED:
            return 0.0
        now_ns = round(now_s * _NS)
        with self._lock:
            return 0.0 if self._state is _CLOSED else max(self._until_ns - now_ns, 0) / _NS

    def state(self, now_s: float) -> BreakerState:
        """What a caller would meet; changes nothing."""
        state = self._state
        if state is _CLOSED:
            return state
        now_ns = round(now_s * _NS)
        with self._lock:
            if self._state is _OPEN and now_ns >= self._until_ns:
                return _HALF_OPEN
            return self._state

    def _answer(self, permit: Permit, outcome: _Outcome, now_s: float) -> None:
        if outcome is _SUCCESS and self._state is _CLOSED and not self._failures:
            permit._generation = _ANSWERED
            return
        now_ns = round(now_s * _NS)
        with self._lock:
            generation, permit._generation = permit._generation, _ANSWERED
            if generation == self._generation or (outcome is _SUCCESS and self._probed(generation)):
                self._learn(outcome, now_ns)

    def _probed(self, generation: int) -> bool:
        """Whether a permit is that of a probe since the breaker last opened, its place lost or not."""
        return self._state is _HALF_OPEN and generation >= self._first_probe

    def _learn(self, outcome: _Outcome, now_ns: int) -> None:
        """A failed probe is one more failure in a row: only a success ends the row."""
        if outcome is _FAILURE:
            self._failures += 1
            if self._failures >= self._threshold:
                self._enter(_OPEN, now_ns + self._cooldown_ns)
        elif outcome is _SUCCESS:
            self._failures = 0
            if self._state is _HALF_OPEN:
                self._enter(_CLOSED, now_ns)
        else:
            self._until_ns = min(self._until_ns, now_ns)

    def _enter(self, state: BreakerState, until_ns: int) -> None:
        self._state = state
        self._generation += 1
        self._until_ns = until_ns
