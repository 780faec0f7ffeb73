"""Arrow data as rows of a source: files of Parquet and Arrow, tables, and data frames.

A column is converted as a whole if its Arrow type holds the values of its field; else value by
value, so that what does not fit is an error of its row.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from zapdb.errors import InvalidValue, MissingExtra, TransactionConflict, UsageError, ZapdbError

try:
    import pyarrow
    from pyarrow import ipc, parquet, types
except ImportError as missing:
    raise MissingExtra.named("sql", "pyarrow") from missing

from zapdb.database.imports.coercion import Coerce, Coercion, make_coercer
from zapdb.database.imports.columns import match_columns
from zapdb.database.imports.row import ImportMode, RowSource, SourceRow
from zapdb.database.imports.run import Importer, ImportReport, SkippedRow
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.records.arrow import make_column
from zapdb.schema import Field, TableSchema
from zapdb.values import Json

FOOTER_SIZE_BYTES: Final = 1 << 16


class _BadValue(NamedTuple):
    error: ZapdbError


class ArrowSource(RowSource):
    """Rows of record batches; `open_reader` gives their schema and, again and again, all of
    them."""

    def __init__(
        self,
        name: str,
        open_reader: Callable[[], tuple[Any, Iterator[Any]]],
        target: TableSchema,
        mapping: Mapping[str, str],
        how: Coercion,
        mode: ImportMode = "append",
    ) -> None:
        self.name = name
        self.identity = ""
        self._open = open_reader
        self._table = target
        self._mapping = mapping
        self._how = how
        self._mode: ImportMode = mode

    def rows(self, after: str = "") -> Iterator[SourceRow]:
        schema, batches = self._open()
        fields = match_columns(self._table, schema.names, self._mapping, self._mode)
        columns = [
            (at, _ColumnReader(self._table, field, self._how))
            for at, field in enumerate(fields)
            if field is not None
        ]
        number = 1
        for batch in batches:
            for start in range(0, batch.num_rows, INSERT_BATCH_RECORDS):
                part = batch.slice(start, INSERT_BATCH_RECORDS)
                yield from _read_rows(schema.names, columns, part, number)
                number += part.num_rows


class _ColumnReader:
    """The values of one field from its columns."""

    def __init__(self, table: TableSchema, field: Field, how: Coercion) -> None:
        path = f"{table.name}.{field.name}"
        self.field = field
        self._column = make_column(field.type, path, int)
        self._coerce = make_coercer(field, path, how)
        is_json = isinstance(field.type, Json)
        self._coerce_text = make_coercer(field, path, Coercion(how.time_zone, is_json))

    def read(self, array: Any) -> list[Any]:
        """The value of each row, or what is wrong with it."""
        if self.field.optional or not array.null_count:
            with suppress(InvalidValue):
                return self._column.to_values(array)
        coerce = self._coerce_text if types.is_string(_plain_type(array.type)) else self._coerce
        return [_coerce_one(coerce, value) for value in _to_python(array)]


def _coerce_one(coerce: Coerce, value: Any) -> Any:
    try:
        return coerce(value)
    except ZapdbError as error:
        return _BadValue(error)


def _plain_type(kind: Any) -> Any:
    kind = kind.value_type if types.is_dictionary(kind) else kind
    is_string = types.is_large_string(kind) or types.is_string_view(kind)
    return pyarrow.string() if is_string else kind


def _to_python(array: Any) -> list[Any]:
    """The values of a column. Nanoseconds, which Python's times do not have, must be zero: else the
    time is its text, which is refused."""
    if types.is_timestamp(array.type) and array.type.unit == "ns":
        try:
            array = array.cast(pyarrow.timestamp("us", array.type.tz))
        except pyarrow.ArrowInvalid:
            array = array.cast(pyarrow.string())
    values: list[Any] = array.to_pylist()
    return values


def _read_rows(
    names: Sequence[str], columns: list[tuple[int, _ColumnReader]], batch: Any, number: int
) -> Iterator[SourceRow]:
    fields = [reader.field.name for _, reader in columns]
    read = [reader.read(batch.column(at)) for at, reader in columns]
    wrong = dict[int, ZapdbError]()
    for values in read:
        for at, value in enumerate(values):
            if type(value) is _BadValue:
                wrong.setdefault(at, value.error)
    for at, row in enumerate(zip(*read, strict=True)):
        if at not in wrong:
            yield SourceRow(number + at, dict(zip(fields, row, strict=True)))
            continue
        given = {name: _plain(batch.column(i)[at]) for i, name in enumerate(names)}
        yield SourceRow(number + at, {}, given, wrong[at])


def _plain(scalar: Any) -> Any:
    with suppress(ValueError, OverflowError):
        value = scalar.as_py()
        is_moment = isinstance(value, datetime.date | datetime.time)
        return value.isoformat() if is_moment else value
    return str(scalar)


# --- files ---------------------------------------------------------------------------------------


class ArrowFileSource(ArrowSource):
    """Rows of a Parquet or Arrow file, of which one batch is in memory at a time."""

    def __init__(
        self,
        path: str,
        target: TableSchema,
        mapping: Mapping[str, str],
        how: Coercion,
        mode: ImportMode = "append",
    ) -> None:
        super().__init__(path, lambda: open_arrow_file(path), target, mapping, how, mode)
        self.identity = f"file:{os.path.realpath(path)}"
        self.stamp = _stamp_of(Path(path))


def open_arrow_file(path: str) -> tuple[Any, Iterator[Any]]:
    """The schema and the batches of a file; raises `UsageError` for one of another format."""
    with Path(path).open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    try:
        if is_parquet:
            held = parquet.ParquetFile(path)
            return held.schema_arrow, held.iter_batches(INSERT_BATCH_RECORDS)
        return _open_ipc(path)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UsageError(
            "this is no Parquet or Arrow file",
            source=path,
            problem=str(error),
            hint="say what it is, as in --format csv",
        ) from None


def _open_ipc(path: str) -> tuple[Any, Iterator[Any]]:
    try:
        held = ipc.open_file(pyarrow.memory_map(path))
        return held.schema, (held.get_batch(at) for at in range(held.num_record_batches))
    except pyarrow.ArrowInvalid:
        stream = ipc.open_stream(pyarrow.memory_map(path))
        return stream.schema, iter(stream)


def _stamp_of(path: Path) -> str:
    """The size of a file and a checksum of its end, where Parquet and Arrow describe the rest."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - FOOTER_SIZE_BYTES))
        return f"{size}/{crc32(file.read())}"


