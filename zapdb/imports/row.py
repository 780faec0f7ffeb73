"""What a source yields: one row, as values of fields or as the error that it has instead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zapdb.errors import Location, ZapdbError
from zapdb.jobs.exclusive import measure_value

if TYPE_CHECKING:
    from zapdb.storage import Connection
    from zapdb.tables.generated_values import OperationNumbers
    from zapdb.tables.indexes import BoundTable
    from zapdb.tables.writes import WritePlan

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


BatchSize = Callable[[int], int]
"""(as many rows as suit the source) → as many as the next batch should have."""


class RowBlock(ABC):
    """Rows of a source that follow each other, and are written in one transaction."""

    count: int

    @abstractmethod
    def measure_bytes(self) -> int:
        """About how many bytes its values have."""

    @abstractmethod
    def rows(self) -> Sequence[SourceRow]:
        """The rows, one by one."""

    def plan(
        self, connection: Connection, bound: BoundTable, numbers: OperationNumbers
    ) -> WritePlan | None:
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

    def measure_bytes(self) -> int:
        return sum(measure_value(value) for row in self._rows for value in row.values.values())


class SourceChanged(Exception):
    """What an earlier run has imported of a source is not the same any more."""


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
        """All rows in an order that does not change; those behind a position, if it seeks.

        Raises `SourceChanged`."""

    def blocks(self, size: BatchSize, passed: int) -> Iterator[RowBlock] | None:
        """All rows but the first `passed`, in blocks of as many rows as `size` says of each; None
        if the source has rows only, each of which has to be read."""
        return None

    def estimate_rows(self, read: int) -> int | None:
        """About how many rows it has, once so many were read; None if nothing tells."""
        return None

    def position_of(self, row: SourceRow) -> str:
        """The position of the row that was given last, if it seeks."""
        raise NotImplementedError

    def place(self, error: ZapdbError, number: int) -> ZapdbError:
        """Say in an error of which row it is; returns the error."""
        if self.counts_lines:
            error.location = Location(self.name, number)
        else:
            error.location = Location(self.name)
            error.context["row"] = number
        return error
