"""Days and times as people read them: "today" is a day of the user's zone, not the server's."""

from __future__ import annotations

import datetime
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

WEEK: Final = datetime.timedelta(days=6)
"""From today to the same weekday's eve: seven days."""


@cache
def zone_names() -> tuple[str, ...]:
    """The zones that the settings offer: those named after a place."""
    names = (name for name in available_timezones() if "/" in name)
    left_out = ("Etc/", "SystemV/", "US/", "posix/", "right/")
    return tuple(sorted(name for name in names if not name.startswith(left_out)))


def now_in(zone: str) -> datetime.datetime:
    return datetime.datetime.now(ZoneInfo(zone))


def show_day(day: datetime.date, today: datetime.date) -> str:
    away = (day - today).days
    match away:
        case -1:
            return "Yesterday"
        case 0:
            return "Today"
        case 1:
            return "Tomorrow"
        case _ if 1 < away < 7:
            return f"{day:%A}"
    return f"{day.day} {day:%b}" if day.year == today.year else f"{day.day} {day:%b} {day.year}"


def show_moment(moment: datetime.datetime, zone: str) -> str:
    """On the user's clock."""
    mine = moment.astimezone(ZoneInfo(zone))
    return f"{mine:%a} {mine.day} {mine:%b}, {mine:%H:%M}"


def show_time(time: datetime.datetime, zone: str) -> str:
    """On the user's clock, and on that which it was meant on if it is another one."""
    try:
        mine = time.astimezone(ZoneInfo(zone))
    except OverflowError:  # the year 0 or 10000 there: no form takes it, but records may have it
        return f"{time:%H:%M} on {time.date()}, in {time.tzinfo}"
    shown = f"{mine:%a} {mine.day} {mine:%b}, {mine:%H:%M}"
    meant = str(time.tzinfo)
    if meant == zone:
        return shown
    return f"{shown} ({time:%H:%M} in {meant.rpartition('/')[2].replace('_', ' ')})"
