"""A file of a history store without what was erased: the rows of one record, or values of fields.

Only row groups that may have the record are searched. Rows that lose values stay, and have in their
place what erased values read as.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy
import pyarrow
from pyarrow import compute, parquet

from zapdb.past.files.field_erasing import find_erased_value
from zapdb.past.files.file_columns import (
    ARCHIVE,
    KEY,
    OPERATION,
    HistoryRows,
    MadeRow,
    RowOperation,
    column_name,
    find_columns,
    rows_schema,
    to_rows,
    to_schema,
)
from zapdb.past.files.history_erasures import Erasure
from zapdb.past.files.history_file import is_whole, read_footer, reading_file
from zapdb.past.files.history_manifest import HistoryFile
from zapdb.past.files.working_store import StoreWriter
from zapdb.records import Attachments, codec_for, encode_prefix
from zapdb.records.archive_cells import without_fields
from zapdb.schema import Field, TableSchema
from zapdb.storage.identifiers import make_uuid7


class RedactedFile(Protocol):
    """A file without what was erased. Both methods raise `HistoryDamaged`."""

    def count(self) -> int:
        """Return how many rows are deleted, or lose a value."""

    def read(self) -> Iterator[Any]:
        """Yield what is left of it, a row group at a time."""


def open_redacted(
    working: StoreWriter, path: Path, row: HistoryFile, erasure: Erasure
) -> RedactedFile:
    """Open a file without what was erased; raises `HistoryDamaged`."""
    with reading_file(path, row):
        if not is_whole(path, row.sha256):
            raise pyarrow.ArrowInvalid("its digest is another one")
        file = parquet.ParquetFile(path, page_checksum_verification=True)
        _, schema = read_footer(path)
        assert schema is not None, "files of records have the schema of their table"
        names = find_columns(file.schema_arrow, schema)
    if not erasure.fields:
        return _WithoutRecord(path, row, file, names, erasure)
    erased = _make_erased(working, schema, erasure, names)
    return _WithoutValues(path, row, file, names, erased, erasure)


class _Opened:
    """The row groups of a file; `names` are those of the columns of rows in it."""

    def __init__(
        self, path: Path, row: HistoryFile, file: Any, names: dict[str, str], erasure: Erasure
    ) -> None:
        self._path, self._row, self._file, self._names = path, row, file, names
        self._key = pyarrow.scalar(erasure.key, pyarrow.binary())

    def _read_groups(self, columns: Collection[str] | None = None) -> Iterator[Any]:
        names = self._names
        for at in range(self._file.num_row_groups):
            with reading_file(self._path, self._row):
                group = self._file.read_row_group(at, [names[name] for name in columns or names])
            yield to_rows(group, names)


class _WithoutRecord(_Opened):
    """A file without the rows of one key."""

    def count(self) -> int:
        found = (compute.equal(rows.column(KEY), self._key) for rows in self._read_groups([KEY]))
        return sum(compute.sum(one).as_py() or 0 for one in found)

    def read(self) -> Iterator[Any]:
        for rows in self._read_groups():
            yield rows.filter(compute.not_equal(rows.column(KEY), self._key))


class _WithoutValues(_Opened):
    """A file whose rows, of one key or all, have erased values in columns, and none of the fields
    among their archived values; `erased` has an array of one value for each column."""

    def __init__(
        self,
        path: Path,
        row: HistoryFile,
        file: Any,
        names: dict[str, str],
        erased: dict[str, Any],
        erasure: Erasure,
    ) -> None:
        super().__init__(path, row, file, names, erasure)
        self._erased, self._fields = erased, frozenset(erasure.fields)

    def count(self) -> int:
        names = [KEY, OPERATION, ARCHIVE, *self._erased]
        return sum(int(self._find_rows(rows).sum()) for rows in self._read_groups(names))

    def read(self) -> Iterator[Any]:
        for rows in self._read_groups():
            is_meant = self._find_meant(rows)
            for name, value in self._erased.items():
                at = rows.column_names.index(name)
                rows = rows.set_column(at, rows.field(at), _put(rows.column(at), value, is_meant))
            at = rows.column_names.index(ARCHIVE)
            yield rows.set_column(at, rows.field(at), self._erase_archives(rows, is_meant))

    def _erase_archives(self, rows: Any, is_meant: Any) -> Any:
        """Return the archived values of rows without those of the fields."""
        column = rows.column(ARCHIVE)
        if column.null_count == len(column):
            return column
        cells = zip(column.to_pylist(), is_meant, strict=True)
        kept = [without_fields(cell, self._fields) if meant else cell for cell, meant in cells]
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
        cells, left = rows.column(ARCHIVE), self._erase_archives(rows, is_meant)
        if cells.null_count < len(cells):
            pairs = zip(cells.to_pylist(), left.to_pylist(), strict=True)
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
