"""The database that a mirror is kept in: what the mirror needs of it, whatever its engine."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Final

from zapdb.errors import StorageError
from zapdb.transfer.plain_tables import (
    PlainColumn,
    PlainTable,
    define_columns,
    quote_name,
    quote_names,
)
from zapdb.values.plain_kinds import Engine

Row = tuple[Any, ...]
_PLACE: Final = PlainColumn("zapdb_place", "", "integer", False, int)
"""Numbers staged rows."""
KEY_PREFIX: Final = "zapdb_reference_"
"""What the names of a mirror's foreign keys and of their indexes begin with."""


class TargetBusy(Exception):
    """The target can't be reached now, or another process has it open; try again."""


class TargetFailed(Exception):
    """The target refused a statement, as it does where a table is not what the mirror made."""


class TargetRefused(TargetFailed):
    """The role that the mirror connects as lacks a right; `hint` says which."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(text)
        self.hint = hint


class KeysViolated(TargetFailed):
    """Rows do not satisfy a foreign key when their transaction ends."""


class TargetBlocked(Exception):
    """What others have made in the target is in the way of a change, such as a view."""


class MirrorTarget(ABC):
    """A place for plain tables; `shown` is its address without secrets."""

    engine: ClassVar[Engine]
    unreachable_hint: ClassVar[str]
    """What to do where `TargetBusy` does not end."""
    shown: str
    _is_touched = False

    @abstractmethod
    def transaction(self) -> AbstractContextManager[TargetSession]:
        """A transaction, which no other mirror's is beside; rolled back if the block raises.

        Raises `TargetBusy`, `TargetBlocked`, and `TargetFailed` for an error of a statement.
        """

    @abstractmethod
    def is_there(self) -> bool:
        """Whether there is a file or schema; a transaction would make it. Raises `TargetBusy`."""

    @abstractmethod
    def look(self) -> None:
        """Find out whether others have written to the place; cheap, and may miss it."""

    def was_touched(self) -> bool:
        """Whether others were seen to write since the last call."""
        is_touched, self._is_touched = self._is_touched, False
        return is_touched

    @abstractmethod
    def close(self) -> None:
        """Close its connection."""


@dataclass(frozen=True, slots=True)
class PlainForeignKey:
    """Columns that refer to the key of a table."""

    table: str
    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...]
    name: str = field(compare=False)
    """Empty where the target keeps none."""

    @property
    def shown(self) -> str:
        return f"the foreign key {', '.join(self.columns)} → {self.target}"


@dataclass(frozen=True, slots=True)
class NotNullConstraint:
    """Columns that are to be NOT NULL."""

    table: str
    columns: tuple[str, ...]

    @property
    def shown(self) -> str:
        return f"NOT NULL of {', '.join(self.columns)}"


Constraint = PlainForeignKey | NotNullConstraint


@dataclass(frozen=True, slots=True)
class ConstraintChange:
    """What becomes of the constraints of a table: columns that are NOT NULL from now on, or admit
    NULL, and foreign keys that come or go."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    added: tuple[PlainForeignKey, ...] = ()
    dropped: tuple[PlainForeignKey, ...] = ()

    @classmethod
    def adding(cls, constraints: Sequence[Constraint]) -> ConstraintChange:
        """The change that adds constraints of one table."""
        required = [one.columns for one in constraints if isinstance(one, NotNullConstraint)]
        keys = [one for one in constraints if isinstance(one, PlainForeignKey)]
        return cls(required=tuple(chain.from_iterable(required)), added=tuple(keys))


