"""Arrow: the types of columns, refusals by name, blobs, old revisions, and what is taken back."""

from __future__ import annotations

import datetime
import itertools
import math
import subprocess
import sys
import uuid
from collections.abc import Iterator
from decimal import Decimal as D
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.blobs import NO_BLOBS, MemoryBlobs
from tests.zoned import ZONES
from zapdb.datasets import zone
from zapdb.errors import BlobMissing, CorruptRecord, InvalidValue, UnknownField, UsageError
from zapdb.records import codec_for, encode_prefix
from zapdb.records.arrow import (
    PackedRows,
    arrow_decoder,
    arrow_schema,
    decode_batch,
    decode_batches,
    decode_page,
    decoder,
    encode_batch,
    record_batches,
)
from zapdb.records.unreadable import show_stored_key
from zapdb.schema import Field, TableSchema
from zapdb.values import (
    VALUE_TYPES,
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    List,
    Member,
    Reference,
    String,
    Struct,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)

UTC = datetime.UTC
COLOR = Enum("color", 1, ((2, "red"), (1, "blue")))
PLACE = Struct(
    "place",
    2,
    (Member(2, "street", String(), optional=True), Member(1, "number", Integer())),
)
TOKEN = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
LOCAL = datetime.datetime(2022, 10, 30, 2, 30, fold=1, tzinfo=zone("Europe/Berlin"))
ZONED = pa.struct(
    [
        ("local", pa.timestamp("us")),
        ("fold", pa.int8()),
        ("zone", pa.string()),
        ("instant", pa.timestamp("us", "UTC")),
    ]
)
KEY = pa.struct([("key_0", pa.string()), ("key_1", pa.int64())])
PLACES = pa.struct([("street", pa.string()), ("number", pa.int64())])

KINDS: list[tuple[ValueType, Any, Any, Any]] = [
    (Integer(), pa.int64(), -(2**63), -(2**63)),
    (Decimal(2), pa.decimal128(38, 2), D("-1.50"), D("-1.50")),
    (Decimal(2), pa.decimal128(38, 2), D(10**36 - 1), D(10**36 - 1)),
    (Decimal(39), pa.string(), D("1e-39"), "0." + "0" * 38 + "1"),
    (Boolean(), pa.bool_(), True, True),
    (Date(), pa.date32(), datetime.date.max, datetime.date.max),
    (Timestamp(), pa.timestamp("us", "UTC"), MOMENT, MOMENT),
    (
        ZonedTimestamp(ZONES),
        ZONED,
        LOCAL,
        {
            "local": datetime.datetime(2022, 10, 30, 2, 30),
            "fold": 1,
            "zone": "Europe/Berlin",
            "instant": datetime.datetime(2022, 10, 30, 1, 30, tzinfo=UTC),
        },
    ),
    (Binary(), pa.binary(), b"\x00\xff", b"\x00\xff"),
    (String(), pa.string(), "ß\x00", "ß\x00"),
    (Json(), pa.string(), {"bb": [1, 1.0, None], "a": "ß"}, '{"a":"ß","bb":[1,1.0,null]}'),
    (Json(), pa.string(), {"b": 1, "aa": 2}, '{"aa":2,"b":1}'),
    (Uuid(), pa.binary(), TOKEN, TOKEN.bytes),
    (Float(), pa.float64(), -math.inf, -math.inf),
    (Float(), pa.float64(), 5e-324, 5e-324),
    (Reference("towns", 1, (Uuid(),)), pa.binary(), TOKEN, TOKEN.bytes),
    (Reference("towns", 1, (String(), Integer())), KEY, ("a", 1), {"key_0": "a", "key_1": 1}),
    (COLOR, pa.string(), "blue", "blue"),
    (PLACE, PLACES, {"number": 3}, {"street": None, "number": 3}),
    (
        List(PLACE),
        pa.list_(pa.field("item", PLACES, False)),
        [{"number": 3, "street": "a"}],
        [{"street": "a", "number": 3}],
    ),
    (List(List(Integer())), None, [[], [1, 2], []], [[], [1, 2], []]),
]


