"""The one CBOR form of plain data: its bytes, and that no others are read."""

import tracemalloc
from typing import Any

import cbor2
import pytest

from tests import forms
from zapdb.values.cbor import NotPlain, decode_cbor, encode_cbor

DEPTH = 64

VECTORS: list[tuple[Any, str]] = [
    (None, "f6"),
    (True, "f5"),
    (False, "f4"),
    (0, "00"),
    (23, "17"),
    (24, "1818"),
    (255, "18ff"),
    (256, "190100"),
    (65535, "19ffff"),
    (65536, "1a00010000"),
    (2**32 - 1, "1affffffff"),
    (2**32, "1b0000000100000000"),
    (2**64 - 1, "1bffffffffffffffff"),
    (-1, "20"),
    (-24, "37"),
    (-25, "3818"),
    (-256, "38ff"),
    (-257, "390100"),
    (-(2**64), "3bffffffffffffffff"),
    (0.0, "f90000"),
    (1.5, "f93e00"),
    (5.960464477539063e-8, "f90001"),
    (65504.0, "f97bff"),
    (65536.0, "fa47800000"),
    (-4.1, "fbc010666666666666"),
    (3.4028234663852886e38, "fa7f7fffff"),
    (1e300, "fb7e37e43c8800759c"),
    ("", "60"),
    ("ü", "62c3bc"),
    ([], "80"),
    ({}, "a0"),
    ({"b": 1, "a": [2, -1], "aa": {"": None}}, "a361618202206162016261" + "61a160f6"),
]


@pytest.mark.parametrize(("value", "raw"), VECTORS, ids=[raw for _, raw in VECTORS])
def test_plain_data_have_these_bytes(value: Any, raw: str) -> None:
    assert encode_cbor(value, DEPTH).hex() == raw
    assert encode_cbor([value], DEPTH).hex() == "81" + raw
    assert encode_cbor({"k": value}, DEPTH).hex() == "a1616b" + raw
    for wrapped, given in ((value, raw), ([value], "81" + raw), ({"k": value}, "a1616b" + raw)):
        read, after = decode_cbor(bytes.fromhex(given), 0, DEPTH)
        assert (read, repr(read), after) == (
            wrapped,
            repr(cbor2.loads(bytes.fromhex(given))),
            len(given) // 2,
        )


@pytest.mark.parametrize("size", [23, 24, 255, 256, 65535, 65536])
def test_long_strings_lists_and_objects_have_the_shortest_heads(size: int) -> None:
    text, items = "x" * size, [0] * size
    for value in (
        text,
        [text],
        {text: text},
        items,
        [items],
        {"k": items},
        {str(at): at for at in range(size)},
    ):
        raw = encode_cbor(value, DEPTH)
        assert raw == cbor2.dumps(value, canonical=True)
        assert decode_cbor(raw, 0, DEPTH) == (value, len(raw))


def test_what_is_not_plain_has_no_bytes() -> None:
    class Text(str):
        pass

    for value in (
        (),
        b"",
        {1},
        2**64,
        -(2**64) - 1,
        float("nan"),
        float("inf"),
        -0.0,
        Text("a"),
        {1: 2},
        {None: 1},
        1j,
        "\ud800",
    ):
        for wrapped in (value, [value], {"k": value}, [{"k": [value]}]):
            with pytest.raises(ValueError):  # noqa: PT011 - NotPlain, or UnicodeEncodeError
                encode_cbor(wrapped, DEPTH)


def test_containers_are_as_deep_as_the_depth_and_no_deeper() -> None:
    for wrap in (lambda inner: [inner], lambda inner: {"k": inner}):
        value: Any = 1
        for _ in range(DEPTH):
            value = wrap(value)
        raw = encode_cbor(value, DEPTH)
        assert decode_cbor(raw, 0, DEPTH) == (value, len(raw))
        with pytest.raises(NotPlain):
            encode_cbor(wrap(value), DEPTH)
        with pytest.raises(ValueError, match="depth"):
            decode_cbor(cbor2.dumps(wrap(value)), 0, DEPTH)


@pytest.mark.parametrize("head", ["7b", "9b", "bb"])
@pytest.mark.parametrize("size", ["7fffffffffffffff", "ffffffffffffffff", "0000000100000000"])
def test_nothing_is_allocated_by_a_declared_length(head: str, size: str) -> None:
    raw = bytes.fromhex(head + size) + b"\x61a\x01"
    tracemalloc.start()
    try:
        _, after = decode_cbor(raw, 0, DEPTH)
        assert after > len(raw)
    except (ValueError, IndexError):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_every_three_bytes_are_the_one_form_or_refused() -> None:
    """A byte of each kind first, second and third; of the second each fifth in the short form."""
    accepted, step = 0, 1 if forms.is_long else 5
    for first in range(256):
        for second in range(first % step, 256, step):
            for third in (0x00, 0x17, 0x18, 0x60, 0x61, 0x80, 0xA0, 0xF6, 0xFF):
                raw = bytes((first, second, third))
                try:
                    value, after = decode_cbor(raw, 0, DEPTH)
                except (ValueError, IndexError):
                    continue
                if after <= len(raw):
                    accepted += 1
                    assert encode_cbor(value, DEPTH) == raw[:after]
    assert accepted > 1_000 / step
