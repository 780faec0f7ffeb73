"""What Arrow makes of each value type: one column class per type, listed in `make_column`.

A column writes the source that reads one value (see `decoder`): it leaves *raw* values in lists
that belong to the column, with no Python object that Arrow has no use for. Instants, decimals,
floats and UUIDs stay bytes or plain integers; `to_array` turns a whole list into an array and
checks it at once. Structs and lists are shredded: their parts have lists of their own.

The source checks only whether the bytes are right, and need not say what is wrong: it raises
`IndexError` or `KeyError`, and the record's own decoder, which is asked then, names it.

Types are chosen so that DuckDB and Spark both take them: from Python, Spark 4 takes neither
fixed-size binaries, nor dictionaries, nor extension types. So a UUID is its 16 bytes (in DuckDB,
`token::uuid` makes it one), and a member of an enum its name.
"""

from __future__ import annotations

from collections.abc import Callable

from zapdb.records.arrow.columns.base import Column, Lists, NumberTooLarge, Place
from zapdb.records.arrow.columns.nested import CompositeKeyColumn, ListColumn, Part, StructColumn
from zapdb.records.arrow.columns.numbers import (
    DECIMAL_DIGITS_MAX,
    BooleanColumn,
    DecimalColumn,
    FloatColumn,
    IntegerColumn,
    TextColumn,
)
from zapdb.records.arrow.columns.texts import BytesColumn, EnumColumn, JsonColumn, UuidColumn
from zapdb.records.arrow.columns.times import DateColumn, TimestampColumn, ZonedColumn
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

__all__ = ["DECIMAL_DIGITS_MAX", "Column", "Lists", "NumberTooLarge", "make_column"]


def make_column(
    kind: ValueType,
    path: str,
    allocate: Callable[[], int],
    *,
    place: Place = "field",
    as_text: bool = False,
) -> Column:
    """The column of a type for values in this place; `allocate` numbers the lists of a table.

    With `as_text` all numbers in it are strings, and so of any length.
    """

    def make(inner: ValueType, where: str, place: Place) -> Column:
        return make_column(inner, where, allocate, place=place, as_text=as_text)

    at = allocate()
    match kind:
        case Integer():
            integers = IntegerColumn(path, at)
            return TextColumn(integers) if as_text else integers
        case Decimal(scale):
            decimals = DecimalColumn(kind, path, at)
            return TextColumn(decimals) if as_text or scale > DECIMAL_DIGITS_MAX else decimals
        case Boolean():
            return BooleanColumn(path, at)
        case Float():
            return FloatColumn(path, at)
        case Date():
            return DateColumn(path, at)
        case Timestamp():
            return TimestampColumn(path, at)
        case ZonedTimestamp():
            return ZonedColumn(kind, path, at, allocate)
        case Uuid():
            return UuidColumn(path, at)
        case String() | Binary():
            return BytesColumn(kind, path, at, place)
        case Json():
            return JsonColumn(path, at)
        case Enum():
            return EnumColumn(kind, path, at)
        case Reference(key=(target,)):
            return make(target, path, "key")
        case Reference(key=targets):
            key = [
                Part(f"key_{number}", make(part, f"{path}[{number}]", "key"))
                for number, part in enumerate(targets)
            ]
            return CompositeKeyColumn(path, at, key)
        case List(items):
            return ListColumn(path, at, make(items, f"{path}[]", "inside"))
        case Struct():
            members = {
                m.number: Part(m.name, make(m.type, f"{path}.{m.name}", "inside"), m.optional)
                for m in kind.members
            }
            encoded = [members[number] for number in sorted(members)]
            return StructColumn(path, at, list(members.values()), encoded)
    raise NotImplementedError(f"{kind.name} has no Arrow type")
