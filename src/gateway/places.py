"""Who may be worked on now, who stands in line for that, and who is refused. Knows no sockets, no requests, no money.

A place is one request or stream being worked on. Rules:

- At most `places` are taken, of which one party (a tenant) has at most `per_party`.
- Whoever finds no place may stand in a line of at most `queue`; one party has at most the share of the line that it may
  have of the places. How long somebody may stand there is a limit, too, but whoever let it in line has to keep it.
- A place that becomes free goes to the first in line whose party may have it: nobody overtakes. But while more than
  half of the line is taken, it goes to the last one: in an overload whoever waited long is about to be given up, and
  serving those first would let everybody wait as long as the line allows, and on for a while after it is over.
"""

import threading
from enum import Enum, auto
from typing import Generic, TypeVar

from msgspec import Struct

W = TypeVar("W")


class PlaceLimits(Struct, frozen=True):
    """Bounds of places and of the line for them; counts, and seconds in line."""

    places: int = 1024
    per_party: int = 512
    queue: int = 256
    queue_wait_s: float = 1.0

    @property
    def queue_per_party(self) -> int:
        """How many of one party may wait: its share of the places, of the line; one at least, if there is a line."""
        return min(max(self.queue * min(self.per_party, self.places) // self.places, 1), self.queue)


class Admittance(Enum):
    """What became of somebody who asked for a place."""

    SEATED = auto()
    IN_LINE = auto()
    REFUSED = auto()


class Places(Generic[W]):
    """Nobody waits in a call; those in line are told apart by identity. `_lock` guards every field.

    Whoever was seated, at once or as an heir, has leave(party) called for it exactly once.
    """

    def __init__(self, limits: PlaceLimits) -> None:
        self._limits = limits
        self._most = limits.places + limits.queue
        self._lock = threading.Lock()
        self._taken: dict[str, int] = {}
        self._total = 0
        self._expected = 0
        self._line: dict[int, tuple[str, W]] = {}
        self._waiting: dict[str, int] = {}

    @property
    def taken(self) -> int:
        """Places in use."""
        return self._total

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def expect(self) -> bool:
        """Count somebody who is about to ask; False if those who are here or expected take every place, in line too.

        Whoever was expected asks by enter() and perhaps join(), or else turns back, exactly once.
        """
        with self._lock:
            if self._total + len(self._line) + self._expected >= self._most:
                return False
            self._expected += 1
            return True

    def expect_again(self) -> None:
        """Count somebody who had turned back, however many are here; whoever calls this keeps them few."""
        with self._lock:
            self._expected += 1

    def turn_back(self) -> None:
        """Somebody who was expected asks for nothing, or not yet."""
        with self._lock:
            self._expected -= 1

    def enter(self, party: str) -> bool:
        """Take a place if there is one; whether there was. If not, whoever asked is still expected."""
        with self._lock:
            is_seated = self._seat(party)
            self._expected -= is_seated
            return is_seated

    def join(self, party: str, waiter: W) -> Admittance:
        """Take a place if there is one by now, else stand in line: leave() will give `waiter` back, unless it quits."""
        with self._lock:
            self._expected -= 1
            if self._seat(party):
                return Admittance.SEATED
            if len(self._line) >= self._limits.queue or self._waiting.get(party, 0) >= self._limits.queue_per_party:
                return Admittance.REFUSED
            self._line[id(waiter)] = party, waiter
            self._waiting[party] = self._waiting.get(party, 0) + 1
            return Admittance.IN_LINE

    def quit(self, waiter: W) -> bool:
        """Leave the line; False if it is not there: it has been given a place, or was never in it."""
        with self._lock:
            if id(waiter) not in self._line:
                return False
            self._step_out(id(waiter))
            return True

    def leave(self, party: str) -> W | None:
        """Give a place back. Returns who has a place instead, and must be worked on now, if anybody may."""
        with self._lock:
            self._total -= 1
            _take_one(self._taken, party)
            if not self._line:
                return None
            is_long = len(self._line) * 2 > self._limits.queue
            for key, (its_party, waiter) in reversed(self._line.items()) if is_long else self._line.items():
                if self._seat(its_party):
                    self._step_out(key)
                    return waiter
        return None

    def _seat(self, party: str) -> bool:
        """Give the party a place, if there is one and its share has room for it."""
        taken = self._taken.get(party, 0)
        if self._total >= self._limits.places or taken >= self._limits.per_party:
            return False
        self._total += 1
        self._taken[party] = taken + 1
        return True

    def _step_out(self, key: int) -> None:
        party, _ = self._line.pop(key)
        _take_one(self._waiting, party)


def _take_one(counts: dict[str, int], party: str) -> None:
    """Count one less; a party that has none is forgotten, so that the names do not pile up."""
    left = counts[party] - 1
    if left:
        counts[party] = left
    else:
        del counts[party]