def table_of(kind: ValueType, *, optional: bool = False) -> TableSchema:
    fields = (Field(1, "id", Integer()), Field(2, "value", kind, optional))
    return TableSchema(1, "t", (1,), fields)


def rows_of(table: TableSchema, *records: dict[str, Any], prefix: bytes = b"\x81") -> Any:
    codec = codec_for(table)
    return [(codec.encode_key(r), codec.encode(prefix, r, NO_BLOBS)) for r in records]


def decode(table: TableSchema, rows: Any, **options: Any) -> Any:
    batch = decode_batch(arrow_decoder(table, **options), rows, lambda *_: NO_BLOBS)
    batch.validate(full=True)
    return batch


# --- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "wanted", "value", "shown"), KINDS)
def test_a_type_has_this_column(kind: ValueType, wanted: Any, value: Any, shown: Any) -> None:
    for optional in (False, True):
        table = table_of(kind, optional=optional)
        records = [{"id": at, "value": value} for at in range(3)]
        if optional:
            records[1]["value"] = None
        rows = rows_of(table, *records)
        batch = decode(table, rows)
        column = batch.schema.field("value")
        assert wanted is None or column.type == wanted
        assert column.nullable is optional
        assert column.metadata == {b"zapdb.type": str(kind).encode()}
        assert batch.column("value").to_pylist() == [shown, None if optional else shown, shown]
        assert encode_batch(table, batch, b"\x81", NO_BLOBS) == rows


@pytest.mark.parametrize(("kind", "wanted", "value", "shown"), KINDS)
def test_values_of_all_records_are_read_together(
    kind: ValueType, wanted: Any, value: Any, shown: Any
) -> None:
    """And so are those behind them; but decimals of more than 64 bits are not."""
    for optional in (False, True):
        fields = (*table_of(kind, optional=optional).fields, Field(3, "behind", Uuid()))
        table = TableSchema(1, "t", (1,), fields)
        records = [{"id": at, "value": value, "behind": TOKEN} for at in range(-200, 200, 50)]
        if optional:
            records[0]["value"] = records[-1]["value"] = None
        page = PackedRows.of(rows_of(table, *records))
        is_long = kind == Decimal(2) and value > 2**63
        for names in (None, ["value"], ["behind"]):
            made = arrow_decoder(table, names)
            batch = made.decode_page(page, lambda *_: NO_BLOBS, AsItIs())
            by_row, _ = made.decode_rows(list(page.rows()), lambda *_: NO_BLOBS, AsItIs())
            assert (batch is None) is is_long
            if batch is not None:
                batch.validate(full=True)
                assert batch.equals(by_row)


class AsItIs:
    prefix = b"\x81"

    def convert(self, key: bytes, value: bytes, attachments: Any) -> bytes:
        return value


def test_a_page_with_blobs_is_read_row_by_row() -> None:
    blobs, codec = MemoryBlobs(), codec_for(NOTES)
    attachments = blobs.attachments()
    records = [{"id": at, "text": "s" * (9_000 if at == 2 else 9), "raw": None} for at in range(4)]
    page = PackedRows.of(
        [(codec.encode_key(r), codec.encode(b"\x81", r, attachments)) for r in records]
    )
    blobs.saved.update(attachments.blobs)
    (batch,) = decode_page(arrow_decoder(NOTES), page, blobs.attachments, AsItIs())
    assert batch.to_pylist() == records


def test_every_type_has_a_column() -> None:
    assert {type(kind) for kind, *_ in KINDS} == set(VALUE_TYPES.values())


def test_nan_is_nan_and_null_is_null() -> None:
    table = table_of(Float(), optional=True)
    rows = rows_of(table, {"id": 1, "value": math.nan}, {"id": 2, "value": None})
    value, null = decode(table, rows).column("value").to_pylist()
    assert math.isnan(value)
    assert null is None


