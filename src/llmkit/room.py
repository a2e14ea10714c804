"""Memory that many hold at once, counted, so that the sum of it has a bound.

Decides who may hold more; what is held, and what a refusal means, is the holders' business. Nothing is reserved from
the operating system: who takes is trusted to hold no more than it took. Pure but for a lock.
"""

import threading
from collections import Counter
from collections.abc import Hashable
from typing import Final

from msgspec import Struct

FREE_BYTES: Final = 65_536
"""What a Claim holds without asking: most answers and bodies are smaller, and touch no lock."""

STEP_BYTES: Final = 262_144
"""What a Claim asks for at a time: a lock for each of them costs nothing beside receiving as much."""


class Room:
    """`size` bytes for everyone together. Safe from any thread: `_lock` guards `_taken`.

    within  a larger room that gives every byte too: this one is then the share of it that its holders can have
    """

    def __init__(self, size: int, *, within: "Room | None" = None) -> None:
        self._size = size
        self._within = within
        self._lock = threading.Lock()
        self._taken = 0

    @property
    def taken(self) -> int:
        """Bytes that are held now."""
        return self._taken

    def take(self, count: int) -> bool:
        """Whether `count` more bytes may be held, all of them or none; give() back what was granted."""
        with self._lock:
            if self._taken + count > self._size:
                return False
            self._taken += count
        if self._within is None or self._within.take(count):
            return True
        with self._lock:
            self._taken -= count
        return False

    def give(self, count: int) -> None:
        """Say that `count` bytes that were granted are not held any more."""
        with self._lock:
            self._taken -= count
        if self._within is not None:
            self._within.give(count)


class Shares:
    """A room of which each party can have `share` bytes at most. Safe from any thread: `_lock` guards `_taken`.

    Only parties that hold something are remembered, however many there were.
    """

    def __init__(self, share: int, *, within: Room) -> None:
        self._share = share
        self._within = within
        self._lock = threading.Lock()
        self._taken: Counter[Hashable] = Counter()

    @property
    def parties(self) -> int:
        """How many hold something."""
        return len(self._taken)

    def of(self, party: Hashable) -> "Share":
        """The share of `party`: the same one, whoever asks and however often."""
        return Share(self, party)

    def take(self, party: Hashable, count: int) -> bool:
        """Whether `party` may hold `count` more bytes, all of them or none; give() back what was granted."""
        with self._lock:
            if self._taken[party] + count > self._share:
                return False
            self._taken[party] += count
        if self._within.take(count):
            return True
        self._forget(party, count)
        return False

    def give(self, party: Hashable, count: int) -> None:
        """Say that `count` bytes that were granted to `party` are not held any more."""
        self._forget(party, count)
        self._within.give(count)

    def _forget(self, party: Hashable, count: int) -> None:
        with self._lock:
            self._taken[party] -= count
            if not self._taken[party]:
                del self._taken[party]


class Share:
    """What one party can have of a room; it has no state of its own, so it need not be kept."""

    __slots__ = ("_party", "_shares")

    def __init__(self, shares: Shares, party: Hashable) -> None:
        self._shares = shares
        self._party = party

    def take(self, count: int) -> bool:
        """As Room.take."""
        return self._shares.take(self._party, count)

    def give(self, count: int) -> None:
        """As Room.give."""
        self._shares.give(self._party, count)


class Claim(Struct, eq=False):
    """What one holder has of a room: it grows in steps and is given back at once. Not for two threads at once.

    The first FREE_BYTES are not counted, so a room's true bound lies above its size by so much for each holder.
    """

    _room: Room | Share
    _covered: int = FREE_BYTES

    def covers(self, held: int) -> bool:
        """Whether `held` bytes may be held altogether; takes what is missing. Less than before gives nothing back."""
        if held <= self._covered:
            return True
        missing = -(-(held - self._covered) // STEP_BYTES) * STEP_BYTES
        if not self._room.take(missing):
            return False
        self._covered += missing
        return True

    def close(self) -> None:
        """Give everything back: nothing is held any more. Idempotent; the claim may grow again."""
        if self._covered > FREE_BYTES:
            self._room.give(self._covered - FREE_BYTES)
            self._covered = FREE_BYTES
