"""Columns of Arrow as a pandas DataFrame that changes no value.

Integers and booleans that may be null are pandas' nullable ones, since NumPy would make floats of
them; times keep their microseconds. A member of an enum is a category, in declared order. What
pandas has no column for is as records hold it: `UUID`, `Decimal`, dates, JSON, lists, structs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from zapdb.errors import MissingExtra

try:
    import pandas
except ImportError as missing:
    raise MissingExtra.named("pandas", "pandas") from missing

import pyarrow
from pyarrow import types

from zapdb.records.arrow import make_column
from zapdb.schema import TableSchema
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Reference,
    String,
    Timestamp,
    ValueType,
)

PLAIN: Final = (Binary, Boolean, Date, Decimal, Float, Integer, String, Timestamp)
"""Types whose values pandas has in a column as Arrow has them; of all others it has objects."""


def table_frame(table: TableSchema, held: Any, as_text: Collection[str] = ()) -> Any:
    """The `pandas.DataFrame` of a `pyarrow.Table` that has fields of a table."""
    fields, series = {field.name: field for field in table.fields}, []
    for name in held.schema.names:
        field, column = fields[name], held.column(name)
        kind = _target(field.type)
        if isinstance(kind, Enum):
            series.append(category_series(column, [member for _, member in kind.members]))
        elif not isinstance(kind, PLAIN):
            path = f"{table.name}.{name}"
            to_values = make_column(kind, path, int, as_text=name in as_text).to_values
            values = (value for chunk in column.chunks for value in to_values(chunk))
            checked = (None if value is None else kind.check(value, path) for value in values)
            series.append(object_series(list(checked)))
        else:
            series.append(plain_series(column, nullable=field.optional))
    return make_frame(held.schema.names, series)


def _target(kind: ValueType) -> ValueType:
    """What a reference of one field holds, which may be a reference again."""
    while isinstance(kind, Reference) and len(kind.key) == 1:
        (kind,) = kind.key
    return kind


def make_frame(names: Sequence[str], series: Sequence[Any]) -> Any:
    """A DataFrame with these columns; names may be there twice."""
    frame = pandas.DataFrame(dict(enumerate(series)))
    frame.columns = list(names)
    return frame


def category_series(column: Any, members: Sequence[str]) -> Any:
    return pandas.Series(
        pandas.Categorical(column.to_pylist(), categories=list(members), ordered=True)
    )


def object_series(values: Sequence[Any]) -> Any:
    return pandas.Series(list(values), dtype=object)


def plain_series(column: Any, *, nullable: bool) -> Any:
    """A column of what both have: numbers, strings, bytes, times; decimals and dates as objects."""
    if nullable and types.is_integer(column.type):
        whole = pandas.UInt64Dtype() if types.is_uint64(column.type) else pandas.Int64Dtype()
        return column.to_pandas(types_mapper=lambda _: whole)
    if nullable and types.is_boolean(column.type):
        return column.to_pandas(types_mapper=lambda _: pandas.BooleanDtype())
    return column.to_pandas()


def integer_series(column: Any) -> Any:
    """A column of whole decimals: SQL's longer integers. Python's integers if they are beyond 64
    bits."""
    try:
        return plain_series(column.cast(pyarrow.int64()), nullable=True)
    except pyarrow.ArrowInvalid:
        return object_series([None if v is None else int(v) for v in column.to_pylist()])