def test_the_schema_names_table_key_and_fields_in_declared_order() -> None:
    fields = (Field(3, "c", String()), Field(1, "a", Integer()), Field(2, "b", Date(), True))
    table = TableSchema(1, "things", (1, 3), fields)
    schema = arrow_schema(table)
    assert schema.names == ["c", "a", "b"]
    assert schema.metadata == {b"zapdb.table": b"things", b"zapdb.key": b"a, c"}
    assert arrow_schema(table, ["b", "c"]).names == ["c", "b"]
    with pytest.raises(UnknownField, match="field: d"):
        arrow_schema(table, ["a", "d"])
    with pytest.raises(UnknownField, match="field: d"):
        arrow_schema(table, as_text=["d"])
    with pytest.raises(UsageError, match="no field is selected"):
        arrow_schema(table, [])


def test_no_rows_are_an_empty_batch() -> None:
    batch = decode(table_of(PLACE), [])
    assert batch.num_rows == 0
    assert batch.schema == arrow_schema(table_of(PLACE))


# --- what does not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "fitting", "value", "path"),
    [
        (Integer(), 2**63 - 1, 2**63, "t.value"),
        (Integer(), -(2**63), -(2**63) - 1, "t.value"),
        (Decimal(2), D(10**36 - 1), D(10**36), "t.value"),
        (Decimal(2), 1, D(-(10**60)), "t.value"),
        (List(Integer()), [1], [1, 2**64], "t.value[]"),
        (PLACE, {"number": 1}, {"number": 2**64}, "t.value.number"),
        (Reference("towns", 1, (Integer(),)), 1, 2**64, "t.value"),
        (Reference("towns", 1, (String(), Integer())), ("a", 1), ("a", 2**64), "t.value[1]"),
    ],
)
def test_a_number_too_large_is_named_and_fits_as_text(
    kind: ValueType, fitting: Any, value: Any, path: str
) -> None:
    table = table_of(kind)
    rows = rows_of(table, {"id": 1, "value": fitting}, {"id": 77, "value": value})
    with pytest.raises(InvalidValue, match="too large for its Arrow column") as caught:
        decode(table, rows)
    assert caught.value.context["field"] == path
    assert caught.value.context["key"] == "77"
    assert "as_text=['value']" in caught.value.hint
    batch = decode(table, rows, as_text=["value"])
    assert encode_batch(table, batch, b"\x81", NO_BLOBS) == rows
    assert decode(table, rows, fields=["id"]).to_pylist() == [{"id": 1}, {"id": 77}]


@pytest.mark.parametrize(
    ("kind", "value", "raw"),
    [
        (Boolean(), True, b"\x02"),
        (Float(), 1.0, bytes.fromhex("7fffffffffffffff")),  # −0.0
        (Float(), 1.0, bytes.fromhex("fff8000000000001")),  # another NaN
        (Float(), 1.0, bytes(8)),  # a NaN, too
        (Timestamp(), MOMENT, bytes(8)),  # before the year 1
        (Timestamp(), MOMENT, b"\xff" * 8),
        (Date(), datetime.date(2020, 1, 1), bytes.fromhex("c22cc0a1")),  # 10000-01-01
        (Date(), datetime.date(2020, 1, 1), bytes.fromhex("c77fffffffffffffff")),
        (Integer(), 1, bytes.fromhex("c03f")),  # not the shortest form
        (String(), "a", b"\x82\xc3\x28"),
        (String(), "a", b"\x83\xed\xa0\x80"),  # a surrogate
        (COLOR, "red", b"\x89"),
        (PLACE, {"number": 1}, b"\x82\x02\x80"),  # a presence bit that no member has
        (PLACE, {"number": 1}, b"\x83\x00\x80\x80"),
        (List(Boolean()), [True], b"\x82\x01"),
        (Json(), 1, b"\x82\x18\x01"),
        (Uuid(), TOKEN, bytes(15)),
    ],
)
def test_rule_29_a_damaged_record_is_refused_as_the_codec_refuses_it(
    kind: ValueType, value: Any, raw: bytes
) -> None:
    table = table_of(kind)
    (key, good), (_, after) = rows_of(table, {"id": 1, "value": value}, {"id": 2, "value": value})
    bad = good[:1] + raw
    with pytest.raises(CorruptRecord) as wanted:
        codec_for(table).decode(key, bad, 1, NO_BLOBS)
    with pytest.raises(CorruptRecord) as caught:
        decode(table, [(key, good), (key, bad), (key, after)])
    assert caught.value.context == wanted.value.context | {"table": table.name, "key": "1"}
    assert decode(table, [(key, bad)], fields=["id"]).num_rows == 1 or kind is Uuid()


