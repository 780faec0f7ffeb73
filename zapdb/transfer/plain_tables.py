"""Tables of zapdb as plain tables of other databases: their columns, and what these hold.

One place says it for scripts and mirrors, of which this is all that they have in common:

    zapdb                 PostgreSQL        SQLite     DuckDB          holds
    integer               bigint            INTEGER    BIGINT          see below
    decimal               numeric           TEXT       DECIMAL(38, s)  SQLite has no such numbers
    boolean               boolean           BOOLEAN    BOOLEAN
    float                 double precision  REAL       DOUBLE          SQLite: NaN is the text `nan`
    date                  date              DATE       DATE
    timestamp             timestamptz       DATETIME   TIMESTAMPTZ     in SQLite text, in UTC
    zoned_timestamp       three columns: the instant, `_local` and `_zone`
    string, enum          text              TEXT       VARCHAR         PostgreSQL: ␀ for NUL
    binary                bytea             BLOB       BLOB
    uuid                  uuid              TEXT       UUID
    json, struct, list    jsonb             TEXT       JSON            structs are objects
    reference             as the target's key; of several fields, a column for each

Integers beyond 64 bits, and in DuckDB decimals beyond 38 digits, need another type: `long` names
their fields, whose columns are numeric or text. A writer finds out by `LongNumber`.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from zapdb.activation import TableDescriptor
from zapdb.errors import ZapdbError
from zapdb.limits import NAME_LENGTH_MAX
from zapdb.schema import Field, OnDelete, TableSchema
from zapdb.values import (
    Decimal,
    Integer,
    Json,
    List,
    Reference,
    Struct,
    ValueType,
    ZonedTimestamp,
)
from zapdb.values.plain_kinds import DECIMAL_DIGITS_MAX, Engine, PlainKind, sql_name

ReadValue = Callable[[Any], Any]

SYSTEM_COLUMNS: Final[dict[Engine, frozenset[str]]] = {
    "postgresql": frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}),
    "sqlite": frozenset(),
    "duckdb": frozenset(),
}
"""Names that each table has for itself; a field of such a name is the column `ctid_`."""


class LongNumber(Exception):
    """A number does not fit the column of its field."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


@dataclass(frozen=True, slots=True)
class PlainColumn:
    """A column; `read` takes the value of the field, which is not null."""

    name: str
    field: str
    kind: PlainKind
    optional: bool
    read: ReadValue
    scale: int = 0

    def sql_type(self, engine: Engine) -> str:
        return sql_name(self.kind, engine, self.scale)

    def take(self, record: Any) -> Any:
        """The value of a record: None, or what `kind` says."""
        value = getattr(record, self.field)
        is_null = value is None and (self.optional or self.kind != "json")  # a null is JSON, too
        return None if is_null else self.read(value)


@dataclass(frozen=True, slots=True)
class PlainTable:
    """A table by its columns; `key` are the places of the key's columns among them."""

    name: str
    columns: tuple[PlainColumn, ...]
    key: tuple[int, ...]

    @property
    def key_columns(self) -> tuple[PlainColumn, ...]:
        return tuple(self.columns[at] for at in self.key)

    def rows_of(self, record: Any) -> tuple[Any, ...]:
        """The values of a record, a column each."""
        return tuple([column.take(record) for column in self.columns])

    def columns_of(self, field: str) -> tuple[PlainColumn, ...]:
        return tuple(column for column in self.columns if column.field == field)


def plan_plain_table(table: TableSchema, engine: Engine, long: Collection[str] = ()) -> PlainTable:
    """The plain table of a table's schema; numbers of the fields in `long` are of any length."""
    columns, taken = list[PlainColumn](), {field.name for field in table.fields}
    for field in table.fields:
        for part in _parts_of(field, field.type, engine):
            suffix = part.suffix or "_" * (field.name in SYSTEM_COLUMNS[engine])
            name = _free_name(field.name, suffix, taken)
            if field.name in long:
                part = _lengthen(part)
            optional = field.optional or part.optional
            columns.append(
                PlainColumn(name, field.name, part.kind, optional, part.read, part.scale)
            )
    numbers = {field.name: field.number for field in table.fields}
    key = [
        at
        for number in table.key
        for at, column in enumerate(columns)
        if numbers[column.field] == number
    ]
    return PlainTable(table.name, tuple(columns), tuple(key))


