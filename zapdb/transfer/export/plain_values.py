"""Values of plain tables as drivers take them, and as text in scripts."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from typing import Any

from zapdb.transfer.export.plain_tables import PlainColumn, quote_text


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


_COPY_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def copy_text(value: Any) -> str:
    """A value as PostgreSQL's COPY has it in its text format."""
    match value:
        case None:
            return "\\N"
        case bool():
            return "t" if value else "f"
        case str():
            return value.translate(_COPY_ESCAPES)
        case bytes():
            return f"\\\\x{value.hex()}"
        case float():
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, repr(value))
        case decimal.Decimal():
            return format(value, "f")
        case datetime.datetime():
            return value.isoformat(" ")
    return str(value)
