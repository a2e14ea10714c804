"""Memory that many hold at once, counted, so that the sum of it has a bound.

Decides who may hold more; what is held, and what a refusal means, is the holders' business. Nothing is reserved from
the operating system: who takes is trusted to hold no more than it took. Pure but for a lock.
"""

import threading
from typing import Final

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


class Claim:
    """What one holder has of a room: it grows in steps and is given back at once. Not for two threads at once.

    The first FREE_BYTES are not counted, so a room's true bound lies above its size by so much for each holder.
    """

    __slots__ = ("_covered", "_room")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._covered = FREE_BYTES

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
