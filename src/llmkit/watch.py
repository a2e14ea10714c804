"""Waiting for a descriptor, a caller's cancellation, a pulse and several clocks at once.

Decides which of them was first. Knows nothing of what travels over the descriptor, and closes nothing.
"""

import math
import select
from collections.abc import Callable

from msgspec import Struct

from llmkit.types import Cancel, Pulse

_LONGEST_POLL_S = 3600  # poll() takes an int of milliseconds; a longer wait is made of several


class ExpiredError(Exception):
    """A clock fired; `clock` is its name."""

    def __init__(self, clock: str) -> None:
        super().__init__(clock)
        self.clock = clock


class CancelledError(Exception):
    """The caller does not want the call any more; `reason` is the exception it gave."""

    def __init__(self, reason: Exception) -> None:
        super().__init__("cancelled")
        self.reason = reason


class Deadline(Struct, frozen=True, order=True):
    """A point on the clock and the name of what is over then. The earlier one is the smaller."""

    at_s: float
    clock: str


class Call(Struct, frozen=True):
    """What stays the same over every wait of one call: its clock, its caller, and its last deadline."""

    clock: Callable[[], float]
    cancel: Cancel | None
    limit: Deadline
    pulse: Pulse | None = None

    def check(self) -> None:
        """Raise ExpiredError if the last deadline is over."""
        if self.clock() >= self.limit.at_s:
            raise ExpiredError(self.limit.clock)


class Watch:
    """Waits for events of one descriptor, for one call. A cancellation goes before events that came with it.

    fd  None where there is nothing to wait for but the call's own cancellation, pulse and clocks
    """

    __slots__ = ("_call", "_fd", "_mask", "_poll")

    def __init__(self, fd: int | None, call: Call) -> None:
        self._fd = fd
        self._call = call
        self._mask = 0  # what of fd the poll looks for so far
        self._poll = select.poll()
        if call.cancel is not None:
            self._poll.register(call.cancel.fd, call.cancel.mask)

    def wait(self, mask: int, deadline: Deadline) -> int:
        """Block until there are events, and return them. Raises ExpiredError or CancelledError."""
        call = self._call
        pulse = call.pulse
        end = deadline if deadline < call.limit else call.limit
        while True:
            now_s = call.clock()
            left_s = end.at_s - now_s
            if left_s <= 0:
                raise ExpiredError(end.clock)
            if pulse is not None and pulse.due_s < end.at_s:
                left_s = min(left_s, _until_beat_s(pulse, now_s))
            events = self._look(mask, math.ceil(min(left_s, _LONGEST_POLL_S) * 1000))
            if events:
                return events

    def ready(self, mask: int) -> int:
        """The events that are there now, 0 if none. Raises as wait() does, but for the call's last deadline only."""
        self._call.check()
        return self._look(mask, 0)

    def _look(self, mask: int, timeout_ms: int) -> int:
        if self._fd is not None and mask != self._mask:
            self._poll.register(self._fd, mask)
            self._mask = mask
        seen = 0
        for fd, events in self._poll.poll(timeout_ms):
            if fd == self._fd:
                seen = events
            elif self._call.cancel is not None and (reason := self._call.cancel.reason()) is not None:
                raise CancelledError(reason)
        return seen


def _until_beat_s(pulse: Pulse, now_s: float) -> float:
    """Let the pulse beat if it is due; seconds until it is due next. Raises CancelledError."""
    if pulse.due_s <= now_s:
        try:
            pulse.beat()
        except Exception as reason:
            raise CancelledError(reason) from reason
    return max(pulse.due_s - now_s, 0.0)
