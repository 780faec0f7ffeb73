"""Records as Arrow record batches, and back: the way to Spark, to DuckDB and into files.

Decoding walks each record once, by source generated for the table (see `codec`), and appends what
it finds to one list per column (see `arrow_columns`); no record objects are made. All the checks
that decoding makes are made: a record that does not pass is shown to the ordinary decoder, which
says what is wrong with it. Encoding goes through the table's codec.

Nothing here knows a database: a task on another machine needs the table's shape and the rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from zapdb.errors import CorruptRecord, InvalidValue, MissingExtra, UnknownName, UsageError
from zapdb.limits import ARROW_BATCH_SIZE_BYTES, PAGE_RECORDS_MAX, RECORD_KEY_SIZE_BYTES_MAX
from zapdb.records.arrow_columns import Column, Lists, TooLarge, make_column
from zapdb.records.beside import Beside
from zapdb.records.codec import (
    Decode,
    bind_zones,
    check_names,
    codec_for,
    decoder_of,
    presence_source,
)
from zapdb.records.layout import Layout, decode_prefix
from zapdb.schema import Field, Table, snapshot
from zapdb.values import Zones
from zapdb.values.source import Namespace, compile_function, indent

try:
    import pyarrow
except ImportError as missing:
    raise MissingExtra.named("sql", "pyarrow") from missing

Row = tuple[bytes, bytes]
"""A record key and a record, as they are stored."""
MakeBeside = Callable[[], Beside]


class Converts(Protocol):
    """What a `RecordReader` does to records of other revisions; its own begin with `prefix`."""

    @property
    def prefix(self) -> bytes: ...

    def convert(self, key: bytes, value: bytes, beside: Beside) -> bytes: ...


@dataclass(frozen=True, slots=True)
class _AsStored:
    """Takes records for what they should be: of the current layout, whatever their prefix."""

    prefix: bytes

    def convert(self, key: bytes, value: bytes, beside: Beside) -> bytes:
        return value


class _Begin:
    """Where a record's fields begin: (key, record) → the record in the current layout, the position
    after its prefix, and what lies beside it."""

    def __init__(self, make_beside: MakeBeside, reader: Converts) -> None:
        self.prefix = reader.prefix
        self.make_beside = make_beside
        self._convert = reader.convert

    def __call__(self, key: bytes, value: bytes) -> tuple[bytes, int, Beside]:
        # New blobs of a conversion are for this record alone, and go with it.
        beside = self.make_beside()
        converted = self._convert(key, value, beside)
        return converted, decode_prefix(converted, 0)[1], beside


@dataclass(frozen=True, slots=True)
class ArrowDecoder:
    """Some or all fields of one table shape, compiled."""

    table: Table
    schema: Any
    """The `pyarrow.Schema` of the batches."""
    columns: tuple[Column, ...]
    walk: Callable[..., Lists]
    decode_record: Decode
    """The ordinary decoder of the same fields."""
    source: str

    def decode(self, rows: Iterable[Row], make_beside: MakeBeside, reader: Converts) -> Any:
        """A batch of the first rows, as many as fit; None where there are none.

        Raises `CorruptRecord`, `BlobMissing`, and `InvalidValue` for numbers that are too large.
        """
        begin, taken = _Begin(make_beside, reader), list[Row]()
        try:
            arrays = self._to_arrays(rows, begin, taken.append)
        except (CorruptRecord, IndexError, KeyError, ValueError, OverflowError, TooLarge):
            self._explain(taken, begin)
            raise
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema) if taken else None

    def _to_arrays(
        self, rows: Iterable[Row], begin: _Begin, take: Callable[[Row], object]
    ) -> list[Any]:
        lists = self.walk(rows, begin, begin.make_beside(), ARROW_BATCH_SIZE_BYTES, take)
        return [column.to_array(lists) for column in self.columns]

    def _explain(self, rows: list[Row], begin: _Begin) -> None:
        """Raise what is wrong with the first of the rows that something is wrong with."""
        for key, value in rows:
            self.decode_record(key, *begin(key, value))
            try:
                self._to_arrays([(key, value)], begin, lambda row: None)
            except TooLarge as error:
                field = error.path.removeprefix(f"{self.table.name}.").split(".")[0].split("[")[0]
                raise InvalidValue(
                    "a number is too large for its Arrow column",
                    field=error.path,
                    key=", ".join(map(repr, codec_for(self.table).decode_key(key))),
                    expected=error.expected,
                    hint=f"as_text=[{field!r}] makes a column of strings",
                ) from None


_cache: dict[tuple[bytes, Zones | None, frozenset[int], frozenset[int]], ArrowDecoder] = {}


def arrow_decoder(
    table: Table,
    fields: Collection[str] | None = None,
    as_text: Collection[str] = (),
    zones: Zones | None = None,
) -> ArrowDecoder:
    """The decoder of these fields, or of all, compiled once; raises `UnknownName`."""
    numbers = _numbers_of(table, [f.name for f in table.fields] if fields is None else fields)
    if not numbers:
        raise UsageError("no field is selected", table=table.name)
    texts = _numbers_of(table, as_text)
    wanted = (snapshot(table), zones, numbers, texts)
    known = _cache.get(wanted)
    if known is None:
        known = _cache[wanted] = _compile(table, zones, numbers, texts)
    return known


def _numbers_of(table: Table, names: Collection[str]) -> frozenset[int]:
    numbers = {f.name: f.number for f in table.fields}
    for name in names:
        if name not in numbers:
            raise UnknownName(
                "the table has no such field",
                field=f"{table.name}.{name}",
                fields=", ".join(sorted(numbers)),
            )
    return frozenset(numbers[name] for name in names)


def _compile(
    table: Table, zones: Zones | None, numbers: frozenset[int], texts: frozenset[int]
) -> ArrowDecoder:
    bound = bind_zones(table, zones)
    counter = itertools.count()
    columns = {
        f.number: make_column(
            f.type, f"{table.name}.{f.name}", lambda: next(counter), as_text=f.number in texts
        )
        for f in bound.fields
        if f.number in numbers
    }
    walk, source = _compile_walk(bound, columns, next(counter))
    schema = pyarrow.schema(
        [
            pyarrow.field(f.name, columns[f.number].arrow, f.optional, {"zapdb.type": str(f.type)})
            for f in table.fields
            if f.number in numbers
        ],
        {"zapdb.table": table.name, "zapdb.key": ", ".join(f.name for f in table.key_fields)},
    )
    decode = decoder_of(table, numbers, zones)
    return ArrowDecoder(table, schema, tuple(columns.values()), walk, decode, source)


def _compile_walk(
    table: Table, columns: Mapping[int, Column], lists: int
) -> tuple[Callable[..., Any], str]:
    """The function that takes rows one by one, and returns the columns' lists.

    It ends with the row that leaves less than no room.
    """
    names = Namespace()
    body = [
        "take(row)",
        "key, value = row",
        "if value.startswith(prefix):",
        "    s = start",
        "    near = beside",
        "else:",
        "    value, s, near = begin(key, value)",
    ]
    if any(number in columns for number in table.key):
        body += ["b = key", "p = 0", "n = len(b)"]
        body.append(f"if n > {RECORD_KEY_SIZE_BYTES_MAX}: raise IndexError")
        for f in table.key_fields:
            column = columns.get(f.number)
            if column is None:
                body += f.type.decode_key_source("unwanted", names)
            else:
                body += column.decode_source("key", names)
        body.append("if p != n: raise IndexError")
    body += ["b = value", "p = s", "n = len(b)", "room -= n"]
    layout = Layout.of(table)
    if layout.presence_size_bytes:
        body += presence_source(layout, names)
    stored = list(table.value_fields)
    while stored and stored[-1].number not in columns:
        stored.pop()
    for f in stored:
        body += _field_source(f, columns.get(f.number), layout, names)
    compare = "!=" if len(stored) == len(table.value_fields) else ">"
    body += [f"if p {compare} n: raise IndexError", "if room < 0: break"]
    lines = ["def walk(rows, begin, beside, room, take):"]
    lines += indent(["prefix = begin.prefix", "start = len(prefix)"])
    for at in range(lists):
        lines += indent([f"l{at} = []", f"a{at} = l{at}.append"])
    returned = "".join(f"l{at}, " for at in range(lists))
    lines += indent(["for row in rows:", *indent(body), f"return ({returned})"])
    return compile_function("walk", lines, names, f"arrow {table.name}")


def _field_source(f: Field, column: Column | None, layout: Layout, names: Namespace) -> list[str]:
    if column is None:
        read, otherwise = f.type.skip_field_source(names), []
    else:
        read, otherwise = column.decode_source("field", names), column.null_source()
    if not f.optional:
        return read
    refuse = [] if column is None else column.refuse_null_source()
    lines = [f"if m & {1 << layout.bit(f.number)}:", *indent([*read, *refuse])]
    return [*lines, "else:", *indent(otherwise)] if otherwise else lines


# --- decoding ------------------------------------------------------------------------------------


def arrow_schema(
    table: Table, fields: Collection[str] | None = None, as_text: Collection[str] = ()
) -> Any:
    """The `pyarrow.Schema` of a table: one column per field, in declared order."""
    return arrow_decoder(table, fields, as_text).schema


def decode_batches(
    table: Table,
    rows: Iterable[Row],
    make_beside: MakeBeside,
    *,
    reader: Converts | None = None,
    fields: Collection[str] | None = None,
    as_text: Collection[str] = (),
    zones: Zones | None = None,
    batch_records: int = PAGE_RECORDS_MAX,
) -> Iterator[Any]:
    """`pyarrow.RecordBatch`es of so many records or fewer; raises `CorruptRecord`, `BlobMissing`.

    The records have the table's layout, or, with a reader, whatever revision that converts. Large
    values are loaded through what `make_beside` makes. Only the named fields are decoded, or all.
    A number beyond 64 bits, or beyond 38 digits for a decimal, raises `InvalidValue`, unless its
    field is among `as_text`: all numbers of those are strings.
    """
    decoder, stream = arrow_decoder(table, fields, as_text, zones), iter(rows)
    if reader is None:
        first = next(stream, None)
        if first is None:
            return
        reader = _AsStored(first[1][: decode_prefix(first[1], 0)[1]])
        stream = itertools.chain([first], stream)
    while True:
        batch = decoder.decode(itertools.islice(stream, batch_records), make_beside, reader)
        if batch is None:
            return
        yield batch


def decode_batch(table: Table, rows: Iterable[Row], make_beside: MakeBeside, **options: Any) -> Any:
    """All rows as one batch, with the options of `decode_batches`.

    Raises `UsageError` for more than fits into one.
    """
    rows = list(rows)
    batches = decode_batches(table, rows, make_beside, batch_records=len(rows) or 1, **options)
    batch = next(batches, None)
    if batch is None:
        chosen = options.get("fields"), options.get("as_text", ()), options.get("zones")
        return pyarrow.RecordBatch.from_pylist([], arrow_decoder(table, *chosen).schema)
    if batch.num_rows < len(rows):
        raise UsageError(
            "the records have too many bytes for one batch",
            table=table.name,
            size_bytes_max=ARROW_BATCH_SIZE_BYTES,
            hint="use decode_batches",
        )
    return batch


def to_reader(schema: Any, batches: Iterator[Any]) -> Any:
    """A `pyarrow.RecordBatchReader`, which asks for one batch after the other."""
    return pyarrow.RecordBatchReader.from_batches(schema, batches)


# --- encoding ------------------------------------------------------------------------------------


def encode_batch(
    table: Table, batch: Any, prefix: bytes, beside: Beside, zones: Zones | None = None
) -> list[Row]:
    """Keys and records of a `pyarrow.RecordBatch`; large values are left `beside`.

    Columns are found by name and may have other types that hold the same values (`large_string`,
    a dictionary, a timestamp in another unit or zone); a column that is missing is a field left
    out. Every value is checked: `InvalidValue` names the field, and the row, which count from 0.
    """
    names = tuple(batch.schema.names)
    check_names(table.name, frozenset(f.name for f in table.fields), dict.fromkeys(names))
    if len(set(names)) < len(names):
        raise InvalidValue("a column is there twice", table=table.name, columns=", ".join(names))
    codec, columns = codec_for(table, zones), []
    for f in bind_zones(table, zones).fields:
        if f.name in names:
            column = make_column(f.type, f"{table.name}.{f.name}", int)
            columns.append((f.name, _to_values(f, column, batch.column(f.name))))
    given = [name for name, _ in columns]
    rows = []
    for row, values in enumerate(zip(*(values for _, values in columns), strict=True)):
        record = dict(zip(given, values, strict=True))
        try:
            rows.append((codec.encode_key(record), codec.encode(prefix, record, beside)))
        except InvalidValue as error:
            error.context["row"] = row
            raise
    return rows


def _to_values(f: Field, column: Column, array: Any) -> list[Any]:
    def convert(part: Any) -> list[Any]:
        if part.null_count and not f.optional:
            raise column.refuse("null")
        return column.to_values(part)

    try:
        return convert(array)
    except InvalidValue:
        for row in range(len(array)):
            try:
                convert(array.slice(row, 1))
            except InvalidValue as error:
                error.context["row"] = row
                raise error from None
        raise
