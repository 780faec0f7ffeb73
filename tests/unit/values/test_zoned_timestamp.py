"""Local times with their zones: bytes, what is refused, what is the same, instants as keys."""

from __future__ import annotations

import datetime
import io
import pickle
import zoneinfo
from typing import Any

import pytest

from tests.timezones import release
from zapdb.datasets import zone, zone_version
from zapdb.errors import CorruptRecord, InvalidValue, UnknownZone
from zapdb.values import Timestamp, ZonedTimestamp, Zones
from zapdb.values.timestamp import EPOCH, MICROSECOND

ZONES = Zones(
    {
        1: "UTC",
        2: "Asia/Beirut",
        3: "Pacific/Apia",
        4: "Africa/Monrovia",
        5: "Australia/Lord_Howe",
        6: "Europe/Berlin",
        300: "America/New_York",
        301: "Mars/Base",
    }
)
ZONED = ZonedTimestamp(ZONES)


def local(name: str, *parts: int, fold: int = 0) -> datetime.datetime:
    return datetime.datetime(*parts, tzinfo=zone(name), fold=fold)


VECTORS = [
    (local("UTC", 1970, 1, 1), "8000000000000000 00 81"),
    (local("UTC", 1970, 1, 1, fold=1), "8000000000000000 01 81"),
    (local("Asia/Beirut", 1970, 1, 1, 0, 0, 0, 1), "8000000000000001 00 82"),
    (local("Europe/Berlin", 1969, 12, 31, 23, 59, 59, 999_999), "7fffffffffffffff 00 86"),
    (local("America/New_York", 2024, 11, 3, 1, 30, fold=1), "800625f81b46b600 01 c1012c"),
]


