"""TZif files: one form for equal offsets, and it says what `zoneinfo` does."""

from __future__ import annotations

import datetime
import io
import zoneinfo
from bisect import bisect_right

import pytest

from tests.timezones import write_tzif
from zapdb.datasets.time_zone_data import ZoneData, data_in_use
from zapdb.datasets.tzif import (
    WRITTEN_OUT_UNTIL,
    Description,
    YearlyDate,
    YearlyRule,
    describe_zone,
    read_rule,
)

LMT, EST, EDT = (-17_762, False, "LMT"), (-18_000, False, "EST"), (-14_400, True, "EDT")
NEW_YORK = "EST5EDT,M3.2.0,M11.1.0"
MARCH, NOVEMBER = YearlyDate("M", (3, 2, 0)), YearlyDate("M", (11, 1, 0))
RULE = YearlyRule(None, ((MARCH, 25_200, -14_400), (NOVEMBER, 21_600, -18_000)))


def utc(*parts: int) -> int:
    return int(datetime.datetime(*parts, tzinfo=datetime.UTC).timestamp())


SLIM = write_tzif([(utc(1900, 1, 1), 1), (utc(2007, 3, 11, 7), 2)], [LMT, EST, EDT], NEW_YORK)


def offset_at(found: Description, instant: int) -> int:
    """The offset at an instant before 2038."""
    instants = [at for at, _ in found.transitions if at is not None]
    return found.transitions[bisect_right(instants, instant)][1]


def test_a_zone_is_described_by_its_changes() -> None:
    found = describe_zone(SLIM)
    assert found.rule == RULE
    assert found.transitions[:5] == (
        (None, -17_762),
        (utc(1900, 1, 1), -18_000),
        (utc(2007, 3, 11, 7), -14_400),
        (utc(2007, 11, 4, 6), -18_000),
        (utc(2008, 3, 9, 7), -14_400),
    )
    assert found.transitions[-1] == (utc(2037, 11, 1, 6), -18_000)


def test_what_a_rule_says_may_be_written_out() -> None:
    found = describe_zone(SLIM)
    for years in (2008, 2020, 2037):
        written = [
            (at, 2 if offset == -14_400 else 1)
            for at, offset in found.transitions[1:]
            if at is not None and at < utc(years, 12, 31)
        ]
        fat = write_tzif(written, [LMT, EST, EDT], NEW_YORK)
        assert fat != SLIM
        assert describe_zone(fat) == found


def test_transitions_that_change_no_offset_do_not_count() -> None:
    big_bang, renamed = (-(2**59), 0), (utc(1950, 1, 1), 3)
    transitions = [big_bang, (utc(1900, 1, 1), 1), renamed, (utc(2007, 3, 11, 7), 2)]
    again = write_tzif(transitions, [LMT, EST, EDT, (-18_000, False, "XST")], NEW_YORK)
    assert describe_zone(again) == describe_zone(SLIM)


def test_it_does_not_matter_which_offset_is_the_standard() -> None:
    negative = read_rule("IST-1GMT0,M10.5.0,M3.5.0/1")
    assert negative == read_rule("GMT0IST,M3.5.0/1,M10.5.0")
    assert negative == read_rule("<x-1>0<y-2>-1:00:00,M3.5.0/01:00,M10.5.0/2:00:00")
    assert negative != read_rule("GMT0IST,M3.5.0/1,M10.5.0/3")


def test_version_1_files_end_without_a_rule() -> None:
    old = write_tzif([(0, 1), (1_000, 2)], [LMT, EST, EDT], None, version=b"\0")
    found = describe_zone(old)
    assert found.rule == YearlyRule(-14_400)
    assert found.transitions == ((None, -17_762), (0, -18_000), (1_000, -14_400))


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("UTC0", YearlyRule(0)),
        ("<-0330>3:30", YearlyRule(-12_600)),
        ("<+1245>-12:45:30", YearlyRule(45_930)),
        ("XXX0YYY0,J1,J2", YearlyRule(0)),
        (
            "AAA3BBB,J60/0,300/-1",
            YearlyRule(
                None,
                (
                    (YearlyDate("J", (60,)), 10_800, -7_200),
                    (YearlyDate("N", (300,)), 3_600, -10_800),
                ),
            ),
        ),
        (
            "<-02>2<-01>,M3.5.0/-1,M10.5.0/24",
            YearlyRule(
                None,
                (
                    (YearlyDate("M", (3, 5, 0)), 3_600, -3_600),
                    (YearlyDate("M", (10, 5, 0)), 90_000, -7_200),
                ),
            ),
        ),
    ],
)
def test_rules(text: str, rule: YearlyRule) -> None:
    assert read_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        *("", "X0", "UTC", "EST5EDT", "EST5EDT,M3.2.0", "EST5EDT,M13.1.0,M1.1.0", "UTC168"),
        *("UTC0:60", "EST5EDT,M3.6.0,M11.1.0", "EST5EDT,J0,J1", "EST5EDT,366,1"),
        *("EST5EDT,M3.2.7,1", "UTC0\n"),
    ],
)
def test_no_rules(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        read_rule(text)


@pytest.mark.parametrize(
    ("day", "year", "expected"),
    [
        (YearlyDate("M", (3, 2, 0)), 2024, (2024, 3, 10)),
        (YearlyDate("M", (2, 5, 4)), 2024, (2024, 2, 29)),
        (YearlyDate("M", (2, 5, 4)), 2023, (2023, 2, 23)),
        (YearlyDate("M", (9, 1, 6)), 2029, (2029, 9, 1)),
        (YearlyDate("J", (59,)), 2024, (2024, 2, 28)),
        (YearlyDate("J", (60,)), 2024, (2024, 3, 1)),
        (YearlyDate("J", (60,)), 2023, (2023, 3, 1)),
        (YearlyDate("N", (59,)), 2024, (2024, 2, 29)),
    ],
)
def test_days_of_a_year(day: YearlyDate, year: int, expected: tuple[int, int, int]) -> None:
    assert day.in_year(year) * 86_400 == utc(*expected)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut short"),
        (b"TZjf" + SLIM[4:], "no TZif"),
        (SLIM[:70], "cut short"),
        (SLIM[:120], "cut short"),
        (SLIM[:-1], "no footer"),
        (SLIM.replace(b"EST5EDT,M3", b"EST5EDT;M3"), "is no rule"),
        (write_tzif([(0, 3)], [LMT, EST, EDT], NEW_YORK), "has no type"),
        (write_tzif([], [], NEW_YORK), "has no type"),
        (write_tzif([(5, 1), (5, 2)], [LMT, EST, EDT], NEW_YORK), "not in order"),
        (write_tzif([], [LMT], "UTC0", leap_count=1), "leap seconds"),
    ],
)
def test_files_that_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        describe_zone(data)


def test_every_zone_is_described_as_zoneinfo_reads_it() -> None:
    """At each transition and beside it, in every zone of the data in use."""
    data: ZoneData = data_in_use()
    checked = 0
    for name in sorted(data.names):
        raw = (data._directory / name).read_bytes()
        found = describe_zone(raw)
        known = zoneinfo.ZoneInfo.from_file(io.BytesIO(raw), name)
        for at, _ in found.transitions:
            if at is None or not utc(1800, 1, 1) < at < WRITTEN_OUT_UNTIL:
                continue
            for instant in (at - 1, at, at + 1):
                local = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(
                    seconds=instant
                )
                seen = local.astimezone(known).utcoffset()
                assert seen == datetime.timedelta(seconds=offset_at(found, instant)), (name, local)
                checked += 1
    assert checked > 50_000
