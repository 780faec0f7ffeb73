"""What DuckDB calls the types of zapdb.

Columns come to DuckDB as Arrow has them (see `records.arrow.columns`): a UUID is 16 bytes, JSON is
text, a member of an enum its name. A view casts them to their types.
"""

from __future__ import annotations

from collections.abc import Iterable

from zapdb.sql.sandbox.carried import quote_identifier
from zapdb.values import (
    Decimal,
    Enum,
    Integer,
    List,
    Reference,
    Struct,
    ValueType,
    ZonedTimestamp,
)
from zapdb.values.plain_kinds import DECIMAL_DIGITS_MAX, sql_name


def sql_type(kind: ValueType, *, as_text: bool = False) -> str:
    """The type of a column; with `as_text` all numbers in it are strings."""
    match kind:
        case Integer() | Decimal() if as_text or _is_long(kind):
            return sql_name("text", "duckdb")
        case Decimal(scale):
            return sql_name("decimal", "duckdb", scale)
        case ZonedTimestamp():
            return "STRUCT(local TIMESTAMP, fold TINYINT, zone VARCHAR, instant TIMESTAMPTZ)"
        case Enum(members=members):
            names = (name.replace("'", "''") for _, name in members)
            return "ENUM('" + "', '".join(names) + "')"
        case Reference(key=(only,)):
            return sql_type(only, as_text=as_text)
        case Reference(key=key):
            shown = (sql_type(part, as_text=as_text) for part in key)
            return f"STRUCT({', '.join(f'key_{at} {part}' for at, part in enumerate(shown))})"
        case List(items):
            return f"{sql_type(items, as_text=as_text)}[]"
        case Struct(members=parts):
            named = (
                f"{quote_identifier(m.name)} {sql_type(m.type, as_text=as_text)}" for m in parts
            )
            return f"STRUCT({', '.join(named)})"
    return sql_name(kind.plain_kind, "duckdb")


def _is_long(kind: ValueType) -> bool:
    return isinstance(kind, Decimal) and kind.scale > DECIMAL_DIGITS_MAX


def needs_cast(kind: ValueType) -> bool:
    """Whether the type has values that Arrow brings as something else."""
    match kind:
        case Enum():
            return True
        case ZonedTimestamp():
            return False
        case Reference(key=targets):
            return any(map(needs_cast, targets))
        case List(items):
            return needs_cast(items)
        case Struct(members=members):
            return any(needs_cast(member.type) for member in members)
    return kind.plain_kind in ("uuid", "json")


def view_sql(name: str, source: str, columns: Iterable[tuple[str, ValueType, bool]]) -> str:
    """Return the view of this name: the columns (name, type, as_text) of a source, cast to their
    types."""
    parts = []
    for column, kind, as_text in columns:
        part = quote_identifier(column)
        if needs_cast(kind):
            part = f"CAST({part} AS {sql_type(kind, as_text=as_text)}) AS {part}"
        parts.append(part)
    view, scanned = quote_identifier(name), quote_identifier(source)
    return f"CREATE TEMP VIEW {view} AS SELECT {', '.join(parts)} FROM {scanned}"


def stored_view_sql(
    name: str, select: str, columns: Iterable[tuple[str, str, ValueType, bool]]
) -> str:
    """Return the view of this name: columns (name, column, type, as_text) of a SELECT, each cast to
    its type: a file may have numbers as text."""
    parts = [
        f"CAST({quote_identifier(column)} AS {sql_type(kind, as_text=as_text)})"
        f" AS {quote_identifier(field)}"
        for field, column, kind, as_text in columns
    ]
    return f"CREATE TEMP VIEW {quote_identifier(name)} AS SELECT {', '.join(parts)} FROM ({select})"
