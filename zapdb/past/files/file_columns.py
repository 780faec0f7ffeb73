"""The columns of a history file, and of rows in memory.

    _key                the record's key, as it is stored
    _from, _until       moments: the row is the record from `_from` on, until before `_until`; that
                        is null where no later change of the key is in the same file
    _operation          what made it, see `RowOperation`
    _archive            all archived values of the record, see `records.archive_cells`; null for
                        none, and in an update, where they are those of the key's row before
    <field>             the field's value, as `to_arrow` makes it, or as text, where one of the
                        file's values is a number that is too large for Arrow; null in a deletion

A field's column has the name that the field had when the file's era began, for other readers. zapdb
reads by Parquet's field id, which is the field's number: so a renamed field stays where it is, and
a name that one field gave to another one misleads nobody. zapdb's own columns have no field id.
Fields have names of lower-case letters, and begin with one: so none has the name of such a column,
nor of another field but for upper and lower case.

In memory, rows have `f<number>` in place of the name, or `f<number>_text` for numbers as text.

All columns are nullable. The rows are sorted by (`_key`, `_from`). All files of one era have the
same columns, but for numbers as text.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy
import pyarrow
from pyarrow import compute

from zapdb.errors import InvalidValue
from zapdb.limits import ARROW_BATCH_SIZE_BYTES, HISTORY_HELD_SIZE_BYTES
from zapdb.records import MakeAttachments
from zapdb.records.arrow import (
    PackedRows,
    arrow_decoder,
    arrow_schema,
    decode_batches,
    decode_page,
)
from zapdb.records.arrow.decoder import ArrowDecoder, RecordConverter
from zapdb.schema import Field, TableSchema
from zapdb.values import Enum, List, Struct, ValueType, Zones

KEY: Final = "_key"
FROM: Final = "_from"
UNTIL: Final = "_until"
OPERATION: Final = "_operation"
ARCHIVE: Final = "_archive"
SORTED_BY: Final = ((KEY, "ascending"), (FROM, "ascending"))

FIELD_ID: Final = b"PARQUET:field_id"
"""Where Arrow has the field id of a column of Parquet: in the metadata of its field."""
PACKED_KEY_SIZE_BYTES_MAX: Final = 7
"""A longer key, with its length, is no number of 64 bits."""
DECODED_ROWS: Final = 10_000
"""Records that are decoded together."""

OWN_FIELDS: Final = (
    pyarrow.field(KEY, pyarrow.binary()),
    pyarrow.field(FROM, pyarrow.int64()),
    pyarrow.field(UNTIL, pyarrow.int64()),
    pyarrow.field(OPERATION, pyarrow.int8()),
    pyarrow.field(ARCHIVE, pyarrow.binary()),
)
"""The columns that every file of a table begins with."""


class RowOperation(enum.IntEnum):
    """What made a row: a change, or the checkpoint of an era."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    CHECKPOINT = 3
    REPLACE = 4
    """An update of a record that the same transaction deleted and inserted again."""


class MadeRow(NamedTuple):
    """A row of a file before it is decoded: a record as it is stored, or a deletion, whose value is
    empty; from which moment on, what made it, and its archived values as files have them."""

    key: bytes
    value: bytes
    moment: int
    operation: RowOperation
    archive: bytes | None = None


@dataclass(frozen=True, slots=True)
class MadeColumns:
    """Such rows in columns."""

    keys: Sequence[bytes]
    values: Sequence[bytes]
    moments: Sequence[int]
    operations: Sequence[int]
    packed: PackedRows | None = None
    """The keys and values once more, where they are packed already."""
    archives: Sequence[bytes | None] = ()
    """Their archived values; empty where no row has any."""

    @classmethod
    def of(cls, rows: Iterable[MadeRow]) -> Self:
        made = list(rows)
        return cls(
            [row.key for row in made],
            [row.value for row in made],
            [row.moment for row in made],
            [int(row.operation) for row in made],
            archives=[row.archive for row in made],
        )

    def __len__(self) -> int:
        return len(self.keys)

    def cut(self, start: int, stop: int) -> MadeColumns:
        if start == 0 and stop >= len(self):
            return self
        part = slice(start, stop)
        return MadeColumns(
            self.keys[part],
            self.values[part],
            self.moments[part],
            self.operations[part],
            archives=self.archives[part],
        )


