"""The state of a table at the end of an era, from the era's files alone, a range of keys at a time.

All files are sorted by key, and say of each row group how far it goes. So the keys are cut into
ranges of about equal size, however the changes are spread, and no more than one range is in memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import compute, parquet

from zapdb.limits import HISTORY_HELD_SIZE_BYTES
from zapdb.past.files.file_columns import (
    ARCHIVE,
    FROM,
    KEY,
    OPERATION,
    UNTIL,
    RowOperation,
    find_columns,
    find_order,
    find_texts,
    rows_schema,
    sort_rows,
    to_rows,
    to_schema,
    with_archive,
    with_until,
)
from zapdb.past.files.history_file import read_columns, read_footer, reading_file, require_whole
from zapdb.past.files.history_manifest import HistoryFile
from zapdb.schema import TableSchema
from zapdb.storage.fixed_tables import FileKind

RANGE_ROWS: Final = 50_000
"""Rows of all files together that are read at a time, about; or `HISTORY_HELD_SIZE_BYTES` of
them."""


class EraContents:
    """Files of one era, with the schema whose columns they have: the checkpoint and the segments
    among them, which tell the state at the era's end; `with_ended`, also what ended before. Raises
    `HistoryDamaged`."""

    def __init__(
        self,
        directory: Path,
        files: Iterable[HistoryFile],
        schema: TableSchema,
        *,
        with_ended: bool = False,
    ) -> None:
        kinds = ("checkpoint", "segment", "ended") if with_ended else ("checkpoint", "segment")
        self._files = [file for file in files if file.kind in kinds]
        self._table = schema
        self._sorted = [FileReader(directory, file, schema) for file in self._files]

    @cached_property
    def _schema(self) -> Any:
        """The `pyarrow.Schema` of their rows together."""
        return rows_schema(
            self._table, find_texts(self._table, *(one.names for one in self._sorted))
        )

    def list_ranges(self) -> list[tuple[bytes, bytes | None]]:
        """Return ranges of keys, each above its first key and up to its last; None: all others."""
        groups = [group for one in self._sorted for group in one.groups if group.upper]
        ranges, lower, rows, size = list[tuple[bytes, bytes | None]](), b"", 0, 0
        for group in sorted(groups, key=lambda one: one.upper or b""):
            rows, size = rows + group.rows, size + group.size_bytes
            is_full = rows >= RANGE_ROWS or size >= HISTORY_HELD_SIZE_BYTES
            if is_full and group.upper is not None and group.upper > lower:
                ranges.append((lower, group.upper))
                lower, rows, size = group.upper, 0, 0
        return [*ranges, (lower, None)]

    def read(self, within: tuple[bytes, bytes | None]) -> Any:
        """Return the rows of a range, sorted, with `_until`."""
        return with_until(sort_rows(self._read_parts(within)))

    def _read_parts(self, within: tuple[bytes, bytes | None]) -> Any:
        found = [part for one in self._sorted for part in one.read(within)]
        joined = [to_schema(part, self._schema) for part in found]
        if not joined:
            return self._schema.empty_table()
        rows = pyarrow.concat_tables(joined).combine_chunks()  # else each choice of rows does it
        return with_archive(rows)

    def read_all(self) -> Iterator[Any]:
        """Yield all rows, by range, each with the moment of the key's next one."""
        for within in self.list_ranges():
            yield self.read(within)

    def read_divided(self) -> Iterator[tuple[FileKind, Any]]:
        """Yield all rows, by range and sorted, with `_until`: those that hold at the era's end as a
        checkpoint, and those that ended."""
        for within in self.list_ranges():
            divided = _Divided(self._read_parts(within))
            yield "checkpoint", divided.there
            yield "ended", divided.ended

    def read_state(self, moment: int) -> Iterator[Any]:
        """Yield the records at the era's end as rows of a checkpoint of a moment, by range."""
        for within in self.list_ranges():
            yield as_checkpoint(_Divided(self._read_parts(within)).there, moment)


def holds_at_end(rows: Any) -> Any:
    """Return which of an era's rows hold at its end, as a mask."""
    is_last = compute.is_null(rows.column(UNTIL))
    is_there = compute.not_equal(rows.column(OPERATION), int(RowOperation.DELETE))
    return compute.and_(is_last, is_there)


class _Divided:
    """An era's rows in some order, divided by whether they hold at its end.

    Only keys and moments are sorted: values are moved once, to where they belong."""

    def __init__(self, rows: Any) -> None:
        own = rows.select([KEY, FROM, UNTIL, OPERATION])
        self._rows, self._order = rows, find_order(rows)
        self._own = with_until(own if self._order is None else own.take(self._order))
        self._holds = holds_at_end(self._own)

    @property
    def there(self) -> Any:
        """The rows that hold at its end, sorted, with `_until`."""
        return self._choose(self._holds)

    @property
    def ended(self) -> Any:
        return self._choose(compute.invert(self._holds))

    def _choose(self, mask: Any) -> Any:
        rows, order, at = self._rows, self._order, self._rows.column_names.index(UNTIL)
        chosen = rows.filter(mask) if order is None else rows.take(order.filter(mask))
        until = self._own.column(UNTIL).filter(mask)
        return chosen.set_column(at, rows.schema.field(at), until)


