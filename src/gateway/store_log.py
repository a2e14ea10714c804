"""What the operator's log says of the ledger's storage: one line when something fails, one when it works again.

A disk that is full refuses some commits every second, for hours. Each is counted; a line for each would bury the rest.
"""

import threading

from gateway.clock import Clock
from gateway.oplog import OpLog
from gateway.store import Doing


class StoreLog:
    """`_lock` guards `_failing`: since when, and how often, each thing that fails now has failed."""

    def __init__(self, log: OpLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._lock = threading.Lock()
        self._failing: dict[Doing, tuple[float, int]] = {}

    def failed(self, doing: Doing, error: BaseException) -> None:
        """The storage has refused something. Counted with the log's errors each time."""
        self._log.count_error()
        with self._lock:
            since_s, times = self._failing.get(doing, (self._clock.now_s(), 0))
            self._failing[doing] = since_s, times + 1
        if not times:
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            self._log.event("store_failed", doing=doing, reason=f"{error} ({name})")

    def works(self, doing: Doing) -> None:
        """It has succeeded again; said if it is known to have failed."""
        with self._lock:
            since_s, times = self._failing.pop(doing, (0.0, 0))
        if times:
            for_s = round(self._clock.now_s() - since_s, 3)
            self._log.event("store_works_again", doing=doing, failed_times=times, failed_for_s=for_s)
