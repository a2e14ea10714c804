"""The only file that reads time.

Monotonic seconds order and bound things inside one process; wall-clock milliseconds name calendar windows, prices and
rows. Neither is ever used in place of the other.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """What everything above this file knows of time."""

    def now_s(self) -> float:
        """Monotonic seconds of this process; only differences mean anything."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z as the machine believes them; may jump either way."""
        ...


class RealClock:
    """The machine's clocks."""

    now_s = staticmethod(time.monotonic)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class FakeClock:
    """A clock that moves only when told. Starts on 2026-01-01T00:00:00Z unless told otherwise."""

    def __init__(self, now_s: float = 0.0, wall_ms: int = 1_767_225_600_000) -> None:
        self._now_s = now_s
        self._wall_ms = wall_ms

    def now_s(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, seconds: float) -> None:
        """Let both clocks run on by `seconds` >= 0."""
        if seconds < 0:
            raise ValueError("a monotonic clock cannot go back; use jump_wall")
        self._now_s += seconds
        self._wall_ms += round(seconds * 1000)

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock alone, either way, as an operator or NTP does."""
        self._wall_ms += round(seconds * 1000)
