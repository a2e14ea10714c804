"""Who is next of those that wait: one party after the other, and of each who came first. Knows nothing of either."""

from collections import deque
from typing import Generic, TypeVar

W = TypeVar("W")


class Rotation(Generic[W]):
    """A line in which nobody waits behind a second one of another party. For one thread, or under a lock.

    parties  who waits, by party, in the order in which these are served; empty if nobody does
    """

    def __init__(self) -> None:
        self.parties: dict[str | None, deque[W]] = {}

    def put(self, party: str | None, waiter: W) -> None:
        """Let somebody wait; of a party that had nobody in line, behind all the others."""
        waiting = self.parties.get(party)
        if waiting is None:
            waiting = self.parties[party] = deque()
        waiting.append(waiter)

    def take(self) -> W | None:
        """Who is next, if anybody waits. The party is the last one from then on."""
        party = next(iter(self.parties), None)
        waiting = self.parties.pop(party, None)
        if waiting is None:
            return None
        waiter = waiting.popleft()
        if waiting:
            self.parties[party] = waiting
        return waiter