@dataclass(frozen=True, slots=True)
class PlainReference:
    """A reference constraint of a field, which has a number; all records satisfy it if it
    `is_validated`."""

    field: int
    columns: tuple[PlainColumn, ...]
    target: PlainTable
    on_delete: OnDelete
    is_validated: bool


def list_references(
    descriptor: TableDescriptor, plain: PlainTable, tables: Mapping[str, PlainTable]
) -> Iterator[PlainReference]:
    """The reference constraints of a table to those that are among these, by their names here."""
    states = {c.number: c.is_validated for c in descriptor.constraints if c.kind == "reference"}
    for key in descriptor.schema.foreign_keys:
        declared = descriptor.schema.field_numbered(key.field)
        assert isinstance(declared.type, Reference)
        target = tables.get(declared.type.table)
        if target is not None:
            columns, is_validated = plain.columns_of(declared.name), states.get(key.field, False)
            yield PlainReference(key.field, columns, target, key.on_delete, is_validated)


def _free_name(field: str, suffix: str, taken: set[str]) -> str:
    if not suffix:
        return field
    name = field[: NAME_LENGTH_MAX - len(suffix)] + suffix
    while name in taken:
        suffix += "_"
        name = field[: NAME_LENGTH_MAX - len(suffix)] + suffix
    taken.add(name)
    return name


@dataclass(frozen=True, slots=True)
class _Part:
    """One column of a field."""

    suffix: str
    kind: PlainKind
    read: ReadValue
    scale: int = 0
    optional: bool = False


def _lengthen(part: _Part) -> _Part:
    """The same column for numbers of any length."""
    match part.kind:
        case "integer":
            return replace(part, kind="long_integer", read=_unlimited(part.read))
        case "decimal":
            return replace(part, kind="long_decimal", read=_unlimited(part.read))
    return part


def _unlimited(read: ReadValue) -> ReadValue:
    return _Item(read.at, _unlimited(read.read)) if isinstance(read, _Item) else _same


def _same(value: Any) -> Any:
    return value


def _parts_of(field: Field, kind: ValueType, engine: Engine) -> Iterator[_Part]:
    match kind:
        case Reference(key=(only,)):
            yield from _parts_of(field, only, engine)
        case Reference(key=key):
            for at, part in enumerate(key):
                for found in _parts_of(field, part, engine):
                    read = _Item(at, found.read)
                    yield _Part(f"_{at + 1}{found.suffix}", found.kind, read, found.scale)
        case ZonedTimestamp():
            # Beyond the years 1 to 9999 there is no instant.
            yield _Part("", "instant", _to_instant, optional=True)
            yield _Part("_local", "local", lambda value: value.replace(tzinfo=None, fold=0))
            yield _Part("_zone", "text", lambda value: str(value.tzinfo))
        case Json() | Struct() | List():
            yield _Part("", "json", _JsonText(kind, engine))
        case Integer():
            yield _Part("", "integer", _Short(field.name, _fits_64_bits))
        case Decimal():
            fits = _fits_38_digits if engine == "duckdb" else _fits_always
            yield _Part("", "decimal", _Short(field.name, fits), kind.scale)
        case _:
            yield _Part("", kind.plain_kind, _read_simple(kind, engine))


def _read_simple(kind: ValueType, engine: Engine) -> ReadValue:
    if kind.plain_kind != "text":
        return _same
    is_text = type(kind).to_document is ValueType.to_document  # what is held is a text already
    if engine == "postgresql":
        return _without_nul if is_text else lambda value: _without_nul(kind.to_document(value))
    return _same if is_text else kind.to_document


@dataclass(frozen=True, slots=True)
class _Item:
    """Reads one field of a key of several."""

    at: int
    read: ReadValue

    def __call__(self, value: Any) -> Any:
        return self.read(value[self.at])