@dataclass(frozen=True, slots=True)
class Addition:
    """Statements that add to another table what others have added to one: rights, an index, a
    comment. The first `{table}` is its name, as SQL has it, unless the statements are `as_found` in
    the target. With `renames`, the first `{name}` is a name that is free meanwhile, and `renames`
    its own one in the end.

    `shown` says what it is. `columns` are those that it needs, if they are known. What has no
    statements can't be carried over.
    """

    shown: str
    statements: tuple[str, ...]
    renames: str = ""
    columns: tuple[str, ...] = ()
    as_found: bool = False

    def on(self, table: str, name: str) -> tuple[str, ...]:
        if self.as_found:
            return self.statements
        named = [one.replace("{table}", table, 1) for one in self.statements]
        return tuple(one.replace("{name}", name, 1) if self.renames else one for one in named)


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows as a table that statements can read: what follows FROM, and its parameters."""

    sql: str
    parameters: tuple[Any, ...] = ()


def explain(target: MirrorTarget, error: Exception, message: str) -> StorageError:
    """The error for an operator: `message` where the target is not there."""
    if isinstance(error, TargetRefused):
        return StorageError(
            "the mirror's target refuses the mirror's role",
            target=target.shown,
            cause=str(error),
            hint=error.hint,
        )
    return StorageError(
        message, target=target.shown, error=str(error), hint=target.unreachable_hint
    )


class TargetSession(ABC):
    """An open transaction of a target."""

    engine: ClassVar[Engine]
    mark: ClassVar[str] = "?"
    has_keys: ClassVar[bool] = True
    """Whether tables have a primary key."""
    has_foreign_keys: ClassVar[bool] = True
    """Whether they have foreign keys, which can come and go."""
    only_declares_keys: ClassVar[bool] = False
    """Whether foreign keys are in the way of no row of the mirror's, and a table is written anew to
    have other ones, as for any constraint."""
    differs: ClassVar[str] = "IS DISTINCT FROM"
    fills_aside: ClassVar[bool] = False
    """Whether a table is made under another name first, since readers would wait for it."""

    page_rows: ClassVar[int] = 2_000
    """How many rows one transaction compares, or fills columns of."""

    # What engines do in their own way

    @abstractmethod
    def run(self, sql: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Run one statement; return its rows, if it has any."""

    @abstractmethod
    def change(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        """Run a statement that writes; return how many rows it wrote."""

    @abstractmethod
    def list_tables(self) -> list[str]:
        """The names of all tables and views of the place."""

    @abstractmethod
    def describe_columns(self, name: str) -> list[Row]:
        """What the target says of a table's columns, in order: the name, the type, whether it is
        NOT NULL, and more; nothing if there is no table."""

    def required_columns(self, name: str) -> set[str]:
        """The columns of a table that are NOT NULL."""
        return {str(column[0]) for column in self.describe_columns(name) if column[2]}

    @abstractmethod
    def constrain(self, name: str, change: ConstraintChange) -> None:
        """Give a table of the mirror other constraints. A foreign key that is added is checked when
        transactions end from then on, if at all."""

    def read_foreign_keys(self, names: Collection[str]) -> list[PlainForeignKey]:
        """The foreign keys of these tables that a mirror has added."""
        return []

    @abstractmethod
    def insert(self, name: str, table: PlainTable, rows: Iterable[Row]) -> int:
        """Insert rows, and return how many."""

    def delete(self, name: str, table: PlainTable, keys: Sequence[Row]) -> int:
        """Delete the rows with these keys, and return how many there were."""
        with self.stage(table.key_columns, keys) as staged:
            return self.change(
                f"DELETE FROM {self.qualify(name)} AS t USING {staged.sql}"
                f" WHERE {self._join(table.key_columns)}",
                staged.parameters,
            )

    @abstractmethod
    def stage(
        self, columns: Sequence[PlainColumn], rows: Iterable[Row]
    ) -> AbstractContextManager[Staged]:
        """Rows as a table `s` with these columns, for the statements of the block."""

    @abstractmethod
    def add_column(self, name: str, column: PlainColumn, value: Any) -> bool:
        """Add a column that has a value in all rows, or None; False if that has to be filled in
        row by row."""

    @abstractmethod
    def read_additions(self, name: str) -> list[Addition]:
        """What others have added to a table that is made again."""

    @abstractmethod
    def tries(self, statements: Sequence[str]) -> bool:
        """Run statements; False if one is refused, and then nothing was done."""

    def qualify(self, name: str) -> str:
        return quote_name(name)

    def admit_readers(self, name: str) -> None:  # noqa: B027 - a file has no roles
        """Let those read a new table who may read the place."""

    # Tables

    def add(self, additions: Sequence[Addition], name: str) -> list[Addition]:
        """Add to a table what was added to the one that it replaces; returns what was refused."""
        columns = {str(column[0]) for column in self.describe_columns(name)}
        return [
            addition
            for at, addition in enumerate(additions)
            if not addition.statements
            or not columns.issuperset(addition.columns)
            or not self.tries(addition.on(self.qualify(name), quote_name(_passing_name(name, at))))
        ]

    def name_additions(
        self, additions: Sequence[Addition], refused: Sequence[Addition], name: str
    ) -> None:
        """Give what was added to a table its own name, which is free now."""
        for at, addition in enumerate(additions):
            if addition.renames and addition not in refused:
                passing = self.qualify(_passing_name(name, at))
                self.run(f"ALTER INDEX {passing} RENAME TO {quote_name(addition.renames)}")

    def count(self, name: str) -> int:
        return int(self.run(f"SELECT count(*) FROM {self.qualify(name)}")[0][0])

    def create(self, name: str, table: PlainTable) -> None:
        """Make a table without foreign keys."""
        parts = define_columns(table, self.engine)
        if self.has_keys:
            key = quote_names([column.name for column in table.key_columns])
            parts.append(f"PRIMARY KEY ({key})")
        self.run(f"CREATE TABLE {self.qualify(name)} ({', '.join(parts)})")

    def drop(self, name: str) -> None:
        self.run(f"DROP TABLE IF EXISTS {self.qualify(name)}")

    def empty(self, name: str) -> None:
        """Delete all rows; views stay, and readers see the former rows until the end."""
        self.change(f"DELETE FROM {self.qualify(name)}")

    def rename(self, name: str, to: str) -> None:
        self.run(f"ALTER TABLE {self.qualify(name)} RENAME TO {quote_name(to)}")

    def rename_column(self, name: str, column: str, to: str) -> None:
        self.run(
            f"ALTER TABLE {self.qualify(name)} RENAME COLUMN {quote_name(column)}"
            f" TO {quote_name(to)}"
        )

    def drop_column(self, name: str, column: str) -> None:
        self.run(f"ALTER TABLE {self.qualify(name)} DROP COLUMN {quote_name(column)}")

    def observe(self, name: str) -> str:
        """What tells whether a table has still the columns that the mirror gave it."""
        return json.dumps([list(column) for column in self.describe_columns(name)])

    # Rows compared with staged ones

    def find_damage(self, name: str, table: PlainTable, rows: Sequence[Row]) -> list[int]:
        """Which of these rows the table lacks, or has with other values: their places."""
        key = table.key_columns
        others = [column for at, column in enumerate(table.columns) if at not in table.key]
        missing = f"t.{quote_name(key[0].name)} IS NULL"
        condition = " OR ".join([missing, *map(self._differs, others)])
        numbered = ((*row, at) for at, row in enumerate(rows))
        with self.stage((*table.columns, _PLACE), list(numbered)) as staged:
            found = self.run(
                f"SELECT s.{quote_name(_PLACE.name)} FROM {staged.sql}"
                f" LEFT JOIN {self.qualify(name)} AS t ON {self._join(key)} WHERE {condition}",
                staged.parameters,
            )
        return [place for (place,) in found]

    def update(
        self, name: str, table: PlainTable, columns: Sequence[str], rows: Sequence[Row]
    ) -> int:
        """Write some columns of rows that are there, where they differ; return of how many."""
        key = table.key_columns
        taken = [column for column in table.columns if column.name in columns]
        places = [table.columns.index(column) for column in (*key, *taken)]
        values = [tuple([row[at] for at in places]) for row in rows]
        sets = ", ".join(f"{quote_name(c.name)} = {self._staged_value(c)}" for c in taken)
        differing = " OR ".join(self._differs(column) for column in taken)
        with self.stage((*key, *taken), values) as staged:
            return self.change(
                f"UPDATE {self.qualify(name)} AS t SET {sets} FROM {staged.sql}"
                f" WHERE {self._join(key)} AND ({differing})",
                staged.parameters,
            )

    def delete_others(
        self, name: str, table: PlainTable, keys: Iterable[Row], *, is_dry: bool = False
    ) -> int:
        """Delete the rows that have none of these keys, or only count them; return how many."""
        key = table.key_columns
        with self.stage(key, keys) as staged:
            rows = (
                f"FROM {self.qualify(name)} AS t WHERE NOT EXISTS"
                f" (SELECT 1 FROM {staged.sql} WHERE {self._join(key)})"
            )
            if is_dry:
                return int(self.run(f"SELECT count(*) {rows}", staged.parameters)[0][0])
            return self.change(f"DELETE {rows}", staged.parameters)

    def _join(self, key: Sequence[PlainColumn]) -> str:
        return " AND ".join(f"t.{quote_name(c.name)} = {self._staged_value(c)}" for c in key)

    def _differs(self, column: PlainColumn) -> str:
        return f"t.{quote_name(column.name)} {self.differs} {self._staged_value(column)}"

    def _staged_value(self, column: PlainColumn) -> str:
        return f"s.{quote_name(column.name)}"


def _passing_name(table: str, at: int) -> str:
    return f"{table}_{at}"
