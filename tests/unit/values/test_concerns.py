"""Every value type at every edge of zapdb: each check below runs for each type, with the values
that migrations are tried on. So a new type is named here until it is complete."""

from __future__ import annotations

import datetime
import decimal
import importlib
import itertools
import json
import re
import sqlite3
import uuid
from collections.abc import Callable
from typing import Any, Final, get_args

import duckdb
import pyarrow
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from tests import strategies
from tests.blobs import NO_BLOBS
from tests.native.codecs import pair_of
from tests.support import ROOT
from zapdb import to_json
from zapdb.cli.differences import show_type
from zapdb.control.catalog import type_to_json
from zapdb.expressions import FUNCTIONS
from zapdb.expressions.functions import TEXTABLE
from zapdb.imports.coercion import Coercion, make_coercer
from zapdb.limits import INLINE_SIZE_BYTES_MAX
from zapdb.migrations.boundary_values import ZONE_NAMES, values_of
from zapdb.records import codec_for
from zapdb.records.arrow import arrow_decoder, decode_batch, encode_batch
from zapdb.records.cell_format import from_plain, from_text, to_cell, to_plain
from zapdb.schema import Field, TableSchema
from zapdb.schema.canonical_schema import _describe_type, _read_type
from zapdb.sql.statement_run import sql_type, view_sql
from zapdb.tables.pandas_frames import table_frame
from zapdb.transfer.export.parquet_tables import digest_batches
from zapdb.transfer.inference import column_types
from zapdb.transfer.mirror.duckdb_target import _to_arrow as to_mirror
from zapdb.transfer.plain_tables import (
    copy_text,
    plan_plain_table,
    postgresql_literal,
    sqlite_literal,
    to_sqlite,
)
from zapdb.typed.model_classes import describe_type
from zapdb.values import (
    VALUE_TYPES,
    Decimal,
    Enum,
    Integer,
    List,
    Member,
    Reference,
    String,
    Struct,
    Uuid,
    ValueType,
    Zones,
)
from zapdb.values.plain_kinds import SQL_TYPES, PlainKind

ZONES: Final = Zones(dict(enumerate(ZONE_NAMES, 1)))
MADE_OF_OTHERS: Final[dict[str, ValueType]] = {
    "decimal": Decimal(2),
    "reference": Reference("people", 1, (Uuid(),)),
    "enum": Enum("state", 1, ((1, "open"), (2, "done"))),
    "struct": Struct("place", 1, (Member(1, "street", String(), True), Member(2, "n", Integer()))),
    "list": List(String()),
}
"""Types with parameters."""
SAMPLES: Final = {
    name: (MADE_OF_OTHERS[name] if name in MADE_OF_OTHERS else kind()).bind(ZONES)
    for name, kind in VALUE_TYPES.items()
}
KEY: Final = Field(1, "id", Integer())

Check = Callable[[ValueType], object]
CHECKS: Final[dict[str, Check]] = {}


def concern(check: Check) -> Check:
    """Register what each type must have at one edge; the function's name is the edge's."""
    CHECKS[check.__name__] = check
    return check


def samples_of(kind: ValueType) -> list[Any]:
    """Boundary values that are no blobs, and that Arrow and SQL have room for."""
    found = [value for value in values_of(kind) if fits(kind, value)]
    assert len(found) > 1
    return found


def fits(kind: ValueType, value: Any) -> bool:
    if len(kind.encode(value)) > INLINE_SIZE_BYTES_MAX:
        return False
    if isinstance(kind, Struct):
        return all(
            fits(member.type, part)
            for member in kind.members
            if (part := getattr(value, member.name)) is not None
        )
    if isinstance(kind, Integer | Decimal):
        return abs(value) < 2**63
    return "\0" not in value if isinstance(value, str) else True


def table_of(kind: ValueType) -> TableSchema:
    # Codecs are kept by table, and a type with other zones is equal: so it has a name of its own.
    return TableSchema(1, "concerns", (1,), (KEY, Field(2, "value", kind)))


def field_of(kind: ValueType) -> Field:
    return table_of(kind).fields[1]


def is_same(kind: ValueType, left: Any, right: Any) -> bool:
    """Whether two values have the same bytes; the first is as someone else gives it."""
    return kind.encode(kind.check(left, "value")) == kind.encode(right)


def batch_of(kind: ValueType) -> tuple[list[Any], Any]:
    values, table = samples_of(kind), table_of(kind)
    codec = codec_for(table)
    rows = [
        (codec.encode_key(r), codec.encode(b"\x81", r, NO_BLOBS))
        for r in ({"id": at, "value": value} for at, value in enumerate(values))
    ]
    decoder = arrow_decoder(table, zones=ZONES)
    batch = decode_batch(decoder, rows, lambda *_: NO_BLOBS)
    assert encode_batch(table, batch, b"\x81", NO_BLOBS, zones=ZONES) == rows
    return values, batch


