"""Tables of an export as Parquet: their digests, and their files, which somebody else may have
changed: they are looked through before anything is loaded.

The digest of a table is the same however its records are stored, and cut into batches. Of each
column it takes which values are there, their sizes and their bytes, one after the other in the
order of the keys. An instant that follows from a local time is left out: it depends on the time
zone data of the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from zapdb.errors import CorruptExport, MissingExtra, ZapdbError

try:
    import pyarrow
except ImportError as missing:
    raise MissingExtra.named("sql", "pyarrow") from missing

from pyarrow import compute, types

from zapdb.database import Database
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.records.arrow import read_values
from zapdb.records.arrow.bounded_parquet import BoundedFile
from zapdb.schema import TableSchema
from zapdb.transfer.export.manifest import Manifest
from zapdb.values import (
    Integer,
    List,
    Reference,
    String,
    Struct,
    Timestamp,
    ValueType,
    ZonedTimestamp,
    Zones,
)

ALGORITHM: Final = "c1"


class TableDigest:
    """Takes batches of a table, as `to_arrow` makes them with all fields."""

    def __init__(self, table: TableSchema) -> None:
        self._names = [field.name for field in table.fields]
        self._columns = [_ColumnDigest(field.type) for field in table.fields]
        self.records = 0

    def add(self, batch: Any) -> None:
        """Take the next batch, in the order of the keys."""
        self.records += batch.num_rows
        for name, column in zip(self._names, self._columns, strict=True):
            column.add(batch.column(name))

    def __str__(self) -> str:
        """The digest of all that was taken, such as `c1:9f86d0…`."""
        whole = hashlib.sha256()
        for name, column in zip(self._names, self._columns, strict=True):
            whole.update(f"{name}\n{column.read()}\n".encode())
        return f"{ALGORITHM}:{whole.hexdigest()}"


def digest_batches(table: TableSchema, batches: Iterable[Any]) -> TableDigest:
    """The digest of a table's batches."""
    digest = TableDigest(table)
    for batch in batches:
        digest.add(batch)
    return digest


class _ColumnDigest:
    def __init__(self, kind: ValueType) -> None:
        self._there, self._sizes, self._bytes = (hashlib.sha256() for _ in range(3))
        self._parts = {name: _ColumnDigest(part) for name, part in _parts_of(kind).items()}

    def add(self, array: Any) -> None:
        self._there.update(_bytes_of(array.is_valid().cast(pyarrow.uint8())))
        found = array.drop_null()
        if types.is_struct(found.type):
            assert self._parts, "a type whose column has parts says which"
            for name, part in self._parts.items():
                part.add(compute.struct_field(found, name))
        elif types.is_list(found.type):
            self._sizes.update(_bytes_of(compute.list_value_length(found)))
            self._parts[""].add(found.flatten())
        elif types.is_string(found.type) or types.is_binary(found.type):
            self._sizes.update(_bytes_of(compute.binary_length(found)))
            self._bytes.update(_text_bytes_of(found))
        elif types.is_boolean(found.type):
            self._bytes.update(_bytes_of(found.cast(pyarrow.uint8())))
        else:
            self._bytes.update(_bytes_of(found))

    def read(self) -> str:
        hashes = (self._there, self._sizes, self._bytes)
        own = " ".join(one.hexdigest() for one in hashes)
        return own + "".join(f"({name} {part.read()})" for name, part in self._parts.items())


def _parts_of(kind: ValueType) -> dict[str, ValueType]:
    """The types of a value's parts by the names that they have in Arrow; of a list's items by an
    empty one."""
    match kind:
        case Struct():
            return {member.name: member.type for member in kind.members}
        case List(items):
            return {"": items}
        case Reference(key=key) if len(key) > 1:
            return {f"key_{at}": part for at, part in enumerate(key)}
        case Reference(key=(only,)):
            return _parts_of(only)
        case ZonedTimestamp():
            return {"local": Timestamp(), "fold": Integer(), "zone": String()}
    return {}


def _bytes_of(array: Any) -> memoryview:
    """The values of an array of fixed width without nulls."""
    width, start = array.type.bit_width // 8, array.offset
    held = memoryview(array.buffers()[1] or b"")
    return held[start * width : (start + len(array)) * width]


def _text_bytes_of(array: Any) -> memoryview:
    """The bytes of all strings of an array without nulls, one after the other."""
    if not len(array):
        return memoryview(b"")
    _, offsets, data = array.buffers()
    places = memoryview(offsets).cast("i")
    start, end = places[array.offset], places[array.offset + len(array)]
    return memoryview(data or b"")[start:end]


def read_parquet_records(schema: TableSchema, path: Path, zones: Zones) -> Iterator[dict[str, Any]]:
    """The records of a file; raises `CorruptExport`."""
    try:
        with BoundedFile(path) as file:
            for batch in file.read(INSERT_BATCH_RECORDS):
                yield from read_values(schema, batch, zones)
    except (OSError, ValueError) as error:
        if isinstance(error, ZapdbError):
            raise
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> CorruptExport:
    return CorruptExport(
        "a file of the export can't be read",
        file=path,
        problem=str(error).partition("\n")[0],
        hint="copy the file again, or export again",
    )


def require_bounded_files(manifest: Manifest, source: Path) -> None:
    """Raise `CorruptExport`, before anything is done, for files that can't be read within bounds,
    or have other numbers of records than the export."""
    for table in manifest.tables:
        path = source / table.file
        try:
            with BoundedFile(path) as file:
                rows = file.rows
        except (OSError, pyarrow.ArrowInvalid) as error:
            raise _unreadable(path, error) from None
        if rows != table.records:
            problem = f"it has {rows:,} records instead of {table.records:,}"
            raise _unreadable(path, ValueError(problem))


def require_columns(db: Database, manifest: Manifest, source: Path) -> None:
    """Raise `CorruptExport`, before anything is loaded, for a file with other columns than its
    table has fields."""
    for table in manifest.tables:
        path, schema = source / table.file, db._session.catalog.table(table.name).schema
        with BoundedFile(path) as file:
            empty = pyarrow.RecordBatch.from_pylist([], schema=file.schema)
        names = [field.name for field in schema.fields]
        try:
            if sorted(empty.schema.names) != sorted(names):
                raise ValueError(f"its columns are not {', '.join(names)}")
            list(read_values(schema, empty))
        except ValueError as error:
            raise _unreadable(path, error) from error
