"""Budget windows against the calendar of the standard library, and twins that have another calendar.

The check takes the functions under test as arguments, so that a broken twin can be put through it and must fail it.
"""

import unittest
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.types import Window
from gateway.windows import window_end, window_number

Numbers = Callable[[Window, int], int]
Ends = Callable[[Window, int], datetime | None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_DAY_MS = 86_400_000
_INSTANTS = st.integers(0, 250 * 365 * _DAY_MS)
_settings = settings(max_examples=400, deadline=None, derandomize=True)


def first_day(kind: Window, day: date) -> date:
    """The day on which the window of `day` began, by the calendar."""
    if kind is Window.WEEK:
        return day - timedelta(days=day.weekday())
    return day.replace(day=1) if kind is Window.MONTH else day


def check_window(instant_ms: int, numbers: Numbers = window_number, ends: Ends = window_end) -> None:
    """The window of an instant holds exactly the days that the calendar says, and the next number follows on it."""
    day = (_EPOCH + instant_ms * _MS).date()
    for kind in (Window.DAY, Window.WEEK, Window.MONTH):
        number = numbers(kind, instant_ms)
        end = ends(kind, number)
        assert end is not None
        assert first_day(kind, end.date()) == end.date() and end.time().isoformat() == "00:00:00", (kind, end)
        assert first_day(kind, (end - _MS).date()) == first_day(kind, day), (kind, day, end)
        end_ms = (end - _EPOCH) // _MS
        assert numbers(kind, end_ms - 1) == number and numbers(kind, end_ms) == number + 1, (kind, end)


def weeks_from_the_epoch(kind: Window, instant_ms: int) -> int:
    """A twin whose weeks begin on Thursdays."""
    return instant_ms // (7 * _DAY_MS) if kind is Window.WEEK else window_number(kind, instant_ms)


def months_of_thirty_days(kind: Window, instant_ms: int) -> int:
    """A twin that counts months by days."""
    return 1970 * 12 + instant_ms // (30 * _DAY_MS) if kind is Window.MONTH else window_number(kind, instant_ms)


def an_hour_east(kind: Window, instant_ms: int) -> int:
    """A twin that lives in another time zone."""
    return window_number(kind, instant_ms + 3_600_000)


def ends_a_day_early(kind: Window, number: int) -> datetime | None:
    """A twin that counts the last day out."""
    end = window_end(kind, number)
    return end and end - timedelta(days=1)


class WindowPropertiesTest(unittest.TestCase):
    """Every instant of 250 years."""

    @_settings
    @given(instant_ms=_INSTANTS)
    def test_windows_are_the_calendars(self, instant_ms: int) -> None:
        """Days, weeks from Monday, months; no gap and no overlap between two of them."""
        check_window(instant_ms)

    @_settings
    @given(instant_ms=_INSTANTS, later_ms=st.integers(0, 800 * _DAY_MS))
    def test_a_later_instant_never_has_a_smaller_number(self, instant_ms: int, later_ms: int) -> None:
        """Which is all that the ledger relies on."""
        for kind in Window:
            self.assertLessEqual(window_number(kind, instant_ms), window_number(kind, instant_ms + later_ms))

    def test_every_twin_is_found(self) -> None:
        """Thursdays, thirty days, time zones, and an end that comes early."""
        twins: tuple[tuple[Numbers, Ends], ...] = (
            (weeks_from_the_epoch, window_end),
            (months_of_thirty_days, window_end),
            (an_hour_east, window_end),
            (window_number, ends_a_day_early),
        )
        for numbers, ends in twins:
            with self.subTest(numbers=numbers, ends=ends), self.assertRaises(AssertionError):
                for day in range(400):
                    check_window(day * _DAY_MS, numbers, ends)


if __name__ == "__main__":
    unittest.main()
