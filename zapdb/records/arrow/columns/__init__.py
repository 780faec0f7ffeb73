"""What Arrow makes of each value type: one column class per type, registered with `column_of`.

A column writes the source that reads one value (see `decoder`): it leaves *raw* values in lists
that belong to the column, with no Python object that Arrow has no use for. Instants, decimals,
floats and UUIDs stay bytes or plain integers; `to_array` turns a whole list into an array and
checks it at once. Structs and lists are shredded: their parts have lists of their own.

The source checks only whether the bytes are right: it raises `IndexError` or `KeyError` if not. The
record's own decoder is called then, and its error names the cause.

Types are chosen so that DuckDB and Spark both take them: from Python, Spark 4 takes neither
fixed-size binaries, nor dictionaries, nor extension types. So a UUID is its 16 bytes (in DuckDB,
`token::uuid` makes it one), and a member of an enum its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch

from zapdb.records.arrow.columns.column import Column, ColumnPlace, Lists, NumberTooLarge
from zapdb.records.arrow.columns.nested_columns import (
    CompositeKeyColumn,
    ListColumn,
    Part,
    StructColumn,
)
from zapdb.records.arrow.columns.number_columns import (
    BooleanColumn,
    DecimalColumn,
    FloatColumn,
    IntegerColumn,
    TextColumn,
)
from zapdb.records.arrow.columns.string_columns import (
    BytesColumn,
    EnumColumn,
    JsonColumn,
    UuidColumn,
)
from zapdb.records.arrow.columns.time_columns import DateColumn, TimestampColumn, ZonedColumn
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
from zapdb.values.plain_kinds import DECIMAL_DIGITS_MAX

__all__ = ["Column", "ColumnPlace", "Lists", "NumberTooLarge", "make_column"]


def make_column(
    kind: ValueType,
    path: str,
    allocate: Callable[[], int],
    *,
    place: ColumnPlace = "field",
    as_text: bool = False,
) -> Column:
    """The column of a type for values in this place; `allocate` numbers the lists of a table.

    With `as_text` all numbers in it are strings, and so of any length.
    """
    return column_of(kind, _Spot(path, allocate(), allocate, place, as_text))


@dataclass(frozen=True, slots=True)
class _Spot:
    """Where a column is: `at` is the number of its first list."""

    path: str
    at: int
    allocate: Callable[[], int]
    place: ColumnPlace
    as_text: bool

    def make(self, kind: ValueType, path: str, place: ColumnPlace) -> Column:
        """A column inside of this one."""
        return make_column(kind, path, self.allocate, place=place, as_text=self.as_text)


@singledispatch
def column_of(kind: ValueType, spot: _Spot) -> Column:
    """The column of a type."""
    raise NotImplementedError(f"{kind.name} has no Arrow type")


def _always(column: Callable[[str, int], Column]) -> Callable[[ValueType, _Spot], Column]:
    return lambda kind, spot: column(spot.path, spot.at)


column_of.register(Boolean, _always(BooleanColumn))
column_of.register(Float, _always(FloatColumn))
column_of.register(Date, _always(DateColumn))
column_of.register(Timestamp, _always(TimestampColumn))
column_of.register(Uuid, _always(UuidColumn))
column_of.register(Json, _always(JsonColumn))


@column_of.register
def _(kind: Integer, spot: _Spot) -> Column:
    column = IntegerColumn(spot.path, spot.at)
    return TextColumn(column) if spot.as_text else column


@column_of.register
def _(kind: Decimal, spot: _Spot) -> Column:
    column = DecimalColumn(kind, spot.path, spot.at)
    return TextColumn(column) if spot.as_text or kind.scale > DECIMAL_DIGITS_MAX else column


@column_of.register
def _(kind: ZonedTimestamp, spot: _Spot) -> Column:
    return ZonedColumn(kind, spot.path, spot.at, spot.allocate)


@column_of.register(String)
@column_of.register(Binary)
def _(kind: String | Binary, spot: _Spot) -> Column:
    return BytesColumn(kind, spot.path, spot.at, spot.place)


@column_of.register
def _(kind: Enum, spot: _Spot) -> Column:
    return EnumColumn(kind, spot.path, spot.at)


@column_of.register
def _(kind: Reference, spot: _Spot) -> Column:
    if len(kind.key) == 1:
        return spot.make(kind.key[0], spot.path, "key")
    key = [
        Part(f"key_{number}", spot.make(part, f"{spot.path}[{number}]", "key"))
        for number, part in enumerate(kind.key)
    ]
    return CompositeKeyColumn(spot.path, spot.at, key)


@column_of.register
def _(kind: List, spot: _Spot) -> Column:
    return ListColumn(spot.path, spot.at, spot.make(kind.items, f"{spot.path}[]", "inside"))


@column_of.register
def _(kind: Struct, spot: _Spot) -> Column:
    members = {
        m.number: Part(m.name, spot.make(m.type, f"{spot.path}.{m.name}", "inside"), m.optional)
        for m in kind.members
    }
    encoded = [members[number] for number in sorted(members)]
    return StructColumn(spot.path, spot.at, list(members.values()), encoded)
