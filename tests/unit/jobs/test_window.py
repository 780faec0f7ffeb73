"""Daily windows on ordinary days, over midnight, and where clocks change."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from zapdb.catalog.row_kinds import DailyWindow
from zapdb.jobs.window import find_closing, find_opening, parse_window

AMSTERDAM = "Europe/Amsterdam"


def us(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1_000_000


def shown(instant: int | None) -> str | None:
    if instant is None:
        return None
    return f"{datetime.fromtimestamp(instant / 1e6, UTC):%m-%dT%H:%M}"


@pytest.mark.parametrize(
    ("window", "zone", "now", "closes", "opens"),
    [
        ("09:00-17:00", "UTC", "2026-03-01T08:59", None, "03-01T09:00"),
        ("09:00-17:00", "UTC", "2026-03-01T09:00", "03-01T17:00", "03-02T09:00"),
        ("09:00-17:00", "UTC", "2026-03-01T17:00", None, "03-02T09:00"),
        ("22:00-06:00", "UTC", "2026-03-01T23:00", "03-02T06:00", "03-02T22:00"),
        ("22:00-06:00", "UTC", "2026-03-02T05:59", "03-02T06:00", "03-02T22:00"),
        # Winter time is an hour ahead of UTC, summer time two.
        ("22:00-06:00", AMSTERDAM, "2026-01-10T20:59", None, "01-10T21:00"),
        ("22:00-06:00", AMSTERDAM, "2026-07-10T20:00", "07-11T04:00", "07-11T20:00"),
        # 2026-03-29, 02:00 to 03:00 do not exist: both ends are an hour later.
        ("02:30-05:00", AMSTERDAM, "2026-03-29T01:29", None, "03-29T01:30"),
        ("01:00-02:30", AMSTERDAM, "2026-03-29T01:29", "03-29T01:30", "03-29T23:00"),
        # 2026-10-25, 02:00 to 03:00 come twice: from the first to the second.
        ("02:30-04:00", AMSTERDAM, "2026-10-25T00:30", "10-25T03:00", "10-26T01:30"),
        ("01:00-02:30", AMSTERDAM, "2026-10-25T01:15", "10-25T01:30", "10-26T00:00"),
        # Samoa left out 2011-12-30.
        ("09:00-10:00", "Pacific/Apia", "2011-12-29T20:30", None, "12-30T19:00"),
    ],
)
def test_a_window_opens_and_closes(
    window: str, zone: str, now: str, closes: str | None, opens: str
) -> None:
    found = parse_window(window, zone)
    assert shown(find_closing(found, us(now))) == closes
    assert shown(find_opening(found, us(now))) == opens


def test_a_window_is_read_with_blanks_and_a_dash() -> None:
    assert parse_window(" 22:00 – 06:00 ", "UTC") == DailyWindow("22:00", "06:00", "UTC")
    assert str(parse_window("22:00-06:00", AMSTERDAM)) == "22:00-06:00 Europe/Amsterdam"
