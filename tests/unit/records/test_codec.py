"""Codecs: the bytes of records and keys, defaults, refusals, and damaged bytes."""

from __future__ import annotations

import collections
import datetime
import gc
import types
import weakref
from decimal import Decimal as D
from typing import Any

import pytest

from tests.blobs import NO_BLOBS
from zapdb.errors import CorruptRecord, InvalidValue, UnknownField
from zapdb.limits import BINARY_SIZE_BYTES_MAX, RECORD_KEY_SIZE_BYTES_MAX, VALUE_SIZE_BYTES_MAX
from zapdb.records import asdict, codec_for, encode_prefix
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
    Zones,
)
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

PEOPLE = TableSchema(
    1,
    "people",
    (4, 2),
    (
        Field(1, "name", String()),
        Field(2, "town", String()),
        Field(3, "age", Integer(), optional=True),
        Field(4, "id", Integer()),
        Field(5, "balance", Decimal(2), default=D("0.00")),
        Field(6, "nick", String(), optional=True),
        Field(7, "active", Boolean(), optional=True, default=True),
    ),
)
CODEC = codec_for(PEOPLE)
ADA: dict[str, Any] = {"id": 1, "town": "London", "name": "Ada", "age": 36, "nick": "A"}


def test_a_record_has_these_bytes() -> None:
    """prefix 7; presence 101: age, not nick, active; name, age, balance, active."""
    record = ADA | {"nick": None}
    assert CODEC.encode(encode_prefix(7), record, NO_BLOBS).hex(" ") == "87 05 83 41 64 61 a4 80 01"
    assert CODEC.encode_key(record).hex(" ") == "81 4c 6f 6e 64 6f 6e 00 01"


def test_a_record_decodes_to_what_was_encoded_with_defaults_filled_in() -> None:
    key, value = CODEC.encode_key(ADA), CODEC.encode(b"\x87", ADA, NO_BLOBS)
    decoded = CODEC.decode(key, value, 1, NO_BLOBS)
    assert asdict(decoded) == ADA | {"balance": D("0.00"), "active": True}
    assert list(asdict(decoded)) == [f.name for f in PEOPLE.fields]
    assert CODEC.decode_key(key) == (1, "London")
    assert type(decoded) is CODEC.record


@pytest.mark.parametrize("present", range(8))
def test_every_set_of_optional_fields_has_its_presence_bits(present: int) -> None:
    optional: list[tuple[str, Any]] = [("age", 36), ("nick", "A"), ("active", False)]
    given = {
        name: value if present >> at & 1 else None for at, (name, value) in enumerate(optional)
    }
    value = CODEC.encode(b"", ADA | given, NO_BLOBS)
    assert value[0] == present
    decoded = asdict(CODEC.decode(CODEC.encode_key(ADA), value, 0, NO_BLOBS))
    assert {name: decoded[name] for name, _ in optional} == given


def test_an_explicit_null_is_no_missing_value() -> None:
    decoded = CODEC.decode(
        CODEC.encode_key(ADA), CODEC.encode(b"", ADA | {"active": None}, NO_BLOBS), 0, NO_BLOBS
    )
    assert asdict(decoded)["active"] is None
    with pytest.raises(InvalidValue) as caught:
        CODEC.encode(b"", ADA | {"balance": None}, NO_BLOBS)
    assert caught.value.context["field"] == "people.balance"


@pytest.mark.parametrize(
    ("change", "field", "hint"),
    [({"agee": 36}, "agee", "did you mean 'age'?"), ({"zzz": 1, 5: 2}, "5", "")],
)
def test_unknown_fields_are_named(change: dict[Any, Any], field: str, hint: str) -> None:
    with pytest.raises(UnknownField, match="the table has no such field") as caught:
        CODEC.encode(b"", ADA | change, NO_BLOBS)
    context = caught.value.context
    assert (context["table"], context["field"], caught.value.hint) == ("people", field, hint)


