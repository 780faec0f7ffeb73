"""Laws of every value type: round trips, order, prefixes, generated source, damaged bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import (
    INDEX_TYPES,
    KEY_TYPES,
    TYPES,
    integers,
    order_of,
    types_and_values,
    values_of,
)
from zapdb.errors import CorruptRecord
from zapdb.values import Integer, ValueType
from zapdb.values.source import Namespace, compile_function, indent
from zapdb.values.varint import decode_varint, encode_varint, skip_varint

many = settings(deadline=None, max_examples=1_000)

comparable = st.sampled_from(INDEX_TYPES).flatmap(
    lambda kind: st.tuples(st.just(kind), values_of(kind), values_of(kind))
)
padding = st.binary(max_size=4)


@many
@given(types_and_values, padding, padding)
def test_values_round_trip_and_skip_ends_where_decode_does(
    drawn: tuple[ValueType, Any], before: bytes, behind: bytes
) -> None:
    kind, value = drawn
    encoded = kind.encode(value)
    data, at = before + encoded + behind, len(before)
    decoded, end = kind.decode(data, at)
    assert (decoded, type(decoded), end) == (value, type(value), at + len(encoded))
    assert repr(decoded) == repr(value) or isinstance(value, dict | list)
    assert kind.skip(data, at) == end
    assert kind.fixed_size_bytes in (None, len(encoded))


@many
@given(types_and_values)
def test_checking_is_idempotent_and_documents_round_trip(drawn: tuple[ValueType, Any]) -> None:
    kind, value = drawn
    assert kind.check(value, "p") == value
    assert kind.encode(kind.from_document(kind.to_document(value), "p")) == kind.encode(value)


@many
@given(st.sampled_from(KEY_TYPES).flatmap(lambda k: st.tuples(st.just(k), values_of(k))), padding)
def test_keys_round_trip(drawn: tuple[ValueType, Any], behind: bytes) -> None:
    kind, value = drawn
    key = kind.encode_key(value)
    assert kind.decode_key(b"\x00" + key + behind, 1) == (value, 1 + len(key))


@many
@given(comparable)
def test_key_bytes_compare_as_the_values_do(drawn: tuple[ValueType, Any, Any]) -> None:
    kind, left, right = drawn
    order = order_of(kind)
    first, second = kind.encode_key(left), kind.encode_key(right)
    assert (first < second) == (order(left) < order(right))
    assert (first == second) == (left == right)


@many
@given(comparable)
def test_no_key_is_a_prefix_of_another(drawn: tuple[ValueType, Any, Any]) -> None:
    kind, left, right = drawn
    first, second = kind.encode_key(left), kind.encode_key(right)
    assert first == second or not second.startswith(first)


@many
@given(
    st.lists(st.sampled_from(INDEX_TYPES), min_size=2, max_size=3).flatmap(
        lambda kinds: st.tuples(
            st.just(kinds),
            st.tuples(*map(values_of, kinds)),
            st.tuples(*map(values_of, kinds)),
            st.integers(0, len(kinds) - 1),
        )
    )
)
def test_concatenated_keys_compare_as_the_tuples_do(
    drawn: tuple[list[ValueType], tuple[Any, ...], tuple[Any, ...], int],
) -> None:
    kinds, left, right, shared = drawn
    right = left[:shared] + right[shared:]  # or nearly all would differ in the first
    first, second = (
        b"".join(kind.encode_key(value) for kind, value in zip(kinds, values, strict=True))
        for values in (left, right)
    )
    sorts = [
        tuple(order_of(kind)(value) for kind, value in zip(kinds, values, strict=True))
        for values in (left, right)
    ]
    assert (first < second) == (sorts[0] < sorts[1])


@many
@given(integers, integers)
def test_rule_01_prefixes_compare_as_revisions_do(left: int, right: int) -> None:
    assert (encode_varint(left) < encode_varint(right)) == (left < right)


@functools.cache
def generated(kind: ValueType) -> dict[str, Callable[..., Any]]:
    """Functions made of the type's source methods, as codecs make them."""
    functions: dict[str, Callable[..., Any]] = {}
    for name, source in (("encode", kind.encode_source), ("encode_key", kind.encode_key_source)):
        names = Namespace()
        statements, expression = source("v", "p.f", names)
        lines = [f"def {name}(v):", *indent([*statements, f"return {expression}"])]
        functions[name], _ = compile_function(name, lines, names, f"test {name} {kind}")
    for name, lines_of in (
        ("decode", lambda names: [*kind.decode_source("x", names), "return x, p"]),
        ("decode_key", lambda names: [*kind.decode_key_source("x", names), "return x, p"]),
        ("skip", lambda names: [*kind.skip_source(names), "return p"]),
    ):
        names = Namespace()
        body = lines_of(names)
        lines = [f"def {name}(b, p):", *indent(["n = len(b)", *body])]
        functions[name], _ = compile_function(name, lines, names, f"test {name} {kind}")
    return functions


