"""The database that a mirror is kept in: what the mirror needs of it, whatever its engine."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from zapdb.errors import UsageError
from zapdb.export.plain_tables import (
    Engine,
    PlainTable,
    define_columns,
    quote_name,
    quote_names,
)
from zapdb.mirror.state import (
    FORMAT,
    OWN_TABLES,
    STATE_TABLE,
    TABLES_TABLE,
    MirroredTable,
    MirrorSource,
    MirrorState,
    format_snapshot,
)
from zapdb.storage.change_log import Bookmark, LogSnapshot

Row = tuple[Any, ...]


class TargetBusy(Exception):
    """The target can't be reached now, or another process has it open; try again."""


class TargetFailed(Exception):
    """The target refused a statement, as it does where a table is not what the mirror made."""


class MirrorTarget(ABC):
    """A place for plain tables; `shown` is its address without secrets."""

    engine: ClassVar[Engine]
    shown: str

    @abstractmethod
    def transaction(self) -> AbstractContextManager[TargetSession]:
        """A transaction, which no other mirror's is beside; rolled back if the block raises.

        Raises `TargetBusy`, and `TargetFailed` for an error of a statement.
        """

    @abstractmethod
    def close(self) -> None:
        """Close its connection."""


class TargetSession(ABC):
    """An open transaction of a target."""

    engine: ClassVar[Engine]
    mark: ClassVar[str] = "?"
    has_keys: ClassVar[bool] = True
    """Whether tables have a primary key."""

    # What engines do in their own way

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run one statement; return its rows, if it has any."""

    @abstractmethod
    def list_tables(self) -> list[str]:
        """The names of all tables and views of the place."""

    @abstractmethod
    def describe_columns(self, name: str) -> list[Row]:
        """What the target says of a table's columns, in order; nothing if there is no table."""

    @abstractmethod
    def insert(self, name: str, table: PlainTable, rows: Iterable[Row]) -> int:
        """Insert rows, and return how many."""

    @abstractmethod
    def delete(self, name: str, table: PlainTable, keys: Sequence[Row]) -> int:
        """Delete the rows with these keys, and return how many there were."""

    def qualify(self, name: str) -> str:
        return quote_name(name)

    # The tables

    def count(self, name: str) -> int:
        return int(self.run(f"SELECT count(*) FROM {self.qualify(name)}")[0][0])

    def create(self, name: str, table: PlainTable) -> None:
        parts = define_columns(table, self.engine)
        if self.has_keys:
            key = quote_names([table.columns[at].name for at in table.key])
            parts.append(f"PRIMARY KEY ({key})")
        self.run(f"CREATE TABLE {self.qualify(name)} ({', '.join(parts)})")

    def drop(self, name: str) -> None:
        self.run(f"DROP TABLE IF EXISTS {self.qualify(name)}")

    def rename(self, name: str, to: str) -> None:
        self.run(f"ALTER TABLE {self.qualify(name)} RENAME TO {quote_name(to)}")

    def observe(self, name: str) -> str:
        """What tells whether a table is still the one that the mirror made."""
        return json.dumps([list(column) for column in self.describe_columns(name)])

    # The state

    def read_state(self) -> MirrorState | None:
        """The state; None in an empty place. Raises `UsageError` for one with other tables."""
        there = set(self.list_tables())
        if not there >= OWN_TABLES:
            self._refuse_foreign(there)
            return None
        found = self.run(
            f"SELECT format, source, tenant, bookmark, updated_at FROM {self.qualify(STATE_TABLE)}"
        )
        if len(found) != 1 or found[0][0] != FORMAT:
            self._refuse_foreign(there)
        ((_, database, tenant, bookmark, updated_at),) = found
        rows = self.run(
            "SELECT number, name, shape, baseline, row_count, columns, long_fields"
            f" FROM {self.qualify(TABLES_TABLE)}"
        )
        tables = {
            number: MirroredTable(
                number,
                name,
                shape,
                LogSnapshot.parse(baseline),
                count,
                columns,
                tuple(json.loads(long)),
            )
            for number, name, shape, baseline, count, columns, long in rows
        }
        source = MirrorSource(database, tenant)
        return MirrorState(source, Bookmark.parse(bookmark), updated_at, tables)

    def _refuse_foreign(self, there: set[str]) -> None:
        if there:
            raise UsageError(
                "the target has tables that are no mirror's",
                tables=", ".join(sorted(there)[:10]),
                hint="give the mirror a schema or a file of its own",
            )

    def begin_state(self, source: MirrorSource, bookmark: Bookmark, now: int) -> MirrorState:
        """Make the mirror's own tables in an empty place."""
        text, number = ("VARCHAR", "BIGINT") if self.engine == "duckdb" else ("TEXT", "BIGINT")
        self.run(
            f"CREATE TABLE {self.qualify(STATE_TABLE)} (format {number} NOT NULL,"
            f" source {text} NOT NULL, tenant {number} NOT NULL, bookmark {text} NOT NULL,"
            f" updated_at {number} NOT NULL)"
        )
        self.run(
            f"CREATE TABLE {self.qualify(TABLES_TABLE)} (number {number} NOT NULL,"
            f" name {text} NOT NULL, shape {text} NOT NULL, baseline {text} NOT NULL,"
            f" row_count {number} NOT NULL, columns {text} NOT NULL, long_fields {text} NOT NULL)"
        )
        marks = ", ".join([self.mark] * 5)
        self.run(
            f"INSERT INTO {self.qualify(STATE_TABLE)} VALUES ({marks})",
            (FORMAT, source.database, source.tenant, str(bookmark), now),
        )
        return MirrorState(source, bookmark, now, {})

    def save_bookmark(self, bookmark: Bookmark, now: int) -> None:
        self.run(
            f"UPDATE {self.qualify(STATE_TABLE)} SET bookmark = {self.mark},"
            f" updated_at = {self.mark}",
            (str(bookmark), now),
        )

    def save_table(self, table: MirroredTable) -> None:
        self.forget_table(table.number)
        marks = ", ".join([self.mark] * 7)
        self.run(
            f"INSERT INTO {self.qualify(TABLES_TABLE)} VALUES ({marks})",
            (
                table.number,
                table.name,
                table.shape,
                format_snapshot(table.baseline),
                table.rows,
                table.columns,
                json.dumps(table.long),
            ),
        )

    def save_rows(self, number: int, rows: int) -> None:
        self.run(
            f"UPDATE {self.qualify(TABLES_TABLE)} SET row_count = {self.mark}"
            f" WHERE number = {self.mark}",
            (rows, number),
        )

    def forget_table(self, number: int) -> None:
        self.run(f"DELETE FROM {self.qualify(TABLES_TABLE)} WHERE number = {self.mark}", (number,))
