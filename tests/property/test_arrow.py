"""Arrow batches of any table: they say what the codec says, give back the same bytes, and refuse
the same records."""

from __future__ import annotations

import datetime
import json
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.blobs import NO_BLOBS
from tests.forms import cases
from tests.strategies import damage, records_of, tables
from zapdb.errors import BlobMissing, CorruptRecord
from zapdb.records import codec_for, decoder_of
from zapdb.records.arrow import arrow_decoder, decode_batch, encode_batch
from zapdb.records.unreadable import show_stored_key
from zapdb.schema import TableSchema
from zapdb.values import (
    Decimal,
    Integer,
    Json,
    List,
    Reference,
    Struct,
    Uuid,
    ValueType,
    ZonedTimestamp,
)

tables_and_records = tables().flatmap(
    lambda table: st.tuples(st.just(table), st.lists(records_of(table), min_size=1, max_size=4))
)
DAY = datetime.timedelta(days=1)
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def plain(kind: ValueType, value: Any, is_text: bool) -> Any:
    """What Arrow shows of a value, by a mapping that knows neither Arrow nor the encodings."""
    if value is None and not isinstance(kind, Json):
        return None
    match kind:
        case Integer() if is_text:
            return str(value)
        case Decimal(scale) if is_text or scale > 38:
            return format(value, "f")
        case Uuid():
            return value.bytes
        case Json():
            return Json().encode(value)
        case ZonedTimestamp():
            local = value.replace(tzinfo=None)
            assume(local.min + DAY < local < local.max - DAY)  # the instant is no datetime there
            instant = (local - value.utcoffset()).replace(tzinfo=datetime.UTC)
            return {
                "local": local.replace(fold=0),
                "fold": value.fold,
                "zone": str(value.tzinfo),
                "instant": instant.replace(fold=0),
            }
        case Reference(key=(single,)):
            return plain(single, value, is_text)
        case Reference(key=parts):
            pairs = enumerate(zip(parts, value, strict=True))
            return {f"key_{at}": plain(part, each, is_text) for at, (part, each) in pairs}
        case Struct(members=members):
            return {
                m.name: None
                if getattr(value, m.name) is None and m.optional
                else plain(m.type, getattr(value, m.name), is_text)
                for m in members
            }
        case List(items):
            return [plain(items, item, is_text) for item in value]
    return value


def read_json(kind: ValueType, shown: Any) -> Any:
    """The same with JSON texts read, and written as a record holds them."""
    match kind:
        case _ if shown is None:
            return None
        case Json():
            return Json().encode(json.loads(shown))
        case Struct(members=members):
            return {m.name: read_json(m.type, shown[m.name]) for m in members}
        case List(items):
            return [read_json(items, item) for item in shown]
    return shown


def fits(kind: ValueType, value: Any) -> bool:
    """Whether the numbers in a value fit their Arrow types."""
    if value is None:
        return True
    match kind:
        case Integer():
            return -(2**63) <= value < 2**63
        case Decimal(scale):
            return scale > 38 or abs(int(value.scaleb(scale))) < 10**38
        case Reference(key=(single,)):
            return fits(single, value)
        case Reference(key=parts):
            return all(map(fits, parts, value))
        case Struct(members=members):
            return all(fits(m.type, getattr(value, m.name)) for m in members)
        case List(items):
            return all(fits(items, item) for item in value)
    return True


class AsItIs:
    prefix = b"\x81"

    def convert(self, key: bytes, value: bytes, attachments: Any) -> bytes:
        return value


@settings(unhurried, max_examples=cases(200))
@given(tables_and_records, st.data())
def test_batches_show_what_the_codec_decodes_and_give_back_its_bytes(
    drawn: tuple[TableSchema, list[dict[str, Any]]], data: st.DataObject
) -> None:
    table, records = drawn
    codec = codec_for(table)
    rows = [(codec.encode_key(r), codec.encode(b"\x81", r, NO_BLOBS)) for r in records]
    texts = {f.name for f in table.fields if not all(fits(f.type, r[f.name]) for r in records)}
    texts |= data.draw(st.sets(st.sampled_from([f.name for f in table.fields])))
    selected = data.draw(st.lists(st.sampled_from(table.fields), min_size=1, unique_by=id))
    names = {f.name for f in selected}

    batch = decode_batch(arrow_decoder(table, as_text=texts), rows, lambda *_: NO_BLOBS)
    batch.validate(full=True)
    assert encode_batch(table, batch, b"\x81", NO_BLOBS) == rows
    by_row, count = arrow_decoder(table, as_text=texts).decode_rows(
        rows, lambda *_: NO_BLOBS, AsItIs()
    )
    assert (count, batch.equals(by_row)) == (len(rows), True)
    part = decode_batch(arrow_decoder(table, names, texts), rows, lambda *_: NO_BLOBS)
    part.validate(full=True)
    assert part.schema.names == [f.name for f in table.fields if f.name in names]
    for f in table.fields:
        wanted = [
            None if f.optional and r[f.name] is None else plain(f.type, r[f.name], f.name in texts)
            for r in records
        ]
        shown = batch.column(f.name).to_pylist()
        assert [read_json(f.type, each) for each in shown] == wanted
        if f.name in names:
            assert part.column(f.name).equals(batch.column(f.name))


@settings(unhurried, max_examples=cases(200))
@given(tables(6).flatmap(lambda t: st.tuples(st.just(t), records_of(t))), st.data())
def test_batches_refuse_the_damaged_records_that_the_codec_refuses(
    drawn: tuple[TableSchema, dict[str, Any]], data: st.DataObject
) -> None:
    table, record = drawn
    codec = codec_for(table)
    key, value = codec.encode_key(record), codec.encode(b"\x81", record, NO_BLOBS)
    selected = data.draw(st.lists(st.sampled_from(table.fields), min_size=1, unique_by=id))
    names = {f.name for f in selected}
    decode = decoder_of(table, frozenset(f.number for f in selected))
    every = [f.name for f in table.fields]
    for _ in range(12):
        is_key = data.draw(st.booleans())
        bad = (damage(key, data), value) if is_key else (key, b"\x81" + damage(value[1:], data))
        refusals: list[dict[str, Any]] = []
        for way in ("codec", "arrow"):
            try:
                if way == "codec":
                    decode(*bad, 1, NO_BLOBS)
                else:
                    rows = [(key, value), bad, (key, value)]
                    decoder = arrow_decoder(table, names, every)
                    decode_batch(decoder, rows, lambda *_: NO_BLOBS).validate(full=True)
            except CorruptRecord as error:
                named = {"table": table.name, "key": show_stored_key(codec.decode_key, bad[0])}
                refusals.append(error.context if way == "arrow" else error.context | named)
            except BlobMissing:  # bytes became the reference of a blob that is nowhere
                assert way == "arrow"
        assert not refusals or (len(refusals) == 2 and refusals[0] == refusals[1])
