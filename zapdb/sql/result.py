"""The answer of a statement: rows as Python has them, as Arrow, as pandas, or shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow

from zapdb.limits import SQL_ROWS_SHOWN
from zapdb.sql.decode import ColumnKind, decode_column
from zapdb.sql.shown import show_rows

ResultRow = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """The rows that a statement of `db.sql` found, held in memory in columns.

    Iterating gives rows as tuples. Values are what records have: `UUID`, `Decimal`, `datetime` in
    UTC, JSON as it was read; structs are dicts, long integers `int`. A value that Python has not
    (a date in the year 20000, a time 24:00) raises `SqlError`, which names its column.
    """

    columns: tuple[str, ...]
    """Their names, which may be there twice."""
    types: tuple[str, ...]
    """Their types as DuckDB names them."""
    _held: Any = field()
    _kinds: tuple[ColumnKind, ...] = field()

    @classmethod
    def make(
        cls,
        columns: Sequence[str],
        kinds: Sequence[ColumnKind],
        schema: Any,
        batches: Sequence[Any],
    ) -> Result:
        """Of what the process of a statement sent: types, described, and batches."""
        held = pyarrow.Table.from_batches(batches, schema)
        return cls(
            tuple(columns),
            tuple(kind["text"] for kind in kinds),
            held.rename_columns(list(columns)),
            tuple(kinds),
        )

    def __len__(self) -> int:
        return int(self._held.num_rows)

    def __iter__(self) -> Iterator[ResultRow]:
        for batch in self._held.to_batches():
            described = zip(self.columns, self._kinds, batch.columns, strict=True)
            yield from zip(*(decode_column(*column) for column in described), strict=True)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {', '.join(self.columns)}; show() prints them>"

    def fetchall(self) -> list[ResultRow]:
        """All rows."""
        return list(self)

    def fetchone(self) -> ResultRow | None:
        """The first row, each time; None if there is none."""
        return next(iter(self), None)

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`: UUIDs and JSON are text, members of enums entries of a dictionary.

        Signed integers of 128 bits are decimals; unsigned ones, those of any size, bits, intervals
        and times with an offset are text, since Arrow has no type that holds all of them.
        """
        return self._held

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, its values as rows have them. Needs the extra `pandas`."""
        from zapdb.sql.frame import make_result_frame

        return make_result_frame(self.columns, self._kinds, self._held)

    def show(self, limit: int = SQL_ROWS_SHOWN) -> None:
        """Print the rows as a table; only the first and last ones if there are more than
        `limit`."""
        print(show_rows(self.columns, self._kinds, self._held, limit))
