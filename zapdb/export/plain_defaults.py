"""Defaults of fields as SQL: constants, the moment of an insert, a generated UUID."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Sequence
from typing import Any, Final

from zapdb.export.plain_tables import PlainColumn, quote_text
from zapdb.export.plain_values import sqlite_literal
from zapdb.schema import Field, Now
from zapdb.values.plain_kinds import Engine

SQLITE_NOW: Final = "(strftime('%Y-%m-%d %H:%M:%f000', 'now'))"
"""In UTC, with as many digits as the values that are there."""


def defaults_of(field: Field, columns: Sequence[PlainColumn], engine: Engine) -> list[str] | None:
    """The default of each column of a field, as SQL after DEFAULT has it; nothing for a field
    without one, or with null, and None where there is no equivalent.

    Raises `LongNumber`. The numbers of a sequence are no default.
    """
    if field.generated == "uuid":
        return ["gen_random_uuid()"] if engine == "postgresql" else None
    if isinstance(field.default, Now):
        return _now(field.default, columns, engine)
    if not field.has_constant or field.default is None:
        return []
    literal = postgresql_literal if engine == "postgresql" else _sqlite
    return [literal(column, column.read(field.default)) for column in columns]


def _now(now: Now, columns: Sequence[PlainColumn], engine: Engine) -> list[str] | None:
    if engine == "postgresql":
        zone = quote_text(now.zone)
        by_kind = {"instant": "now()", "local": f"(now() AT TIME ZONE {zone})", "text": zone}
        return [by_kind[column.kind] for column in columns]
    if now.zone not in ("", "UTC"):
        return None  # whose rules SQLite does not have
    return [SQLITE_NOW if column.kind != "text" else quote_text(now.zone) for column in columns]


def postgresql_literal(_: PlainColumn, value: Any) -> str:
    """A value as PostgreSQL's SQL has it: a text, which its column's type reads."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case str():
            return quote_text(value)
        case bytes():
            return quote_text(f"\\x{value.hex()}")
        case float():
            return quote_text(
                {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
            )
        case decimal.Decimal():
            return quote_text(format(value, "f"))
        case datetime.datetime():
            return quote_text(value.isoformat(" "))
    return quote_text(str(value))


def _sqlite(column: PlainColumn, value: Any) -> str:
    return f"({sqlite_literal(column, value)})"