TAG = Reference("tags", 4, (String(),))


@pytest.mark.parametrize(
    ("key", "value", "raw"),
    [
        ((String(),), "x" * 1_022, b"x" * 1_023 + b"\x00\x01"),
        ((String(), Integer()), ("x" * 1_021, 1), b"x" * 1_022 + b"\x00\x01\x81"),
        ((TAG,), "x" * 1_022, b"x" * 1_023 + b"\x00\x01"),
        ((TAG, TAG), ("x" * 1_019, "y"), b"x" * 1_020 + b"\x00\x01y\x00\x01"),
    ],
    ids=["one field", "two fields", "a reference", "two references"],
)
def test_rule_21_longer_keys_are_refused_as_the_codec_refuses_them(
    key: tuple[ValueType, ...], value: Any, raw: bytes
) -> None:
    """In the place of a reference, and in that of the record's own key."""
    referring = table_of(Reference("keyed", 3, key))
    names = [f"k{at}" for at in range(len(key))]
    fields = tuple(
        Field(at, name, kind) for at, (name, kind) in enumerate(zip(names, key, strict=True), 1)
    )
    keyed = TableSchema(3, "keyed", tuple(f.number for f in fields), fields)
    parts = value if len(key) > 1 else (value,)
    ((one, good),) = rows_of(referring, {"id": 1, "value": value})
    ((own, empty),) = rows_of(keyed, dict(zip(names, parts, strict=True)))
    assert (len(own), len(raw)) == (1_024, 1_025)
    for table, row, bad in (
        (referring, (one, good), (one, good[:1] + raw)),
        (keyed, (own, empty), (raw, empty)),
    ):
        assert decode(table, [row]).num_rows == 1
        with pytest.raises(CorruptRecord) as wanted:
            codec_for(table).decode(*bad, 1, NO_BLOBS)
        with pytest.raises(CorruptRecord) as caught:
            decode(table, [row, bad])
        named = {"table": table.name, "key": show_stored_key(codec_for(table).decode_key, bad[0])}
        assert caught.value.context == wanted.value.context | named


def test_a_json_null_that_is_present_is_refused() -> None:
    table = table_of(Json(), optional=True)
    ((key, value),) = rows_of(table, {"id": 1, "value": 1})
    with pytest.raises(CorruptRecord, match="null that is present"):
        decode(table, [(key, value[:2] + b"\x81\xf6")])


# --- blobs and batches ---------------------------------------------------------------------------

NOTES = TableSchema(
    1,
    "notes",
    (1,),
    (Field(1, "id", Integer()), Field(2, "text", String()), Field(3, "raw", Binary(), True)),
)


def test_rule_28_blobs_are_loaded() -> None:
    blobs, codec = MemoryBlobs(), codec_for(NOTES)
    attachments = blobs.attachments()
    records = [
        {"id": 1, "text": "ß" * 40_000, "raw": None},
        {"id": 2, "text": "s" * 100, "raw": b"\x01" * 5_000},
        {"id": 3, "text": "s" * 4_096, "raw": b""},
    ]
    rows = [(codec.encode_key(r), codec.encode(b"\x81", r, attachments)) for r in records]
    with pytest.raises(BlobMissing):
        decode_batch(arrow_decoder(NOTES), rows, blobs.attachments)
    assert (
        decode_batch(arrow_decoder(NOTES, ["id", "text"]), rows[1:], blobs.attachments).num_rows
        == 2
    )
    blobs.saved.update(attachments.blobs)
    batch = decode_batch(arrow_decoder(NOTES), rows, blobs.attachments)
    assert batch.to_pylist() == records
    again = blobs.attachments()
    encoded = encode_batch(NOTES, batch, b"\x81", again)
    assert list(again.blobs.values()) == list(attachments.blobs.values())
    assert [key for key, _ in encoded] == [key for key, _ in rows]
    first = next(iter(blobs.saved))
    blobs.saved[first] = blobs.saved[first][:-1] + b"\xff"
    with pytest.raises(CorruptRecord, match="not UTF-8"):
        decode_batch(arrow_decoder(NOTES), rows, blobs.attachments)


