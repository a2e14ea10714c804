"""Token buckets, exact under any number of threads: at most burst + rate x t requests in any interval t.

Kept as the generic cell rate algorithm in integer nanoseconds: one number per bucket, the instant at which it would be
empty of debt. Time is handed in; nothing here reads a clock.
"""

import threading
from dataclasses import dataclass
from fractions import Fraction

from gateway.context import RateState

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a unit was taken; if not, `retry_after_s` is when the next one will be there.

    refilled_ns  the monotonic instant at which the unit that was taken will have been refilled
    """

    admitted: bool
    state: RateState
    retry_after_s: float = 0.0
    refilled_ns: int = 0


class TokenBucket:
    """`burst` units that refill at `rate_per_s`. `_lock` guards `_debt_until_ns`."""

    def __init__(self, rate_per_s: Fraction, burst: int) -> None:
        self._interval_ns = -(-_NS * rate_per_s.denominator // rate_per_s.numerator)
        self._depth_ns = self._interval_ns * burst
        self._burst = burst
        self._lock = threading.Lock()
        self._debt_until_ns = -(1 << 62)

    def take(self, now_s: float) -> Decision:
        """Take one unit at monotonic `now_s` if one is there."""
        now_ns = round(now_s * _NS)
        with self._lock:
            debt_ns = max(self._debt_until_ns - now_ns, 0)
            admitted = debt_ns + self._interval_ns <= self._depth_ns
            if admitted:
                debt_ns += self._interval_ns
                self._debt_until_ns = now_ns + debt_ns
        wait_ns = 0 if admitted else debt_ns + self._interval_ns - self._depth_ns
        return Decision(admitted, self._state(debt_ns), wait_ns / _NS, now_ns + debt_ns)

    def give_back(self, taken: Decision, now_s: float) -> None:
        """Return the unit of `taken`, whose request was then refused for another reason.

        Only what time has not refilled by now comes back: more would let a burst pass twice.
        """
        left_ns = min(max(taken.refilled_ns - round(now_s * _NS), 0), self._interval_ns)
        with self._lock:
            self._debt_until_ns -= left_ns

    def _state(self, debt_ns: int) -> RateState:
        return RateState(self._burst, (self._depth_ns - debt_ns) // self._interval_ns, debt_ns / _NS)