def column_name(field: Field, *, as_text: bool = False) -> str:
    """Return the name of a field's column in rows."""
    return f"f{field.number}_text" if as_text else f"f{field.number}"


def rows_schema(table: TableSchema, as_text: Collection[str] = ()) -> Any:
    """Return the `pyarrow.Schema` of rows of this table, whose fields `as_text` have columns of
    strings."""
    types = arrow_schema(table, None, as_text)
    columns = [
        pyarrow.field(column_name(f, as_text=f.name in as_text), types.field(f.name).type)
        for f in table.fields
    ]
    return pyarrow.schema([*OWN_FIELDS, *columns])


def file_schema(table: TableSchema, as_text: Collection[str] = ()) -> Any:
    """Return the `pyarrow.Schema` of a file of this table, as it was when the file's era began."""
    types = arrow_schema(table, None, as_text)
    columns = [
        pyarrow.field(f.name, types.field(f.name).type, metadata={FIELD_ID: str(f.number)})
        for f in table.fields
    ]
    return pyarrow.schema([*OWN_FIELDS, *columns])


def to_file(rows: Any, table: TableSchema) -> Any:
    """Return rows with the columns of a file of this table."""
    texts = [f.name for f in table.fields if column_name(f) not in rows.column_names]
    names = rows_schema(table, texts).names
    return pyarrow.Table.from_arrays(
        [rows.column(name) for name in names], schema=file_schema(table, texts)
    )


def find_columns(there: Any, table: TableSchema) -> dict[str, str]:
    """Return the file's name of each column of rows, by the `pyarrow.Schema` of a file of this
    table: those of fields by their field ids.

    Raises `ArrowInvalid` for a field id that is missing, double or no field's, and for a column
    that is missing, or of another type than its field."""
    found, by_id = {one.name: one.name for one in OWN_FIELDS}, _find_ids(there)
    for field, plain in zip(table.fields, arrow_schema(table), strict=True):
        one = by_id.pop(str(field.number), None)
        if one is None:
            raise pyarrow.ArrowInvalid(f"none of its columns has the field id {field.number}")
        is_plain = one.type == plain.type
        if not is_plain and one.type != arrow_schema(table, [field.name], [field.name])[0].type:
            raise pyarrow.ArrowInvalid(f"its column {one.name!r} has another type than the field")
        found[column_name(field, as_text=not is_plain)] = one.name
    for stored, one in by_id.items():
        shown = stored if stored.isdecimal() else repr(stored)
        raise pyarrow.ArrowInvalid(f"its column {one.name!r} has a field id of no field, {shown}")
    return found


def _find_ids(there: Any) -> dict[str, Any]:
    """Return the columns that have a field id, by its text, which may be any: a file can say what
    it likes. All but zapdb's own must have one."""
    found, own = dict[str, Any](), list[str]()
    for one in there:
        stored = (one.metadata or {}).get(FIELD_ID)
        if stored is None:
            own.append(one.name)
            continue
        number = stored.decode("ascii", "backslashreplace")
        if number in found:
            names = f"{found[number].name!r} and {one.name!r}"
            raise pyarrow.ArrowInvalid(f"its columns {names} have one field id, {number}")
        found[number] = one
    wanted = [one.name for one in OWN_FIELDS]
    for name in own:
        if name not in wanted:
            raise pyarrow.ArrowInvalid(f"its column {name!r} has no field id")
    for name in wanted:
        if own.count(name) != 1:
            raise pyarrow.ArrowInvalid(f"it lacks a column {name!r} without field id, or has two")
    if len({*there.names}) != len(there.names):
        raise pyarrow.ArrowInvalid("two of its columns have one name")
    return found


def to_rows(read: Any, names: Mapping[str, str]) -> Any:
    """Return what was read of a file as rows, by the names that `find_columns` found."""
    columns = {name: column for column, name in names.items()}
    return read.rename_columns([columns[name] for name in read.column_names])


