"""Daily windows: at which instants one opens and closes, in a time zone's own days.

Where the clocks are put forward, a time of day that does not exist is an hour later. Where they are
put back, a window begins at the first of two equal times, and ends at the second.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from zapdb.catalog.row_kinds import DailyWindow
from zapdb.datasets import zone
from zapdb.errors import UsageError

_TEXT: Final = re.compile(r"((?:[01]\d|2[0-3]):[0-5]\d)\s*[-–]\s*((?:[01]\d|2[0-3]):[0-5]\d)", re.A)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def parse_window(text: str, zone_name: str) -> DailyWindow:
    """Return the window of a text as `22:00-06:00`; raises `UsageError` and `UnknownZone`."""
    found = _TEXT.fullmatch(text.strip())
    if found is None or found[1] == found[2]:
        raise UsageError(
            "this is not a daily window",
            window=text,
            hint="give two different times of day, such as 22:00-06:00",
        )
    zone(zone_name)
    return DailyWindow(found[1], found[2], zone_name)


def find_closing(window: DailyWindow, now_us: int) -> int | None:
    """When the window that is open closes, in microseconds since 1970 UTC; None if none is open."""
    ends = [end for begin, end in _list_around(window, now_us) if begin <= now_us < end]
    return max(ends, default=None)


def find_opening(window: DailyWindow, now_us: int) -> int:
    """When the next window opens."""
    return min(begin for begin, _ in _list_around(window, now_us) if begin > now_us)


def _list_around(window: DailyWindow, now_us: int) -> list[tuple[int, int]]:
    """The windows that begin on the days about this one, as instants."""
    today = (_EPOCH + timedelta(microseconds=now_us)).astimezone(zone(window.zone)).date()
    over_night = timedelta(days=window.ends < window.begins)
    days = [today + timedelta(days=offset) for offset in range(-2, 4)]
    return [
        (
            _find_instant(day, window.begins, window.zone, fold=0),
            _find_instant(day + over_night, window.ends, window.zone, fold=1),
        )
        for day in days
    ]


def _find_instant(day: date, at: str, zone_name: str, *, fold: int) -> int:
    local = datetime.combine(day, time.fromisoformat(at), zone(zone_name))
    first, second = (local.replace(fold=side).astimezone(UTC) for side in (0, 1))
    is_gap = first > second  # the offset before it makes the time later
    return ((second if fold and not is_gap else first) - _EPOCH) // _MICROSECOND
