"""Functions of dates and times: the proleptic Gregorian calendar in UTC, and no time zone data.

Texts are read strictly: one spelling of each date, and RFC 3339 with `T` and `Z` of each instant.
"""

from __future__ import annotations

import datetime
import re
from typing import Any, Final

from zapdb.expressions.no_result import FAILED

DATE_TEXT: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
TIMESTAMP_TEXT: Final = re.compile(
    DATE_TEXT.pattern + r"T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?Z", re.ASCII
)
ORDINAL_MAX: Final = datetime.date.max.toordinal()


def year(day: datetime.date) -> int:
    return day.year


def month(day: datetime.date) -> int:
    return day.month


def day(day: datetime.date) -> int:
    return day.day


def to_date(text: str) -> Any:
    match = DATE_TEXT.fullmatch(text)
    if match is None:
        return FAILED
    try:
        return datetime.date(*map(int, match.groups()))
    except ValueError:  # no such day
        return FAILED


def date_of(instant: datetime.datetime) -> datetime.date:
    return instant.date()


def add_days(day: datetime.date, days: int) -> Any:
    ordinal = day.toordinal() + days
    return datetime.date.fromordinal(ordinal) if 1 <= ordinal <= ORDINAL_MAX else FAILED


def days_between(first: datetime.date, second: datetime.date) -> int:
    return second.toordinal() - first.toordinal()


def to_timestamp(text: str) -> Any:
    match = TIMESTAMP_TEXT.fullmatch(text)
    if match is None:
        return FAILED
    *parts, fraction = match.groups(default="")
    microseconds = datetime.timedelta(microseconds=int(fraction.ljust(6, "0")))
    try:
        year, month, day, hour, minute, second = map(int, parts)
        instant = datetime.datetime(year, month, day, hour, minute, second, tzinfo=datetime.UTC)
    except ValueError:  # no such day, or no such time; a leap second is none either
        return FAILED
    return instant + microseconds


def timestamp_of(day: datetime.date) -> datetime.datetime:
    return datetime.datetime(day.year, day.month, day.day, tzinfo=datetime.UTC)


def show_timestamp(instant: datetime.datetime) -> str:
    return instant.replace(tzinfo=None).isoformat() + "Z"


def local_date(local: datetime.datetime) -> datetime.date:
    """By the wall clock that is stored: no offset comes into it."""
    return local.date()


def zone_name(local: datetime.datetime) -> str:
    return str(local.tzinfo)
