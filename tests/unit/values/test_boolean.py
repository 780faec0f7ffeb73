import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values import Boolean

BOOLEAN = Boolean()


def test_boolean_is_one_byte_false_first() -> None:
    assert BOOLEAN.encode(False) == b"\x00"
    assert BOOLEAN.encode(True) == b"\x01"
    assert BOOLEAN.decode(b"\x00", 0) == (False, 1)
    assert BOOLEAN.decode(b"\x01", 0) == (True, 1)


@pytest.mark.parametrize("value", [0, 1, "true", None, 1.0])
def test_boolean_refuses_and_names_the_path(value: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        BOOLEAN.check(value, "people.active")
    assert caught.value.context["field"] == "people.active"
    assert caught.value.context["expected"] == "True or False"


@pytest.mark.parametrize("data", [b"", *(bytes([byte]) for byte in range(2, 256))])
def test_any_other_byte_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        BOOLEAN.decode(data, 0)
