"""Large values in random tables and chains: codecs, finders and conversions with blobs."""

from __future__ import annotations

import itertools
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.blobs import MemoryBlobs
from tests.forms import cases
from tests.oracle import convert_row
from tests.property.test_chains import Converter, spans, table_at, unhurried
from tests.strategies import chains, damage, large_records_of, tables
from zapdb.errors import CorruptRecord
from zapdb.limits import INLINE_SIZE_BYTES_MAX
from zapdb.migrations import Chain
from zapdb.records import Layout, Record, codec_for, compile_find, encode_prefix, held
from zapdb.schema import TableSchema
from zapdb.values import Blob

tables_and_records = tables().flatmap(
    lambda table: st.tuples(st.just(table), st.lists(large_records_of(table), min_size=4))
)


def blobs_of(values: dict[str, Any]) -> list[tuple[bytes, int]]:
    return [(value.id, value.size) for value in values.values() if isinstance(value, Blob)]


@settings(unhurried, max_examples=cases(300))
@given(tables_and_records, st.data())
def test_rule_28_large_values_round_trip_and_are_found(
    drawn: tuple[TableSchema, list[dict[str, Any]]], data: st.DataObject
) -> None:
    table, records = drawn
    codec, find, blobs = codec_for(table), compile_find(Layout.of(table)), MemoryBlobs()
    for record in records:
        attachments = blobs.attachments()
        key, value = codec.encode_key(record), codec.encode(b"\x81", record, attachments)
        new = dict(attachments.blobs)
        blobs.save(attachments)
        decoded = codec.decode(key, value, 1, blobs.attachments())
        late = held(decoded)
        found = [] if find is None else find(value, 1)
        assert sorted(found) == sorted(blobs_of(late))
        assert dict(found) == {made: len(raw) for made, raw in new.items()}
        assert all(size > INLINE_SIZE_BYTES_MAX for _, size in found)
        assert codec.encode(b"\x81", late, attachments) == value
        assert attachments.blobs == {}
        assert_same(table, decoded, record)
        assert codec.skip(value, 1) == len(value)
        if find is None:
            continue
        damaged = value[:1] + damage(value[1:], data)
        try:
            there = codec.decode(key, damaged, 1, blobs.attachments())
        except CorruptRecord:
            continue
        assert sorted(find(damaged, 1)) == sorted(blobs_of(held(there)))


@settings(unhurried, max_examples=cases(150))
@given(chains(), st.data())
def test_rule_19_conversions_with_blobs_are_what_the_operations_say(
    chain: Chain, data: st.DataObject
) -> None:
    """Spliced equals decoded, ids and new blobs too; what is stored then equals the oracle."""
    for number, positions in spans(chain):
        converter = Converter(chain, number)
        for source, target in itertools.product(positions, repeat=2):
            record = data.draw(large_records_of(table_at(chain, source, number)))
            blobs = MemoryBlobs()
            key, value = encode(converter, source, record, blobs)
            start, prefix = len(encode_prefix(source)), encode_prefix(target)
            spliced, decoded = blobs.attachments(), blobs.attachments()
            programs = converter.programs(source, target)
            converted = programs[0].convert(key, value, start, prefix, spliced)
            assert programs[1].convert(key, value, start, prefix, decoded) == converted
            assert spliced.blobs == decoded.blobs
            if programs[0].is_self_contained:
                assert spliced.blobs == {}
            blobs.save(spliced)
            found = converter.codec(target).decode(key, converted, len(prefix), blobs.attachments())
            expected = convert_row(chain, number, record, source, target)
            assert_same(table_at(chain, target, number), found, expected)
            # The sweep knows no zones, and needs none.
            find = compile_find(Layout.of(table_at(chain, target, number)))
            owned = [] if find is None else find(converted, len(prefix))
            assert all(len(blobs.saved[made]) == size for made, size in owned)


@settings(unhurried, max_examples=cases(100))
@given(chains(), st.randoms(use_true_random=False), st.data())
def test_rule_19_a_path_in_steps_keeps_what_it_does_not_touch(
    chain: Chain, generator: random.Random, data: st.DataObject
) -> None:
    """i → j → k gives the values of i → k; blobs that both pass on are the very same."""
    for number, positions in spans(chain):
        converter = Converter(chain, number)
        for _ in range(3):
            ways = sorted(generator.choice(positions) for _ in range(3))
            source, between, target = ways if generator.random() < 0.5 else ways[::-1]
            record = data.draw(large_records_of(table_at(chain, source, number)))
            blobs = MemoryBlobs()
            key, value = encode(converter, source, record, blobs)
            first = {made for made, _ in blobs_of(late_of(converter, source, key, value, blobs))}
            halfway = convert(converter, key, value, source, between, blobs)
            stepped = convert(converter, key, halfway, between, target, blobs)
            direct = convert(converter, key, value, source, target, blobs)
            late = [late_of(converter, target, key, v, blobs) for v in (stepped, direct)]
            kept = [{made for made, _ in blobs_of(values)} & first for values in late]
            assert kept[0] == kept[1]
            decoded = [decode(converter, target, key, v, blobs) for v in (stepped, direct)]
            expected = {f: getattr(decoded[1], f) for f in decoded[1]._fields}
            assert_same(table_at(chain, target, number), decoded[0], expected)


def assert_same(table: TableSchema, record: Record, expected: dict[str, Any]) -> None:
    """Equal in every field, blobs loaded; a NaN is the same as another."""
    assert set(record._fields) == set(expected)
    for field in table.fields:
        mine, theirs = getattr(record, field.name), expected[field.name]
        is_null = mine is None or theirs is None
        assert mine is theirs if is_null else field.type.is_same(mine, theirs), field.name


def encode(
    converter: Converter, position: int, record: dict[str, Any], blobs: MemoryBlobs
) -> tuple[bytes, bytes]:
    codec, attachments = converter.codec(position), blobs.attachments()
    value = codec.encode(encode_prefix(position), record, attachments)
    blobs.save(attachments)
    return codec.encode_key(record), value


def convert(
    converter: Converter, key: bytes, value: bytes, source: int, target: int, blobs: MemoryBlobs
) -> bytes:
    attachments, start = blobs.attachments(), len(encode_prefix(source))
    program = converter.programs(source, target)[0]
    converted = program.convert(key, value, start, encode_prefix(target), attachments)
    blobs.save(attachments)
    return converted


def decode(
    converter: Converter, position: int, key: bytes, value: bytes, blobs: MemoryBlobs
) -> Any:
    codec, start = converter.codec(position), len(encode_prefix(position))
    return codec.decode(key, value, start, blobs.attachments())


def late_of(
    converter: Converter, position: int, key: bytes, value: bytes, blobs: MemoryBlobs
) -> dict[str, Any]:
    return held(decode(converter, position, key, value, blobs))