# --- as bytes ------------------------------------------------------------------------------------


@concern
def value_bytes(kind: ValueType) -> None:
    for value in values_of(kind):
        data = b"+" + kind.encode(value) + b"+"
        found, after = kind.decode(data, 1)
        assert after == kind.skip(data, 1) == len(data) - 1
        assert is_same(kind, found, value)
    assert is_same(kind, kind.neutral(), kind.neutral())


@concern
def key_bytes(kind: ValueType) -> None:
    if kind.keyable:
        for value in values_of(kind):
            data = kind.encode_key(value)
            found, after = kind.decode_key(data, 0)
            assert after == len(data)
            assert is_same(kind, found, value)
    if kind.indexable:
        assert len({kind.encode_index_key(value) for value in values_of(kind)}) > 1


@concern
def native_accelerator(kind: ValueType) -> None:
    table = table_of(kind)
    pair = pair_of(table)
    for value in samples_of(kind):
        record = {"id": 1, "value": value}
        written = pair.python.encode(b"\x81", record, NO_BLOBS)
        assert pair.plan.encode(b"\x81", record, NO_BLOBS) == written
        key = pair.python.encode_key(record)
        read = [codec.decode(key, written, 1, NO_BLOBS) for codec in (pair.python, pair.plan)]
        assert all(is_same(kind, one.value, value) for one in read)


@concern
def schema_bytes(kind: ValueType) -> None:
    assert _read_type(json.loads(json.dumps(_describe_type(kind, with_numbers=True)))) == kind


# --- as text and JSON ----------------------------------------------------------------------------


@concern
def cells_and_json(kind: ValueType) -> None:
    table, field = table_of(kind), field_of(kind)
    for value in values_of(kind):
        assert is_same(kind, from_text(table, field, to_cell(field, value)), value)
        plain = json.loads(json.dumps(to_plain(field, value)), parse_float=decimal.Decimal)
        assert is_same(kind, from_plain(table, field, plain), value)
        json.dumps(to_json(value), allow_nan=False)


@concern
def words(kind: ValueType) -> None:
    shown = (kind.expected, kind.text_form, show_type(type_to_json(kind)), describe_type(kind))
    assert all(shown)
    assert type_to_json(kind)["name"]
    with pytest.raises(ValueError, match="does not fit"):
        kind.check(object(), "value")


# --- in Python -----------------------------------------------------------------------------------


@concern
def generated_models(kind: ValueType) -> None:
    if isinstance(kind, List | Reference | Struct):
        return  # they are made of others
    module, _, name = kind.held_as.rpartition(".")
    if name != "Any":
        held = getattr(importlib.import_module(module or "builtins"), name)
        assert all(isinstance(value, held) for value in values_of(kind))


@concern
def arrow_and_pandas(kind: ValueType) -> None:
    values, batch = batch_of(kind)
    frame = table_frame(table_of(kind), pyarrow.Table.from_batches([batch]))
    assert all(is_same(kind, a, b) for a, b in zip(frame["value"], values, strict=True))


@concern
def spark(kind: ValueType) -> None:
    _, batch = batch_of(kind)
    assert from_arrow_schema(batch.schema).names == ["id", "value"]


@concern
def imports(kind: ValueType) -> None:
    field, values = field_of(kind), values_of(kind)
    take = make_coercer(field, "value", Coercion(is_text=True))
    assert all(is_same(kind, take(to_cell(field, v).replace("\\\\", "\\")), v) for v in values)


NOT_INFERRED: Final = ("zoned_timestamp", "struct", "reference")
"""No column of a source has them; references are found by foreign keys."""


@concern
def inference(kind: ValueType) -> None:
    named = {name for _, name in column_types._SIMPLE}
    found = named | {"decimal", "enum", "list"}  # by rules of their own
    assert (kind.name in found) != (kind.name in NOT_INFERRED)


# --- in SQL --------------------------------------------------------------------------------------


@concern
def sandbox(kind: ValueType) -> None:
    values, batch = batch_of(kind)
    with duckdb.connect() as connection:
        connection.register("held", pyarrow.Table.from_batches([batch]))
        connection.execute(view_sql("t", "held", [("id", KEY.type, False), ("value", kind, False)]))
        counted = connection.execute("SELECT count(value) FROM t WHERE typeof(value) IS NOT NULL")
        nulls = sum(value is None for value in values)  # JSON's are texts
        assert counted.fetchall() == [(len(values) - nulls * (kind.name != "json"),)]
        connection.execute(f"SELECT CAST(NULL AS {sql_type(kind, as_text=True)})")


