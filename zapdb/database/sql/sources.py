"""A table as DuckDB scans it: a data set that is asked for columns and a filter, and streams.

DuckDB takes any `pyarrow.dataset.Dataset`, asks its scanner for a `RecordBatchReader` whenever it
begins to read, and leaves filtering to it where it passes a filter. Errors of ours on the way
through DuckDB would come out as its own: the first is kept in `failure`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow
from pyarrow import dataset

from zapdb.database.arrow import Ask, read_batches, read_pages
from zapdb.database.session import Question, Session
from zapdb.errors import InvalidValue
from zapdb.indexes import LiveTable
from zapdb.records.arrow import arrow_schema, to_reader

ROW: Final = pyarrow.field("zapdb_row", pyarrow.int8(), nullable=False)
"""Stands first, since counting asks for the first column: it costs nothing to decode."""


class TableSource(dataset.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """The records of a table as of this thread's snapshot or transaction."""

    def __init__(self, session: Session, live: LiveTable, as_text: Sequence[str]) -> None:
        self._session = session
        self._live = live
        self._as_text = as_text
        self._fields = arrow_schema(live.shape.table, None, as_text)
        self.failure: BaseException | None = None

    @property
    def schema(self) -> Any:
        return pyarrow.schema([ROW, *self._fields])

    def scanner(
        self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any
    ) -> _Scanner:
        names = self.schema.names if columns is None else list(columns)
        return _Scanner(self, names, filter)

    def _ask(self, question: Question[Any]) -> tuple[LiveTable, Any]:
        return self._session.ask(self._live, question)

    def read(self, names: Sequence[str], filter: Any) -> Iterator[Any]:
        """Batches of these columns; raises what reading the table raises."""
        wanted = pyarrow.schema([self.schema.field(name) for name in names])
        read = {*names, *(() if filter is None else names_in(filter, self.schema))}
        fields = [name for name in self._fields.names if name in read]
        try:
            for batch in self._batches(fields):
                full = batch if filter is None else batch.filter(filter)
                yield pyarrow.RecordBatch.from_arrays(
                    [full.column(n) for n in names], schema=wanted
                )
        except GeneratorExit:
            raise  # no more is wanted
        except InvalidValue as error:
            if error.hint.startswith("as_text="):
                path = ".".join(re.split(r"[.\[]", error.context["field"])[:2])
                error.hint = f"as_text=['{path}'] makes a column of strings"
            self.failure = self.failure or error
            raise
        except BaseException as error:
            self.failure = self.failure or error
            raise

    def _batches(self, fields: Sequence[str]) -> Iterator[Any]:
        ask: Ask = self._ask
        if not fields:
            for _, page in read_pages(self._session, ask):
                yield pyarrow.RecordBatch.from_arrays(
                    [_zeros(len(page))], schema=pyarrow.schema([ROW])
                )
            return
        schema = pyarrow.schema([self._fields.field(name) for name in fields])
        as_text = [name for name in self._as_text if name in fields]
        for batch in read_batches(self._session, ask, schema, fields, as_text):
            arrays = [_zeros(batch.num_rows), *batch.columns]
            yield pyarrow.RecordBatch.from_arrays(arrays, schema=pyarrow.schema([ROW, *schema]))


class _Scanner:
    """One reading of a source: what DuckDB asks of a `pyarrow.dataset.Scanner`."""

    def __init__(self, source: TableSource, names: Sequence[str], filter: Any) -> None:
        self._source = source
        self._names = names
        self._filter = filter

    @property
    def projected_schema(self) -> Any:
        return pyarrow.schema([self._source.schema.field(name) for name in self._names])

    def to_reader(self) -> Any:
        return to_reader(self.projected_schema, self._source.read(self._names, self._filter))


def names_in(filter: Any, schema: Any) -> list[str]:
    """The columns that an Arrow expression reads: those that it can't do without."""
    nothing = schema.empty_table().to_batches()
    empty = nothing[0] if nothing else pyarrow.RecordBatch.from_pylist([], schema)
    found = []
    for name in schema.names:
        try:
            empty.select([other for other in schema.names if other != name]).filter(filter)
        except pyarrow.ArrowInvalid:
            found.append(name)
    return found


def _zeros(count: int) -> Any:
    return pyarrow.Array.from_buffers(ROW.type, count, [None, pyarrow.py_buffer(bytes(count))])
