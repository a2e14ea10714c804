"""How long to wait before a retry, and whether a deployment may be retried at all. Pure: chance and time are handed in.

Full jitter spreads callers that failed together over the whole wait, so that they do not come back together. A budget
keeps retries a fraction of the traffic, so that a sick deployment is not buried under them.
"""

import math
import threading
from collections.abc import Callable

_SLOTS = 60
_LONG_AGO_S = -(1 << 62)
_MOST_DOUBLINGS = 1023
"""The largest power of two that a double holds."""


def backoff_s(retry: int, *, base_s: float, cap_s: float, draw: Callable[[], float]) -> float:
    """Seconds to wait before retry number `retry`, the first being 0: uniform in [0, min(cap_s, base_s * 2**retry)).

    draw  gives a number of [0, 1), each as likely as any other
    """
    return draw() * min(cap_s, base_s * 2.0 ** min(retry, _MOST_DOUBLINGS))


class RetryBudget:
    """The retries of one deployment: in 60 seconds at most `floor`, and `percent` % of its requests in them.

    Counted in whole seconds of the clock: this one and the 59 before it. A clock that goes backwards stands still.
    Safe from any thread: `_lock` guards all that changes.
    """

    def __init__(self, percent: int, floor: int) -> None:
        self._percent = percent
        self._floor = floor
        self._lock = threading.Lock()
        self._second = _LONG_AGO_S
        self._requests = [0] * _SLOTS
        self._retries = [0] * _SLOTS
        self._all_requests = 0
        self._all_retries = 0

    def note_request(self, now_s: float) -> None:
        """Count one request at monotonic `now_s`: its first call to the deployment, not its retries."""
        with self._lock:
            slot = self._advance(now_s)
            self._requests[slot] += 1
            self._all_requests += 1

    def take(self, now_s: float) -> bool:
        """Take one retry at monotonic `now_s`; False, and nothing changes, if there is no room."""
        with self._lock:
            slot = self._advance(now_s)
            if (self._all_retries + 1 - self._floor) * 100 > self._percent * self._all_requests:
                return False
            self._retries[slot] += 1
            self._all_retries += 1
            return True

    def _advance(self, now_s: float) -> int:
        """Forget what is a minute old; the slot of this second."""
        second = math.floor(now_s)
        if second > self._second:
            for begun in range(max(self._second, second - _SLOTS) + 1, second + 1):
                slot = begun % _SLOTS
                self._all_requests -= self._requests[slot]
                self._all_retries -= self._retries[slot]
                self._requests[slot] = self._retries[slot] = 0
            self._second = second
        return self._second % _SLOTS