def find_texts(table: TableSchema, *columns: Collection[str]) -> list[str]:
    """Return the fields of a table whose numbers are text in any of some files or rows, by their
    columns in rows."""
    there = {name for names in columns for name in names}
    return [f.name for f in table.fields if column_name(f, as_text=True) in there]


def has_same_columns(earlier: TableSchema, later: TableSchema) -> bool:
    """Return whether values of one schema of a table can stand in one file with those of another
    that has the same layout: the same types in Arrow, and the same names of members."""
    types = [{f.number: f.type for f in table.fields} for table in (earlier, later)]
    return types[0].keys() == types[1].keys() and all(
        _has_same_values(types[0][number], types[1][number]) for number in types[0]
    )


def _has_same_values(earlier: ValueType, later: ValueType) -> bool:
    if isinstance(earlier, Enum) and isinstance(later, Enum):
        names = dict(later.members)
        return all(names.get(number, name) == name for number, name in earlier.members)
    if isinstance(earlier, List) and isinstance(later, List):
        return _has_same_values(earlier.items, later.items)
    if isinstance(earlier, Struct) and isinstance(later, Struct):
        return len(earlier.members) == len(later.members) and all(
            left.name == right.name and _has_same_values(left.type, right.type)
            for left, right in zip(earlier.members, later.members, strict=True)
        )
    return earlier == later


class HistoryRows:
    """Rows of one table for one file: records with their moments, and deletions.

    They are kept in memory, so that they can be sorted. When they are too large for that, `on_full`
    takes them as a table of their own, and more can be added.
    """

    def __init__(
        self,
        table: TableSchema,
        zones: Zones | None,
        on_full: Callable[[Any], object] | None = None,
    ) -> None:
        self.table = table
        self._zones = zones
        self._on_full = on_full
        self._parts: list[tuple[Any, tuple[int, ...]]] = []
        self.size_bytes = 0
        self.count = 0
        """The number of rows that it keeps; `size_bytes` is their size."""

    def add_records(
        self,
        schema: TableSchema,
        rows: Sequence[MadeRow],
        make_attachments: MakeAttachments,
        reader: RecordConverter | None = None,
    ) -> None:
        """Add records that were written under a schema of the table, or that a reader converts to
        it. Raises `CorruptRecord`, `BlobMissing`."""
        if rows:
            self.add_columns(schema, MadeColumns.of(rows), make_attachments, reader)

    def add_columns(
        self,
        schema: TableSchema,
        rows: MadeColumns,
        make_attachments: MakeAttachments,
        reader: RecordConverter | None = None,
    ) -> None:
        """As `add_records`."""
        texts: tuple[str, ...] = ()
        done = 0
        while done < len(rows):
            decoder = arrow_decoder(schema, None, texts, self._zones)
            some = rows.cut(done, done + DECODED_ROWS)
            try:
                batch = next(_decode(decoder, some, make_attachments, reader))
            except InvalidValue as error:
                texts = (*texts, _find_large(schema, texts, error))
                continue
            values = [batch.column(f.name) for f in schema.fields]
            own = _own_columns(some.cut(0, batch.num_rows))
            self._add([*own, *values], schema, texts)
            done += batch.num_rows

    def add_page(
        self,
        schema: TableSchema,
        page: PackedRows,
        row: tuple[int, RowOperation],
        make_attachments: MakeAttachments,
        reader: RecordConverter,
    ) -> None:
        """Add the records of a page, each with the same moment and operation; raises as
        `add_records` does."""
        moment, operation = row
        decoder, count = arrow_decoder(schema, None, (), self._zones), len(page)
        batch = decoder.decode_page(page, make_attachments, reader)
        if batch is None:  # some have to be read one by one
            keys, values = page.keys.pieces(), page.values.pieces()
            made = MadeColumns(keys, values, [moment] * count, [int(operation)] * count)
            self.add_columns(schema, made, make_attachments, reader)
            return
        own = [
            page.keys.to_array(),
            pyarrow.array(numpy.full(count, moment, "i8")),
            pyarrow.nulls(count, pyarrow.int64()),
            pyarrow.array(numpy.full(count, int(operation), "i1")),
            pyarrow.nulls(count, pyarrow.binary()),
        ]
        self._add([*own, *(batch.column(f.name) for f in schema.fields)], schema, ())

    def add_deletions(self, rows: Sequence[MadeRow]) -> None:
        if rows:
            self.add_deleted(MadeColumns.of(rows))

    def add_deleted(self, rows: MadeColumns) -> None:
        """As `add_deletions`."""
        values = list(rows_schema(self.table))[len(OWN_FIELDS) :]
        nulls = [pyarrow.nulls(len(rows), one.type) for one in values]
        self._add([*_own_columns(rows), *nulls], self.table, ())

    def _add(self, arrays: list[Any], schema: TableSchema, texts: tuple[str, ...]) -> None:
        made = pyarrow.Table.from_arrays(arrays, schema=rows_schema(schema, texts))
        numbers = tuple(f.number for f in schema.fields if f.name in texts)
        self._parts.append((made, numbers))
        self.count += made.num_rows
        self.size_bytes += made.nbytes
        if self._on_full is not None and self.size_bytes >= HISTORY_HELD_SIZE_BYTES:
            self._on_full(self.take())

    def take(self) -> Any:
        """Return the rows as one sorted `pyarrow.Table`, with `_until`, and keep none of them."""
        texts = {number for _, numbers in self._parts for number in numbers}
        names = tuple(f.name for f in self.table.fields if f.number in texts)
        schema = rows_schema(self.table, names)
        parts = [to_schema(made, schema) for made, _ in self._parts]
        joined = pyarrow.concat_tables(parts) if parts else schema.empty_table()
        self._parts, self.size_bytes, self.count = [], 0, 0
        return with_until(sort_rows(joined))


