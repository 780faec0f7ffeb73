"""Arrow data as rows of a source: files of Parquet and Arrow, tables, and data frames.

A column is converted as a whole if its Arrow type holds the values of its field; else value by
value, so that what does not fit is an error of its row.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow
from pyarrow import types

from zapdb.errors import InvalidValue, MissingExtra, TransactionConflict, UsageError, ZapdbError

try:
    import pyarrow
    from pyarrow import compute, types
except ImportError as missing:
    raise MissingExtra.named("sql", "pyarrow") from missing

from zapdb.imports.coercion import Coerce, Coercion, ForeignText, make_coercer
from zapdb.imports.column_matching import match_columns
from zapdb.imports.importer import Importer, ImportReport
from zapdb.imports.row import BatchSize, ImportMode, RowBlock, RowSource, SourceRow
from zapdb.jobs.exclusive import ExclusiveWork, ProgressReporter, is_noted, working_on
from zapdb.limits import (
    IMPORT_BLOCK_RECORDS,
    IMPORT_BLOCK_SIZE_BYTES,
    IMPORT_EXPANDED_SIZE_BYTES,
    IMPORT_EXPANSION_MAX,
)
from zapdb.records.arrow import GivenColumn, make_column, parse_uuids
from zapdb.records.arrow.bounded_ipc import BoundedIpc, measure_written_out
from zapdb.records.arrow.bounded_parquet import BoundedFile
from zapdb.schema import Field, TableSchema
from zapdb.storage import Connection
from zapdb.tables.generated_values import OperationNumbers, generate_values
from zapdb.tables.indexes import BoundTable
from zapdb.tables.writes import WritePlan
from zapdb.tables.writes.column_inserts import plan_column_inserts
from zapdb.values import Timestamp, Uuid

FOOTER_SIZE_BYTES: Final = 1 << 16
ROW_SIZE_BYTES: Final = 16
"""What a row counts besides its values where a file is bounded."""
_NUMBERS: Final = count(1)
"""Those of the frames that this process has imported."""


class _BadValue(NamedTuple):
    error: ZapdbError


class ArrowData(NamedTuple):
    """The schema of Arrow data and their record batches, the first of which begins with some rows
    that are to be passed over."""

    schema: Any
    batches: Iterator[Any]
    passed: int = 0


class ArrowSource(RowSource):
    """Rows of record batches; `open_data` gives them, without some or all of the rows that are to
    be passed over."""

    def __init__(
        self,
        name: str,
        open_data: Callable[[int], ArrowData],
        target: TableSchema,
        mapping: Mapping[str, str],
        how: Coercion,
        mode: ImportMode = "append",
    ) -> None:
        self.name = name
        self.identity = ""
        self.count: int | None = None
        """How many rows there are, if that is known."""
        self._open = open_data
        self._table = target
        self._mapping = mapping
        self._how = how
        self._mode: ImportMode = mode

    def rows(self, after: str = "") -> Iterator[SourceRow]:
        for block in self.blocks(lambda suiting: suiting, 0):
            yield from block.rows()

    def estimate_rows(self, read: int) -> int | None:
        return self.count

    def blocks(self, size: BatchSize, passed: int) -> Iterator[RowBlock]:
        schema, batches, left = self._open(passed)
        schema, batches = _without_views(schema, batches)
        fields = match_columns(self._table, schema.names, self._mapping, self._mode)
        columns = [
            (at, _ColumnReader(self._table, field, self._how))
            for at, field in enumerate(fields)
            if field is not None
        ]
        number = passed + 1
        for part in _cut(_pass_over(batches, left), lambda: size(IMPORT_BLOCK_RECORDS)):
            yield ArrowBlock(self._table, columns, part, number)
            number += part.num_rows


def _pass_over(batches: Iterable[Any], left: int) -> Iterator[Any]:
    for batch in batches:
        rest = batch.slice(min(left, batch.num_rows))
        left -= batch.num_rows - rest.num_rows
        if rest.num_rows:
            yield rest


def _cut(batches: Iterable[Any], size: Callable[[], int]) -> Iterator[Any]:
    """The rows in parts of this size, wherever the batches end; in smaller ones if they are
    large."""
    held = list[Any]()
    for batch in batches:
        held.append(batch)
        rows = sum(one.num_rows for one in held)
        held_bytes = sum(1 + measure_written_out(one) for one in held)
        fitting = max(1, IMPORT_BLOCK_SIZE_BYTES * rows // held_bytes)
        if rows < min(size(), fitting):
            continue
        whole, start = _concat(held), 0
        while rows - start >= (wanted := min(size(), fitting)):
            yield whole.slice(start, wanted)
            start += wanted
        rest = whole.slice(start)
        held = [rest] if rest.num_rows else []
    if held:
        yield _concat(held)


def _concat(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    arrays = [
        pyarrow.chunked_array([batch.column(at) for batch in batches]).combine_chunks()
        for at in range(batches[0].num_columns)
    ]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=batches[0].schema)


class ArrowBlock(RowBlock):
    """A part of a record batch."""

    def measure_bytes(self) -> int:
        return measure_written_out(self._batch)

    def __init__(
        self,
        table: TableSchema,
        columns: list[tuple[int, _ColumnReader]],
        batch: Any,
        number: int,
    ) -> None:
        self.count = batch.num_rows
        self._table = table
        self._columns = columns
        self._batch = batch
        self._number = number

    def rows(self) -> list[SourceRow]:
        return list(_read_rows(self._batch.schema.names, self._columns, self._batch, self._number))

    def plan(
        self, connection: Connection, bound: BoundTable, numbers: OperationNumbers
    ) -> WritePlan | None:
        if not bound.adapter.is_current or bound.schema != self._table:
            return None
        given = {
            reader.field.name: reader.give(self._batch.column(at)) for at, reader in self._columns
        }
        if bound.adapter.made_fields:
            given |= self._make(connection, bound, numbers, given)
        return plan_column_inserts(bound, given, self.count)

    def _make(
        self,
        connection: Connection,
        bound: BoundTable,
        numbers: OperationNumbers,
        given: Mapping[str, GivenColumn],
    ) -> dict[str, GivenColumn]:
        """The columns of values that are made at insert and not given; those that are given are
        noted."""
        names = [f.name for f in bound.adapter.made_fields]
        there = [name for name in names if name in given]
        if there:
            columns = zip(*(given[name].read() for name in there), strict=True)
            rows = [dict(zip(there, row, strict=True)) for row in columns]
        else:
            rows = [{}] * self.count
        made = [values for values, _ in generate_values(numbers, connection, bound, rows)]
        return {
            name: GivenColumn.of([values[name] for values in made])
            for name in names
            if name not in given
        }


class _ColumnReader:
    """The values of one field from its columns."""

    def __init__(self, table: TableSchema, field: Field, how: Coercion) -> None:
        path = f"{table.name}.{field.name}"
        self.field = field
        self._is_utc = how.time_zone is datetime.UTC
        self._column = make_column(field.type, path, int)
        self._coerce = make_coercer(field, path, replace(how, is_text=True))

    def give(self, array: Any) -> GivenColumn:
        """The column as it is encoded; what is wrong with a value is raised when it is read."""
        if isinstance(self.field.type, Uuid):
            array = parse_uuids(array)
        kind = array.type
        if self._is_utc and isinstance(self.field.type, Timestamp) and types.is_timestamp(kind):
            array = array.cast(pyarrow.timestamp(kind.unit, "UTC")) if kind.tz is None else array
        return GivenColumn(array, cache(partial(self._read_right, array)))

    def _read_right(self, array: Any) -> list[Any]:
        values = self.read(array)
        for value in values:
            if type(value) is _BadValue:
                raise value.error
        return values

    def read(self, array: Any) -> list[Any]:
        """The value of each row, or what is wrong with it."""
        if self.field.optional or not array.null_count:
            with suppress(InvalidValue):
                return self._column.to_values(array)
        return [_coerce_one(self._coerce, value) for value in _to_python(array)]


def _coerce_one(coerce: Coerce, value: Any) -> Any:
    try:
        return coerce(value)
    except ZapdbError as error:
        return _BadValue(error)


def _to_python(array: Any) -> list[Any]:
    """The values of a column; one that Python has no equal of stays Arrow's, and is refused."""
    kind = array.type
    if isinstance(array, pyarrow.ExtensionArray):
        return _to_python(array.storage)
    if types.is_dictionary(kind):
        return _to_python(array.dictionary_decode())
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        items = iter(_to_python(array.flatten()))
        sizes = compute.list_value_length(array).to_pylist()
        return [None if size is None else list(islice(items, size)) for size in sizes]
    if types.is_struct(kind):
        columns = [_to_python(array.field(at)) for at in range(kind.num_fields)]
        names = [field.name for field in kind]
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        is_there = array.is_valid().to_pylist()
        return [
            dict(zip(names, row, strict=True)) if there else None
            for there, row in zip(is_there, rows, strict=True)
        ]
    try:
        values: list[Any] = _in_units_of_python(array).to_pylist()
    except (ValueError, OverflowError):
        return [_scalar_to_python(scalar) for scalar in array]
    return values


