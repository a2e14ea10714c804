"""Token buckets, exact under any number of threads: at most burst + rate x t requests in any interval t.

Kept as the generic cell rate algorithm in integer nanoseconds: each unit that is out owns a slot of time in which it is
refilled, one slot after another. So a unit can be given back exactly: the slots behind its own move up by what is left
of it, and no time refills two units. Time is handed in; nothing here reads a clock.
"""

import threading
from collections import deque
from fractions import Fraction

from msgspec import Struct

from gateway.context import RateState

_NS = 1_000_000_000

REMEMBERED = 4096
"""Units of one bucket that can still be given back: several times what a server has in flight. An older one is kept."""


class Decision(Struct, frozen=True):
    """Whether a unit was taken; if not, `retry_after_s` is when the next one will be there. `unit` names it."""

    admitted: bool
    state: RateState
    retry_after_s: float = 0.0
    unit: int = 0


class TokenBucket:
    """`burst` units that refill at `rate_per_s`. `_lock` guards all that changes.

    `_out` holds the number of each unit that is out and the end of its slot, oldest first; `_debt_until_ns` is the last
    end.
    """

    def __init__(self, rate_per_s: Fraction, burst: int) -> None:
        self._interval_ns = -(-_NS * rate_per_s.denominator // rate_per_s.numerator)
        self._depth_ns = self._interval_ns * burst
        self._burst = burst
        self._lock = threading.Lock()
        self._now_ns = -(1 << 62)
        self._debt_until_ns = self._now_ns
        self._units = 0
        self._out: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)

    @property
    def refill_s(self) -> float:
        """How long it takes until all units are there again, whatever was taken before."""
        return self._depth_ns / _NS

    def take(self, now_s: float) -> Decision:
        """Take one unit at monotonic `now_s` if one is there."""
        with self._lock:
            now_ns = self._advance(now_s)
            debt_ns = max(self._debt_until_ns - now_ns, 0) + self._interval_ns
            if debt_ns > self._depth_ns:
                return Decision(False, self._state(debt_ns - self._interval_ns), (debt_ns - self._depth_ns) / _NS)
            self._units += 1
            self._debt_until_ns = now_ns + debt_ns
            self._out.append((self._units, self._debt_until_ns))
            return Decision(True, self._state(debt_ns), unit=self._units)

    def give_back(self, taken: Decision, now_s: float) -> RateState:
        """Return the unit of `taken`, whose request was then refused for another reason. The second time is nothing.

        Only what time has not refilled by now comes back: more would let a burst pass twice.
        """
        with self._lock:
            now_ns, out = self._advance(now_s), self._out
            later = []
            while out and out[-1][0] > taken.unit:
                later.append(out.pop())
            left_ns = 0
            if out and out[-1][0] == taken.unit:
                left_ns = min(out.pop()[1] - now_ns, self._interval_ns)
            self._debt_until_ns -= left_ns
            out.extend((unit, end_ns - left_ns) for unit, end_ns in reversed(later))
            return self._state(max(self._debt_until_ns - now_ns, 0))

    def _advance(self, now_s: float) -> int:
        """The present, as the latest caller's clock has it. Forgets the units that are refilled by now."""
        now_ns = round(now_s * _NS)
        if now_ns > self._now_ns:
            self._now_ns = now_ns
        while self._out and self._out[0][1] <= self._now_ns:
            self._out.popleft()
        return self._now_ns

    def _state(self, debt_ns: int) -> RateState:
        return RateState(self._burst, (self._depth_ns - debt_ns) // self._interval_ns, debt_ns / _NS)
