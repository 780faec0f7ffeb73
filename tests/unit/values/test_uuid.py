import uuid

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values import Uuid

UUID = Uuid()
VALUE = uuid.UUID("0191a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")


def test_uuid_is_its_16_bytes() -> None:
    assert UUID.encode(VALUE) == UUID.encode_key(VALUE) == VALUE.bytes
    assert UUID.decode(b"\x00" + VALUE.bytes, 1) == (VALUE, 17)


def test_uuid_refuses_missing_bytes() -> None:
    with pytest.raises(CorruptRecord):
        UUID.decode(VALUE.bytes[:15], 0)


@pytest.mark.parametrize("value", [str(VALUE), VALUE.bytes, VALUE.int, None])
def test_uuid_refuses_and_names_the_path(value: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        UUID.check(value, "people.id")
    assert caught.value.context["field"] == "people.id"


def test_uuid_in_a_document_is_text() -> None:
    assert UUID.from_document(str(VALUE), "p") == VALUE
    assert UUID.to_document(VALUE) == str(VALUE)
    for refused in ("0191a1b2", "", 5):
        with pytest.raises(InvalidValue):
            UUID.from_document(refused, "p")
