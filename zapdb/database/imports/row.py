"""What a source yields: one row, as values of fields or as the error that it has instead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from zapdb.errors import Location, ZapdbError

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