@pytest.mark.parametrize(("value", "encoded"), VECTORS, ids=[encoded for _, encoded in VECTORS])
def test_bytes_are_local_time_fold_and_zone_number(value: datetime.datetime, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert ZONED.encode(value) == data
    decoded, end = ZONED.decode(b"\xff" + data + b"\x00", 1)
    assert (repr(decoded), end) == (repr(value), 1 + len(data))
    assert decoded.tzinfo is value.tzinfo
    assert ZONED.skip(b"\xff" + data, 1) == end


def test_local_times_reach_from_the_first_to_the_last_microsecond() -> None:
    """Also where their instant is before the first datetime or after the last."""
    for name in ("Pacific/Apia", "America/New_York", "UTC"):
        for wall in (datetime.datetime.min, datetime.datetime.max):
            value = wall.replace(tzinfo=zone(name))
            data = ZONED.encode(value)
            assert repr(ZONED.decode(data, 0)) == repr((value, len(data)))
            offset = value.utcoffset()
            assert offset is not None
            since = (wall.replace(tzinfo=datetime.UTC) - EPOCH - offset) // MICROSECOND
            assert ZONED.encode_index_key(value) == (since + 2**63).to_bytes(8, "big")
            beyond = int.from_bytes(data[:8], "big") + (1 if wall.year > 1 else -1)
            with pytest.raises(CorruptRecord) as caught:
                ZONED.decode(beyond.to_bytes(8, "big") + data[8:], 0)
            assert caught.value.context["what"] == "local time"


@pytest.mark.parametrize(
    ("data", "what", "offset"),
    [
        ("", "local time", 0),
        ("80000000000000", "local time", 0),
        ("800000000000000000", "local time", 0),
        ("8000000000000000 02 81", "fold of a local time", 8),
        ("8000000000000000 ff 81", "fold of a local time", 8),
        ("8000000000000000 00 80", "time zone number", 9),
        ("8000000000000000 00 7f", "time zone number", 9),
        ("8000000000000000 00 87", "time zone number", 9),
        ("8000000000000000 00 c006", "integer that is not in its shortest form", 9),
        ("8000000000000000 00 c1", "integer", 9),
        ("0000000000000000 00 81", "local time", 0),
        ("ffffffffffffffff 00 81", "local time", 0),
    ],
)
def test_other_bytes_are_refused(data: str, what: str, offset: int) -> None:
    with pytest.raises(CorruptRecord) as caught:
        ZONED.decode(bytes.fromhex(data), 0)
    assert (caught.value.context["what"], caught.value.context["offset"]) == (what, offset)


def test_numbers_below_1_are_refused_even_where_a_table_has_them() -> None:
    zones = Zones({0: "UTC", -1: "UTC"})
    for number in ("80", "7f"):
        with pytest.raises(CorruptRecord):
            ZonedTimestamp(zones).decode(bytes.fromhex(f"8000000000000000 00 {number}"), 0)


def test_an_unknown_number_is_looked_for_once_more() -> None:
    stored, reads = {1: "UTC"}, 0

    def reload() -> dict[int, str]:
        nonlocal reads
        reads += 1
        return stored

    kind = ZonedTimestamp(Zones({1: "UTC"}, reload))
    data = bytes.fromhex("8000000000000000 00 82")
    with pytest.raises(CorruptRecord):
        kind.decode(data, 0)
    stored[2] = "Asia/Beirut"  # another process, with newer data, appended it
    assert kind.decode(data, 0)[0] == local("Asia/Beirut", 1970, 1, 1)
    assert kind.encode(local("Asia/Beirut", 1970, 1, 1)) == data
    assert kind.decode(data, 0)[1] == 10
    assert reads == 2


def test_a_zone_that_the_data_lack_is_no_corruption() -> None:
    with pytest.raises(UnknownZone) as caught:
        ZONED.decode(bytes.fromhex("8000000000000000 00 c1012d"), 0)
    assert caught.value.context == {"zone": "Mars/Base", "data": zone_version()}


# --- what a value must be -------------------------------------------------------------------------


class OtherDatetime(datetime.datetime):
    pass


@pytest.mark.parametrize(
    "given",
    [
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
        OtherDatetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
        local("Europe/Berlin", 2024, 10, 27, 2, 30, fold=1),
    ],
)
def test_a_checked_value_is_the_same_local_time_under_the_pinned_data(
    given: datetime.datetime,
) -> None:
    checked = ZONED.check(given, "p")
    assert type(checked) is datetime.datetime
    assert repr(checked) == repr(local("Europe/Berlin", 2024, 10, 27, 2, 30, fold=1))
    assert checked.astimezone(datetime.UTC) == datetime.datetime(
        2024, 10, 27, 1, 30, tzinfo=datetime.UTC
    )
    assert ZONED.check(checked, "p") is checked
    assert repr(pickle.loads(pickle.dumps(checked))) == repr(checked)


def test_other_data_under_the_same_name_give_way_to_the_pinned() -> None:
    with (release("2023.2") / "Asia" / "Beirut").open("rb") as file:
        other = zoneinfo.ZoneInfo.from_file(file, key="Asia/Beirut")
    given = datetime.datetime(2023, 3, 26, 12, tzinfo=other)
    assert given.utcoffset() == datetime.timedelta(hours=2)
    checked = ZONED.check(given, "p")
    assert checked.utcoffset() == datetime.timedelta(hours=3)
    assert checked.hour == 12


def test_utc_is_a_zone_with_a_name() -> None:
    checked = ZONED.check(datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "p")
    assert checked.tzinfo is zone("UTC")
    assert checked == datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


class Nameless(datetime.tzinfo):
    def utcoffset(self, at: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=1)


def nameless_zone() -> zoneinfo.ZoneInfo:
    raw = (release("2023.2") / "Asia" / "Beirut").read_bytes()
    return zoneinfo.ZoneInfo.from_file(io.BytesIO(raw))


def mars() -> zoneinfo.ZoneInfo:
    raw = (release("2023.2") / "Asia" / "Beirut").read_bytes()
    return zoneinfo.ZoneInfo.from_file(io.BytesIO(raw), key="Mars/Base")


PLUS_2 = datetime.timezone(datetime.timedelta(hours=2), "Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (datetime.datetime(2024, 1, 1), "datetime with no time zone"),
        (
            datetime.datetime(2024, 1, 1, tzinfo=PLUS_2),
            "datetime with a time zone that has no name",
        ),
        (
            datetime.datetime(2024, 1, 1, tzinfo=Nameless()),
            "datetime with a time zone that has no name",
        ),
        (
            datetime.datetime(2024, 1, 1, tzinfo=nameless_zone()),
            "datetime with a time zone that has no name",
        ),
        (
            datetime.datetime(2024, 1, 1, tzinfo=mars()),
            f"datetime in the zone 'Mars/Base', which {zone_version()} lacks",
        ),
        (datetime.date(2024, 1, 1), "date"),
        ("2024-01-01T00:00:00 UTC", "str of 23 characters"),
        (0, "int of 0 bits"),
        (None, "None"),
    ],
)
def test_other_values_are_refused_word_for_word(value: object, got: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        ZONED.check(value, "people.met")
    assert str(caught.value).partition("\n  hint: ")[0] == (
        "a value does not fit its field\n"
        "  field: people.met\n"
        "  expected: a datetime in a named time zone (such as tzinfo=ZoneInfo('Europe/Paris'))\n"
        f"  got: {got}"
    )


def test_the_same_is_what_was_meant_the_same() -> None:
    first, second = (local("Europe/Berlin", 2024, 10, 27, 2, 30, fold=fold) for fold in (0, 1))
    assert first == second  # to Python, although an hour lies between them
    assert not ZONED.is_same(first, second)
    assert ZONED.is_same(first, local("Europe/Berlin", 2024, 10, 27, 2, 30))
    noon = local("Europe/Berlin", 2024, 7, 1, 12)
    assert noon == local("UTC", 2024, 7, 1, 10)
    assert not ZONED.is_same(noon, local("UTC", 2024, 7, 1, 10))
    assert not ZONED.is_same(noon, local("UTC", 2024, 7, 1, 12))
    assert not ZONED.is_same(noon, local("Europe/Berlin", 2024, 7, 1, 12, fold=1))


# --- documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2023-03-26T12:00:00 Asia/Beirut", local("Asia/Beirut", 2023, 3, 26, 12)),
        ("2023-03-26T12:00:00 Asia/Beirut fold=1", local("Asia/Beirut", 2023, 3, 26, 12, fold=1)),
        ("0001-01-01T00:00:00.000001 UTC", local("UTC", 1, 1, 1, 0, 0, 0, 1)),
    ],
)
def test_documents_hold_local_time_and_zone(text: str, value: datetime.datetime) -> None:
    assert repr(ZONED.from_document(text, "p")) == repr(value)
    assert ZONED.to_document(value) == text


