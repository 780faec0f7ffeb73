"""Laws of every value type: round trips, order, prefixes, generated source, damaged bytes.

The type is drawn inside each property, so each of them holds for all types and for types within
types. Every law is tried on ten thousand cases, in the long form of the tests.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.blobs import NO_BLOBS
from tests.forms import cases, try_enough
from tests.strategies import (
    KEY_TYPES,
    TYPES,
    damage,
    index_order_of,
    integers,
    order_of,
    types,
    types_and_values,
    values_of,
)
from zapdb.errors import CorruptRecord
from zapdb.values import Integer, ValueType
from zapdb.values.generated_source import Namespace, compile_function, indent
from zapdb.values.varint import decode_varint, encode_varint, skip_varint

many = settings(deadline=None, max_examples=cases(10_000))
unhurried = settings(
    deadline=None, max_examples=cases(1_000), suppress_health_check=[HealthCheck.too_slow]
)
"""For properties that look at many values of one type, and count them."""

padding = st.binary(max_size=4)
key_types = st.sampled_from(KEY_TYPES)
index_types = types().filter(lambda kind: kind.indexable)


def with_values(
    kinds: st.SearchStrategy[ValueType], count: int
) -> st.SearchStrategy[tuple[ValueType, list[Any]]]:
    """A type with so many values of it."""
    return kinds.flatmap(
        lambda kind: st.tuples(
            st.just(kind), st.lists(values_of(kind), min_size=count, max_size=count)
        )
    )


def sign(left: Any, right: Any) -> int:
    return (left > right) - (left < right)


def pairs(values: Iterable[Any]) -> list[tuple[Any, Any]]:
    """All pairs, also of each with itself."""
    return list(itertools.combinations_with_replacement(values, 2))


@functools.lru_cache(256)
def generated(kind: ValueType) -> dict[str, Callable[..., Any]]:
    """Functions made of the type's source methods, as codecs make them."""
    functions: dict[str, Callable[..., Any]] = {}
    for name, emit in (
        ("encode", kind.encode_source),
        ("encode_field", kind.encode_field_source),
        ("encode_key", kind.encode_key_source),
    ):
        names = Namespace()
        statements, expression = emit("v", "p.f", names)
        lines = [f"def {name}(v, attachments):", *indent([*statements, f"return {expression}"])]
        functions[name], _ = compile_function(name, lines, names, f"test {name} {kind}")
    for name, lines_of in (
        ("decode", lambda names: [*kind.decode_source("x", names), "return x, p"]),
        ("decode_field", lambda names: [*kind.decode_field_source("x", names), "return x, p"]),
        ("decode_key", lambda names: [*kind.decode_key_source("x", names), "return x, p"]),
        ("skip", lambda names: [*kind.skip_source(names), "return p"]),
        ("skip_field", lambda names: [*kind.skip_field_source(names), "return p"]),
    ):
        names = Namespace()
        body = ["n = len(b)", *lines_of(names)]
        lines = [f"def {name}(b, p):", *indent(body)]
        functions[name], _ = compile_function(name, lines, names, f"test {name} {kind}")
    return functions


def test_values_and_documents_round_trip_and_skipping_ends_where_decoding_does() -> None:
    """By the methods that define the format, and by the source that codecs are made of."""
    tried = 0

    @unhurried
    @given(with_values(types(), 20), padding, padding)
    def take_all(drawn: tuple[ValueType, list[Any]], before: bytes, behind: bytes) -> None:
        nonlocal tried
        kind, values = drawn
        tried += len(values)
        for value in values:
            check_round_trip(kind, value, before, behind)

    try_enough(take_all, lambda: tried >= cases(10_000))


def check_round_trip(kind: ValueType, value: Any, before: bytes, behind: bytes) -> None:
    functions = generated(kind)
    encoded = kind.encode(value)
    data, at = before + encoded + behind, len(before)
    end = at + len(encoded)
    for decode in (kind.decode, functions["decode"], functions["decode_field"]):
        decoded, ended = decode(data, at)
        assert (type(decoded), ended) == (type(value), end)
        assert kind.is_same(decoded, value)
        assert kind.encode(decoded) == encoded
    for skip in (kind.skip, functions["skip"], functions["skip_field"]):
        assert skip(data, at) == end
    for encode in (functions["encode"], functions["encode_field"]):
        assert encode(value, NO_BLOBS) == encoded
    assert kind.fixed_size_bytes in (None, len(encoded))
    assert kind.is_same(kind.check(value, "p"), value)
    assert kind.encode(kind.from_document(kind.to_document(value), "p")) == encoded


def test_equal_values_have_equal_bytes() -> None:
    tried = 0

    @unhurried
    @given(with_values(types(), 8))
    def compare_all(drawn: tuple[ValueType, list[Any]]) -> None:
        nonlocal tried
        kind, values = drawn
        for (left, first), (right, second) in pairs((v, kind.encode(v)) for v in values):
            tried += 1
            assert (first == second) == kind.is_same(left, right)

    try_enough(compare_all, lambda: tried >= cases(10_000))


