"""A mirror in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from zapdb.export.plain_tables import PlainTable, quote_name
from zapdb.export.plain_values import to_sqlite
from zapdb.limits import BUSY_TIMEOUT_MS, INSERT_BATCH_RECORDS
from zapdb.mirror.target import MirrorTarget, Row, TargetBusy, TargetFailed, TargetSession


class SqliteTarget(MirrorTarget):
    """One file, with a connection that stays open."""

    engine = "sqlite"

    def __init__(self, path: Path, shown: str) -> None:
        self.path = path
        self.shown = shown
        self._connection: sqlite3.Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[TargetSession]:
        try:
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            self.close()
            raise TargetBusy(str(error)) from error
        try:
            yield SqliteSession(connection)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()  # which rolls back
            raise TargetFailed(str(error)) from error
        except BaseException:
            self.close()
            raise

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self.path,
                timeout=BUSY_TIMEOUT_MS / 1_000,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SqliteSession(TargetSession):
    engine = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, tuple(parameters)).fetchall()

    def list_tables(self) -> list[str]:
        names = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
        return [name for (name,) in self.run(f"{names} AND name NOT LIKE 'sqlite!_%' ESCAPE '!'")]

    def describe_columns(self, name: str) -> list[Row]:
        return self.run('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (name,))

    def insert(self, name: str, table: PlainTable, rows: Iterable[Row]) -> int:
        marks = ", ".join("?" * len(table.columns))
        sql, count, stream = f"INSERT INTO {quote_name(name)} VALUES ({marks})", 0, iter(rows)
        while some := list(islice(stream, INSERT_BATCH_RECORDS)):
            made = [tuple(map(to_sqlite, table.columns, row)) for row in some]
            self._connection.executemany(sql, made)
            count += len(some)
        return count

    def delete(self, name: str, table: PlainTable, keys: Sequence[Row]) -> int:
        columns = [table.columns[at] for at in table.key]
        condition = " AND ".join(f"{quote_name(column.name)} = ?" for column in columns)
        made = [tuple(map(to_sqlite, columns, key)) for key in keys]
        sql = f"DELETE FROM {quote_name(name)} WHERE {condition}"
        return self._connection.executemany(sql, made).rowcount if made else 0
