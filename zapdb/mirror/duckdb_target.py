"""A mirror in a DuckDB file, opened for each transaction: nobody can read it while it is open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow

from zapdb.export.plain_tables import PlainColumn, PlainKind, PlainTable, quote_name
from zapdb.export.plain_values import to_duckdb
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.mirror.target import MirrorTarget, Row, TargetBusy, TargetFailed, TargetSession

_ARROW: Final[dict[PlainKind, Any]] = {
    "integer": pyarrow.int64(),
    "boolean": pyarrow.bool_(),
    "float": pyarrow.float64(),
    "date": pyarrow.date32(),
    "instant": pyarrow.timestamp("us", "UTC"),
    "local": pyarrow.timestamp("us"),
    "binary": pyarrow.binary(),
}
"""All others are strings, which DuckDB casts."""


class DuckdbTarget(MirrorTarget):
    """One file."""

    engine = "duckdb"

    def __init__(self, path: Path, shown: str) -> None:
        self.path = path
        self.shown = shown

    @contextmanager
    def transaction(self) -> Iterator[TargetSession]:
        try:
            connection = duckdb.connect(self.path)
        except duckdb.IOException as error:
            raise TargetBusy(str(error)) from error
        except duckdb.Error as error:
            raise TargetFailed(str(error)) from error
        try:
            connection.execute("BEGIN")
            yield DuckdbSession(connection)
            connection.execute("COMMIT")
        except duckdb.Error as error:
            raise TargetFailed(str(error)) from error
        finally:
            connection.close()

    def close(self) -> None: ...


class DuckdbSession(TargetSession):
    engine = "duckdb"
    has_keys = False  # DuckDB checks them before it sees that a row was deleted

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        found: list[Row] = self._connection.execute(sql, list(parameters)).fetchall()
        return found

    def list_tables(self) -> list[str]:
        sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
        return [name for (name,) in self.run(sql)]

    def describe_columns(self, name: str) -> list[Row]:
        return self.run(
            "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
            " WHERE table_schema = 'main' AND table_name = ? ORDER BY ordinal_position",
            (name,),
        )

    def insert(self, name: str, table: PlainTable, rows: Iterable[Row]) -> int:
        count, stream = 0, iter(rows)
        while some := list(islice(stream, INSERT_BATCH_RECORDS)):
            held = _to_arrow(table.columns, some)
            self._with_batch(held, f"INSERT INTO {quote_name(name)} SELECT * FROM zapdb_batch")
            count += len(some)
        return count

    def delete(self, name: str, table: PlainTable, keys: Sequence[Row]) -> int:
        columns = [table.columns[at] for at in table.key]
        condition = " AND ".join(
            f"t.{quote_name(c.name)} = CAST(k.{quote_name(c.name)} AS {c.sql_type('duckdb')})"
            for c in columns
        )
        sql = f"DELETE FROM {quote_name(name)} AS t USING zapdb_batch AS k WHERE {condition}"
        return self._with_batch(_to_arrow(columns, keys), sql)

    def _with_batch(self, held: Any, sql: str) -> int:
        self._connection.register("zapdb_batch", held)
        try:
            return int(self._connection.execute(sql).fetchone()[0])
        finally:
            self._connection.unregister("zapdb_batch")


def _to_arrow(columns: Sequence[PlainColumn], rows: Sequence[Row]) -> Any:
    arrays, names = [], []
    for at, column in enumerate(columns):
        kind = _ARROW.get(column.kind, pyarrow.string())
        if column.kind == "decimal":
            kind = pyarrow.decimal128(38, column.scale)
        values = [to_duckdb(column, row[at]) for row in rows]
        arrays.append(pyarrow.array(values, kind))
        names.append(column.name)
    return pyarrow.Table.from_arrays(arrays, names)