def test_rule_21_keys_can_be_read_back_and_compare_as_their_values() -> None:
    tried = 0

    @unhurried
    @given(with_values(key_types, 8), padding)
    def compare_all(drawn: tuple[ValueType, list[Any]], behind: bytes) -> None:
        nonlocal tried
        kind, values = drawn
        functions, order = generated(kind), order_of(kind)
        keys = [kind.encode_key(value) for value in values]
        for value, key in zip(values, keys, strict=True):
            data = b"\x00" + key + behind
            assert kind.decode_key(data, 1) == (value, 1 + len(key))
            assert functions["decode_key"](data, 1) == (value, 1 + len(key))
            assert functions["encode_key"](value, NO_BLOBS) == key
        for (left, first), (right, second) in pairs(zip(values, keys, strict=True)):
            tried += 1
            assert sign(first, second) == sign(order(left), order(right))
            assert (first == second) == kind.is_same(left, right)
            assert first == second or not second.startswith(first)

    try_enough(compare_all, lambda: tried >= cases(10_000))


def test_rule_24_index_encodings_compare_as_their_values_and_are_no_prefixes() -> None:
    tried = 0

    @unhurried
    @given(with_values(index_types, 8))
    def compare_all(drawn: tuple[ValueType, list[Any]]) -> None:
        nonlocal tried
        kind, values = drawn
        order = index_order_of(kind)
        encodings = ((order(value), kind.encode_index_key(value)) for value in values)
        for (left, first), (right, second) in pairs(encodings):
            tried += 1
            assert sign(first, second) == sign(left, right)
            assert first == second or not second.startswith(first)

    try_enough(compare_all, lambda: tried >= cases(10_000))


def test_rule_21_composite_keys_compare_as_the_tuples_do() -> None:
    """Also of tuples that begin alike; nearly all others differ in the first field."""
    tried = 0
    kinds_and_rows = st.lists(key_types, min_size=2, max_size=3).flatmap(
        lambda kinds: st.tuples(
            st.just(kinds),
            st.lists(st.tuples(*map(values_of, kinds)), min_size=5, max_size=5),
        )
    )

    @unhurried
    @given(kinds_and_rows)
    def compare_all(drawn: tuple[list[ValueType], list[tuple[Any, ...]]]) -> None:
        nonlocal tried
        kinds, rows = drawn
        keys = [
            [kind.encode_key(value) for kind, value in zip(kinds, row, strict=True)] for row in rows
        ]
        orders = [
            [order_of(kind)(value) for kind, value in zip(kinds, row, strict=True)] for row in rows
        ]
        for (one, left), (other, right) in pairs(zip(keys, orders, strict=True)):
            for shared in range(len(kinds)):
                tried += 1
                first, second = b"".join(one), b"".join(one[:shared] + other[shared:])
                assert sign(first, second) == sign(left, left[:shared] + right[shared:])

    try_enough(compare_all, lambda: tried >= cases(10_000))


@many
@given(integers, integers)
def test_rule_01_prefixes_compare_as_revisions_do(left: int, right: int) -> None:
    assert (encode_varint(left) < encode_varint(right)) == (left < right)


def outcome(decode: Callable[[], Any], refusals: tuple[type[Exception], ...]) -> Any:
    try:
        return decode()
    except refusals:
        return "refused"


def agree(kind: ValueType, data: bytes) -> None:
    """Both decoders refuse the bytes, or both read what an encoder writes just so."""
    read = outcome(lambda: kind.decode(data, 0), (CorruptRecord,))
    # what codecs turn into the first of these
    refusals = (CorruptRecord, IndexError, UnicodeDecodeError)
    found = outcome(lambda: generated(kind)["decode"](data, 0), refusals)
    if read == "refused" or found == "refused":
        assert read == found
        return
    value, end = read
    assert kind.encode(value) == data[:end]
    assert (kind.encode(found[0]), found[1]) == (data[:end], end)


some_bytes = st.binary(max_size=24) | st.lists(
    st.sampled_from(b"\0\1\2a\x7f\x80\x81\x82\x83\xa0\xc0\xf6\xff"), max_size=9
).map(bytes)


@many
@given(st.sampled_from(TYPES), some_bytes)
def test_any_bytes_decode_canonically_or_are_corrupt(kind: ValueType, data: bytes) -> None:
    agree(kind, data)
    if kind.keyable:
        read = outcome(lambda: kind.decode_key(data, 0), (CorruptRecord,))
        assert read == "refused" or kind.encode_key(read[0]) == data[: read[1]]


@unhurried
@given(types_and_values, st.data())
def test_damaged_bytes_decode_canonically_or_are_corrupt(
    drawn: tuple[ValueType, Any], data: st.DataObject
) -> None:
    """Flipped bits, cut ends and inserted bytes, ten times each in a thousand values."""
    kind, value = drawn
    encoded = kind.encode(value)
    for _ in range(10):
        agree(kind, damage(encoded, data))


@many
@given(st.binary(min_size=1, max_size=70))
def test_any_varint_bytes_are_the_shortest_form_or_refused(data: bytes) -> None:
    read = outcome(lambda: decode_varint(data, 0), (CorruptRecord,))
    if read != "refused":
        value, end = read
        assert encode_varint(value) == data[:end]
        assert skip_varint(data, 0) == end
        assert Integer().decode(data, 0) == read
