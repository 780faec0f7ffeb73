import uuid

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.limits import RECORD_KEY_SIZE_BYTES_MAX
from zapdb.values import Integer, Reference, String, Uuid

OWNER = Reference("people", 3, (Uuid(),))
PLACE = Reference("places", 4, (String(), Integer()))
SOME = uuid.UUID(int=5)


def test_the_bytes_are_the_targets_key() -> None:
    assert (
        OWNER.encode(SOME) == OWNER.encode_key(SOME) == OWNER.encode_index_key(SOME) == SOME.bytes
    )
    assert OWNER.decode(b"\x00" + SOME.bytes, 1) == (SOME, 17)
    raw = bytes.fromhex("6100ff62 0001 c1012c")
    assert PLACE.encode(("a\0b", 300)) == raw
    assert PLACE.decode(raw + b"\x00", 0) == (("a\0b", 300), len(raw))
    assert PLACE.skip(raw, 0) == len(raw)


@pytest.mark.parametrize("raw", ["", "61", "610001", "610001c0", "610001c005"])
def test_what_is_no_key_is_corrupt(raw: str) -> None:
    with pytest.raises(CorruptRecord):
        PLACE.decode(bytes.fromhex(raw), 0)


def test_rule_21_a_reference_has_at_most_1024_bytes() -> None:
    longest = ("x" * (RECORD_KEY_SIZE_BYTES_MAX - 3), 1)
    raw = b"\x00" + PLACE.encode(longest) + b"\x00"
    assert PLACE.decode(raw, 1) == (longest, 1 + RECORD_KEY_SIZE_BYTES_MAX)
    assert PLACE.skip(raw, 1) == 1 + RECORD_KEY_SIZE_BYTES_MAX
    for read in (PLACE.decode, PLACE.skip):
        with pytest.raises(CorruptRecord) as caught:
            read(b"\x00x" + raw[1:], 1)
        assert caught.value.context["offset"] == 1 + RECORD_KEY_SIZE_BYTES_MAX


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("a", "p"),
        (("a",), "p"),
        (("a", 1, 2), "p"),
        (("a", "b"), "p[1]"),
        ((5, 1), "p[0]"),
        (("x" * RECORD_KEY_SIZE_BYTES_MAX, 1), "p"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_path(value: object, path: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        PLACE.check(value, "p")
    assert caught.value.context["field"] == path
    with pytest.raises(InvalidValue):
        OWNER.check("x", "p")


def test_documents_write_the_key() -> None:
    assert OWNER.to_document(SOME) == str(SOME)
    assert OWNER.from_document(str(SOME), "p") == SOME
    assert PLACE.to_document(("a", 1)) == ["a", 1]
    assert PLACE.from_document(["a", 1], "p") == ("a", 1)


def test_the_targets_name_is_no_part_of_the_bytes() -> None:
    assert Reference("persons", 3, (Uuid(),)).encoding_id == OWNER.encoding_id
    assert PLACE.encoding_id != OWNER.encoding_id
    assert str(OWNER) == "reference(people)"
    assert PLACE.expected == "the key of a record of places (string, integer)"
