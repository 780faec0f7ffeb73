"""What a column of another database can hold of a value: for scripts, mirrors and SQL.

A value type names one of these kinds, and no SQL; what each engine calls the kind stands here.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Engine = Literal["postgresql", "sqlite", "duckdb"]
PlainKind = Literal[
    "integer",
    "long_integer",
    "decimal",
    "long_decimal",
    "boolean",
    "float",
    "date",
    "instant",
    "local",
    "text",
    "binary",
    "uuid",
    "json",
]


class SqlNames(NamedTuple):
    """The SQL types of a kind, by engine."""

    postgresql: str
    sqlite: str
    duckdb: str


DECIMAL_DIGITS_MAX: Final = 38
"""Digits of the longest decimal that DuckDB, Arrow and Spark have."""

SQL_TYPES: Final[dict[PlainKind, SqlNames]] = {
    "integer": SqlNames("bigint", "INTEGER", "BIGINT"),
    "long_integer": SqlNames("numeric", "TEXT", "VARCHAR"),
    "decimal": SqlNames("numeric", "TEXT", f"DECIMAL({DECIMAL_DIGITS_MAX}, {{scale}})"),
    "long_decimal": SqlNames("numeric", "TEXT", "VARCHAR"),
    "boolean": SqlNames("boolean", "BOOLEAN", "BOOLEAN"),
    "float": SqlNames("double precision", "REAL", "DOUBLE"),
    "date": SqlNames("date", "DATE", "DATE"),
    "instant": SqlNames("timestamp with time zone", "DATETIME", "TIMESTAMPTZ"),
    "local": SqlNames("timestamp without time zone", "DATETIME", "TIMESTAMP"),
    "text": SqlNames("text", "TEXT", "VARCHAR"),
    "binary": SqlNames("bytea", "BLOB", "BLOB"),
    "uuid": SqlNames("uuid", "TEXT", "UUID"),
    "json": SqlNames("jsonb", "TEXT", "JSON"),
}
"""`{scale}` is that of the decimals."""


def sql_name(kind: PlainKind, engine: Engine, scale: int = 0) -> str:
    """What an engine calls a kind of column."""
    name: str = getattr(SQL_TYPES[kind], engine)
    return name.format(scale=scale)
