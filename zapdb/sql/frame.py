"""An answer as a pandas DataFrame: columns of pandas' types if they keep all values, else
objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow
import pyarrow.compute

from zapdb.sql.decode import ColumnKind, decode_column, refuse
from zapdb.tables import pandas_frames

PLAIN: Final = frozenset(
    {
        *("boolean", "tinyint", "smallint", "integer", "bigint", "float", "double", "decimal"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "varchar", "blob", "geometry"),
    }
)
_TIMES: Final = frozenset(
    {
        *("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"),
        *("timestamp with time zone", "timestamptz_ns"),
    }
)
FINITE_MAX: Final = (1 << 63) - 2
"""Times are integers of 64 bits; the greatest, and its negative, are infinite."""


def make_result_frame(columns: Sequence[str], kinds: Sequence[ColumnKind], held: Any) -> Any:
    """A `pandas.DataFrame`; raises `SqlError` for what neither pandas nor Python has."""
    described = zip(columns, kinds, held.columns, strict=True)
    return pandas_frames.make_frame(columns, [_make_series(*column) for column in described])


def _make_series(name: str, kind: ColumnKind, column: Any) -> Any:
    if kind["id"] in _TIMES:
        bounds = pyarrow.compute.min_max(column.cast(pyarrow.int64())).as_py()
        if any(abs(bound or 0) > FINITE_MAX for bound in bounds.values()):
            raise refuse(name, kind, "a time is infinite")
        try:
            return pandas_frames.plain_series(column, nullable=True)
        except (ValueError, OverflowError):
            raise refuse(name, kind, "pandas has no such time") from None
    if kind["id"] == "enum":
        return column.to_pandas().cat.as_ordered()
    if kind["id"] == "hugeint":
        return pandas_frames.integer_series(column)
    if kind["id"] in PLAIN and kind["text"] != "JSON":
        return pandas_frames.plain_series(column, nullable=True)
    values: list[Any] = []
    for chunk in column.chunks:
        values += decode_column(name, kind, chunk)
    return pandas_frames.object_series(values)