@many
@given(types_and_values, padding, padding)
def test_generated_source_does_what_the_methods_do(
    drawn: tuple[ValueType, Any], before: bytes, behind: bytes
) -> None:
    kind, value = drawn
    functions = generated(kind)
    encoded = kind.encode(value)
    assert functions["encode"](value) == encoded
    data, at = before + encoded + behind, len(before)
    assert functions["decode"](data, at) == kind.decode(data, at)
    assert functions["skip"](data, at) == kind.skip(data, at)
    if kind.keyable:
        key = kind.encode_key(value)
        assert functions["encode_key"](value) == key
        data = before + key + behind
        assert functions["decode_key"](data, at) == kind.decode_key(data, at)


def outcome(decode: Callable[[], Any], refusals: tuple[type[Exception], ...]) -> Any:
    try:
        return decode()
    except refusals:
        return "refused"


@settings(deadline=None, max_examples=1_500)
@given(
    st.sampled_from(TYPES),
    st.binary(max_size=24)
    | st.lists(st.sampled_from(b"\0\1\2a\x80\x82\xff"), max_size=9).map(bytes),
)
def test_any_bytes_decode_canonically_or_are_corrupt(kind: ValueType, data: bytes) -> None:
    for decode, encode in ((kind.decode, kind.encode), (kind.decode_key, kind.encode_key)):
        if decode == kind.decode_key and not kind.keyable:
            continue
        read = outcome(lambda decode=decode: decode(data, 0), (CorruptRecord,))
        if read != "refused":
            value, end = read
            assert encode(value) == data[:end]


@settings(deadline=None, max_examples=1_500)
@given(types_and_values, st.data())
def test_damaged_bytes_decode_canonically_or_are_corrupt(
    drawn: tuple[ValueType, Any], data: st.DataObject
) -> None:
    """Flipped bits, cut ends and inserted bytes; the generated decoder agrees with the method."""
    kind, value = drawn
    damaged = damage(kind.encode(value), data)
    read = outcome(lambda: kind.decode(damaged, 0), (CorruptRecord,))
    refusals = (CorruptRecord, IndexError, UnicodeDecodeError)  # what codecs turn into the first
    assert outcome(lambda: generated(kind)["decode"](damaged, 0), refusals) == read
    if read != "refused":
        assert kind.encode(read[0]) == damaged[: read[1]]


def damage(encoded: bytes, data: st.DataObject) -> bytes:
    way = data.draw(st.sampled_from(["flip", "cut", "insert"]))
    at = data.draw(st.integers(0, max(0, len(encoded) - 1)))
    if way == "cut":
        return encoded[:at]
    if way == "insert":
        return encoded[:at] + data.draw(st.binary(min_size=1, max_size=2)) + encoded[at:]
    flipped = bytearray(encoded)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    return bytes(flipped)


@settings(deadline=None, max_examples=1_500)
@given(st.binary(min_size=1, max_size=70))
def test_any_varint_bytes_are_the_shortest_form_or_refused(data: bytes) -> None:
    read = outcome(lambda: decode_varint(data, 0), (CorruptRecord,))
    if read != "refused":
        value, end = read
        assert encode_varint(value) == data[:end]
        assert skip_varint(data, 0) == end
        assert Integer().decode(data, 0) == read
