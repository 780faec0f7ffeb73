"""Durations as texts: `90s`, `15m`, `12h`, `30d`, `2w`."""

from __future__ import annotations

import re
from typing import Final

from zapdb.errors import UsageError

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
    return int(match[1]) * UNITS_US[match[2]]
