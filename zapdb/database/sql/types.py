"""What DuckDB calls the types of zapdb.

Columns come to DuckDB as Arrow has them (see `records.arrow.columns`): a UUID is 16 bytes, JSON is
text, a member of an enum its name. A view casts them to their types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatch

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


@singledispatch
def sql_type(kind: ValueType, *, as_text: bool = False) -> str:
    """The type of a column; with `as_text` all numbers in it are strings."""
    raise NotImplementedError(f"{kind.name} has no SQL type")


def _always(name: str) -> Callable[..., str]:
    return lambda kind, *, as_text=False: name


sql_type.register(Boolean, _always("BOOLEAN"))
sql_type.register(Float, _always("DOUBLE"))
sql_type.register(Date, _always("DATE"))
sql_type.register(Timestamp, _always("TIMESTAMPTZ"))
sql_type.register(Uuid, _always("UUID"))
sql_type.register(String, _always("VARCHAR"))
sql_type.register(Binary, _always("BLOB"))
sql_type.register(Json, _always("JSON"))
sql_type.register(
    ZonedTimestamp,
    _always("STRUCT(local TIMESTAMP, fold TINYINT, zone VARCHAR, instant TIMESTAMPTZ)"),
)


@sql_type.register
def _(kind: Integer, *, as_text: bool = False) -> str:
    return "VARCHAR" if as_text else "BIGINT"


@sql_type.register
def _(kind: Decimal, *, as_text: bool = False) -> str:
    is_text = as_text or kind.scale > DECIMAL_DIGITS_MAX
    return "VARCHAR" if is_text else f"DECIMAL({DECIMAL_DIGITS_MAX}, {kind.scale})"


@sql_type.register
def _(kind: Enum, *, as_text: bool = False) -> str:
    names = (name.replace("'", "''") for _, name in kind.members)
    return "ENUM('" + "', '".join(names) + "')"


@sql_type.register
def _(kind: Reference, *, as_text: bool = False) -> str:
    parts = [sql_type(part, as_text=as_text) for part in kind.key]
    if len(parts) == 1:
        return parts[0]
    return f"STRUCT({', '.join(f'key_{at} {part}' for at, part in enumerate(parts))})"


@sql_type.register
def _(kind: List, *, as_text: bool = False) -> str:
    return f"{sql_type(kind.items, as_text=as_text)}[]"


@sql_type.register
def _(kind: Struct, *, as_text: bool = False) -> str:
    parts = (
        f"{quote_identifier(m.name)} {sql_type(m.type, as_text=as_text)}" for m in kind.members
    )
    return f"STRUCT({', '.join(parts)})"


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