# --- data in memory ------------------------------------------------------------------------------


class SkippedList:
    """Skipped rows, as the caller of `import_from` gets them."""

    def __init__(self, rows: list[SkippedRow]) -> None:
        self._rows = rows

    def add(self, row: SkippedRow) -> None:
        self._rows.append(row)

    def position(self) -> int:
        return len(self._rows)

    def go_back(self, position: int) -> None:
        del self._rows[position:]


def import_data(
    importer: Importer,
    data: Any,
    mapping: Mapping[str, str],
    time_zone: datetime.tzinfo | None,
) -> ImportReport:
    """Import a frame or Arrow data into the importer's table."""
    name, reader, is_pandas = _to_reader(data)
    how = Coercion(time_zone, nan_is_null=is_pandas)
    schema = importer.table._current().adapter.schema
    taken = iter([(reader.schema, iter(reader))])

    def open_reader() -> tuple[Any, Iterator[Any]]:
        found = next(taken, None)
        if found is None:
            raise TransactionConflict("the data cannot be read a second time")
        return found

    return importer.run(ArrowSource(name, open_reader, schema, mapping, how, importer.mode))


def _to_reader(data: Any) -> tuple[str, Any, bool]:
    """The name of the data in errors, a `pyarrow.RecordBatchReader`, and whether they are pandas'.

    pandas writes a missing value as NaN, so NaN is a null there.
    """
    kind = type(data)
    name = f"the {kind.__module__.split('.')[0]} {kind.__name__}"
    if kind.__module__.split(".")[0] == "pandas":
        try:
            return name, pyarrow.Table.from_pandas(data, preserve_index=False).to_reader(), True
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
            raise UsageError(
                "a column of the frame has values of several types", problem=str(error)
            ) from None
    if isinstance(data, pyarrow.RecordBatchReader):
        return name, data, False
    if isinstance(data, pyarrow.RecordBatch):
        data = pyarrow.Table.from_batches([data])
    if hasattr(data, "__arrow_c_stream__"):
        return name, pyarrow.RecordBatchReader.from_stream(data), False
    raise UsageError(
        "this is no data frame and no Arrow data",
        got=kind.__name__,
        hint="give a pandas or polars frame, a pyarrow.Table, or for plain dicts insert_many()",
    )