def _decode(
    decoder: ArrowDecoder,
    rows: MadeColumns,
    make_attachments: MakeAttachments,
    reader: RecordConverter | None,
) -> Iterator[Any]:
    page = rows.packed
    if page is None and sum(map(len, rows.values)) > ARROW_BATCH_SIZE_BYTES:
        stored = zip(rows.keys, rows.values, strict=True)
        return decode_batches(decoder, stored, make_attachments, reader, batch_records=len(rows))
    if page is None:
        page = PackedRows.of_columns(rows.keys, rows.values)
    return decode_page(decoder, page, make_attachments, reader)


def _own_columns(rows: MadeColumns) -> list[Any]:
    packed = rows.packed
    return [
        pyarrow.array(rows.keys, pyarrow.binary()) if packed is None else packed.keys.to_array(),
        pyarrow.array(rows.moments, pyarrow.int64()),
        pyarrow.nulls(len(rows), pyarrow.int64()),
        pyarrow.array(rows.operations, pyarrow.int8()),
        pyarrow.array(rows.archives, pyarrow.binary())
        if rows.archives
        else pyarrow.nulls(len(rows), pyarrow.binary()),
    ]


def _find_large(schema: TableSchema, texts: Iterable[str], error: InvalidValue) -> str:
    """Return the field with the number that is too large; raises any other error."""
    path = str(error.context.get("field", ""))
    name = path.removeprefix(f"{schema.name}.").split(".")[0].split("[")[0]
    if name in texts or name not in {f.name for f in schema.fields}:
        raise error
    return name


def to_schema(made: Any, schema: Any) -> Any:
    """Return a table with the columns of a schema: numbers that it wants as text are cast."""
    columns = []
    for one in schema:
        name = one.name
        there = name if name in made.column_names else name.removesuffix("_text")
        column = made.column(there)
        columns.append(column if column.type == one.type else _cast_text(column, one.type))
    return pyarrow.Table.from_arrays(columns, schema=schema)


