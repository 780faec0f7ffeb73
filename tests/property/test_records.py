"""Codecs of any table: round trips, order of keys, damaged bytes, snapshots."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import forms
from tests.blobs import NO_BLOBS
from tests.forms import cases, try_enough
from tests.strategies import damage, order_of, records_of, tables
from zapdb.errors import CorruptRecord
from zapdb.records import asdict, codec_for, decoder_of, encode_prefix, held
from zapdb.schema import (
    NO_DEFAULT,
    Index,
    TableSchema,
    canonical_bytes,
    fingerprint,
    read_canonical_bytes,
)

pytestmark = [pytest.mark.usefixtures("codec_in_use")] if forms.is_long else []


def several_of(table: TableSchema) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Records enough that a table, which takes long to draw and compile, gives many cases."""
    return st.lists(records_of(table), min_size=20, max_size=20)


tables_and_records = tables().flatmap(lambda table: st.tuples(st.just(table), several_of(table)))
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
revisions = st.one_of(st.integers(1, 70), st.integers(1, 2**40))


def test_records_round_trip_whole_and_in_part_and_skipping_ends_where_decoding_does() -> None:
    tried = 0

    @settings(unhurried, max_examples=cases(500))
    @given(tables_and_records, revisions, st.data())
    def round_trip(
        drawn: tuple[TableSchema, list[dict[str, Any]]], revision: int, data: st.DataObject
    ) -> None:
        nonlocal tried
        table, records = drawn
        codec, prefix = codec_for(table), encode_prefix(revision)
        selected = data.draw(st.lists(st.sampled_from(table.fields), unique_by=lambda f: f.number))
        decode = decoder_of(table, frozenset(f.number for f in selected))
        for record in records:
            tried += 1
            key, value = codec.encode_key(record), codec.encode(prefix, record, NO_BLOBS)
            assert value.startswith(prefix)
            decoded = codec.decode(key, value, len(prefix), NO_BLOBS)
            assert held(decoded) == record
            assert codec.decode_key(key) == tuple(record[f.name] for f in table.key_fields)
            assert codec.skip(value, len(prefix)) == len(value)
            assert codec.encode(prefix, asdict(decoded), NO_BLOBS) == value
            part = held(decode(key, value, len(prefix), NO_BLOBS))
            assert part == {f.name: record[f.name] for f in table.fields if f in selected}
        assert pickle.loads(pickle.dumps(decoded)) == decoded == copy.copy(decoded)
        assert repr(decoded).startswith(f"{table.name}(")

    try_enough(round_trip, lambda: tried >= cases(10_000))


@settings(unhurried, max_examples=cases(200))
@given(tables().flatmap(lambda t: st.tuples(st.just(t), records_of(t))), st.data())
def test_missing_values_get_their_defaults(
    drawn: tuple[TableSchema, dict[str, Any]], data: st.DataObject
) -> None:
    table, record = drawn
    free = [f for f in table.fields if f.optional or f.has_constant]
    left_out = data.draw(st.lists(st.sampled_from(free), unique_by=id)) if free else []
    given = {k: v for k, v in record.items() if k not in {f.name for f in left_out}}
    filled = record | {f.name: f.default if f.has_constant else None for f in left_out}
    codec = codec_for(table)
    assert codec.encode(b"", given, NO_BLOBS) == codec.encode(b"", filled, NO_BLOBS)
    assert codec.encode_key(given) == codec.encode_key(filled)


def test_rule_21_keys_sort_as_their_values_do() -> None:
    tried = 0

    @settings(unhurried, max_examples=cases(300))
    @given(tables(4).flatmap(lambda t: st.tuples(st.just(t), several_of(t))))
    def sort(drawn: tuple[TableSchema, list[dict[str, Any]]]) -> None:
        nonlocal tried
        table, records = drawn
        encode = codec_for(table).encode_key
        orders = [
            tuple(order_of(f.type)(record[f.name]) for f in table.key_fields) for record in records
        ]
        keys = [encode(record) for record in records]
        for (left, first), (right, second) in itertools.combinations(
            zip(orders, keys, strict=True), 2
        ):
            tried += 1
            assert (first < second) == (left < right)
            assert (first == second) == (left == right)

    try_enough(sort, lambda: tried >= cases(10_000))


def test_rule_18_damaged_records_are_corrupt_or_canonical() -> None:
    """Nothing but `CorruptRecord` comes out, with an offset inside of the bytes."""
    tried = 0

    @settings(unhurried, max_examples=cases(250))
    @given(tables_and_records, st.data())
    def read_damaged(drawn: tuple[TableSchema, list[dict[str, Any]]], data: st.DataObject) -> None:
        nonlocal tried
        table, records = drawn
        codec = codec_for(table)
        for record in records:
            key, value = codec.encode_key(record), codec.encode(b"\x81", record, NO_BLOBS)
            bad_value, bad_key = value[:1] + damage(value[1:], data), damage(key, data)
            for given_key, given_value in ((key, bad_value), (bad_key, value)):
                tried += 1
                try:
                    decoded = codec.decode(given_key, given_value, 1, NO_BLOBS)
                except CorruptRecord as error:
                    place = error.context
                    assert 0 <= place["offset"] <= place["size"]
                    continue
                assert codec.encode_key(held(decoded)) == given_key
                assert codec.encode(given_value[:1], held(decoded), NO_BLOBS) == given_value
                assert codec.skip(given_value, 1) == len(given_value)

    try_enough(read_damaged, lambda: tried >= cases(10_000))


@settings(deadline=None, max_examples=cases(150))
@given(tables())
def test_rule_04_snapshots_give_back_equal_tables(table: TableSchema) -> None:
    read = read_canonical_bytes(canonical_bytes(table))
    assert read == table
    assert canonical_bytes(read) == canonical_bytes(table)
    assert [f.default is NO_DEFAULT for f in read.fields] == [
        f.default is NO_DEFAULT for f in table.fields
    ]


@settings(deadline=None, max_examples=cases(150))
@given(tables(), st.integers(1, 1_000))
def test_rule_04_fingerprints_do_not_depend_on_numbers(table: TableSchema, by: int) -> None:
    """Numbers in reverse, and moved: the order in which fields were made is not covered either."""
    numbers = {f.number: by + 100 - f.number for f in table.fields}
    moved = TableSchema(
        table.number + by,
        table.name,
        tuple(numbers[number] for number in table.key),
        tuple(dataclasses.replace(f, number=numbers[f.number]) for f in table.fields),
        tuple(
            Index(
                i.number + by,
                i.name,
                tuple(dataclasses.replace(c, field=numbers[c.field]) for c in i.components),
            )
            for i in table.indexes
        ),
    )
    assert fingerprint(moved) == fingerprint(table)
    assert canonical_bytes(moved) != canonical_bytes(table)


@settings(deadline=None, max_examples=cases(150))
@given(tables(6), tables(6))
def test_rule_04_tables_that_differ_have_different_fingerprints(
    left: TableSchema, right: TableSchema
) -> None:
    def described(table: TableSchema) -> Any:
        names = {f.number: f.name for f in table.fields}
        return (
            table.name,
            [names[number] for number in table.key],
            [
                (f.name, repr(f.type), f.optional, repr(f.default), f.generated)
                for f in table.fields
            ],
            sorted(
                (i.name, [(names[c.field], str(c.collation), c.descending) for c in i.components])
                for i in table.indexes
            ),
        )

    assert (fingerprint(left) == fingerprint(right)) == (described(left) == described(right))