def test_any_mapping_is_good_to_encode() -> None:
    for mapping in (types.MappingProxyType(ADA), collections.ChainMap(ADA, {"balance": D(1)})):
        assert CODEC.encode(b"", mapping, NO_BLOBS)
        assert CODEC.encode_key(mapping) == CODEC.encode_key(ADA)


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"name": 5}, "people.name", "a value does not fit its field"),
        ({"name": None}, "people.name", "a value does not fit its field"),
        ({"name": "\ud800"}, "people.name", "a value does not fit its field"),
        ({"age": "36"}, "people.age", "a value does not fit its field"),
        ({"balance": D("0.001")}, "people.balance", "a value does not fit its field"),
        ({"active": 1}, "people.active", "a value does not fit its field"),
    ],
)
def test_wrong_values_name_the_field(change: dict[Any, Any], field: str, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        CODEC.encode(b"", ADA | change, NO_BLOBS)
    assert caught.value.message == message
    assert caught.value.context["field"] == field


WRONG: list[tuple[ValueType, list[Any]]] = [
    (Integer(), [INTEGER_MAX + 1, INTEGER_MIN - 1, True, 1.0, "1"]),
    (Decimal(2), [D("0.001"), D("NaN"), D(INTEGER_MAX), 1.0, "1", True]),
    (Boolean(), [0, "true"]),
    (Date(), [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), "2024-01-01"]),
    (Timestamp(), [datetime.datetime(2024, 1, 1), datetime.date(2024, 1, 1)]),
    (ZonedTimestamp(), [datetime.datetime(2024, 1, 1), datetime.date(2024, 1, 1)]),
    (Binary(), ["x", bytes(BINARY_SIZE_BYTES_MAX + 1)]),
    (
        String(),
        [b"x", "\ud800", "x" * (VALUE_SIZE_BYTES_MAX + 1), "ä" * (VALUE_SIZE_BYTES_MAX // 2 + 1)],
    ),
    (Json(), [{1: 2}, float("nan"), 2**64, "\ud800"]),
    (Uuid(), ["x", b"x" * 16]),
    (Float(), [2**53 + 1, "1", True]),
    (Reference("people", 1, (Integer(), String())), [1, (1,), (1, 2), ("x", "y"), (1, "x" * 1024)]),
    (Enum("state", 1, ((1, "open"), (2, "done"))), ["closed", 1, None]),
    (
        Struct("address", 1, (Member(1, "street", String()), Member(2, "zip", String(), True))),
        ["x", {}, {"street": None}, {"street": 5}, {"street": "x", "town": "y"}],
    ),
    (List(Integer()), [5, "ab", [1, "x"], {1: 2}]),
]


@pytest.mark.parametrize(("kind", "values"), WRONG, ids=[kind.name for kind, _ in WRONG])
def test_generated_encoders_refuse_what_the_types_refuse(
    kind: ValueType, values: list[Any]
) -> None:
    table = TableSchema(1, "t", (1,), (Field(1, "id", kind), Field(2, "it", kind)))
    for value in values:
        with pytest.raises(InvalidValue):
            kind.check(value, "p")
        with pytest.raises(InvalidValue) as caught:
            codec_for(table).encode(b"", {"it": value}, NO_BLOBS)
        assert str(caught.value.context["field"]).startswith("t.it")
        if kind.keyable:
            with pytest.raises(InvalidValue) as caught:
                codec_for(table).encode_key({"id": value})
            assert str(caught.value.context["field"]).startswith("t.id")


def test_every_type_is_among_the_wrong_values() -> None:
    assert [kind.name for kind, _ in WRONG] == list(VALUE_TYPES)


def test_missing_values_name_the_field() -> None:
    for name, encode in (
        ("name", lambda m: CODEC.encode(b"", m, NO_BLOBS)),
        ("town", CODEC.encode_key),
    ):
        with pytest.raises(InvalidValue) as caught:
            encode({k: v for k, v in ADA.items() if k != name})
        assert caught.value.message == "a required field is missing"
        assert caught.value.context == {"field": f"people.{name}"}


def test_wrong_key_values_name_the_field() -> None:
    with pytest.raises(InvalidValue) as caught:
        CODEC.encode_key(ADA | {"town": b"London"})
    assert caught.value.context["field"] == "people.town"


def test_a_generated_field_is_required_of_the_encoder() -> None:
    table = TableSchema(1, "t", (1,), (Field(1, "id", Uuid(), generated="uuid"),))
    with pytest.raises(InvalidValue, match="a required field is missing"):
        codec_for(table).encode_key({})


def test_rule_21_a_key_has_at_most_1024_bytes() -> None:
    rest = len(CODEC.encode_key(ADA | {"town": ""}))
    longest = ADA | {"town": "x" * (RECORD_KEY_SIZE_BYTES_MAX - rest)}
    assert len(CODEC.encode_key(longest)) == RECORD_KEY_SIZE_BYTES_MAX
    with pytest.raises(InvalidValue, match="a record key is too long") as caught:
        CODEC.encode_key(longest | {"town": longest["town"] + "x"})
    assert caught.value.context["size_bytes"] == RECORD_KEY_SIZE_BYTES_MAX + 1


def test_rule_21_a_longer_key_is_not_read() -> None:
    rest = len(CODEC.encode_key(ADA | {"town": ""}))
    longest = CODEC.encode_key(ADA | {"town": "x" * (RECORD_KEY_SIZE_BYTES_MAX - rest)})
    value = CODEC.encode(b"", ADA, NO_BLOBS)
    assert CODEC.decode_key(longest)[0] == ADA["id"]
    assert CODEC.decode(longest, value, 0, NO_BLOBS).id == ADA["id"]
    longer = longest[:1] + b"x" + longest[1:]
    for decode in (
        lambda: CODEC.decode_key(longer),
        lambda: CODEC.decode(longer, value, 0, NO_BLOBS),
    ):
        with pytest.raises(CorruptRecord) as caught:
            decode()
        assert caught.value.context["what"] == "record key"
        assert caught.value.context["offset"] == RECORD_KEY_SIZE_BYTES_MAX


def test_rule_21_the_key_sorts_as_its_values_do() -> None:
    values = [(i, t) for i in (-300, -1, 0, 1, 70) for t in ("", "a", "a\x00", "b", "ä")]
    assert sorted(values, key=lambda v: CODEC.encode_key({"id": v[0], "town": v[1]})) == values


def test_json_null_is_a_value_of_a_required_json_field() -> None:
    table = TableSchema(1, "t", (1,), (Field(1, "id", Integer()), Field(2, "data", Json())))
    codec = codec_for(table)
    record = {"id": 1, "data": None}
    value = codec.encode(b"", record, NO_BLOBS)
    assert value.hex() == "81f6"
    assert asdict(codec.decode(codec.encode_key(record), value, 0, NO_BLOBS)) == record


def test_a_default_that_is_a_container_is_not_shared() -> None:
    default = {"a": [1]}
    table = TableSchema(
        1, "t", (1,), (Field(1, "id", Integer()), Field(2, "data", Json(), default=default))
    )
    codec = codec_for(table)
    for _ in range(2):
        value = codec.encode(b"", {"id": 1}, NO_BLOBS)
        decoded = asdict(codec.decode(codec.encode_key({"id": 1}), value, 0, NO_BLOBS))
        assert decoded["data"] == {"a": [1]}
        decoded["data"]["a"].append(2)


def test_codecs_are_compiled_once_for_a_shape() -> None:
    codec = codec_for(PEOPLE)  # CODEC may be no longer among those that are kept
    assert codec_for(PEOPLE.with_fields(PEOPLE.fields)) is codec
    assert codec_for(PEOPLE.with_fields(PEOPLE.fields[::-1])) is not codec
    assert "def encode(prefix, m, attachments):" in CODEC.source
    assert "def decode(key, value, start, attachments):" in CODEC.source


def test_a_table_of_key_fields_alone_has_empty_records() -> None:
    table = TableSchema(1, "t", (1,), (Field(1, "id", Integer()),))
    codec = codec_for(table)
    assert codec.encode(b"\x81", {"id": 5}, NO_BLOBS) == b"\x81"
    assert asdict(codec.decode(codec.encode_key({"id": 5}), b"\x81", 1, NO_BLOBS)) == {"id": 5}
    with pytest.raises(CorruptRecord):
        codec.decode(codec.encode_key({"id": 5}), b"\x81\x00", 1, NO_BLOBS)


def test_the_widest_table_has_a_codec() -> None:
    fields = tuple(
        Field(n, f"f{n}", Binary() if n % 2 else Integer(), optional=n % 3 == 0)
        for n in range(2, 1_001)
    )
    table = TableSchema(1, "wide", (1,), (Field(1, "id", Integer()), *fields))
    codec = codec_for(table)
    record: dict[str, Any] = {"id": 1}
    for f in fields:
        value: Any = b"x" * (f.number % 80) if f.number % 2 else f.number
        record[f.name] = None if f.optional and f.number % 5 == 0 else value
    decoded = codec.decode(
        codec.encode_key(record), codec.encode(b"", record, NO_BLOBS), 0, NO_BLOBS
    )
    assert asdict(decoded) == record


CORRUPT = {
    "empty": "",
    "presence alone": "05",
    "unused presence bit": "0d 83 41 64 61 a4 80 01",
    "cut in a string": "05 83 41 64",
    "cut before the last field": "05 83 41 64 61 a4 80",
    "a byte too many": "05 83 41 64 61 a4 80 01 00",
    "not UTF-8": "05 83 41 ff 61 a4 80 01",
    "reserved length": "05 7f 41 64 61 a4 80 01",
    "reserved integer": "05 83 41 64 61 ff 80 01",
    "integer in a longer form": "05 83 41 64 61 c0 24 80 01",
    "no boolean": "05 83 41 64 61 a4 80 02",
    "presence without the field": "07 83 41 64 61 a4 80 01",
}


@pytest.mark.parametrize("raw", CORRUPT.values(), ids=CORRUPT.keys())
def test_bytes_that_no_encoder_wrote_are_corrupt(raw: str) -> None:
    with pytest.raises(CorruptRecord) as caught:
        CODEC.decode(CODEC.encode_key(ADA), b"\x87" + bytes.fromhex(raw), 1, NO_BLOBS)
    assert isinstance(caught.value.context["offset"], int)


@pytest.mark.parametrize(
    "raw", ["", "81", "81 61", "81 61 00", "81 61 00 02", "81 61 00 01 00", "ff"]
)
def test_a_key_that_no_encoder_wrote_is_corrupt(raw: str) -> None:
    key = bytes.fromhex(raw)
    with pytest.raises(CorruptRecord):
        CODEC.decode_key(key)
    with pytest.raises(CorruptRecord):
        CODEC.decode(key, CODEC.encode(b"", ADA, NO_BLOBS), 0, NO_BLOBS)


def test_the_offset_of_corrupt_bytes_counts_from_the_start_of_the_record() -> None:
    value = bytes.fromhex("87 05 83 41 64 61 a4 80 02")
    with pytest.raises(CorruptRecord) as caught:
        CODEC.decode(CODEC.encode_key(ADA), value, 1, NO_BLOBS)
    assert caught.value.context["offset"] == 8
    assert caught.value.context["size"] == 9


def test_codecs_are_shared_by_databases_unless_zones_are_in_them() -> None:
    """What has a database's zones in it goes when they go."""
    one, other = Zones({1: "UTC"}), Zones({1: "Europe/Paris"})
    plain = TableSchema(1, "t", (1,), (Field(1, "id", Integer()),))
    zoned = plain.with_fields((*plain.fields, Field(2, "at", List(ZonedTimestamp()))))
    assert codec_for(plain, one) is codec_for(plain, other) is codec_for(plain)
    assert codec_for(zoned, one) is codec_for(zoned, one)
    assert codec_for(zoned, one) is not codec_for(zoned, other)
    alive = weakref.ref(one)
    del one
    gc.collect()
    assert alive() is None
