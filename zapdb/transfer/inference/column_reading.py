"""How a column is asked of the source, so that its driver neither changes nor refuses a value.

SQLite's values are as they are stored: they need not have the type of their column. PostgreSQL's
are read in Python's types where these have all of the type's values; every other type is its text,
which the server writes: an interval, a range, and a date, too, since dates of Python know no
infinity and no year above 9999. What a field can't hold of that is refused with its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from zapdb.values import Json, ValueType

TEXT_SETTINGS: Final = (
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO, YMD'",
    "SET LOCAL IntervalStyle = 'postgres'",
    "SET LOCAL extra_float_digits = 1",
    "SET LOCAL bytea_output = 'hex'",
)
"""What texts of PostgreSQL depend on."""

_IN_PYTHON: Final = (
    sa.Boolean,
    sa.Integer,
    sa.Numeric,
    sa.Float,
    sa.String,
    sa.Enum,
    sa.Uuid,
    sa.types._Binary,
)
"""Types whose values Python's all are, by psycopg."""


class UndecodedText(bytes):
    """A text that is no UTF-8."""


def decode_text(raw: bytes) -> str | UndecodedText:
    """A text of a source, or its bytes if they are none."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return UndecodedText(raw)


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """A column as it is `selected`. `order` is what rows are ordered and paged by where it is one
    of the key, and `bound_as` the type of an operand that is compared with that."""

    selected: sa.ColumnElement[Any]
    order: sa.ColumnElement[Any]
    bound_as: Any
    is_text: bool = False
    """Whether `order` is a text, whatever the type of the column."""
    is_undecoded: bool = False
    """Whether what is read are the bytes of a text."""

    def bind(self, value: Any) -> sa.ColumnElement[Any]:
        """A value that was read, as an operand for `order`."""
        if isinstance(value, UndecodedText):
            return sa.cast(sa.literal(bytes(value), sa.LargeBinary), sa.Text)
        if isinstance(value, str) and isinstance(self.bound_as, sa.Date | sa.DateTime):
            return sa.cast(sa.literal(value, sa.Text), self.bound_as)
        return sa.literal(value, self.bound_as)


def read_column(
    connection: sa.Connection, column: sa.Column[Any], kind: ValueType | None = None
) -> ReadColumn:
    """How a column is read for a field of a type; None where it is only one of the key."""
    if connection.dialect.name == "postgresql":
        return _read_from_postgresql(connection, column, kind)
    raw = sa.types.NullType()
    plain = sa.type_coerce(column, raw)
    is_sqlite = connection.dialect.name == "sqlite"
    return ReadColumn(plain, plain, raw if is_sqlite else column.type)


def _read_from_postgresql(
    connection: sa.Connection, column: sa.Column[Any], kind: ValueType | None
) -> ReadColumn:
    raw, of = sa.types.NullType(), base_type(column.type)
    plain = sa.type_coerce(column, raw)
    text = sa.cast(column, sa.Text)
    if isinstance(of, sa.ARRAY):
        if isinstance(kind, Json):
            as_json = sa.cast(sa.func.to_jsonb(column), sa.Text)
            return ReadColumn(sa.type_coerce(as_json, raw), plain, raw)
        texts = sa.type_coerce(sa.cast(column, postgresql.ARRAY(sa.Text)), raw)
        return ReadColumn(plain if _is_in_python(of.item_type) else texts, plain, raw)
    if isinstance(of, sa.JSON):
        return ReadColumn(sa.type_coerce(text, raw), plain, raw)
    if isinstance(of, sa.String | sa.Enum):
        is_undecoded = _has_no_encoding(connection)
        selected: Any = sa.func.convert_to(text, "SQL_ASCII") if is_undecoded else column
        # Two texts of another case may be one key there, by an order of its own.
        is_caseless = isinstance(of, postgresql.CITEXT)
        order = text if is_caseless else plain
        bound_as = sa.Text() if is_caseless else of
        as_bytes = sa.type_coerce(selected, raw)
        return ReadColumn(as_bytes, order, bound_as, is_caseless, is_undecoded=is_undecoded)
    if _is_in_python(of):
        return ReadColumn(plain, plain, of)
    if isinstance(of, sa.Date | sa.DateTime):
        return ReadColumn(sa.type_coerce(text, raw), plain, of)
    # As the type's own output is; a cast of an inet is another text.
    shown = sa.case((column.is_not(None), sa.func.concat(column)))
    return ReadColumn(sa.type_coerce(shown, raw), shown, sa.Text(), is_text=True)


def _is_in_python(kind: Any) -> bool:
    of = base_type(kind)
    return isinstance(of, _IN_PYTHON) and not isinstance(of, sa.Enum)


def base_type(kind: Any) -> Any:
    """The type that a domain is of."""
    while isinstance(kind, postgresql.DOMAIN):
        kind = kind.data_type
    return kind


def _has_no_encoding(connection: sa.Connection) -> bool:
    """Whether the server takes any bytes for a text; asked once of each connection."""
    if "encoding" not in connection.info:
        connection.info["encoding"] = connection.exec_driver_sql("SHOW server_encoding").scalar()
    return bool(connection.info["encoding"] == "SQL_ASCII")
