"""What an erasure takes out of files: the rows of one record, or values of fields; and the changes
of an erased record from the counts of moments.

Rows that lose values stay, and have in their place what erased values read as.

Which changes of a record moments count is known by the change log, which tells the transactions,
and by the rows of the record, which tell the moments: the log may have been pruned, or have what is
not in files yet. So the one is kept with the erasure, and the other is read before the rows go.
What a roll back or a migration does to a record is in no file of its table: those of moments have
its key.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import compute

from zapdb.past.files.field_erasing import find_erased_value
from zapdb.past.files.file_columns import (
    ARCHIVE,
    FROM,
    KEY,
    OPERATION,
    HistoryRows,
    MadeRow,
    RowOperation,
    column_name,
    rows_schema,
    to_schema,
)
from zapdb.past.files.history_erasures import Erasure
from zapdb.past.files.history_file import read_columns
from zapdb.past.files.history_manifest import HistoryFile, HistoryStore
from zapdb.past.files.moment_rows import MOMENTS_SCHEMA
from zapdb.past.files.rewriting import RowsChange
from zapdb.past.files.states import FileReader
from zapdb.past.files.working_store import StoreWriter
from zapdb.records import Attachments, codec_for, encode_prefix
from zapdb.records.archive_cells import cells_of, without_cells
from zapdb.schema import Field, TableSchema
from zapdb.storage.identifiers import make_uuid7

COUNTED: Final = {
    RowOperation.INSERT: "inserted",
    RowOperation.UPDATE: "updated",
    RowOperation.DELETE: "deleted",
    RowOperation.REPLACE: "updated",
}
"""What counts a change; the rows of a checkpoint are none."""


def find_redaction(working: StoreWriter, reader: FileReader, erasure: Erasure) -> RowsChange:
    """Return what an erasure takes out of a file of a table."""
    if not erasure.fields:
        return _WithoutRecord(erasure)
    assert reader.table is not None, "files of records have the schema of their table"
    revisions = working.revisions
    schemas = map(revisions.schema_of, revisions.list_of(reader.table.number))
    erased = _make_erased(working, reader.table, erasure, reader.names)
    return _WithoutValues(erased, cells_of(schemas, erasure.fields), erasure)


class _WithoutRecord:
    """Takes the rows of one key."""

    columns = (KEY,)

    def __init__(self, erasure: Erasure) -> None:
        self._key = pyarrow.scalar(erasure.key, pyarrow.binary())

    def count(self, rows: Any) -> int:
        return compute.sum(compute.equal(rows.column(KEY), self._key)).as_py() or 0

    def apply(self, rows: Any) -> Any:
        return rows.filter(compute.not_equal(rows.column(KEY), self._key))


class _WithoutValues:
    """Puts erased values into the columns of rows, of one key or all, and takes the cells out of
    their archived values; `erased` has an array of one value for each column."""

    def __init__(self, erased: dict[str, Any], cells: Set[int], erasure: Erasure) -> None:
        self.columns = (KEY, OPERATION, ARCHIVE, *erased)
        self._erased, self._cells = erased, cells
        self._key = pyarrow.scalar(erasure.key, pyarrow.binary())

    def count(self, rows: Any) -> int:
        return int(self._find_rows(rows).sum())

    def apply(self, rows: Any) -> Any:
        is_meant = self._find_meant(rows)
        for name, value in self._erased.items():
            at = rows.column_names.index(name)
            rows = rows.set_column(at, rows.field(at), _put(rows.column(at), value, is_meant))
        at = rows.column_names.index(ARCHIVE)
        return rows.set_column(at, rows.field(at), self._erase_archives(rows, is_meant))

    def _erase_archives(self, rows: Any, is_meant: Any) -> Any:
        """Return the archived values of rows without those of the cells."""
        column = rows.column(ARCHIVE)
        if column.null_count == len(column):
            return column
        archives = zip(column.to_pylist(), is_meant, strict=True)
        kept = [without_cells(one, self._cells) if meant else one for one, meant in archives]
        return pyarrow.chunked_array([pyarrow.array(kept, pyarrow.binary())])

    def _find_meant(self, rows: Any) -> Any:
        """Return for each row whether it is meant, and has values at all."""
        is_meant = compute.not_equal(rows.column(OPERATION), int(RowOperation.DELETE))
        if self._key.is_valid:
            is_meant = compute.and_(is_meant, compute.equal(rows.column(KEY), self._key))
        return is_meant.to_numpy()

    def _find_rows(self, rows: Any) -> Any:
        """Return for each row whether it loses a value."""
        is_other = numpy.zeros(rows.num_rows, dtype=bool)
        for name, value in self._erased.items():
            is_other |= _differs(rows.column(name), value)
        is_meant = self._find_meant(rows)
        archives, left = rows.column(ARCHIVE), self._erase_archives(rows, is_meant)
        if archives.null_count < len(archives):
            pairs = zip(archives.to_pylist(), left.to_pylist(), strict=True)
            is_other |= numpy.array([one != other for one, other in pairs], dtype=bool)
        return is_other & is_meant


def _put(column: Any, value: Any, is_meant: Any) -> Any:
    """Return a column with a value in the place of those of some rows."""
    joined = pyarrow.chunked_array([*column.chunks, *value.cast(column.type).chunks])
    places = numpy.where(is_meant, len(column), numpy.arange(len(column)))
    return joined.take(pyarrow.array(places))


def _differs(column: Any, value: Any) -> Any:
    """Return for each row whether it has not this value, which stands in an array."""
    wanted = value.cast(column.type)[0]
    if not wanted.is_valid:
        return column.is_valid().to_numpy()
    try:
        return compute.fill_null(compute.not_equal(column, wanted), True).to_numpy()
    except pyarrow.ArrowNotImplementedError:  # Arrow compares no structs and no lists
        plain = wanted.as_py()
        return numpy.array([one != plain for one in column.to_pylist()], dtype=bool)


def _make_erased(
    working: StoreWriter, schema: TableSchema, erasure: Erasure, names: Collection[str]
) -> dict[str, Any]:
    """Return the values that erased ones read as, each in an array, for those columns of a file
    that have some."""
    entries, found = working.revisions.list_of(schema.number), dict[str, Any]()
    for field in schema.value_fields:
        plain, text = column_name(field), column_name(field, as_text=True)
        if field.number in erasure.fields and (plain in names or text in names):
            texts = () if plain in names else (field.name,)
            value = find_erased_value(field, entries)
            name = text if texts else plain
            found[name] = _make_row(working, schema, field, value, texts).column(name)
    return found


def _make_row(
    working: StoreWriter, schema: TableSchema, field: Field, value: Any, texts: tuple[str, ...]
) -> Any:
    """Return the row of a record with one field, as files have it."""
    only = schema.with_indexes(()).with_fields((*schema.key_fields, field))
    codec = codec_for(only, working.zones)
    attachments = Attachments(working.blobs.load, make_uuid7)
    given = {f.name: f.type.neutral() for f in only.key_fields}
    key = codec.encode_key(given)
    stored = codec.encode(encode_prefix(1), {**given, field.name: value}, attachments)
    rows = HistoryRows(only, working.zones)
    made = MadeRow(key, stored, 0, RowOperation.INSERT)
    rows.add_records(only, [made], lambda _key, _value: attachments)
    return to_schema(rows.take(), rows_schema(only, texts))


class WithoutChanges:
    """Takes the changes of a record out of moments that count them: as the files of a timeline tell
    them, by moment, and as the log had them, by transaction.

    The log is that of the newest timeline, from whose beginning on a former one has other
    transactions: those up to the moment `log_ends` are the same."""

    columns = ("moment", "transaction", "unfiled")

    def __init__(
        self, erasure: Erasure, begins: int, in_files: dict[int, str], log_ends: float
    ) -> None:
        assert erasure.counted is not None, "they are counted"
        self._table, self._key = erasure.table_number, erasure.key
        self._begins, self._in_files, self._log_ends = begins, in_files, log_ends
        self._logged = {
            transaction: counted
            for counted in ("inserted", "updated", "deleted")
            for transaction in getattr(erasure.counted, counted)
        }

    def count(self, rows: Any) -> int:
        columns = [rows.column(name).to_pylist() for name in self.columns]
        return sum(self._find(*row) is not None for row in zip(*columns, strict=True))

    def apply(self, rows: Any) -> Any:
        made = rows.to_pylist()
        for row in made:
            counted = self._find(*(row[name] for name in self.columns))
            if counted is not None:
                self._subtract(row, counted)
        return pyarrow.Table.from_pylist(made, schema=MOMENTS_SCHEMA)

    def _find(self, moment: int, transaction: int | None, unfiled: Any) -> str | None:
        """Return which count of a moment has a change of the record, if one has."""
        if moment <= self._begins:
            return None
        for one in unfiled:
            if one["table_number"] == self._table and self._key in one["keys"]:
                return COUNTED[RowOperation(one["operation"])]
        counted = self._in_files.get(moment)
        if counted is None and transaction is not None and moment <= self._log_ends:
            counted = self._logged.get(transaction)
        return counted

    def _subtract(self, row: dict[str, Any], counted: str) -> None:
        row[counted] -= 1
        for one in row["changes"]:
            if one["table_number"] == self._table:
                one[counted] -= 1
        for one in row["unfiled"]:
            if one["table_number"] == self._table:
                one["keys"] = [key for key in one["keys"] if key != self._key]
        row["changes"] = [
            one for one in row["changes"] if any(one[n] for n in one if n != "table_number")
        ]


def find_changes(
    store: HistoryStore, files: Sequence[HistoryFile], erasure: Erasure
) -> dict[int, str]:
    """Return at which moments a record was changed, as files that are there tell it, and how."""
    condition = compute.field(KEY) == pyarrow.scalar(erasure.key, pyarrow.binary())
    found = dict[int, str]()
    for file in files:
        rows = read_columns(store.directory, file, [FROM, OPERATION], condition)
        for moment, operation in zip(*(one.to_pylist() for one in rows.columns), strict=True):
            if operation in COUNTED:
                found[moment] = COUNTED[operation]
    return found
