"""Which window each level has reached: what the ledger's levels say, remembered so that a reservation need not ask.

Decides when memory may stand for the table: only what was committed is remembered, and nothing of a level whose next
window is being opened by a transaction that may not be committed yet. Knows no SQL and no money.
"""

import threading
from collections.abc import Iterable
from typing import NamedTuple


class Reached(NamedTuple):
    """The last window that a level has opened: its number, when it ends (milliseconds since 1970; inf if
    never), and the id of the balance in it.
    """

    number: int
    ends_ms: float
    balance: int


class ReachedWindows:
    """`_lock` guards each change of `_reached`, `_opening` and `_present`: what is known of levels that were asked for
    together, made of `_reached` and forgotten with each change of it. A look at that takes none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reached: dict[int, Reached] = {}
        self._opening: dict[int, int] = {}
        self._present: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}

    def balances(self, levels: tuple[int, ...], now_ms: int) -> tuple[int, ...] | None:
        """The balances of the present windows in the order of `levels`; None unless all of them are known.

        A clock that is set back stays in the window that was reached.
        """
        present = self._present.get(levels) or self._put_together(levels)
        return present[1] if present is not None and now_ms < present[0] else None

    def _put_together(self, levels: tuple[int, ...]) -> tuple[float, tuple[int, ...]] | None:
        """When the first of their windows ends, and the balances; None unless all are known."""
        with self._lock:
            reached = [self._reached[level] for level in levels if level in self._reached]
            if len(reached) < len(levels):
                return None
            self._present[levels] = present = (
                min(each.ends_ms for each in reached),
                tuple(each.balance for each in reached),
            )
            return present

    def learn(self, committed: Iterable[tuple[int, Reached]]) -> None:
        """Take in what was read of levels after a commit; older news than what is known changes nothing."""
        with self._lock:
            for level, reached in committed:
                known = self._reached.get(level)
                least = known.number if known is not None else self._opening.get(level, reached.number)
                if reached.number >= least:
                    self._reached[level] = reached
            self._present.clear()

    def opens(self, level: int, number: int) -> None:
        """A transaction opens the window `number` of a level: until that is read as committed, nothing is known."""
        with self._lock:
            self._reached.pop(level, None)
            self._present.clear()
            self._opening[level] = max(number, self._opening.get(level, number))
