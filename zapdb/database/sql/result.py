"""The answer of a statement: rows as Python has them, as Arrow, as pandas, or shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from zapdb.database.sql.engine import open_cursor
from zapdb.database.sql.types import Convert, converter, quote
from zapdb.limits import SQL_ROWS_SHOWN

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """The rows that a statement of `db.sql` found, held in memory in columns.

    Iterating gives rows as tuples. Values are what records have: `UUID`, `Decimal`, `datetime` in
    UTC, JSON as it was read; structs are dicts, long integers `int`.
    """

    columns: tuple[str, ...]
    """Their names, which may be there twice."""
    types: tuple[str, ...]
    """Their types as DuckDB names them."""
    _held: Any = field()
    _converts: tuple[Convert | None, ...] = field()

    @classmethod
    def read(cls, relation: Any) -> Result:
        """Run a DuckDB relation to its end."""
        kinds = relation.types
        # DuckDB's own objects are let go: they outlive its module badly.
        return cls(
            tuple(relation.columns),
            tuple(map(str, kinds)),
            relation.to_arrow_table(),
            tuple(map(converter, kinds)),
        )

    def __len__(self) -> int:
        return int(self._held.num_rows)

    def __iter__(self) -> Iterator[Row]:
        for batch in self._held.to_batches():
            yield from zip(*map(self._to_values, batch.columns, self._converts), strict=True)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {', '.join(self.columns)}; show() prints them>"

    def fetchall(self) -> list[Row]:
        """All rows."""
        return list(self)

    def fetchone(self) -> Row | None:
        """The first row, each time; None where there is none."""
        return next(iter(self), None)

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`: UUIDs and JSON are text, members of enums entries of a dictionary,
        and integers of 128 bits decimals."""
        return self._held

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, its values as rows have them. Needs the extra `pandas`."""
        from zapdb.database import frames

        series = []
        for column, kind, convert in zip(
            self._held.columns, self.types, self._converts, strict=True
        ):
            if kind in ("HUGEINT", "UHUGEINT"):
                series.append(frames.integer_series(column))
            elif kind.startswith("ENUM("):
                series.append(column.to_pandas().cat.as_ordered())
            elif kind == "TIMESTAMP WITH TIME ZONE" or not _is_object(kind, convert):
                series.append(frames.plain_series(column, nullable=True))
            else:
                series.append(frames.object_series(self._to_values(column, convert)))
        return frames.make_frame(self.columns, series)

    def show(self, limit: int = SQL_ROWS_SHOWN) -> None:
        """Print the rows as a table, the first and last ones where there are more than `limit`."""
        cursor = open_cursor()
        try:
            cursor.register("zapdb_result", self._held)
            parts = [
                f"CAST(#{at} AS {kind}) AS {quote(name)}"
                for at, (name, kind) in enumerate(zip(self.columns, self.types, strict=True), 1)
            ]
            shown = cursor.sql(f"SELECT {', '.join(parts)} FROM zapdb_result")
            shown.show(max_rows=limit)
        finally:
            cursor.close()

    @staticmethod
    def _to_values(column: Any, convert: Convert | None) -> Sequence[Any]:
        values: list[Any] = column.to_pylist()
        if convert is None:
            return values
        return [None if value is None else convert(value) for value in values]


def _is_object(kind: str, convert: Convert | None) -> bool:
    """Whether pandas has no column of its own for a type."""
    return convert is not None or kind.endswith("]") or kind.startswith(("STRUCT(", "MAP("))