@pytest.mark.parametrize(
    "plain",
    [
        "2023-03-26T12:00:00",
        "2023-03-26T12:00:00 ",
        "2023-03-26 12:00:00 Asia/Beirut",
        "2023-03-26T12:00 Asia/Beirut",
        "2023-03-26T12:00:00.000000 Asia/Beirut",
        "2023-03-26T12:00:00.5 Asia/Beirut",
        "2023-03-26T12:00:00+02:00 Asia/Beirut",
        "2023-03-26T12:00:00Z UTC",
        "20230326T120000 Asia/Beirut",
        "2023-02-29T12:00:00 Asia/Beirut",
        "2023-03-26T12:00:00 Asia/Beirut fold=0",
        "2023-03-26T12:00:00 Asia/Beirut  fold=1",
        "2023-03-26T12:00:00 Asia/Beirut\n",
        "Asia/Beirut",
        "",
        5,
        datetime.datetime(2023, 3, 26, 12, tzinfo=datetime.UTC),
    ],
)
def test_no_other_spelling(plain: Any) -> None:
    with pytest.raises(InvalidValue) as caught:
        ZONED.from_document(plain, "people.met")
    assert caught.value.context["field"] == "people.met"
    assert caught.value.context["expected"] == (
        "local time and zone (2023-03-26T12:00:00 Asia/Beirut), and fold=1 or nothing"
    )


def test_a_document_with_an_unknown_zone_is_not_misspelt() -> None:
    with pytest.raises(UnknownZone):
        ZONED.from_document("2023-03-26T12:00:00 Mars/Base", "p")


# --- bindings and keys ----------------------------------------------------------------------------


def test_zones_are_a_binding_and_no_parameter() -> None:
    free = ZonedTimestamp()
    bound = free.bind(ZONES)
    assert bound == free == free.bind(Zones({}))
    assert hash(bound) == hash(free)
    assert repr(bound) == repr(free) == "ZonedTimestamp()"
    assert bound.encoding_id == free.encoding_id == ("zoned_timestamp",)
    assert bound.parameters() == {}
    for action in (
        lambda: free.encode(local("UTC", 2024, 1, 1)),
        lambda: free.decode(bytes.fromhex("8000000000000000 00 81"), 0),
    ):
        with pytest.raises(AssertionError, match="not bound"):
            action()


@pytest.mark.parametrize(
    ("value", "instant"),
    [
        (local("Europe/Berlin", 2024, 10, 27, 2, 30), "2024-10-27T00:30Z"),
        (local("Europe/Berlin", 2024, 10, 27, 2, 30, fold=1), "2024-10-27T01:30Z"),
        # In a gap, fold 0 counts by the offset before it, fold 1 by the one after it.
        (local("Europe/Berlin", 2024, 3, 31, 2, 30), "2024-03-31T01:30Z"),
        (local("Europe/Berlin", 2024, 3, 31, 2, 30, fold=1), "2024-03-31T00:30Z"),
        # A day that was left out: from UTC-10 to UTC+14.
        (local("Pacific/Apia", 2011, 12, 29, 23, 59), "2011-12-30T09:59Z"),
        (local("Pacific/Apia", 2011, 12, 30, 12), "2011-12-30T22:00Z"),
        (local("Pacific/Apia", 2011, 12, 30, 12, fold=1), "2011-12-29T22:00Z"),
        (local("Pacific/Apia", 2011, 12, 31, 0, 0), "2011-12-30T10:00Z"),
        # 44 minutes and 30 seconds behind UTC
        (local("Africa/Monrovia", 1971, 6, 1, 12), "1971-06-01T12:44:30Z"),
        # Summer time of half an hour
        (local("Australia/Lord_Howe", 2024, 4, 7, 1, 45), "2024-04-06T14:45Z"),
        (local("Australia/Lord_Howe", 2024, 4, 7, 1, 45, fold=1), "2024-04-06T15:15Z"),
    ],
)
def test_index_keys_are_instants(value: datetime.datetime, instant: str) -> None:
    expected = Timestamp().encode(datetime.datetime.fromisoformat(instant))
    assert ZONED.encode_index_key(value) == expected
    assert ZonedTimestamp().encode_index_key(value) == expected
