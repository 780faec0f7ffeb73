import copy
import pickle
import uuid

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values import Uuid
from zapdb.values.generated_source import Namespace, compile_function, indent

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


def test_a_uuid_that_generated_source_makes_is_as_any_other() -> None:
    """Its slots are set without its constructor."""
    names = Namespace()
    lines = indent(["n = len(b)", *UUID.decode_source("x", names), "return x"])
    decode, _ = compile_function("decode", ["def decode(b, p):", *lines], names, "test uuid")
    made = decode(b"\x00" + VALUE.bytes + b"\x00", 1)
    assert type(made) is uuid.UUID
    assert made == VALUE
    assert hash(made) == hash(VALUE)
    assert (str(made), repr(made), made.fields) == (str(VALUE), repr(VALUE), VALUE.fields)
    assert made.is_safe is uuid.SafeUUID.unknown
    assert pickle.dumps(made) == pickle.dumps(VALUE)
    assert copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == VALUE
    with pytest.raises(TypeError):
        made.int = 5
