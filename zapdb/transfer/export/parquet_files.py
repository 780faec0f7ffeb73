"""The Parquet files of an export, which somebody else may have changed: looked through before
anything is loaded, and read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow

from zapdb.database import Database
from zapdb.errors import CorruptExport, ZapdbError
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.records.arrow import read_values
from zapdb.records.arrow.bounded_parquet import BoundedFile
from zapdb.schema import TableSchema
from zapdb.transfer.export.manifest import Manifest
from zapdb.values import Zones


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
