"""A mirror in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from zapdb.files import create_text_file
from zapdb.limits import BUSY_TIMEOUT_MS, INSERT_BATCH_RECORDS
from zapdb.transfer.export.plain_tables import PlainColumn, PlainTable, quote_name, quote_names
from zapdb.transfer.export.plain_values import sqlite_literal, to_sqlite
from zapdb.transfer.mirror.additions import Addition
from zapdb.transfer.mirror.mirror_constraints import PlainForeignKey
from zapdb.transfer.mirror.target import (
    MirrorTarget,
    Row,
    Staged,
    TargetBlocked,
    TargetBusy,
    TargetFailed,
    TargetSession,
)

_PASSING: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
"""The codes of errors that may not come again, such as that of a full disk."""


class SqliteTarget(MirrorTarget):
    """One file, with a connection that stays open."""

    engine = "sqlite"
    unreachable_hint = (
        "see that the file can be written, the disk has room, and no other program holds a lock"
    )

    def __init__(self, path: Path, shown: str, mode: int) -> None:
        self.path = path
        self._mode = mode
        self.shown = shown
        self._connection: sqlite3.Connection | None = None
        self._data_version: int | None = None

    @contextmanager
    def transaction(self) -> Iterator[TargetSession]:
        try:
            connection = self._connect()
            connection.execute("BEGIN IMMEDIATE")
            self._compare(connection)
        except sqlite3.OperationalError as error:
            self.close()
            raise TargetBusy(str(error)) from error
        except sqlite3.Error as error:
            self.close()
            raise TargetFailed(str(error)) from error
        try:
            yield SqliteSession(connection)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self.close()  # which rolls back
            if str(error).startswith("error in "):  # `error in view big after drop column: …`
                raise TargetBlocked(str(error)) from error
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING:
                raise TargetBusy(str(error)) from error
            raise TargetFailed(str(error)) from error
        except BaseException:
            self.close()
            raise

    def is_there(self) -> bool:
        return self.path.exists()

    def look(self) -> None:
        with suppress(sqlite3.Error):
            self._compare(self._connect())

    def _compare(self, connection: sqlite3.Connection) -> None:
        """SQLite's number changes with each commit of other connections."""
        (found,) = connection.execute("PRAGMA data_version").fetchone()
        self._is_touched |= self._data_version not in (None, found)
        self._data_version = found

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            with suppress(OSError):  # the files that SQLite makes beside it have its mode
                create_text_file(self.path, "", self._mode)
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
            self._connection = self._data_version = None