def test_batches_are_bounded_by_records_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs, codec = MemoryBlobs(), codec_for(NOTES)
    attachments = blobs.attachments()

    def rows(size: int) -> Iterator[tuple[bytes, bytes]]:
        for number in range(10):
            record = {"id": number, "text": "s" * size}
            row = codec.encode_key(record), codec.encode(b"\x81", record, attachments)
            blobs.saved.update(attachments.blobs)
            yield row

    def sizes(size: int) -> list[int]:
        made = decode_batches(arrow_decoder(NOTES), rows(size), blobs.attachments, batch_records=4)
        return [batch.num_rows for batch in made]

    assert sizes(10) == [4, 4, 2]
    for module in (record_batches, decoder):
        monkeypatch.setattr(module, "ARROW_BATCH_SIZE_BYTES", 10_000)
    assert sizes(3_500) == [3, 3, 3, 1]
    assert sizes(6_000) == [2, 2, 2, 2, 2]  # these are blobs
    with pytest.raises(UsageError, match="too large for one batch"):
        decode_batch(arrow_decoder(NOTES), rows(6_000), blobs.attachments)


def test_batches_are_made_as_they_are_asked_for() -> None:
    taken = []

    def rows() -> Iterator[tuple[bytes, bytes]]:
        for number in itertools.count():
            taken.append(number)
            yield from rows_of(NOTES, {"id": number, "text": ""})

    made = decode_batches(arrow_decoder(NOTES), rows(), lambda *_: NO_BLOBS, batch_records=5)
    assert next(made).column("id").to_pylist() == [0, 1, 2, 3, 4]
    assert len(taken) == 5


def test_rule_11_records_of_other_revisions_are_converted() -> None:
    """Revision 2 is the same layout, revision 1 has to be lengthened, and then is a blob."""
    codec, blobs = codec_for(NOTES), MemoryBlobs()
    lent = []

    class Reader:
        prefix = encode_prefix(300)

        def convert(self, key: bytes, value: bytes, attachments: Any) -> bytes:
            if value[0] != 0x81:
                return value
            lent.append(attachments)
            record = {"id": codec.decode_key(key)[0], "text": "long" * 2_000}
            return codec.encode(self.prefix, record, attachments)

    rows = [
        *rows_of(NOTES, {"id": 1, "text": "old"}),
        *rows_of(NOTES, {"id": 2, "text": "same"}, prefix=b"\x82"),
        *rows_of(NOTES, {"id": 3, "text": "new"}, prefix=Reader.prefix),
    ]
    batch = decode_batch(arrow_decoder(NOTES), rows, blobs.attachments, reader=Reader())
    assert batch.column("text").to_pylist() == ["long" * 2_000, "same", "new"]
    assert len(lent) == len(set(map(id, lent))), "what a conversion leaves is for its record alone"


# --- encoding ------------------------------------------------------------------------------------


def encode(kind: ValueType, values: Any, *, optional: bool = False) -> list[Any]:
    """The values that records hold which were made of a column."""
    table = table_of(kind, optional=optional)
    ids = pa.array(range(len(values)), pa.int32())
    rows = encode_batch(table, pa.record_batch({"id": ids, "value": values}), b"\x81", NO_BLOBS)
    codec = codec_for(table)
    return [codec.decode(key, value, 1, NO_BLOBS).value for key, value in rows]


