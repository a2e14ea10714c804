"""Counts of what happened since the start, in families of which each has a closed set of names.

So that each name can label a series of the metrics, every one of them is told, also those that never happened.
"""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence


class Tally:
    """Safe from any thread: `_lock` guards `_counts`."""

    def __init__(self, families: Mapping[str, Sequence[str]]) -> None:
        """families  the names of each"""
        self._families = families
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, family: str, name: str) -> None:
        """It happened once more."""
        with self._lock:
            self._counts[family, name] += 1

    def told(self) -> dict[str, dict[str, int]]:
        """How often, for each name of each family."""
        with self._lock:
            counts = dict(self._counts)
        return {
            family: {name: counts.get((family, name), 0) for name in names} for family, names in self._families.items()
        }