class SqliteSession(TargetSession):
    engine = "sqlite"
    differs = "IS NOT"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        return self._connection.execute(sql, tuple(parameters)).fetchall()

    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return self._connection.execute(sql, tuple(parameters)).rowcount

    def read_additions(self, name: str) -> list[Addition]:
        found = self.run(
            "SELECT type, name, sql FROM sqlite_schema"
            " WHERE tbl_name = ? AND type IN ('index', 'trigger') AND sql IS NOT NULL",
            (name,),
        )
        return [Addition(f"{kind} {own}", (sql,)) for kind, own, sql in found]

    def tries(self, statements: Sequence[str]) -> bool:
        self.run("SAVEPOINT zapdb_addition")
        try:
            for statement in statements:
                self.run(statement)
        except sqlite3.OperationalError:
            self.run("ROLLBACK TO zapdb_addition")
            return False
        finally:
            self.run("RELEASE zapdb_addition")
        return True

    def list_tables(self) -> list[str]:
        names = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')"
        return [name for (name,) in self.run(f"{names} AND name NOT LIKE 'sqlite!_%' ESCAPE '!'")]

    def describe_columns(self, name: str) -> list[Row]:
        return self.run('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (name,))

    def required_columns(self, name: str) -> set[str]:
        return {row[0] for row in self.describe_columns(name) if row[2]}

    def require_columns(self, name: str, columns: Collection[str], *, are_required: bool) -> None:
        required = self.required_columns(name)
        changed = required.union(columns) if are_required else required.difference(columns)
        self._define(name, changed, self._keys_of(name))

    def read_foreign_keys(self) -> list[PlainForeignKey]:
        return [key for name in self.list_tables() for key in self._keys_of(name)]

    def add_foreign_key(self, key: PlainForeignKey) -> None:
        """SQLite checks foreign keys in connections that switch that on; this one does not."""
        self._define(key.table, self.required_columns(key.table), [*self._keys_of(key.table), key])

    def drop_foreign_key(self, key: PlainForeignKey) -> None:
        left = [one for one in self._keys_of(key.table) if one != key]
        self._define(key.table, self.required_columns(key.table), left)

    def _keys_of(self, name: str) -> list[PlainForeignKey]:
        found = self.run(
            'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq',
            (name,),
        )
        keys = []
        for _, rows in groupby(found, key=itemgetter(0)):
            _, targets, columns, target_columns = zip(*rows, strict=True)
            keys.append(PlainForeignKey(name, columns, targets[0], target_columns, ""))
        return keys

    def _define(
        self, name: str, required: Collection[str], keys: Sequence[PlainForeignKey]
    ) -> None:
        """Give a table other constraints. No ALTER does, and none of its rows has to be written:
        SQLite reads the definition again (https://sqlite.org/lang_altertable.html, the simpler
        procedure)."""
        described = self.run(
            "SELECT name, type, dflt_value, pk FROM pragma_table_info(?) ORDER BY cid", (name,)
        )
        parts = [
            f"{quote_name(column)} {kind}"
            + (" NOT NULL" if column in required else "")
            + (f" DEFAULT {default}" if default is not None else "")
            for column, kind, default, _ in described
        ]
        key = sorted((place, column) for column, _, _, place in described if place)
        parts.append(f"PRIMARY KEY ({quote_names([column for _, column in key])})")
        parts += [
            f"FOREIGN KEY ({quote_names(one.columns)}) REFERENCES {quote_name(one.target)}"
            f" ({quote_names(one.target_columns)})"
            for one in keys
        ]
        ((version,),) = self.run("PRAGMA schema_version")
        self.run("PRAGMA writable_schema = ON")
        self.run(
            "UPDATE sqlite_schema SET sql = ? WHERE type = 'table' AND name = ?",
            (f"CREATE TABLE {quote_name(name)} ({', '.join(parts)})", name),
        )
        self.run(f"PRAGMA schema_version = {version + 1}")
        self.run("PRAGMA writable_schema = RESET")

    def insert(self, name: str, table: PlainTable, rows: Iterable[Row]) -> int:
        return self._insert(quote_name(name), table.columns, rows)

    def _insert(self, name: str, columns: Sequence[PlainColumn], rows: Iterable[Row]) -> int:
        marks = ", ".join("?" * len(columns))
        names = quote_names([column.name for column in columns])
        sql, count, stream = f"INSERT INTO {name} ({names}) VALUES ({marks})", 0, iter(rows)
        while some := list(islice(stream, INSERT_BATCH_RECORDS)):
            made = [tuple(map(to_sqlite, columns, row)) for row in some]
            self._connection.executemany(sql, made)
            count += len(some)
        return count

    def delete(self, name: str, table: PlainTable, keys: Sequence[Row]) -> int:
        columns = [table.columns[at] for at in table.key]
        condition = " AND ".join(f"{quote_name(column.name)} = ?" for column in columns)
        made = [tuple(map(to_sqlite, columns, key)) for key in keys]
        sql = f"DELETE FROM {quote_name(name)} WHERE {condition}"
        return self._connection.executemany(sql, made).rowcount if made else 0

    @contextmanager
    def stage(self, columns: Sequence[PlainColumn], rows: Iterable[Row]) -> Iterator[Staged]:
        types = [f"{quote_name(c.name)} {c.sql_type('sqlite')}" for c in columns]
        key = quote_name(columns[0].name)
        self.run(f"CREATE TEMPORARY TABLE zapdb_staged ({', '.join(types)})")
        self._insert("temp.zapdb_staged", columns, rows)
        self.run(f"CREATE INDEX temp.zapdb_staged_key ON zapdb_staged ({key})")
        yield Staged("temp.zapdb_staged AS s")
        self.run("DROP TABLE temp.zapdb_staged")

    def add_column(self, name: str, column: PlainColumn, value: Any) -> bool:
        literal = sqlite_literal(column, value)
        is_constant = "||" not in literal  # as a text with a NUL has it
        default = f" DEFAULT {literal}" if is_constant and value is not None else ""
        self.run(
            f"ALTER TABLE {quote_name(name)} ADD COLUMN {quote_name(column.name)}"
            f" {column.sql_type('sqlite')}{default}"
        )
        return is_constant