@pytest.mark.parametrize(
    ("kind", "given", "wanted"),
    [
        (Integer(), pa.array([1, 255], pa.uint8()), [1, 255]),
        (Integer(), pa.array(["-1", "99999999999999999999"]), [-1, 99999999999999999999]),
        (Decimal(2), pa.array([D("1.5")], pa.decimal256(50, 10)), [D("1.50")]),
        (Decimal(2), pa.array([3]), [D("3.00")]),
        (Float(), pa.array([0.5], pa.float32()), [0.5]),
        (Float(), pa.array([2]), [2.0]),
        (String(), pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
        (String(), pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (COLOR, pa.array(["red"], pa.string_view()), ["red"]),
        (Binary(), pa.array([b"ab"], pa.binary(2)), [b"ab"]),
        (Uuid(), pa.array([TOKEN.bytes], pa.uuid()), [TOKEN]),
        (Date(), pa.array([0], pa.date64()), [datetime.date(1970, 1, 1)]),
        (
            Timestamp(),
            pa.array([1], pa.timestamp("s", "Asia/Tokyo")),
            [datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)],
        ),
        (Json(), pa.array(["null", '{"a": 1e2}']), [None, {"a": 100.0}]),
        (List(Integer()), pa.array([[1], []], pa.large_list(pa.int16())), [[1], []]),
        (List(Integer()), pa.array([[1, 2]], pa.list_(pa.int16(), 2)), [[1, 2]]),
    ],
)
def test_columns_of_other_types_that_hold_the_same(
    kind: ValueType, given: Any, wanted: list[Any]
) -> None:
    assert encode(kind, given) == wanted
    assert encode(kind, pa.concat_arrays([given, given]).slice(1)) == (wanted * 2)[1:]


def test_all_nulls_may_be_of_no_type() -> None:
    assert encode(String(), pa.nulls(2), optional=True) == [None, None]


@pytest.mark.parametrize(
    ("kind", "given", "row", "field", "got"),
    [
        (Integer(), pa.array([1.0, 2.0]), 0, "t.value", "double"),
        (Integer(), pa.array([True]), 0, "t.value", "bool"),
        (Integer(), pa.array(["1", "1_0"]), 1, "t.value", "string that can't"),
        (Integer(), pa.array(["1", " 1"]), 1, "t.value", "string that can't"),
        (Integer(), pa.array([1, None]), 1, "t.value", "null"),
        (Decimal(2), pa.array([D("1.000"), D("1.005")]), 1, "t.value", None),
        (Decimal(2), pa.array([1.5]), 0, "t.value", "double"),
        (Boolean(), pa.array([1]), 0, "t.value", "int64"),
        (Timestamp(), pa.array([0], pa.timestamp("us")), 0, "t.value", "timestamp[us]"),
        (Timestamp(), pa.array([0, 1], pa.timestamp("ns", "UTC")), 1, "t.value", "can't"),
        (Timestamp(), pa.array([0, 2**62], pa.timestamp("us", "UTC")), 1, "t.value", "can't"),
        (Date(), pa.array([0], pa.timestamp("us")), 0, "t.value", "timestamp[us]"),
        (Date(), pa.array([0, 10**8], pa.date32()), 1, "t.value", "can't"),
        (String(), pa.array([b"a"]), 0, "t.value", "binary"),
        (COLOR, pa.array(["red", "green"]), 1, "t.value", "str"),
        (Uuid(), pa.array([TOKEN.bytes, b"short"]), 1, "t.value", "can't"),
        (Json(), pa.array(["1", "NaN"]), 1, "t.value", "can't"),
        (Json(), pa.array(["1", "{"]), 1, "t.value", "can't"),
        (Json(), pa.array(["1", None]), 1, "t.value", "null"),
        (List(Json()), pa.array([["1"], ["2", None]]), 1, "t.value[]", "null"),
        (List(Integer()), pa.array([[1], ["x"][:0], None]), 2, "t.value", "null"),
        (PLACE, pa.array([{"number": 1}, {"number": None}]), 1, "t.value.number", "null"),
        (PLACE, pa.array([{"number": 1, "floor": 2}]), 0, "t.value", "struct"),
        (PLACE, pa.array([{"street": "a"}]), 0, "t.value.number", None),
    ],
)
def test_a_refusal_names_the_field_and_the_row(
    kind: ValueType, given: Any, row: int, field: str, got: str | None
) -> None:
    with pytest.raises(InvalidValue) as caught:
        encode(kind, given)
    assert (caught.value.context["field"], caught.value.context["row"]) == (field, row)
    assert got is None or got in caught.value.context["got"]


def test_missing_columns_are_fields_left_out_and_unknown_ones_are_refused() -> None:
    fields = (
        Field(1, "id", Integer()),
        Field(2, "size", Integer(), False, 7),
        Field(3, "note", String(), True),
        Field(4, "name", String()),
    )
    table = TableSchema(1, "t", (1,), fields)
    codec = codec_for(table)
    batch = pa.record_batch({"name": ["a"], "id": [1]})
    ((key, value),) = encode_batch(table, batch, b"\x81", NO_BLOBS)
    found = codec.decode(key, value, 1, NO_BLOBS)
    assert (found.size, found.note, found.name) == (7, None, "a")
    with pytest.raises(InvalidValue, match="a required field is missing") as caught:
        encode_batch(table, pa.record_batch({"id": [1]}), b"\x81", NO_BLOBS)
    assert caught.value.context == {"field": "t.name", "row": 0}
    with pytest.raises(UnknownField, match="no such field"):
        encode_batch(table, pa.record_batch({"id": [1], "nom": ["a"]}), b"\x81", NO_BLOBS)
    twice = pa.RecordBatch.from_arrays([pa.array([1])] * 2, ["id", "id"])
    with pytest.raises(InvalidValue, match="occurs twice"):
        encode_batch(table, twice, b"\x81", NO_BLOBS)


def test_a_local_time_is_taken_back_without_its_instant() -> None:
    kind = ZonedTimestamp(ZONES)
    local = datetime.datetime(2022, 10, 30, 2, 30)
    given = [{"local": local, "zone": "Europe/Berlin"}]
    (found,) = encode(kind, pa.array(given))
    assert (found.replace(tzinfo=None), found.fold, str(found.tzinfo)) == (
        local,
        0,
        "Europe/Berlin",
    )
    for wrong in ({"zone": "Mars/Base"}, {"fold": 2}):
        with pytest.raises(InvalidValue):
            encode(kind, pa.array([given[0] | wrong]))
    with pytest.raises(InvalidValue, match=r"t\.value"):
        encode(kind, pa.array([{"local": local}]))


# --- who takes them ------------------------------------------------------------------------------


def test_duckdb_takes_every_column() -> None:
    fields = [Field(1, "id", Integer())]
    fields += [Field(at, f"c{at}", kind, True) for at, (kind, *_) in enumerate(KINDS, 2)]
    table = TableSchema(1, "t", (1,), tuple(fields))
    values = {f"c{at}": value for at, (_, _, value, _) in enumerate(KINDS, 2)}
    rows = rows_of(table, {"id": 1, **values}, {"id": 2})
    batch = decode(table, rows)
    stored = pa.Table.from_batches([batch])
    connection = duckdb.connect()
    connection.register("stored", stored)
    back = connection.sql("SELECT * FROM stored ORDER BY id").to_arrow_table().combine_chunks()
    (returned,) = back.to_batches()
    assert encode_batch(table, returned, b"\x81", NO_BLOBS) == rows
    token = next(f"c{at}" for at, (kind, *_) in enumerate(KINDS, 2) if kind == Uuid())
    found = connection.sql(f"SELECT {token}::uuid FROM stored WHERE id = 1").fetchall()
    assert found == [(TOKEN,)]


def test_without_pyarrow_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from zapdb.errors import MissingExtra\n"
        "try: import zapdb.records.arrow\n"
        "except MissingExtra as error: print(error.hint)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "pip install 'zapdb[sql]'"
