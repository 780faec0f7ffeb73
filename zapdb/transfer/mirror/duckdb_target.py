"""A mirror in a DuckDB file, opened for each transaction: nobody can read it while it is open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow

from zapdb.limits import DUCKDB_FILE, INSERT_BATCH_RECORDS
from zapdb.storage.retries import retry
from zapdb.transfer.mirror.target import (
    Addition,
    ConstraintChange,
    MirrorTarget,
    Row,
    Staged,
    TargetBlocked,
    TargetBusy,
    TargetFailed,
    TargetSession,
)
from zapdb.transfer.plain_tables import PlainColumn, PlainTable, quote_name, quote_text, to_duckdb
from zapdb.values.plain_kinds import PlainKind

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
    unreachable_hint = (
        "close it in other programs, since a reader of a DuckDB file keeps writers out; see that "
        "the file can be written, and the disk has room"
    )

    def __init__(self, path: Path, shown: str, mode: int) -> None:
        self.path = path
        self._mode = mode
        self.shown = shown
        self._left: list[tuple[int, int] | None] | None = None
        """The file and its log as the mirror left them: time and size."""

    @contextmanager
    def transaction(self) -> Iterator[TargetSession]:
        self.look()
        is_new = not self.path.exists()
        try:
            # While a thread of this process opens or closes the file, others are refused.
            connection = retry(
                DUCKDB_FILE, partial(duckdb.connect, self.path), on=duckdb.ResourceInUseException
            )
        except (duckdb.IOException, duckdb.ResourceInUseException) as error:
            if "not a valid" in str(error):
                raise TargetFailed(str(error)) from error
            raise TargetBusy(str(error)) from error
        except duckdb.Error as error:
            raise TargetFailed(str(error)) from error
        try:
            if is_new:  # nothing is in it yet
                self.path.chmod(self.path.stat().st_mode & self._mode)
            connection.execute("BEGIN")
            yield DuckdbSession(connection)
            connection.execute("COMMIT")
        except duckdb.DependencyException as error:
            raise TargetBlocked(str(error)) from error
        except (duckdb.IOException, duckdb.TransactionException) as error:  # such as a full disk
            raise TargetBusy(str(error)) from error
        except duckdb.Error as error:
            raise TargetFailed(str(error)) from error
        finally:
            connection.close()
            self._left = self._stat()

    def is_there(self) -> bool:
        return self.path.exists()

    def look(self) -> None:
        """Notice whether the file was changed while the mirror had it closed."""
        found = self._stat()
        self._is_touched |= self._left is not None and found != self._left
        self._left = found

    def _stat(self) -> list[tuple[int, int] | None]:
        return [_stat(path) for path in (self.path, Path(f"{self.path}.wal"))]

    def close(self) -> None: ...


def _stat(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class DuckdbSession(TargetSession):
    engine = "duckdb"
    page_rows = 50_000  # each page reads the whole table
    has_keys = False  # DuckDB checks them before it sees that a row was deleted
    has_foreign_keys = False  # they need keys, and no ALTER adds or drops one

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        found: list[Row] = self._connection.execute(sql, list(parameters)).fetchall()
        return found

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return int(self.run(sql, parameters)[0][0])

    def read_additions(self, name: str) -> list[Addition]:
        indexes = self.run(
            "SELECT index_name, sql, expressions FROM duckdb_indexes()"
            " WHERE schema_name = 'main' AND table_name = ? AND sql IS NOT NULL",
            (name,),
        )
        found = [
            Addition(f"index {own}", (sql,), columns=tuple(_names_in(expressions)), as_found=True)
            for own, sql, expressions in indexes
        ]
        comments = "SELECT comment FROM duckdb_tables() WHERE table_name = ?"
        for (comment,) in self.run(f"{comments} AND comment IS NOT NULL", (name,)):
            statement = f"COMMENT ON TABLE {{table}} IS {quote_text(comment)}"
            found.append(Addition("the comment", (statement,)))
        commented = self.run(
            "SELECT column_name, comment FROM duckdb_columns()"
            " WHERE table_name = ? AND comment IS NOT NULL",
            (name,),
        )
        for column, comment in commented:
            named = f"{{table}}.{quote_name(column)}"
            statement = f"COMMENT ON COLUMN {named} IS {quote_text(comment)}"
            found.append(Addition(f"the comment on {column}", (statement,), columns=(column,)))
        return found

    def tries(self, statements: Sequence[str]) -> bool:
        """An error would end the transaction, so it is raised: what needs another column was not
        tried."""
        for statement in statements:
            self.run(statement)
        return True

    def list_tables(self) -> list[str]:
        sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
        return [name for (name,) in self.run(sql)]

    def describe_columns(self, name: str) -> list[Row]:
        return self.run(
            "SELECT column_name, data_type, is_nullable = 'NO' FROM information_schema.columns"
            " WHERE table_schema = 'main' AND table_name = ? ORDER BY ordinal_position",
            (name,),
        )

    def constrain(self, name: str, change: ConstraintChange) -> None:
        for columns, word in ((change.optional, "DROP"), (change.required, "SET")):
            for column in columns:
                self.run(
                    f"ALTER TABLE {quote_name(name)} ALTER COLUMN {quote_name(column)}"
                    f" {word} NOT NULL"
                )

    def insert(self, name: str, table: PlainTable, rows: Iterable[Row]) -> int:
        count, stream = 0, iter(rows)
        sql = f"INSERT INTO {quote_name(name)} BY NAME SELECT * FROM zapdb_batch"
        while some := list(islice(stream, INSERT_BATCH_RECORDS)):
            with self._registered("zapdb_batch", _to_arrow(table.columns, some)):
                count += self.change(sql)
        return count

    @contextmanager
    def stage(self, columns: Sequence[PlainColumn], rows: Iterable[Row]) -> Iterator[Staged]:
        with self._registered("zapdb_staged", _to_arrow(columns, list(rows))):
            yield Staged("zapdb_staged AS s")

    @contextmanager
    def _registered(self, name: str, held: Any) -> Iterator[None]:
        self._connection.register(name, held)
        try:
            yield
        finally:
            self._connection.unregister(name)

    def _staged_value(self, column: PlainColumn) -> str:
        return f"CAST(s.{quote_name(column.name)} AS {column.sql_type('duckdb')})"

    def add_column(self, name: str, column: PlainColumn, value: Any) -> bool:
        table, made = quote_name(name), quote_name(column.name)
        self.run(f"ALTER TABLE {table} ADD COLUMN {made} {column.sql_type('duckdb')}")
        if value is not None:
            with self.stage([column], [(value,)]) as staged:
                self.change(
                    f"UPDATE {table} SET {made} = {self._staged_value(column)} FROM {staged.sql}"
                )
        return True


def _names_in(expressions: str) -> list[str]:
    """The columns of an index, such as `[a, '"b c"']`."""
    return [part.strip(" '\"") for part in expressions.strip("[]").split(",")]


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
