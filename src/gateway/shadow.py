"""What the semantic cache would have served and did not: the last such hits, in words, for an operator who asks.

Their questions are private: they lie in the memory of this process alone, never in a log, a metric, a span or a file,
and go with a purge of their tenant or with the process.
"""

import threading
from collections import deque
from typing import Final

from msgspec import Struct

MOST_HITS: Final = 100
"""Of all tenants together; a question has at most some hundred characters. The oldest is let go for a new one."""


class ShadowHit(Struct):
    """Two questions that were taken for one, and whether the upstream then answered both alike.

    at_ms   when it was asked, by the wall clock
    entry   the name of the answer that was withheld
    judged  a judge's verdict was why, and not the verifier
    asked   the question; stored  the one whose answer would have been served
    equal   whether the answers are the same text; None until there is an answer that is kept, or for good without one
    """

    at_ms: int
    tenant: str
    request_id: str
    entry: str
    judged: bool
    asked: str
    stored: str
    equal: bool | None = None


class ShadowHits:
    """The last MOST_HITS of a process. `_lock` guards `_hits`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hits: deque[ShadowHit] = deque(maxlen=MOST_HITS)

    def note(self, hit: ShadowHit) -> None:
        """Keep a hit, until so many newer ones have come."""
        with self._lock:
            self._hits.append(hit)

    def told(self, tenant: str | None) -> list[ShadowHit]:
        """Those of a tenant, or of all, oldest first."""
        with self._lock:
            return [hit for hit in self._hits if tenant in (None, hit.tenant)]

    def forget(self, tenant: str | None) -> None:
        """Let go of those of a tenant, or of all."""
        with self._lock:
            self._hits = deque((hit for hit in self._hits if tenant not in (None, hit.tenant)), MOST_HITS)
