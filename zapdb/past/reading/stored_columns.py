"""A table at a moment as SQL reads it: columns of the store's files, and the tail from the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow

from zapdb.errors import HistoryDamaged
from zapdb.past.files.file_columns import KEY, OPERATION, RowOperation, column_name, find_texts
from zapdb.past.files.history_file import NOT_THERE
from zapdb.past.files.history_manifest import HistoryFile
from zapdb.past.files.layers import list_layers
from zapdb.past.reading.state_sql import DELETED, EraRelations, StoredRelation, state_sql
from zapdb.past.reading.stored_files import (
    EraFiles,
    RelationFiles,
    relate_files,
)
from zapdb.past.reading.stored_records import Tail
from zapdb.records.arrow import arrow_decoder, arrow_schema, decode_batches
from zapdb.schema import TableSchema

if TYPE_CHECKING:
    from zapdb.past.reading.stored_table import StoredTable
    from zapdb.storage import Connection

TAIL_KEY: Final = pyarrow.field(KEY, pyarrow.binary())
TAIL_OPERATION: Final = pyarrow.field(OPERATION, pyarrow.int8())


class StoredColumns:
    """What a statement about the past reads of one table."""

    def __init__(self, bound: StoredTable, files: EraFiles, tail: Tail | None) -> None:
        self.schema: TableSchema = bound.schema
        self._bound, self._files, self._tail = bound, files, tail

    @property
    def large(self) -> list[str]:
        """The fields that a file has as text, since one of its numbers is too large."""
        return find_texts(self.schema, *(file.columns for file in self._files.files))

    def require_reachable(self) -> None:
        """Raise `HistoryUnreachable` if a directory of its files is not there any more."""
        for file in self._files.files:
            file.require_reachable()

    def find_missing(self) -> HistoryDamaged | None:
        """Return the error for a file that is not there any more."""
        files = (file for file in self._files.files if not file.is_there())
        return next((file.damaged(NOT_THERE) for file in files), None)

    def offer(
        self, connection: Connection, as_text: Sequence[str]
    ) -> tuple[str, dict[str, RelationFiles], dict[str, TailSource]]:
        """Return the SELECT of the table's columns, each under its `column_name`; the files of the
        relations that it reads, and sources. Relations have names of the table's number.

        Raises `HistoryDamaged` for a file whose bytes were changed: DuckDB would not notice."""
        for file in self._files.files:
            with suppress(FileNotFoundError):  # who reads it tells, and looks for those of now
                file.require_whole()
        number, files = self.schema.number, dict[str, RelationFiles]()
        named = {file.row.id: file for file in self._files.files}

        def relate(rows: Iterable[HistoryFile]) -> list[StoredRelation]:
            return relate_files((named[row.id] for row in rows), f"zapdb_files_{number}", files)

        rows = [file.row for file in self._files.files]
        sources = dict[str, TailSource]()
        if self._tail is not None:
            changed = list(self._tail.read(connection, b"", None).items())
            sources[f"zapdb_tail_{number}"] = TailSource(self._bound, changed, as_text)
        era = EraRelations(
            relate(row for row in rows if row.kind == "checkpoint"),
            relate(row for row in rows if row.kind == "ended"),
            [relate(layer) for layer in list_layers(rows)],
            next(iter(sources), None),
        )
        names = [column_name(field) for field in self.schema.fields]
        return state_sql(era, self._files.state.moment, names), files, sources


class TailSource:
    """The changes behind the files as a source of SQL: one row for each changed record."""

    def __init__(
        self,
        bound: StoredTable,
        rows: Sequence[tuple[bytes, bytes | None]],
        as_text: Sequence[str],
    ) -> None:
        self._bound, self._as_text = bound, list(as_text)
        self._gone = [key for key, value in rows if value is None]
        self._there = [(key, value) for key, value in rows if value is not None]
        schema = bound.schema
        fields = arrow_schema(schema, None, self._as_text)
        self._names = {column_name(field): field.name for field in schema.fields}
        self._types = pyarrow.schema(
            [TAIL_KEY, TAIL_OPERATION]
            + [pyarrow.field(column_name(f), fields.field(f.name).type) for f in schema.fields]
        )

    @property
    def schema(self) -> Any:
        return self._types

    def read(self, names: Sequence[str]) -> Iterator[Any]:
        """Raises what decoding records raises."""
        wanted = pyarrow.schema([self._types.field(name) for name in names])
        yield self._make(wanted, self._gone, DELETED, None)
        fields = [self._names[name] for name in names if name in self._names]
        if not fields:
            keys = [key for key, _ in self._there]
            yield self._make(wanted, keys, RowOperation.UPDATE, None)
            return
        bound = self._bound
        texts = [name for name in self._as_text if name in fields]
        decoder = arrow_decoder(bound.schema, fields, texts, bound.catalog.zones)
        at = 0
        for batch in decode_batches(decoder, self._there, bound.make_attachments, bound.reader):
            keys = [key for key, _ in self._there[at : at + batch.num_rows]]
            at += batch.num_rows
            yield self._make(wanted, keys, RowOperation.UPDATE, batch)

    def _make(self, wanted: Any, keys: list[bytes], operation: int, values: Any) -> Any:
        columns = []
        for one in wanted:
            if one.name == KEY:
                columns.append(pyarrow.array(keys, one.type))
            elif one.name == OPERATION:
                columns.append(pyarrow.array([int(operation)] * len(keys), one.type))
            elif values is None:
                columns.append(pyarrow.nulls(len(keys), one.type))
            else:
                columns.append(values.column(self._names[one.name]))
        return pyarrow.RecordBatch.from_arrays(columns, schema=wanted)
