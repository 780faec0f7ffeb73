"""What DuckDB calls the types of zapdb.

Columns come to DuckDB as Arrow has them (see `records.arrow.columns`): a UUID is 16 bytes, JSON is
text, a member of an enum its name. A view casts them to what they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from zapdb.database.sql.sandbox.carried import quote_identifier
from zapdb.records.arrow import DECIMAL_DIGITS_MAX
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    List,
    Reference,
    String,
    Struct,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)


def quote_text(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def sql_type(kind: ValueType, *, as_text: bool = False) -> str:
    """The type of a column; with `as_text` all numbers in it are strings."""
    match kind:
        case Integer():
            return "VARCHAR" if as_text else "BIGINT"
        case Decimal(scale):
            is_text = as_text or scale > DECIMAL_DIGITS_MAX
            return "VARCHAR" if is_text else f"DECIMAL({DECIMAL_DIGITS_MAX}, {scale})"
        case Boolean():
            return "BOOLEAN"
        case Float():
            return "DOUBLE"
        case Date():
            return "DATE"
        case Timestamp():
            return "TIMESTAMPTZ"
        case ZonedTimestamp():
            return "STRUCT(local TIMESTAMP, fold TINYINT, zone VARCHAR, instant TIMESTAMPTZ)"
        case Uuid():
            return "UUID"
        case String():
            return "VARCHAR"
        case Binary():
            return "BLOB"
        case Json():
            return "JSON"
        case Enum(members=members):
            return f"ENUM({', '.join(quote_text(name) for _, name in members)})"
        case Reference(key=(target,)):
            return sql_type(target, as_text=as_text)
        case Reference(key=targets):
            parts = [f"key_{at} {sql_type(t, as_text=as_text)}" for at, t in enumerate(targets)]
            return f"STRUCT({', '.join(parts)})"
        case List(items):
            return f"{sql_type(items, as_text=as_text)}[]"
        case Struct():
            parts = [
                f"{quote_identifier(m.name)} {sql_type(m.type, as_text=as_text)}"
                for m in kind.members
            ]
            return f"STRUCT({', '.join(parts)})"
    raise NotImplementedError(f"{kind.name} has no SQL type")


def needs_cast(kind: ValueType) -> bool:
    """Whether the type has values that Arrow brings as something else."""
    match kind:
        case Uuid() | Json() | Enum():
            return True
        case Reference(key=targets):
            return any(map(needs_cast, targets))
        case List(items):
            return needs_cast(items)
        case Struct(members=members):
            return any(needs_cast(member.type) for member in members)
    return False


def view_sql(name: str, source: str, columns: Iterable[tuple[str, ValueType, bool]]) -> str:
    """The view of this name: the columns (name, type, as_text) of a source as what they are."""
    parts = []
    for column, kind, as_text in columns:
        part = quote_identifier(column)
        if needs_cast(kind):
            part = f"CAST({part} AS {sql_type(kind, as_text=as_text)}) AS {part}"
        parts.append(part)
    view, scanned = quote_identifier(name), quote_identifier(source)
    return f"CREATE TEMP VIEW {view} AS SELECT {', '.join(parts)} FROM {scanned}"
