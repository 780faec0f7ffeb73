import itertools

import pytest

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.limits import BINARY_SIZE_BYTES_MAX
from zapdb.values import Binary

BINARY = Binary()
SAMPLES = [
    b"",
    b"\x00",
    b"\x00\x00",
    b"\x00\x01",
    b"\x00\xff",
    b"\x01",
    b"a",
    b"a\x00",
    b"a\x01",
    b"ab",
    b"\xff",
    b"\xff\x00",
    b"\xff\xff",
]


@pytest.mark.parametrize("value", [*SAMPLES, bytes(64), bytes(range(256)) * 5])
def test_binary_round_trips_as_value_and_key(value: bytes) -> None:
    encoded, key = BINARY.encode(value), BINARY.encode_key(value)
    assert BINARY.decode(encoded, 0) == (value, len(encoded))
    assert BINARY.decode_key(b"\x00\xff" + key + b"\xff", 2) == (value, 2 + len(key))


def test_binary_keys_sort_as_the_bytes_and_none_is_a_prefix() -> None:
    assert sorted(SAMPLES, key=BINARY.encode_key) == sorted(SAMPLES)
    keys = sorted(map(BINARY.encode_key, SAMPLES))
    assert not any(right.startswith(left) for left, right in itertools.pairwise(keys))


def test_binary_takes_any_buffer_of_bytes() -> None:
    for value in (bytearray(b"ab"), memoryview(b"ab")):
        assert BINARY.check(value, "p") == b"ab"
        assert type(BINARY.check(value, "p")) is bytes


@pytest.mark.parametrize("value", ["ab", 5, None, [1]])
def test_binary_refuses_and_names_the_path(value: object) -> None:
    with pytest.raises(InvalidValue) as caught:
        BINARY.check(value, "people.photo")
    assert caught.value.context["field"] == "people.photo"


def test_binary_is_bounded_and_never_shown_in_full() -> None:
    assert BINARY.check(bytes(BINARY_SIZE_BYTES_MAX), "p")
    with pytest.raises(InvalidValue) as caught:
        BINARY.check(b"secret-secret" + bytes(BINARY_SIZE_BYTES_MAX), "p")
    assert caught.value.context["got"] == "bytes of 67108877 bytes, 7365637265742d73…"


@pytest.mark.parametrize("data", ["", "82ff", "7f", "61", "c2400001"])
def test_binary_refuses_what_no_encoder_writes(data: str) -> None:
    with pytest.raises(CorruptRecord):
        BINARY.decode(bytes.fromhex(data), 0)


def test_binary_in_a_document_is_hex() -> None:
    assert BINARY.from_document("00ff", "p") == b"\x00\xff"
    assert BINARY.to_document(b"\x00\xff") == "00ff"
    for refused in ("0", "xyz", 5):
        with pytest.raises(InvalidValue):
            BINARY.from_document(refused, "p")