def as_checkpoint(rows: Any, moment: int) -> Any:
    """Return rows as those of the checkpoint that an era of this moment begins with."""
    count = rows.num_rows
    operations = numpy.full(count, int(RowOperation.CHECKPOINT), "i1")
    for name, values in (
        (FROM, pyarrow.array(numpy.full(count, moment, "i8"))),
        (OPERATION, pyarrow.array(operations)),
    ):
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), values)
    return rows


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """A row group of a file: its least and greatest keys, None where the file does not say, its
    rows, and their size without compression."""

    lower: bytes | None
    upper: bytes | None
    rows: int
    size_bytes: int


class FileReader:
    """A file that is read by row groups; without the schema of a table, one of moments. Raises
    `HistoryDamaged` and `HistoryUnreachable`."""

    def __init__(self, directory: str | Path, file: HistoryFile, table: TableSchema | None) -> None:
        self.table = table
        self.path, self.file = file.place_in(directory), file
        require_whole(self.path, file)
        with reading_file(self.path, file):
            self._metadata = parquet.read_metadata(self.path)
            there = self._metadata.schema.to_arrow_schema()
            self.names = (
                {name: name for name in there.names}
                if table is None
                else find_columns(there, table)
            )
            """The file's name of each column of rows."""
        self._kept: tuple[int, Any] | None = None

    @cached_property
    def groups(self) -> list[_RowGroup]:
        metadata = self._metadata
        return [_describe(metadata.row_group(at)) for at in range(metadata.num_row_groups)]

    def read(self, within: tuple[bytes, bytes | None]) -> Iterator[Any]:
        """Yield the rows of a range, in order, in parts; ranges are read one after the other. A row
        group that goes on in the next range is kept, so each is decoded once."""
        lower, upper = within
        for at, group in enumerate(self.groups):
            if group.upper is not None and group.upper <= lower:
                continue
            if upper is not None and group.lower is not None and group.lower > upper:
                break
            kept = self._kept
            rows = kept[1] if kept is not None and kept[0] == at else self._read_group(at)
            is_over = upper is None or (group.upper is not None and group.upper <= upper)
            self._kept = None if is_over else (at, rows)
            is_begun = group.lower is None or group.lower <= lower
            yield _cut(rows, lower if is_begun else b"", None if is_over else upper)

    def read_groups(self, columns: Collection[str] | None = None) -> Iterator[Any]:
        """Yield the row groups, all of them or some of their columns."""
        for at in range(self._metadata.num_row_groups):
            yield self._read_group(at, columns)

    def _read_group(self, at: int, columns: Collection[str] | None = None) -> Any:
        names = [self.names[name] for name in columns or self.names]
        with (
            reading_file(self.path, self.file),
            # All of it is read, and processors are for those who write.
            parquet.ParquetFile(
                self.path,
                metadata=self._metadata,
                pre_buffer=False,
                page_checksum_verification=True,
            ) as opened,
        ):
            return to_rows(opened.read_row_group(at, names, use_threads=False), self.names)


def open_file(directory: str | Path, file: HistoryFile) -> FileReader:
    """Open a file with the schema that it has; raises `HistoryDamaged` and `HistoryUnreachable`."""
    path = file.place_in(directory)
    with reading_file(path, file):
        return FileReader(directory, file, read_footer(path)[1])


def _describe(group: Any) -> _RowGroup:
    found = group.column(0).statistics
    lower = upper = None
    if found is not None and found.has_min_max:
        lower, upper = found.min, found.max
    return _RowGroup(lower, upper, group.num_rows, group.total_byte_size)


def _cut(rows: Any, lower: bytes, upper: bytes | None) -> Any:
    """Return the rows above one key, up to another one, of sorted rows."""
    keys = rows.column(KEY)
    start = _count_up_to(keys, lower) if lower else 0
    stop = len(keys) if upper is None else _count_up_to(keys, upper)
    return rows.slice(start, stop - start)


def _count_up_to(keys: Any, key: bytes) -> int:
    found = compute.sum(compute.less_equal(keys, pyarrow.scalar(key, pyarrow.binary())))
    return found.as_py() or 0


def read_operations(
    directory: str | Path, files: Iterable[HistoryFile], within: tuple[bytes, bytes | None]
) -> Iterator[tuple[bytes, int]]:
    """Yield the key and the operation of each row of a range in some files, in no order."""
    lower, upper = within
    condition = compute.field(KEY) > pyarrow.scalar(lower, pyarrow.binary())
    if upper is not None:
        condition &= compute.field(KEY) <= pyarrow.scalar(upper, pyarrow.binary())
    for file in files:
        rows = read_columns(directory, file, [KEY, OPERATION], condition)
        yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)


def read_archives(
    directory: str | Path, files: Iterable[HistoryFile], keys: Iterable[bytes], moment: int
) -> dict[bytes, bytes]:
    """Return the cells of the archived values that records had at a moment, by key, of those that
    had any; of the files of the era that has the moment. Raises `HistoryDamaged`."""
    wanted = pyarrow.array(sorted(keys), pyarrow.binary())
    condition = compute.field(KEY).isin(wanted) & (compute.field(FROM) <= moment)
    columns = [KEY, FROM, OPERATION, ARCHIVE]
    parts = [read_columns(directory, file, columns, condition) for file in files]
    if not parts:
        return {}
    rows = sort_rows(with_archive(pyarrow.concat_tables(parts)))
    last = dict(zip(*(rows.column(name).to_pylist() for name in (KEY, ARCHIVE)), strict=True))
    return {key: cell for key, cell in last.items() if cell is not None}
