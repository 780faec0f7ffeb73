"""A whole tenant as a directory of files: its migrations, and its records as of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from msgspec import structs

from zapdb.database import Database, Table
from zapdb.errors import InvalidValue, UsageError
from zapdb.export.archived_values import ArchiveDigest, list_archived_values
from zapdb.export.content_digest import TableDigest, digest_batches
from zapdb.export.exported_settings import list_exported_settings
from zapdb.export.manifest import (
    ARCHIVES,
    MIGRATIONS,
    TABLES,
    ExportedArchive,
    ExportedTable,
    Form,
    Manifest,
    make_manifest,
)
from zapdb.export.migration_files import write_migrations
from zapdb.export.record_files import csv_writer, json_writer, write_batches
from zapdb.export.snapshots import read_catalog, written_whole
from zapdb.migrations.chain import Chain, digest_chain
from zapdb.schema import TableSchema
from zapdb.storage.sequences import read_last_numbers

Progress = Callable[[int], object]
"""Called with how many more records are done."""


def _ignore(_: int) -> None: ...


def export_directory(
    db: Database,
    directory: str | Path,
    *,
    form: Form = "parquet",
    migrations: str | Path | None = None,
    progress: Progress = _ignore,
) -> Manifest:
    """Write all tables of a database's tenant, as of one moment, into a new directory.

    The directory has a file for each table, the active migrations, and a manifest with the count
    and the digest of each table's records; `zapdb import` makes the same tenant of it elsewhere.
    Large values, archived values of dropped fields, the settings and where sequences are belong to
    it; the change log and records of dropped tables do not. `migrations` is the directory of the
    authors' files, which have comments and examples; without it, files are made of what the
    database stores.

    Raises `UsageError` for a directory that is not empty, and `RollbackInProgress`.
    """
    target = Path(directory)
    with db.snapshot() as snap:
        catalog = read_catalog(snap._session)
        if not catalog.position:
            raise UsageError(
                "there is nothing to export: no migration is active",
                database=db._storage.shown_url,
                hint="apply migrations first: `zapdb migrate up`",
            )
        make_empty(target)
        chain = Chain(catalog.chain.migrations[: catalog.position - catalog.chain.start])
        write_migrations(
            chain, target / MIGRATIONS, None if migrations is None else Path(migrations)
        )
        (target / TABLES).mkdir()
        made_at = datetime.now(UTC).isoformat(timespec="seconds")
        with snap._session.connected() as connection:
            last = read_last_numbers(connection, catalog.tenant)
            settings = tuple(list_exported_settings(connection, catalog))
        tables = tuple(
            _TableExport(snap.table(name), catalog.table(name).schema, form, last).write(
                target, progress
            )
            for name in catalog.tables
        )
    digest = digest_chain(chain, catalog.position)
    manifest = make_manifest(made_at, form, catalog.position, digest, tables, settings)
    manifest.write(target)
    return manifest


def make_empty(directory: Path) -> None:
    """Make a directory; raises `UsageError` if it is there and not empty."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        is_empty = not any(directory.iterdir())
    except (FileExistsError, NotADirectoryError):
        is_empty = False
    if not is_empty:
        raise UsageError(
            "the directory is not empty",
            directory=directory,
            hint="give a new one; an export never writes over another",
        )


@dataclass(frozen=True)
class _TableExport:
    """The export of one table from a snapshot."""

    table: Table
    schema: TableSchema
    form: Form
    last: Mapping[int, int]
    """The last numbers of sequences, by the number of the field."""

    def write(self, directory: Path, progress: Progress) -> ExportedTable:
        """Write the table's files."""
        numbers = {f.name: self.last[f.number] for f in self.schema.fields if f.number in self.last}
        records = self._write_records(directory, progress)
        return structs.replace(records, sequences=numbers, archive=self._write_archive(directory))

    def _write_archive(self, directory: Path) -> ExportedArchive | None:
        if not self.schema.archived:
            return None
        file, digest = f"{ARCHIVES}/{self.schema.name}.ndjson", ArchiveDigest()
        (directory / ARCHIVES).mkdir(exist_ok=True)
        with written_whole(directory / file) as stream:
            for line in list_archived_values(self.table):
                stream.write(f"{line}\n".encode())
                digest.add(line)
        return ExportedArchive(file, digest.values, str(digest))

    def _write_records(self, directory: Path, progress: Progress) -> ExportedTable:
        file = f"{TABLES}/{self.schema.name}.{self.form}"
        path = directory / file
        if self.form == "parquet":
            with written_whole(path) as stream:
                return self._with_long_numbers(file, partial(self._write_parquet, stream, progress))
        with written_whole(path) as binary:
            self._write_lines(binary, progress)
        return self._with_long_numbers(file, self._read)

    def _with_long_numbers(
        self, file: str, read: Callable[[list[str]], TableDigest]
    ) -> ExportedTable:
        """Read the table; again with text instead of numbers where some are too long."""
        digest, as_text = retry_as_text(read)
        return ExportedTable(self.schema.name, file, digest.records, str(digest), tuple(as_text))

    def _write_parquet(
        self, stream: IO[bytes], progress: Progress, as_text: list[str]
    ) -> TableDigest:
        stream.seek(0)
        stream.truncate()
        digest, reader = TableDigest(self.schema), self.table.to_arrow(as_text=as_text)
        write_batches(reader.schema, _pass(digest, reader), stream, progress)
        return digest

    def _read(self, as_text: list[str]) -> TableDigest:
        return digest_batches(self.schema, self.table.to_arrow(as_text=as_text))

    def _write_lines(self, stream: IO[bytes], progress: Progress) -> None:
        with open(stream.fileno(), "w", encoding="utf-8", newline="", closefd=False) as text:
            make = csv_writer if self.form == "csv" else json_writer
            write = make(self.schema, text)
            for record in self.table.scan():
                write(record)
                progress(1)


def _pass(digest: TableDigest, batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        digest.add(batch)
        yield batch


def retry_as_text(read: Callable[[list[str]], TableDigest]) -> tuple[TableDigest, list[str]]:
    """Call `read` with the fields whose numbers must be text, which it finds out by trying."""
    found: list[str] = []
    while (digest := _try_as_text(read, found)) is None:
        pass  # it found one field more
    return digest, found


def _try_as_text(read: Callable[[list[str]], TableDigest], found: list[str]) -> TableDigest | None:
    """None if there is a further field, which is added to those that were found."""
    try:
        return read(found)
    except InvalidValue as error:
        field = _find_long(error)
        if field is None or field in found:
            raise
        found.append(field)
        return None


def _find_long(error: InvalidValue) -> str | None:
    """The field of the hint that says how its numbers become text."""
    start, _, rest = error.hint.partition("as_text=['")
    return rest.partition("'")[0] if rest and not start else None
