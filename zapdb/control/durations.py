"""Durations as texts: `90s`, `15m`, `12h`, `30d`, `2w`.

How long ago something was goes by the database's clock, which wrote when it was: so a text is read
where the database is, not where the caller is.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from zapdb.errors import UsageError
from zapdb.limits import DURATION_DAYS_MAX
from zapdb.storage import Connection

UNITS_US: Final = {
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
DURATION: Final = re.compile(r"([0-9]{1,9})([smhdw])")


def parse_duration(text: str) -> int:
    """Microseconds; raises `UsageError`."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise UsageError(
            "this is not a duration",
            given=text,
            hint="give a number followed by s, m, h, d or w, for example 12h",
        )
    found = int(match[1]) * UNITS_US[match[2]]
    if found > DURATION_DAYS_MAX * UNITS_US["d"]:
        raise UsageError(
            "the duration is too long",
            given=text,
            longest=f"{DURATION_DAYS_MAX}d",
            hint="give a shorter one",
        )
    return found


def read_ago_us(connection: Connection, text: str) -> int:
    """The time so long ago by the database's clock, in microseconds since 1970-01-01 UTC, which is
    the earliest; raises `UsageError`."""
    return max(0, connection.storage.now_us(connection) - parse_duration(text))


def read_time_us(connection: Connection, text: str) -> int:
    """Microseconds since 1970-01-01 UTC, of a time with its UTC offset, or of so long ago by the
    database's clock; raises `UsageError`."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return read_ago_us(connection, text)
    if time.tzinfo is None:
        raise UsageError(
            "a time needs its UTC offset",
            given=text,
            hint=f"if it is UTC, give {time.isoformat()}Z",
        )
    return (time - _EPOCH) // _MICROSECOND


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
