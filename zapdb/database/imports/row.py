"""What a source yields: one row, as values of fields or as the error that it has instead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zapdb.errors import Location, ZapdbError

if TYPE_CHECKING:
    from zapdb.database.sequences import OperationNumbers
    from zapdb.indexes import BoundTable
    from zapdb.storage import Connection
    from zapdb.writes import NewRecords

ImportMode = Literal["append", "upsert"]
"""Whether rows whose key exists are refused, or update their records."""


class SourceRow(NamedTuple):
    """A row of a source.

    `number` counts lines or rows from 1. `given` is the row as the source has it, for the file of
    skipped rows and for the checkpoint. `error` says why there are no values.
    """

    number: int
    values: Mapping[str, Any]
    given: Any = None
    error: ZapdbError | None = None


class RowBlock(ABC):
    """Rows of a source that follow each other, and are written in one transaction."""

    count: int

    @abstractmethod
    def rows(self) -> Sequence[SourceRow]:
        """The rows, one by one."""

    def plan(
        self, connection: Connection, bound: BoundTable, numbers: OperationNumbers
    ) -> NewRecords | None:
        """The same as new records, by columns; None if they must be planned one by one. Raises what
        is wrong with any of them."""
        return None


class RowList(RowBlock):
    """Rows that were read one by one."""

    def __init__(self, rows: Sequence[SourceRow]) -> None:
        self.count = len(rows)
        self._rows = rows

    def rows(self) -> Sequence[SourceRow]:
        return self._rows


class RowSource(ABC):
    """Where rows come from: a file, a frame, a table of another database."""

    name: str
    """How errors and progress call it."""
    identity: str
    """What identifies it for a checkpoint; empty if it can't be read again from its beginning."""
    counts_lines = False
    """Whether numbers of rows are lines of a file."""
    stamp = ""
    """Changes if a source changes that yields no `given` rows."""

    seeks = False
    """Whether it can begin behind the position of a row."""

    @abstractmethod
    def rows(self, after: str = "") -> Iterator[SourceRow]:
        """All rows in an order that does not change; those behind a position, if it seeks."""

    def blocks(self, size: int | None, passed: int) -> Iterator[RowBlock] | None:
        """All rows but the first `passed`, in blocks of `size` rows, or of as many as suit; None if
        the source has rows only, each of which has to be read."""
        return None

    def position_of(self, row: SourceRow) -> str:
        """The position of a row, if it seeks."""
        raise NotImplementedError

    def place(self, error: ZapdbError, number: int) -> ZapdbError:
        """Say in an error of which row it is; returns the error."""
        if self.counts_lines:
            error.location = Location(self.name, number)
        else:
            error.location = Location(self.name)
            error.context["row"] = number
        return error
