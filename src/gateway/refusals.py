"""How often one party may be refused before its connections have to rest. Knows no sockets; time is handed in.

A loop that is refused costs half as much as one that is served, and everybody else waits behind it. Whoever is refused
more often than a client with any patience would be gets its answer as ever, but the next request on that connection is
read later. Who is served loses nothing, also of the same party.
"""

import threading
from fractions import Fraction

from gateway.limits import TokenBucket

PER_S = 200
"""Refusals of one party that nothing is done about: a second, and at once."""

REST_S = 0.25
"""How long a connection is left alone after one more."""


class Refusals:
    """Counts them by party; those who are not known yet (a bad key) are one party. `_lock` guards `_known`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str | None, TokenBucket] = {}

    def are_too_many(self, party: str | None, now_s: float) -> bool:
        """Count one more at monotonic `now_s`; whether it should be the last one for a while."""
        with self._lock:
            bucket = self._known.get(party)
            if bucket is None:
                bucket = self._known[party] = TokenBucket(Fraction(PER_S), PER_S)
        return not bucket.take(now_s).admitted
