"""What every token bucket must keep, as checks that raise AssertionError, and broken buckets that must fail them."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from gateway.context import RateState
from gateway.limits import Decision, TokenBucket

PATIENCE_S = 10.0
"""A bug makes a test fail after this; nothing waits for it otherwise."""


class Bucket(Protocol):
    """What admission uses of a bucket."""

    def take(self, now_s: float) -> Decision: ...

    def give_back(self, taken: Decision, now_s: float) -> object: ...


MakeBucket = Callable[[Fraction, int], Bucket]


@dataclass(frozen=True, slots=True)
class Wait:
    """Let `ms` milliseconds pass."""

    ms: int


@dataclass(frozen=True, slots=True)
class Take:
    """Ask for one unit."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give back one of the units that were taken: the one at `at`, counted around."""

    at: int


Step = Wait | Take | GiveBack


def check_all_pairs(make: MakeBucket, rate: Fraction, burst: int, steps: Sequence[Step]) -> int:
    """Run `steps` on a new bucket; after each, no interval may hold more than burst + rate x t units that were taken
    and not given back. Returns how many units are out at the end.
    """
    bucket, now_ms = make(rate, burst), 0
    out: list[tuple[int, Decision]] = []
    for step in steps:
        if isinstance(step, Wait):
            now_ms += step.ms
        elif isinstance(step, GiveBack):
            if out:
                bucket.give_back(out.pop(step.at % len(out))[1], now_ms / 1000)
        elif (unit := bucket.take(now_ms / 1000)).admitted:
            out.append((now_ms, unit))
            _check_intervals([at_ms for at_ms, _ in out], rate, burst)
    return len(out)


def _check_intervals(taken_ms: Sequence[int], rate: Fraction, burst: int) -> None:
    """Intervals that end at the last unit; the others were checked before it was taken."""
    last_ms = taken_ms[-1]
    for count, first_ms in enumerate(reversed(taken_ms), 1):
        most = burst + rate * Fraction(last_ms - first_ms, 1000)
        if count > most:
            raise AssertionError(f"{count} units from {first_ms} to {last_ms} ms, at most {most} may be: {taken_ms}")


def check_together(make: MakeBucket, burst: int, threads: int, takes: int) -> None:
    """Many threads at full speed at one instant take exactly `burst` units."""
    bucket = make(Fraction(1), burst)
    start = threading.Barrier(threads)
    admitted: list[int] = []

    def run() -> None:
        start.wait(PATIENCE_S)
        admitted.append(sum(bucket.take(5.0).admitted for _ in range(takes)))

    workers = [threading.Thread(target=run) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    if len(admitted) != threads or sum(admitted) != burst:
        raise AssertionError(f"{admitted} of {threads} threads make {sum(admitted)} units of {burst}")


# --- broken twins -------------------------------------------------------------------------------------------------

_NO_STATE = RateState(0, 0, 0.0)


class FixedWindow:
    """Counts per window of burst / rate seconds: two full bursts pass around an edge. A restart knows of none."""

    refill_s = 0.0

    def __init__(self, rate: Fraction, burst: int) -> None:
        self._length_s, self._burst = burst / rate, burst
        self._window, self._used = -1, 0

    def take(self, now_s: float) -> Decision:
        window = int(Fraction(now_s) // self._length_s)
        if window != self._window:
            self._window, self._used = window, 0
        admitted = self._used < self._burst
        self._used += admitted
        return Decision(admitted, _NO_STATE)

    def give_back(self, taken: Decision, now_s: float) -> None:
        self._used = max(self._used - 1, 0)


class WholeUnitBack(TokenBucket):
    """Gives a whole unit back, however much of it time has refilled."""

    def give_back(self, taken: Decision, now_s: float) -> RateState:
        self._debt_until_ns -= self._interval_ns
        return _NO_STATE


class StaleSlots(TokenBucket):
    """Gives back what is left of a unit's slot as it was when it was taken: earlier returns have moved it since."""

    def __init__(self, rate: Fraction, burst: int) -> None:
        super().__init__(rate, burst)
        self._ends_ns: dict[int, int] = {}

    def take(self, now_s: float) -> Decision:
        taken = super().take(now_s)
        self._ends_ns[taken.unit] = self._debt_until_ns
        return taken

    def give_back(self, taken: Decision, now_s: float) -> RateState:
        left_ns = self._ends_ns[taken.unit] - round(now_s * 1_000_000_000)
        self._debt_until_ns -= min(max(left_ns, 0), self._interval_ns)
        return _NO_STATE


class NoLock(FixedWindow):
    """Reads and writes without a lock; the first two callers meet between the two."""

    def __init__(self, rate: Fraction, burst: int) -> None:
        super().__init__(rate, burst)
        self._meeting = threading.Barrier(2)
        self._first = threading.Semaphore(2)

    def take(self, now_s: float) -> Decision:
        used = self._used
        if self._first.acquire(blocking=False):
            self._meeting.wait(PATIENCE_S)
        self._used = used + (used < self._burst)
        return Decision(used < self._burst, _NO_STATE)
