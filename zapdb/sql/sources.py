"""What a statement reads: a table, in batches of the columns that it uses, or the catalog.

The process of the statement asks for them (see `sandbox`); what reading raises is raised here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow

from zapdb.errors import InvalidValue
from zapdb.records.arrow import arrow_schema
from zapdb.tables.arrow import ReadActive, Wanted, read_batches, read_pages
from zapdb.tables.indexes import BoundTable
from zapdb.tables.session import Session, TableRead

ROW: Final = pyarrow.field("zapdb_row", pyarrow.int8(), nullable=False)
"""Stands first, since counting asks for the first column: it costs nothing to decode."""


class Source(Protocol):
    """What a statement may scan."""

    @property
    def schema(self) -> Any:
        """A `pyarrow.Schema`."""

    def read(self, names: Sequence[str]) -> Iterator[Any]:
        """Batches of these columns, in this order."""


class HeldSource:
    """A `pyarrow.Table`."""

    def __init__(self, held: Any) -> None:
        self._held = held

    @property
    def schema(self) -> Any:
        return self._held.schema

    def read(self, names: Sequence[str]) -> Iterator[Any]:
        yield from self._held.select(list(names)).to_batches()


class TableSource:
    """The records of a table as of this thread's snapshot or transaction."""

    def __init__(self, session: Session, bound: BoundTable, as_text: Sequence[str]) -> None:
        self._session = session
        self._bound = bound
        self._as_text = as_text
        self._fields = arrow_schema(bound.adapter.schema, None, as_text)

    @property
    def schema(self) -> Any:
        return pyarrow.schema([ROW, *self._fields])

    def read(self, names: Sequence[str]) -> Iterator[Any]:
        """Raises what reading the table raises."""
        wanted = pyarrow.schema([self.schema.field(name) for name in names])
        fields = [name for name in self._fields.names if name in names]
        try:
            for batch in self._batches(fields):
                yield pyarrow.RecordBatch.from_arrays(
                    [batch.column(name) for name in names], schema=wanted
                )
        except InvalidValue as error:
            if error.hint.startswith("as_text="):
                path = ".".join(re.split(r"[.\[]", error.context["field"])[:2])
                error.hint = f"as_text=['{path}'] makes a column of strings"
            raise

    def _read_active(self, read: TableRead[Any]) -> tuple[BoundTable, Any]:
        return self._session.read_active(self._bound, read)

    def _batches(self, fields: Sequence[str]) -> Iterator[Any]:
        read: ReadActive = self._read_active
        if not fields:
            for page in read_pages(self._session, read, self._bound):
                yield pyarrow.RecordBatch.from_arrays(
                    [_zeros(len(page.rows))], schema=pyarrow.schema([ROW])
                )
            return
        schema = pyarrow.schema([self._fields.field(name) for name in fields])
        as_text = [name for name in self._as_text if name in fields]
        wanted = Wanted(schema, fields, as_text)
        for batch in read_batches(self._session, read, self._bound, wanted):
            arrays = [_zeros(batch.num_rows), *batch.columns]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=pyarrow.schema([ROW, *schema]))


def _zeros(count: int) -> Any:
    return pyarrow.Array.from_buffers(ROW.type, count, [None, pyarrow.py_buffer(bytes(count))])