def _scalar_to_python(scalar: Any) -> Any:
    array, kind = pyarrow.array([scalar], scalar.type), scalar.type
    with suppress(ValueError, OverflowError):
        return _in_units_of_python(array)[0].as_py()
    if (types.is_timestamp(kind) or types.is_time64(kind)) and kind.unit == "ns":
        return ForeignText(array.cast(pyarrow.string())[0].as_py())
    return scalar


def _in_units_of_python(array: Any) -> Any:
    """The array, if need be in other units, so that nothing gets lost where Python's values are
    made; raises `ValueError` if they have no room."""
    kind = array.type
    if types.is_date64(kind):
        return array.cast(pyarrow.date32())
    if types.is_timestamp(kind) and kind.unit == "ns":
        return array.cast(pyarrow.timestamp("us", kind.tz))
    if types.is_time64(kind) and kind.unit == "ns":
        return array.cast(pyarrow.time64("us"))
    if types.is_duration(kind) and kind.unit == "ns":
        return array.cast(pyarrow.duration("us"))
    return array


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
    array = pyarrow.array([scalar], scalar.type)
    with suppress(ValueError, pyarrow.ArrowException):
        return array.cast(pyarrow.string())[0].as_py()
    return f"a {scalar.type} that can't be shown"


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
        super().__init__(path, partial(open_arrow_file, path), target, mapping, how, mode)
        self.identity = f"file:{os.path.realpath(path)}"
        self.stamp = _stamp_of(Path(path))

    def estimate_rows(self, read: int) -> int | None:
        if self.count is None:
            self.count = _count_rows(self.name)
        return self.count or None


