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
from zapdb.transfer.mirror.target import (
    Addition,
    ConstraintChange,
    MirrorTarget,
    PlainForeignKey,
    Row,
    Staged,
    TargetBlocked,
    TargetBusy,
    TargetFailed,
    TargetSession,
)
from zapdb.transfer.plain_tables import (
    PlainColumn,
    PlainTable,
    quote_name,
    quote_names,
    sqlite_literal,
    to_sqlite,
)

_PASSING: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
"""The codes of errors that may not come again, such as that of a full disk."""

_COPY: Final = "zapdb_mirror_copy"
"""What a table is called until it takes the place of the one that it is a copy of."""


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
            self._connection.execute("PRAGMA foreign_keys = OFF")  # whatever SQLite was built with
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._data_version = None


class SqliteSession(TargetSession):
    engine = "sqlite"
    differs = "IS NOT"
    only_declares_keys = True  # the mirror's connection does not check them

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
        return [Addition(f"{kind} {own}", (sql,), as_found=True) for kind, own, sql in found]

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
        # Generated columns, too: others have added them.
        return self.run('SELECT name, type, "notnull", pk FROM pragma_table_xinfo(?)', (name,))

    def read_foreign_keys(self, names: Collection[str]) -> list[PlainForeignKey]:
        return [key for name in names for key in self._keys_of(name)]

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

    def constrain(self, name: str, change: ConstraintChange) -> None:
        """No ALTER gives a table other constraints, so its rows are copied to another one that
        takes its place (https://sqlite.org/lang_altertable.html)."""
        additions, copied = self.read_additions(name), quote_name(_COPY)
        self.run(f"CREATE TABLE {copied} ({', '.join(self._define(name, change))})")
        names = quote_names([column for column, *_ in self.describe_columns(name)])
        self.run(f"INSERT INTO {copied} ({names}) SELECT {names} FROM {quote_name(name)}")
        self.drop(name)
        self.run("PRAGMA legacy_alter_table = ON")  # what names the table goes on naming it
        self.rename(_COPY, name)
        self.run("PRAGMA legacy_alter_table = OFF")
        if refused := self.add(additions, name):
            raise TargetFailed(f"{refused[0].shown} of {name} can't be made again")

    def _define(self, name: str, change: ConstraintChange) -> list[str]:
        """The columns and constraints of a table, changed."""
        described = self.run(
            'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) ORDER BY cid',
            (name,),
        )
        required = {column for column, _, is_required, *_ in described if is_required}
        required = required.difference(change.optional).union(change.required)
        parts = [
            f"{quote_name(column)} {kind}"
            + (" NOT NULL" if column in required else "")
            + (f" DEFAULT {default}" if default is not None else "")
            for column, kind, _, default, _ in described
        ]
        key = sorted((place, column) for column, *_, place in described if place)
        parts.append(f"PRIMARY KEY ({quote_names([column for _, column in key])})")
        kept = [one for one in self._keys_of(name) if one not in change.dropped]
        parts += [
            f"FOREIGN KEY ({quote_names(one.columns)}) REFERENCES {quote_name(one.target)}"
            f" ({quote_names(one.target_columns)})"
            for one in (*kept, *change.added)
        ]
        return parts

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
        columns = table.key_columns
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
