import datetime

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values import Date
from zapdb.values.varint import encode_varint

DATE = Date()


@pytest.mark.parametrize(
    ("value", "days"),
    [
        (datetime.date(1970, 1, 1), 0),
        (datetime.date(1970, 3, 5), 63),
        (datetime.date(1969, 12, 31), -1),
        (datetime.date(2024, 2, 29), 19_782),
        (datetime.date.min, -719_162),
        (datetime.date.max, 2_932_896),
    ],
)
def test_date_is_the_days_since_1970(value: datetime.date, days: int) -> None:
    assert DATE.encode(value) == DATE.encode_key(value) == encode_varint(days)
    assert DATE.decode(encode_varint(days), 0)[0] == value


@pytest.mark.parametrize("days", [-719_163, 2_932_897, 2**70, -(2**70)])
def test_days_that_no_calendar_has_are_refused(days: int) -> None:
    with pytest.raises(CorruptRecord):
        DATE.decode(encode_varint(days), 0)


@pytest.mark.parametrize(
    "value", [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "2024-01-01", 0, None]
)
def test_date_refuses_and_names_the_path(value: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        DATE.check(value, "people.born")
    assert caught.value.context["field"] == "people.born"


def test_date_in_a_document_is_iso_text() -> None:
    assert DATE.from_document("2024-02-29", "p") == datetime.date(2024, 2, 29)
    assert DATE.to_document(datetime.date(33, 4, 3)) == "0033-04-03"
    for refused in ("2023-02-29", "29.2.2024", "", 5):
        with pytest.raises(InvalidValue):
            DATE.from_document(refused, "p")
