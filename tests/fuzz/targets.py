"""What is fuzzed: each target takes any bytes and raises only where the code under test is wrong.

The first byte chooses among the types, tables or programs of a target, the rest is what they read.
Bytes are refused as `CorruptRecord`, with an offset within them, or they are read, and then encode
to the same bytes again: there is one encoding of every value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from tests.blobs import NO_BLOBS
from tests.native.codecs import DECLINED, exact, outcome, pair_of
from tests.strategies import PLACE, STATE, TYPES
from tests.zoned import ZONES
from zapdb.catalog import rows
from zapdb.catalog.row_kinds import KINDS
from zapdb.catalog.rows import dump_row, load_row
from zapdb.errors import (
    BlobMissing,
    CorruptCatalog,
    CorruptRecord,
    IncompatibleVersion,
    InvalidCursor,
    UnknownZone,
)
from zapdb.expressions import Type, parse_expression
from zapdb.migrations import read_stored
from zapdb.records import (
    Codec,
    Computed,
    Conversion,
    ConversionPlan,
    Layout,
    SourceField,
    codec_for,
    compile_conversion,
    held,
    native,
)
from zapdb.schema import Field, Schema, TableSchema, canonical_bytes, read_canonical_bytes
from zapdb.storage.entry_statements import pack_entry, unpack_entry
from zapdb.tables.indexes.keys import is_truncated
from zapdb.tables.queries.cursors import decode_cursor, encode_cursor
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Json,
    List,
    Reference,
    String,
    Timestamp,
    Uuid,
    ZonedTimestamp,
)

KEY = bytes.fromhex("85")
PREFIX = b"\x81"

TABLES: Final = (
    TableSchema(
        1,
        "wide",
        (1,),
        (
            Field(1, "id", Integer()),
            Field(2, "name", String()),
            Field(3, "note", String(), optional=True),
            Field(4, "done", Boolean()),
            Field(5, "balance", Decimal(2), optional=True),
            Field(6, "at", Timestamp()),
            Field(7, "extra", Json(), optional=True),
            Field(8, "owner", Reference("people", 2, (Uuid(),)), optional=True),
            Field(9, "state", STATE),
            Field(10, "place", PLACE, optional=True),
            Field(11, "tags", List(String())),
            Field(12, "photo", Binary(), optional=True),
            Field(13, "day", Date(), optional=True),
            Field(14, "weight", Float(), optional=True),
            Field(15, "met", ZonedTimestamp(ZONES), optional=True),
        ),
    ),
    TableSchema(2, "small", (1,), (Field(1, "id", Integer()), Field(2, "text", String()))),
)
WIDE, SMALL = TABLES


def _programs() -> tuple[tuple[Codec, Conversion], ...]:
    """A drop, an addition that reads two fields, and everything decoded and encoded."""
    text, integer = Type(String()), Type(Integer())
    dropped = WIDE.with_fields(tuple(f for f in WIDE.fields if f.number != 3))
    added = WIDE.with_fields((*WIDE.fields, Field(20, "label", String())))
    label = Computed(
        parse_expression("join(' ', name, text(id))"),
        {"name": SourceField(2), "id": SourceField(1)},
        {"name": text, "id": integer},
        text,
    )
    keep = {f.number: SourceField(f.number) for f in WIDE.fields}
    source = Layout.of(WIDE)
    return (
        (codec_for(dropped), compile_conversion(source, Layout.of(dropped), ConversionPlan(keep))),
        (
            codec_for(added),
            compile_conversion(source, Layout.of(added), ConversionPlan(keep | {20: label})),
        ),
        (codec_for(WIDE), compile_conversion(source, source, ConversionPlan(keep), splice=False)),
    )


PROGRAMS: Final = _programs()
PAIRS: Final = () if native.accelerator is None else tuple(map(pair_of, TABLES))


def read_value(data: bytes) -> None:
    """Each type by its own methods, as a value and as a key."""
    kind, data = TYPES[data[0] % len(TYPES)], data[1:]
    ways: list[tuple[Callable[..., Any], Callable[..., bytes]]] = [(kind.decode, kind.encode)]
    if kind.keyable:
        ways.append((kind.decode_key, kind.encode_key))
    for decode, encode in ways:
        try:
            value, end = decode(data, 0)
        except CorruptRecord as error:
            _check_offset(error)
            continue
        assert encode(value) == data[:end]
        assert decode is not kind.decode or kind.skip(data, 0) == end


def read_record(data: bytes) -> None:
    """Whole records by generated decoders; skipping ends where decoding does."""
    codec, data = codec_for(TABLES[data[0] % len(TABLES)]), PREFIX + data[1:]
    try:
        codec.skip(data, 1)
    except CorruptRecord as error:
        _check_offset(error)
    try:
        record = codec.decode(KEY, data, 1, NO_BLOBS)
    except CorruptRecord as error:
        _check_offset(error)
        return
    assert codec.encode(PREFIX, held(record), NO_BLOBS) == data
    assert codec.skip(data, 1) == len(data)


def compare_codecs(data: bytes) -> None:
    """Whatever the accelerator does not leave to Python, it does as Python does."""
    if not PAIRS:
        return
    pair, data = PAIRS[data[0] % len(PAIRS)], PREFIX + data[1:]
    given = (KEY, data, 1, NO_BLOBS)
    expected = outcome(pair.python.decode, *given)
    assert outcome(pair.alone.decode, *given) in (DECLINED, expected)
    stepped = outcome(pair.python.skip, data, 1)
    assert outcome(pair.alone.skip, data, 1) in (DECLINED, stepped)
    with suppress(CorruptRecord):
        record = held(pair.python.decode(*given))
        assert outcome(pair.alone.encode, PREFIX, record, NO_BLOBS) in (DECLINED, exact(data))


def read_key(data: bytes) -> None:
    kinds = [kind for kind in TYPES if kind.keyable]
    first, second = kinds[data[0] % len(kinds)], kinds[data[0] // 16 % len(kinds)]
    fields = (Field(1, "a", first), Field(2, "b", second))
    codec = codec_for(TableSchema(1, "keyed", (1, 2), fields))
    try:
        values = codec.decode_key(data[1:])
    except CorruptRecord as error:
        _check_offset(error)
        return
    assert codec.encode_key(dict(zip("ab", values, strict=True))) == data[1:]


def convert_record(data: bytes) -> None:
    """What a program copies unseen, the decoder of its result refuses or can write."""
    (codec, program), data = PROGRAMS[data[0] % len(PROGRAMS)], PREFIX + data[1:]
    try:
        converted = program.convert(KEY, data, 1, b"\x82", NO_BLOBS)
        record = codec.decode(KEY, converted, 1, NO_BLOBS)
    except CorruptRecord as error:
        _check_offset(error)
        return
    except BlobMissing:  # an expression reads the blob that the bytes name
        return
    assert codec.encode(b"\x82", held(record), NO_BLOBS) == converted


def read_structure(data: bytes) -> None:
    """A migration as the database stores it: read with all that follows from it, or corrupt."""
    before = Schema((SMALL,)) if data[0] % 2 else Schema()
    with suppress(CorruptCatalog, IncompatibleVersion, UnknownZone):
        read_stored(data[1:], "fuzzed", "", {"table": [7], "field": [8, 9]}, before).check()


def read_snapshot_bytes(data: bytes) -> None:
    """What the schema history keeps of a table: one encoding, or corrupt."""
    try:
        table = read_canonical_bytes(data)
    except (
        CorruptCatalog,
        IncompatibleVersion,
        UnknownZone,
    ):  # of a default, which names its time zone
        return
    assert canonical_bytes(table) == data


def read_catalog_row(data: bytes) -> None:
    """A row's value: of the form that its kind has, of a later format, or corrupt."""
    kind = sorted(KINDS)[data[0] % len(KINDS)]
    try:
        row = rows.decode_row(KINDS[kind], "key", data[1:].decode("utf-8", "replace"))
    except (CorruptCatalog, IncompatibleVersion):
        return
    assert load_row(KINDS[kind], row.key, dump_row(row)) == row


def read_cursor(data: bytes) -> None:
    try:
        cursor = decode_cursor(data.decode("latin-1"))
    except InvalidCursor:
        return
    assert decode_cursor(encode_cursor(cursor)) == cursor


def read_entry(data: bytes) -> None:
    """The place of an entry in its index, and the key of its record."""
    key, record = data[1 : 1 + data[0]], data[1 + data[0] :]
    assert unpack_entry(pack_entry(key, record)) == (key, record)
    is_truncated(key)
    try:
        values = codec_for(SMALL).decode_key(record)
    except CorruptRecord as error:
        _check_offset(error)
        return
    assert codec_for(SMALL).encode_key({"id": values[0]}) == record


def _check_offset(error: CorruptRecord) -> None:
    assert 0 <= error.context["offset"] <= error.context["size"]


TARGETS: Final[Mapping[str, Callable[[bytes], None]]] = {
    "value": read_value,
    "record": read_record,
    "native": compare_codecs,
    "key": read_key,
    "convert": convert_record,
    "structure": read_structure,
    "snapshot": read_snapshot_bytes,
    "catalog": read_catalog_row,
    "cursor": read_cursor,
    "entry": read_entry,
}
