"""A bound on the bytes that many requests hold in memory together. Knows nothing of what they are."""

import threading
from collections import Counter


class Room:
    """So many bytes, of which one party has at most a share. `_lock` guards every field.

    most_bytes   of all together
    share_bytes  of one party
    """

    def __init__(self, most_bytes: int, share_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._share_bytes = share_bytes
        self._lock = threading.Lock()
        self._taken_bytes = 0
        self._taken_by: Counter[str] = Counter()

    @property
    def taken_bytes(self) -> int:
        """What is held now."""
        return self._taken_bytes

    def take(self, count: int, party: str) -> bool:
        """Take room for `count` bytes, 0 or more; False, and nothing taken, if there is not so much."""
        with self._lock:
            taken, own = self._taken_bytes + count, self._taken_by[party] + count
            if taken > self._most_bytes or own > self._share_bytes:
                return False
            self._taken_bytes, self._taken_by[party] = taken, own
            return True

    def give(self, count: int, party: str) -> None:
        """Give back what was taken."""
        with self._lock:
            self._taken_bytes -= count
            self._taken_by[party] -= count
            if not self._taken_by[party]:
                del self._taken_by[party]
