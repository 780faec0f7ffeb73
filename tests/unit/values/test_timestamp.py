import datetime
from zoneinfo import ZoneInfo

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values import Timestamp

TIMESTAMP = Timestamp()
UTC = datetime.UTC


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (datetime.datetime(1970, 1, 1, tzinfo=UTC), "8000000000000000"),
        (datetime.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "8000000000000001"),
        (datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), "7fffffffffffffff"),
    ],
)
def test_timestamp_is_microseconds_in_8_bytes(value: datetime.datetime, encoded: str) -> None:
    assert TIMESTAMP.encode(value).hex() == TIMESTAMP.encode_key(value).hex() == encoded
    assert TIMESTAMP.decode(bytes.fromhex(encoded), 0) == (value, 8)


def test_timestamp_reaches_from_the_first_to_the_last_microsecond() -> None:
    for value in (datetime.datetime.min, datetime.datetime.max):
        utc = value.replace(tzinfo=UTC)
        assert TIMESTAMP.decode(TIMESTAMP.encode(utc), 0) == (utc, 8)
        beyond = int.from_bytes(TIMESTAMP.encode(utc), "big") + (1 if value.year > 1 else -1)
        with pytest.raises(CorruptRecord):
            TIMESTAMP.decode(beyond.to_bytes(8, "big"), 0)


def test_timestamp_is_one_instant_whatever_the_zone() -> None:
    """Both 01:30 of the night in which summer time ends are different instants."""
    zone = ZoneInfo("Europe/Berlin")
    for fold, hour in ((0, 0), (1, 1)):
        local = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=fold)
        checked = TIMESTAMP.check(local, "p")
        assert checked == datetime.datetime(2024, 10, 27, hour, 30, tzinfo=UTC)
        assert checked.tzinfo is UTC
        assert checked.fold == 0
    assert TIMESTAMP.check(datetime.datetime(2024, 1, 1, tzinfo=UTC, fold=1), "p").fold == 0


@pytest.mark.parametrize("data", [b"", b"\x80" * 7, b"\x00" * 8, b"\xff" * 8])
def test_timestamp_refuses_other_bytes(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        TIMESTAMP.decode(data, 0)


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2024, 1, 1),
        datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-1))),
        datetime.date(2024, 1, 1),
        "2024-01-01T00:00:00Z",
        0,
        None,
    ],
)
def test_timestamp_refuses_and_names_the_path(value: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        TIMESTAMP.check(value, "people.seen")
    assert caught.value.context["field"] == "people.seen"


def test_timestamp_in_a_document_is_iso_text_with_a_zone() -> None:
    expected = datetime.datetime(2024, 2, 29, 11, 0, tzinfo=UTC)
    for text in ("2024-02-29T12:00:00+01:00", "2024-02-29T11:00:00Z"):
        assert TIMESTAMP.from_document(text, "p") == expected
    assert TIMESTAMP.to_document(expected) == "2024-02-29T11:00:00+00:00"
    for refused in ("2024-02-29T12:00:00", "yesterday", 5):
        with pytest.raises(InvalidValue):
            TIMESTAMP.from_document(refused, "p")
