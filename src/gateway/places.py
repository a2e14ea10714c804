"""Who may be worked on now, who waits for that, and who is refused. Knows no sockets, no requests and no money.

A place is one request or stream being worked on. Rules:

- At most `places` are taken, of which one party (a tenant) has at most `per_party`.
- Whoever finds no place waits in a line of at most `queue`, for at most `queue_wait_s`; one party has at most the share
  of the line that it may have of the places. Beyond that it is refused at once.
- A place that becomes free goes to the first in line whose party may have it; nobody overtakes.
"""

import threading
from collections import Counter
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlaceLimits:
    """Bounds of places and of the line for them; counts, and seconds of waiting."""

    places: int = 1024
    per_party: int = 512
    queue: int = 256
    queue_wait_s: float = 1.0

    @property
    def queue_per_party(self) -> int:
        """How many of one party may wait: its share of the places, of the line; one at least, if there is a line."""
        return min(max(self.queue * min(self.per_party, self.places) // self.places, 1), self.queue)


class _Waiter:
    """One that waits; `called` is set once it has its place."""

    __slots__ = ("called", "party")

    def __init__(self, party: str) -> None:
        self.party = party
        self.called = threading.Event()


class Places:
    """Safe from any thread. `_lock` guards every field and is held for no wait."""

    def __init__(self, limits: PlaceLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._total = 0
        self._line: dict[_Waiter, None] = {}
        self._waiting: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Places in use."""
        return self._total

    @property
    def waiting(self) -> int:
        """How many wait in line."""
        return len(self._line)

    def enter_at_once(self, party: str) -> bool:
        """Take a place if there is one; whether there was. Whoever was let in calls leave(party) exactly once."""
        with self._lock:
            if not self._may_enter(party):
                return False
            self._seat(party)
            return True

    def enter(self, party: str) -> bool:
        """As enter_at_once(), waiting for a place if need be: at most `queue_wait_s`."""
        with self._lock:
            if self._may_enter(party):
                self._seat(party)
                return True
            waiter = self._join(party)
        if waiter is None:
            return False
        return waiter.called.wait(self._limits.queue_wait_s) or not self._quit(waiter)

    def leave(self, party: str) -> None:
        """Give a place back, to the first in line that may have it."""
        with self._lock:
            self._total -= 1
            _take_one(self._taken, party)
            heir = next((waiter for waiter in self._line if self._may_enter(waiter.party)), None)
            if heir is not None:
                self._step_out(heir)
                self._seat(heir.party)
        if heir is not None:
            heir.called.set()

    def _may_enter(self, party: str) -> bool:
        return self._total < self._limits.places and self._taken[party] < self._limits.per_party

    def _seat(self, party: str) -> None:
        self._total += 1
        self._taken[party] += 1

    def _join(self, party: str) -> _Waiter | None:
        if len(self._line) >= self._limits.queue or self._waiting[party] >= self._limits.queue_per_party:
            return None
        waiter = _Waiter(party)
        self._line[waiter] = None
        self._waiting[party] += 1
        return waiter

    def _quit(self, waiter: _Waiter) -> bool:
        """Leave the line; False if the place came at the same moment."""
        with self._lock:
            if waiter not in self._line:
                return False
            self._step_out(waiter)
            return True

    def _step_out(self, waiter: _Waiter) -> None:
        del self._line[waiter]
        _take_one(self._waiting, waiter.party)


def _take_one(counts: Counter[str], party: str) -> None:
    """Count one less; a party that has none is forgotten, so that the names do not pile up."""
    counts[party] -= 1
    if not counts[party]:
        del counts[party]
