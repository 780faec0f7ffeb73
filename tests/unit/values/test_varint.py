"""The orderable varint: its bytes, its order, and what its decoder refuses."""

import itertools
import random

import pytest

from zapdb.errors import CorruptRecord
from zapdb.values.varint import (
    INTEGER_MAX,
    INTEGER_MIN,
    ONE_BYTE,
    SIZES,
    decode_varint,
    encode_varint,
    skip_varint,
)

VECTORS = [
    (0, "80"),
    (1, "81"),
    (-1, "7f"),
    (63, "bf"),
    (64, "c040"),
    (-64, "40"),
    (-65, "3fbf"),
    (255, "c0ff"),
    (256, "c10100"),
    (-256, "3f00"),
    (-257, "3efeff"),
    (65535, "c1ffff"),
    (65536, "c2010000"),
    (-65536, "3e0000"),
    (-65537, "3dfeffff"),
    (2**63 - 1, "c77fffffffffffffff"),
    (2**63, "c78000000000000000"),
    (-(2**63), "388000000000000000"),
    (INTEGER_MAX, "fe" + "ff" * 63),
    (INTEGER_MIN, "01" + "00" * 63),
]

BOUNDARIES = sorted(
    {
        sign * 256**size + step
        for size in range(1, 64)
        for sign in (1, -1)
        for step in (-2, -1, 0, 1)
        if INTEGER_MIN <= sign * 256**size + step <= INTEGER_MAX
    }
    | {INTEGER_MAX, INTEGER_MIN, *range(-70, 70)}
)


@pytest.mark.parametrize(("value", "encoded"), VECTORS)
def test_varint_has_these_bytes(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


def test_varint_round_trips_and_skips_at_every_boundary() -> None:
    for value in (*BOUNDARIES, *range(-70_000, 70_000)):
        encoded = encode_varint(value)
        assert decode_varint(b"\x00" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
        assert skip_varint(b"\x00" + encoded + b"\xff", 1) == 1 + len(encoded)
        assert SIZES[encoded[0]] == len(encoded)


def test_varint_bytes_sort_as_the_integers() -> None:
    values = sorted({*BOUNDARIES, *range(-70_000, 70_000)})
    encoded = [encode_varint(value) for value in values]
    assert all(left < right for left, right in itertools.pairwise(encoded))


def test_varint_is_never_a_prefix_of_another() -> None:
    encoded = sorted(map(encode_varint, {*BOUNDARIES, *range(-70_000, 70_000)}))
    assert not any(right.startswith(left) for left, right in itertools.pairwise(encoded))


def test_concatenated_varints_sort_as_the_tuples() -> None:
    generator = random.Random(1)
    pairs = [(generator.choice(BOUNDARIES), generator.choice(BOUNDARIES)) for _ in range(5_000)]
    by_bytes = sorted(pairs, key=lambda pair: encode_varint(pair[0]) + encode_varint(pair[1]))
    assert by_bytes == sorted(pairs)


def test_one_byte_table_holds_the_encodings() -> None:
    assert [ONE_BYTE[value] for value in range(-64, 64)] == [bytes((c,)) for c in range(0x40, 0xC0)]


@pytest.mark.parametrize("size", range(1, 64))
def test_any_but_the_shortest_form_is_refused(size: int) -> None:
    """Every value that fits fewer bytes, written in `size` bytes."""
    largest_below = 63 if size == 1 else 256 ** (size - 1) - 1
    smallest_below = -64 if size == 1 else -(256 ** (size - 1))
    for value in (0, 1, 63, largest_below):
        longer = bytes([0xBF + size]) + value.to_bytes(size, "big")
        with pytest.raises(CorruptRecord, match="can't be decoded"):
            decode_varint(longer, 0)
    for value in (-1, -64, smallest_below):
        longer = bytes([0x40 - size]) + (value + 256**size).to_bytes(size, "big")
        with pytest.raises(CorruptRecord, match="can't be decoded"):
            decode_varint(longer, 0)


@pytest.mark.parametrize("size", range(1, 64))
def test_the_first_values_of_each_size_are_accepted(size: int) -> None:
    above = 64 if size == 1 else 256 ** (size - 1)
    below = -65 if size == 1 else -(256 ** (size - 1)) - 1
    assert decode_varint(bytes([0xBF + size]) + above.to_bytes(size, "big"), 0)[0] == above
    raw = bytes([0x40 - size]) + (below + 256**size).to_bytes(size, "big")
    assert decode_varint(raw, 0)[0] == below


@pytest.mark.parametrize("first", [0x00, 0xFF])
def test_reserved_first_bytes_are_refused(first: int) -> None:
    data = bytes([first]) + b"\x01" * 80
    for read in (decode_varint, skip_varint):
        with pytest.raises(CorruptRecord) as caught:
            read(data, 0)
        assert caught.value.context["offset"] == 0


def test_missing_bytes_are_refused_at_every_length() -> None:
    for value in (64, -65, 2**40, -(2**40), INTEGER_MAX, INTEGER_MIN):
        encoded = encode_varint(value)
        for size in range(len(encoded)):
            with pytest.raises(CorruptRecord):
                decode_varint(encoded[:size], 0)
            if size:
                with pytest.raises(CorruptRecord):
                    skip_varint(encoded[:size], 0)


def test_every_pair_of_bytes_decodes_to_what_encodes_to_it_or_is_refused() -> None:
    accepted = 0
    for data in (bytes(pair) for pair in itertools.product(range(256), repeat=2)):
        try:
            value, after = decode_varint(data, 0)
        except CorruptRecord:
            continue
        accepted += 1
        assert encode_varint(value) == data[:after]
    # 128 one-byte forms with anything behind them, 192 each of 0xC0 and 0x3F
    assert accepted == 128 * 256 + 2 * 192
