"""Budget windows as numbers: UTC calendar arithmetic, pure.

`total` is always 0. Days count from 1970-01-01, weeks from the Monday before it (ISO weeks begin on Monday), months are
year * 12 + month - 1. A later window of one kind always has the larger number, which is all the ledger relies on.
"""

import math
from datetime import UTC, datetime, timedelta

from gateway.types import Window

_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday, three days after a Monday."""


def window_number(kind: Window, wall_ms: int) -> int:
    """The number of the window of `kind` that holds the instant `wall_ms` (milliseconds since 1970, UTC)."""
    if kind is Window.TOTAL:
        return 0
    day = wall_ms // _DAY_MS
    if kind is Window.DAY:
        return day
    if kind is Window.WEEK:
        return (day + _EPOCH_WEEKDAY) // 7
    date = _EPOCH + timedelta(days=day)
    return date.year * 12 + date.month - 1


def window_end(kind: Window, number: int) -> datetime | None:
    """The instant at which window `number` ends and the next one opens; None for `total`, which never ends."""
    if kind is Window.TOTAL:
        return None
    if kind is Window.DAY:
        return _EPOCH + timedelta(days=number + 1)
    if kind is Window.WEEK:
        return _EPOCH + timedelta(days=(number + 1) * 7 - _EPOCH_WEEKDAY)
    year, month = divmod(number + 1, 12)
    return datetime(year, month + 1, 1, tzinfo=UTC)


def window_end_ms(kind: Window, number: int) -> float:
    """window_end() in milliseconds since 1970; inf for `total`."""
    end = window_end(kind, number)
    return (end - _EPOCH) / timedelta(milliseconds=1) if end else math.inf


def window_end_text(kind: Window, number: int) -> str | None:
    """window_end() as clients and operators are told it: ISO 8601, UTC, `2026-02-01T00:00:00Z`."""
    end = window_end(kind, number)
    return end.isoformat().replace("+00:00", "Z") if end else None