@dataclass(frozen=True, slots=True)
class _Short:
    """Refuses numbers that the column has no room for; one for long numbers is not asked."""

    field: str
    fits: Callable[[Any], bool]

    def __call__(self, value: Any) -> Any:
        if not self.fits(value):
            raise LongNumber(self.field)
        return value


def _fits_64_bits(value: int) -> bool:
    return -(2**63) <= value < 2**63


def _fits_38_digits(value: Any) -> bool:
    return len(value.as_tuple().digits) <= DECIMAL_DIGITS_MAX


def _fits_always(_: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class _JsonText:
    kind: ValueType
    engine: Engine

    def __call__(self, value: Any) -> str:
        plain = self.kind.to_document(value)
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
        return _without_nul_in_json(text) if self.engine == "postgresql" else text


NUL_SHOWN: Final = "\u2400"


def _without_nul(value: str) -> str:
    """PostgreSQL has no NUL in text."""
    return value.replace("\0", NUL_SHOWN)


def _without_nul_in_json(text: str) -> str:
    if "\\u0000" not in text:
        return text
    halves = text.split("\\\\")  # what is between them has no escaped backslash
    return "\\\\".join(half.replace("\\u0000", NUL_SHOWN) for half in halves)


def _to_instant(value: datetime.datetime) -> datetime.datetime | None:
    try:
        return value.astimezone(datetime.UTC)
    except (OverflowError, ZapdbError):
        return None


def quote_name(name: str) -> str:
    """A name as SQL has it, whatever word it is."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """A string literal, as SQLite, PostgreSQL and DuckDB read it."""
    return "'" + text.replace("'", "''") + "'"


def quote_names(names: Collection[str]) -> str:
    return ", ".join(map(quote_name, names))


def define_columns(table: PlainTable, engine: Engine) -> list[str]:
    """The definitions of the columns, for CREATE TABLE."""
    return [
        f"{quote_name(column.name)} {column.sql_type(engine)}"
        + ("" if column.optional else " NOT NULL")
        for column in table.columns
    ]


def to_sqlite(column: PlainColumn, value: Any) -> Any:
    """What Python's sqlite3 takes: None, an integer, a float, text or bytes."""
    match value:
        case None | str() | bytes():
            return value
        case bool():
            return int(value)
        case int():
            return str(value) if column.kind == "long_integer" else value
        case float():
            return "nan" if math.isnan(value) else value
        case decimal.Decimal():
            return format(value, "f")
        case datetime.datetime():
            return value.replace(tzinfo=None).isoformat(" ", "microseconds")
        case datetime.date():
            return value.isoformat()
        case uuid.UUID():
            return str(value)
    raise AssertionError(f"no value of a plain table: {type(value).__name__}")


def to_duckdb(column: PlainColumn, value: Any) -> Any:
    """What an Arrow column of `arrow_type` is made of."""
    if isinstance(value, uuid.UUID):
        return str(value)
    if value is not None and column.kind in ("long_integer", "long_decimal"):
        return format(value, "f") if isinstance(value, decimal.Decimal) else str(value)
    return value


def sqlite_literal(column: PlainColumn, value: Any) -> str:
    """A value as SQLite's SQL has it."""
    match to_sqlite(column, value):
        case None:
            return "NULL"
        case str() as text:
            return quote_text(text).replace("\0", "'||char(0)||'")
        case bytes() as raw:
            return f"X'{raw.hex()}'"
        case float() as number if math.isinf(number):
            return "9e999" if number > 0 else "-9e999"
        case number:
            return repr(number)


_COPY_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def copy_text(value: Any) -> str:
    """A value as PostgreSQL's COPY has it in its text format."""
    return "\\N" if value is None else _postgresql_text(value).translate(_COPY_ESCAPES)


def postgresql_literal(value: Any) -> str:
    """A value as PostgreSQL's SQL has it: a text, which its column's type reads."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "NULL" if value is None else quote_text(_postgresql_text(value))


def _postgresql_text(value: Any) -> str:
    """What the type of a value's column reads."""
    match value:
        case bool():
            return "t" if value else "f"
        case bytes():
            return f"\\x{value.hex()}"
        case float():
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
        case decimal.Decimal():
            return format(value, "f")
        case datetime.datetime():
            return value.isoformat(" ")
    return str(value)