def _count_rows(path: str) -> int:
    """How many rows a Parquet file has; 0 for one of Arrow, which does not say."""
    try:
        with BoundedFile(path) as held:
            return held.rows
    except pyarrow.ArrowInvalid:
        return 0


def open_arrow_file(path: str, passed: int = 0) -> ArrowData:
    """The data of a file without its first rows; raises `UsageError` for one of another format."""
    with Path(path).open("rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    try:
        found = _open_parquet(path, passed) if is_parquet else _open_ipc(path, passed)
        return found._replace(batches=_naming_file(path, _within(path, found.batches)))
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UsageError(
            "this is no Parquet or Arrow file",
            source=path,
            problem=str(error),
            hint=_hint_at(error, "say what it is, as in --format csv"),
        ) from None


def _within(path: str, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches; raises `pyarrow.ArrowInvalid` before the one with which a small file stands for
    too much, as a value that each row names does."""
    allowed = max(IMPORT_EXPANDED_SIZE_BYTES, IMPORT_EXPANSION_MAX * Path(path).stat().st_size)
    for batch in batches:
        allowed -= sum(map(_measure_values, batch)) + ROW_SIZE_BYTES * batch.num_rows
        if allowed < 0:
            raise pyarrow.ArrowInvalid(
                f"its rows are too large for its size (limit: {IMPORT_EXPANSION_MAX:,} bytes for "
                "each of the file)"
            )
        yield batch


def _measure_values(array: Any) -> int:
    """The bytes of a column's values, written out."""
    if types.is_dictionary(array.type):
        with suppress(pyarrow.ArrowNotImplementedError):  # for values of a fixed width
            sizes = compute.binary_length(array.dictionary).take(array.indices)
            return int(compute.sum(sizes).as_py() or 0)
    return int(array.nbytes)


def _naming_file(path: str, batches: Iterator[Any]) -> Iterator[Any]:
    """The batches; raises `UsageError` where the file is damaged."""
    try:
        yield from batches
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise UsageError(
            "the file is damaged",
            source=path,
            problem=str(error),
            hint=_hint_at(
                error, "make it again; an import goes on after the rows that were imported"
            ),
        ) from None


def _hint_at(error: Exception, otherwise: str) -> str:
    """What to do with a file that is too large for a limit, or damaged."""
    if "limit: " not in str(error):
        return otherwise
    if "bytes for each of the file" in str(error):
        return "if you trust it, read it with pyarrow, and give the table to import_from()"
    return "write it again in smaller batches or row groups, or with fewer columns"


def _open_parquet(path: str, passed: int) -> ArrowData:
    """Row groups that are passed over as a whole are not read."""
    held = BoundedFile(path)
    groups = list(range(len(held.row_groups)))
    while groups and held.row_groups[groups[0]] <= passed:
        passed -= held.row_groups[groups.pop(0)]
    return ArrowData(held.schema, held.read(IMPORT_BLOCK_RECORDS, groups), passed)


def _open_ipc(path: str, passed: int) -> ArrowData:
    held = BoundedIpc(path)
    return ArrowData(held.schema, held.read(), passed)


def _stamp_of(path: Path) -> str:
    """The size of a file and a checksum of its end, where Parquet and Arrow describe the rest."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - FOOTER_SIZE_BYTES))
        return f"{size}/{crc32(file.read())}"


# --- data in memory ------------------------------------------------------------------------------


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
    taken = iter([ArrowData(reader.schema, iter(reader))])

    def open_data(passed: int) -> ArrowData:
        found = next(taken, None)
        if found is None:
            raise TransactionConflict("the data cannot be read a second time")
        return found

    source = ArrowSource(name, open_data, schema, mapping, how, importer.mode)
    source.count = _count_if_known(data)
    with ExitStack() as stack:
        about = ExclusiveWork(
            "import",
            importer.session.catalog.tenant,
            f"{name} (number {next(_NUMBERS)} of process {os.getpid()})",
            schema.number,
            schema.name,
            is_resumable=False,
        )
        importer.pace = _FrameReporter(importer, about, stack)
        return importer.run(source)


class _FrameReporter(ProgressReporter):
    """Of an import of what is in memory: a job that nobody can go on with, from its second batch
    on. What is done at once needs nobody's hand."""

    def __init__(self, importer: Importer, about: ExclusiveWork, stack: ExitStack) -> None:
        super().__init__()
        self._importer = importer
        self._about = about
        self._stack = stack
        self._before = 0

    def note(self, read: int, written: int = 0, size_bytes: int = 0) -> None:
        before, self._before = self._before, self._before + read
        storage = self._importer.session.storage
        if before and is_noted(self._importer.session):
            job = self._stack.enter_context(working_on(storage, self._about))
            self._importer.pace = job
            job.note(read + before, written + before, size_bytes)


def _count_if_known(data: Any) -> int | None:
    """How many rows there are, if that takes no query: a relation of DuckDB has a length, too."""
    is_held = type(data).__module__.split(".")[0] in ("pandas", "polars", "pyarrow")
    return len(data) if is_held and hasattr(data, "__len__") else None


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
        hint="give data.collect()"
        if kind.__name__ == "LazyFrame"
        else "give a pandas or polars frame, a pyarrow.Table, or for plain dicts insert_many()",
    )


# Arrow's views as the types that they are views of: polars and other programs write texts and bytes
# as views, which few functions of Arrow take. The values are the same.


def _without_views(schema: Any, batches: Iterator[Any]) -> tuple[Any, Iterator[Any]]:
    """The schema and the record batches, with other columns where these are views or hold some."""
    plain = pyarrow.schema([_plain_field(field) for field in schema])
    if plain.types == schema.types:
        return schema, batches
    return plain, (batch.cast(plain) for batch in batches)


def _plain_field(field: Any) -> Any:
    return field.with_type(_plain_type(field.type))


def _plain_type(kind: Any) -> Any:
    if types.is_string_view(kind):
        return pyarrow.large_string()
    if types.is_binary_view(kind):
        return pyarrow.large_binary()
    if types.is_dictionary(kind):
        return pyarrow.dictionary(kind.index_type, _plain_type(kind.value_type), kind.ordered)
    if types.is_struct(kind):
        return pyarrow.struct([_plain_field(kind.field(at)) for at in range(kind.num_fields)])
    if types.is_large_list(kind):
        return pyarrow.large_list(_plain_field(kind.value_field))
    if types.is_list(kind):
        return pyarrow.list_(_plain_field(kind.value_field))
    return kind