def _cast_text(column: Any, wanted: Any) -> Any:
    """Cast numbers to text, inside of structs and lists too; Arrow writes them as zapdb does."""
    if pyarrow.types.is_struct(wanted) or pyarrow.types.is_list(wanted):
        return pyarrow.array(_text_of(column.to_pylist(), wanted), wanted)
    return column.cast(wanted)


def _text_of(values: list[Any], wanted: Any) -> list[Any]:
    if pyarrow.types.is_struct(wanted):
        return [
            None
            if value is None
            else {one.name: _text_of([value[one.name]], one.type)[0] for one in wanted}
            for value in values
        ]
    if pyarrow.types.is_list(wanted):
        return [None if v is None else _text_of(v, wanted.value_type) for v in values]
    if pyarrow.types.is_string(wanted):
        return [None if value is None else str(value) for value in values]
    return values


def sort_rows(rows: Any) -> Any:
    """Return a table of rows sorted by (`_key`, `_from`): the same one, if it is that already."""
    order = find_order(rows)
    return rows if order is None else rows.take(order)


def find_order(rows: Any) -> Any:
    """Return the places of rows in their order by (`_key`, `_from`); None if they are in it."""
    packed = pack_short(rows.column(KEY).combine_chunks())
    if packed is None:
        order = compute.sort_indices(rows.select([KEY, FROM]), sort_keys=list(SORTED_BY))
        places = order.to_numpy()
    else:
        # Files are sorted, and numpy merges what is sorted in parts.
        places = numpy.lexsort((rows.column(FROM).to_numpy(), packed))
    if numpy.array_equal(places, numpy.arange(len(places))):
        return None
    return pyarrow.array(places)


def pack_short(keys: Any) -> Any:
    """Return numbers in the order of a binary array of keys; None if one has more than seven bytes,
    or there are none.

    The bytes are the upper ones of the number, and their count, which tells a key from one that
    begins with it, is the lowest."""
    if not len(keys) or keys.null_count:
        return None
    _, places, data = keys.buffers()
    ends = numpy.frombuffer(places, "i4")[keys.offset : keys.offset + len(keys) + 1]
    lengths = numpy.diff(ends).astype("u8")
    if lengths.max() > PACKED_KEY_SIZE_BYTES_MAX:
        return None
    first, last = int(ends[0]), int(ends[-1])
    raw = bytes(data[first:last] if data else b"") + bytes(8)
    windows = numpy.ndarray((last - first + 1,), ">u8", raw, strides=(1,))
    bits = 8 * lengths
    masks = ~((numpy.uint64(1) << (64 - bits)) - numpy.uint64(1))
    masks[bits == 0] = 0
    return (windows[ends[:-1] - first].astype("u8") & masks) | lengths


def with_archive(rows: Any) -> Any:
    """Return a table sorted, with the archived values of an update that left them: they are those
    of the key's row before. The same one if no row has any."""
    if rows.column(ARCHIVE).null_count == rows.num_rows:
        return rows
    rows = sort_rows(rows)
    names = (KEY, OPERATION, ARCHIVE)
    keys, operations, cells = (rows.column(name).to_pylist() for name in names)
    for at in range(1, len(keys)):
        is_left = cells[at] is None and operations[at] == RowOperation.UPDATE
        if is_left and keys[at] == keys[at - 1]:
            cells[at] = cells[at - 1]
    place = rows.column_names.index(ARCHIVE)
    return rows.set_column(place, rows.field(place), pyarrow.array(cells, pyarrow.binary()))


def with_until(rows: Any) -> Any:
    """Return a sorted table whose `_until` is the `_from` of the key's next row."""
    count = rows.num_rows
    until = pyarrow.nulls(count, pyarrow.int64())
    if count > 1:
        keys = rows.column(KEY).combine_chunks()
        same = compute.equal(keys.slice(0, count - 1), keys.slice(1)).to_numpy(zero_copy_only=False)
        moments = rows.column(FROM).to_numpy()
        is_last = numpy.append(~same, True)
        until = pyarrow.array(numpy.append(moments[1:], 0), pyarrow.int64(), mask=is_last)
    at = rows.column_names.index(UNTIL)
    return rows.set_column(at, OWN_FIELDS[2], until)
