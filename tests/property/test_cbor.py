"""The CBOR of JSON values, against an independent library's canonical form."""

from __future__ import annotations

from typing import Any

import cbor2
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forms import cases
from tests.strategies import damage, json_values
from zapdb.values.cbor import decode_cbor, encode_cbor

DEPTH = 64
CASES = 10
"""So many of them in one drawn example: drawing takes longest."""
many = settings(deadline=None, max_examples=cases(10_000 // CASES))

floats = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
).map(lambda value: value + 0.0)
keys = st.text(max_size=3) | st.text(alphabet="ab", min_size=21, max_size=26)
integers = st.integers(-(2**64), 2**64 - 1) | st.integers(-300, 300) | st.integers(-70_000, 70_000)
scalars = st.one_of(st.none(), st.booleans(), integers, floats, st.text(max_size=30))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=20,
)


def without_minus_zero(value: Any) -> Any:
    match value:
        case float():
            return value + 0.0
        case list():
            return [without_minus_zero(item) for item in value]
        case dict():
            return {key: without_minus_zero(item) for key, item in value.items()}
    return value


several = st.lists(values | json_values.map(without_minus_zero), min_size=CASES, max_size=CASES)


@many
@given(several)
def test_bytes_are_those_of_an_independent_encoder_and_give_the_value_back(
    drawn: list[Any],
) -> None:
    for value in drawn:
        raw = encode_cbor(value, DEPTH)
        assert raw == cbor2.dumps(value, canonical=True)
        read, after = decode_cbor(raw, 0, DEPTH)
        assert after == len(raw)
        assert repr(read) == repr(cbor2.loads(raw))


def is_canonical(raw: bytes) -> bool:
    """What the other library makes of the bytes: whether it decodes them and writes them again."""
    try:
        value = cbor2.loads(raw)
        return bool(cbor2.dumps(value, canonical=True) == raw and is_plain(value))
    except Exception:
        return False


def is_plain(value: Any) -> bool:
    match value:
        case None | bool() | str():
            return True
        case int():
            return -(2**64) <= value < 2**64
        case float():
            return abs(value) < float("inf") and repr(value) != "-0.0"
        case list():
            return all(map(is_plain, value))
        case dict():
            return all(isinstance(key, str) for key in value) and all(map(is_plain, value.values()))
    return False


def is_read(raw: bytes) -> bool:
    try:
        return decode_cbor(raw, 0, DEPTH)[1] == len(raw)
    except (ValueError, IndexError):
        return False


@many
@given(values, st.data())
def test_damaged_bytes_are_read_exactly_when_they_are_canonical(
    value: Any, data: st.DataObject
) -> None:
    whole = encode_cbor(value, DEPTH)
    for _ in range(CASES):
        raw = damage(whole, data)
        assert is_read(raw) == is_canonical(raw)


@settings(many, max_examples=cases(10_000))
@given(
    st.lists(
        st.sampled_from(
            bytes.fromhex("00011718191a1b202060616278797a80819899a0a1b8f4f5f6f9fafb3c3e")
        ),
        max_size=12,
    ).map(bytes)
)
def test_bytes_made_of_heads_are_read_exactly_when_they_are_canonical(raw: bytes) -> None:
    assert is_read(raw) == is_canonical(raw)