HELD_BY: Final[dict[PlainKind, type | tuple[type, ...]]] = {
    "integer": int,
    "long_integer": int,
    "decimal": decimal.Decimal,
    "long_decimal": decimal.Decimal,
    "boolean": bool,
    "float": float,
    "date": datetime.date,
    "instant": datetime.datetime,
    "local": datetime.datetime,
    "text": str,
    "binary": bytes,
    "uuid": uuid.UUID,
    "json": str,
}


def test_every_plain_kind_has_its_names() -> None:
    assert HELD_BY.keys() == SQL_TYPES.keys() == set(get_args(PlainKind))


@concern
def scripts_and_mirrors(kind: ValueType) -> None:
    values = samples_of(kind)
    for engine in ("postgresql", "sqlite", "duckdb"):
        table = plan_plain_table(table_of(kind), engine)
        for column in table.columns:
            assert column.sql_type(engine)
        plain = [table.rows_of(type("", (), {"id": 1, "value": value})) for value in values]
        for column, cell in itertools.chain(*(zip(table.columns, r, strict=True) for r in plain)):
            assert cell is None or isinstance(cell, HELD_BY[column.kind])
            assert isinstance(copy_text(cell), str)
            assert all((postgresql_literal(cell), sqlite_literal(column, cell)))
        if engine == "sqlite":
            places = ", ".join("?" * len(table.columns))
            with sqlite3.connect(":memory:") as connection:
                for row in plain:
                    held = map(to_sqlite, table.columns, row)
                    connection.execute(f"SELECT {places}", tuple(held)).fetchall()
        if engine == "duckdb":
            casts = ", ".join(f'"{c.name}"::{c.sql_type("duckdb")}' for c in table.columns)
            with duckdb.connect() as connection:
                connection.register("held", to_mirror(table.columns, plain))
                found = connection.execute(f"SELECT {casts} FROM held").fetchall()
            assert len(found) == len(values)


@concern
def content_digest(kind: ValueType) -> None:
    values, batch = batch_of(kind)
    only = TableSchema(1, "concerns", (2,), (field_of(kind),))
    rows = [batch.select(["value"]).slice(at, 1) for at in range(len(values))]
    assert len({str(digest_batches(only, [row])) for row in rows}) == len(values)


# --- in migrations -------------------------------------------------------------------------------

NO_TEXT: Final = ("zoned_timestamp", "json", "list", "struct", "reference")
"""Types of which expressions make no text."""
MADE_BY: Final = {
    **{name: name for name in ("integer", "decimal", "float", "date", "timestamp", "uuid")},
    "string": "text",
    "binary": "unhex",
}
"""What expressions make a value of a type by; an enum's by `member`, whose type the target is.
`NOT_MADE` are read, and never made of a text."""
NOT_MADE: Final = ("boolean", "enum", *NO_TEXT)


@concern
def expressions(kind: ValueType) -> None:
    assert (type(kind) in TEXTABLE) != (kind.name in NO_TEXT)
    assert (kind.name in MADE_BY) != (kind.name in NOT_MADE)
    if kind.name in MADE_BY:
        function = FUNCTIONS[MADE_BY[kind.name]]
        assert type(kind) in function.results
    if type(kind) in TEXTABLE:
        assert all(isinstance(FUNCTIONS["text"].apply(v), str) for v in values_of(kind))


@concern
def boundary_values(kind: ValueType) -> None:
    assert len(values_of(kind)) > 1


@concern
def property_tests(kind: ValueType) -> None:
    assert type(kind) in {type(one) for one in strategies.TYPES}
    strategies.values_of(kind).validate()


# --- in documents --------------------------------------------------------------------------------

PAGES: Final = (
    "format/record.md",
    "format/key.md",
    "guides/arrow.md",
    "guides/data.md",
    "guides/import.md",
    "guides/mirror.md",
    "guides/sql.md",
)
"""Pages with a table that has a row for each type."""
NOT_IN_KEYS: Final = {name for name, kind in SAMPLES.items() if not kind.keyable}


@concern
def pages(kind: ValueType) -> None:
    missing = [page for page in PAGES if kind.name not in words_of_rows(page)]
    allowed = ["format/key.md"] if kind.name in NOT_IN_KEYS and not kind.indexable else []
    assert [page for page in missing if page not in allowed] == []


def words_of_rows(page: str) -> set[str]:
    """The words of the first column of all tables."""
    text = (ROOT / "docs" / page).read_text()
    cells = re.findall(r"(?m)^\| ([^|]*)\|", text)
    return {word for cell in cells for word in re.findall(r"\w+", cell)}


@pytest.mark.parametrize("kind", SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_every_type_has_every_concern(check: Check, kind: ValueType) -> None:
    check(kind)
