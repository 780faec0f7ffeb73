"""A whole tenant as a directory of files: its migrations, and its records as of one moment, which
may be a past one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from os.path import realpath
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from msgspec import structs

from zapdb.activation.tenant_catalog import TenantCatalog
from zapdb.catalog.stored_migrations import list_kept
from zapdb.database import Database
from zapdb.errors import CorruptCatalog, InvalidMigration, InvalidValue, UsageError, ZapdbError
from zapdb.files import mode_of_directory, require_path, writing_file
from zapdb.jobs.exclusive import ProgressReporter, noted_as_job
from zapdb.migrations import Migration, NumberAllocator
from zapdb.migrations.chain import Chain, MigrationFile, digest_chain, list_files
from zapdb.migrations.document import DocumentText, read_document
from zapdb.migrations.lockfile import lock_lines, write_lock
from zapdb.migrations.operations import Operation
from zapdb.migrations.parsed_migration import parse_document
from zapdb.migrations.resolution import resolve
from zapdb.migrations.undo import to_yaml
from zapdb.release import __version__
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.storage.sequences import read_last_numbers
from zapdb.tables.table_reading import ReadableTable
from zapdb.transfer.export.archived_values import list_archived_values
from zapdb.transfer.export.exported_settings import list_exported_settings
from zapdb.transfer.export.line_digest import LineDigest, record_line
from zapdb.transfer.export.manifest import (
    ARCHIVES,
    FORMAT,
    MIGRATIONS,
    TABLES,
    ExportedArchive,
    ExportedMoment,
    ExportedSetting,
    ExportedTable,
    Form,
    Manifest,
)
from zapdb.transfer.export.record_files import (
    TEXT_HINT,
    csv_writer,
    json_writer,
    require_form,
    write_batches,
)
from zapdb.transfer.export.snapshots import naming_table, read_catalog

if TYPE_CHECKING:
    from zapdb.transfer.export.parquet_tables import TableDigest

from zapdb.database.past import Past
from zapdb.past.reading.schema_at import read_chain_at


@dataclass(frozen=True)
class ExportedState:
    """What an export is made of: the active migrations, the tables with their schemas, the last
    numbers of sequences by the number of the field, and the settings. `moment` is None for the
    present."""

    chain: Chain
    tables: Sequence[tuple[ReadableTable, TableSchema]]
    last: Mapping[int, int]
    settings: Sequence[ExportedSetting]
    file_mode: int
    """That of files with records."""
    left_out: tuple[str, ...]
    """The labels of migrations that were rolled back and are kept."""
    moment: ExportedMoment | None = None


def export_directory(
    source: Database | Past,
    directory: str | Path,
    *,
    form: Form = "parquet",
    migrations: str | Path | None = None,
    progress: Callable[[int], object] = lambda _: None,
    pace: ProgressReporter | None = None,
) -> Manifest:
    """Write all tables of a database's tenant, as of one moment, into a new directory; or as they
    were at a moment, `db.at(…)`, with the migrations that were active then.

    The directory has a file for each table, the active migrations, and a manifest with the count
    and the digest of each table's records; `zapdb import` makes the same tenant of it elsewhere.
    Large values, archived values of dropped fields, the settings and where sequences are belong to
    it; the change log and records of dropped tables do not. `migrations` is the directory of the
    authors' files, which have comments and examples; without it, files are made of what the
    database stores.

    The manifest of a past says which moment it is. Settings and the last numbers of sequences are
    those of now, for the parts that there were, so that no number is drawn twice; archived values
    that were pruned since may be missing.

    It is a job of `db.jobs`, unless the database was opened read-only; while that is paused, the
    snapshot stays open. `pace` is the job of a caller that has its own. An export that was
    interrupted begins anew, in another directory.

    Raises `UsageError` for a directory that is not empty, before anything is
    written the errors of `past.table`, `JobError` if the job is cancelled, and `MissingExtra` for
    Parquet without `pyarrow`.
    """
    require_form(form, TEXT_HINT)
    noted = noted_as_job(source._session, "export", realpath(directory), given=pace)
    with noted as job, _reading(source) as state:
        job.on_read = progress
        if job.is_job:
            job.expect(sum(table.count() for table, _ in state.tables))
        return _write_export(state, Path(directory), form, migrations, job)


def _reading(source: Database | Past) -> AbstractContextManager[ExportedState]:
    return _reading_past(source) if isinstance(source, Past) else _reading_present(source)


@contextmanager
def _reading_present(db: Database) -> Iterator[ExportedState]:
    with db.snapshot() as snap:
        catalog = read_catalog(snap._session)
        if not catalog.position:
            raise UsageError(
                "there is nothing to export: no migration is active",
                database=db._storage.shown_url,
                hint="apply migrations first: `zapdb migrate up`",
            )
        schemas = {name: catalog.table(name).schema for name in catalog.tables}
        with snap._session.connected() as connection:
            state = ExportedState(
                catalog.chain.up_to(catalog.position),
                [(snap.table(name), schema) for name, schema in schemas.items()],
                read_last_numbers(connection, catalog.tenant),
                [*list_exported_settings(connection, catalog.tenant, schemas.values())],
                db._storage.engine.file_mode,
                _list_left_out(connection, catalog, catalog.chain),
            )
        yield state


@contextmanager
def _reading_past(past: Past) -> Iterator[ExportedState]:
    with past:
        session, then, at = past._session, past._session.then, past.moment
        if not then.migration:
            raise UsageError(
                "there is nothing to export: no migration was active at that moment",
                moment=at.number,
                hint="give a later moment: `zapdb history moments` lists them",
            )
        tables = [(past.table(name), found.schema) for name, found in then.tables.items()]
        visible_at = None if at.visible_at is None else at.visible_at.isoformat()
        tenant, schemas = session.catalog.tenant, [schema for _, schema in tables]
        with session.reading() as connection:
            chain = read_chain_at(connection, session.catalog, then)
            state = ExportedState(
                chain,
                tables,
                read_last_numbers(connection, tenant),
                [*list_exported_settings(connection, tenant, schemas)],
                connection.storage.engine.file_mode,
                _list_left_out(connection, session.catalog, chain),
                ExportedMoment(at.number, visible_at, dict(past.doubts)),
            )
        yield state


def _list_left_out(connection: Connection, catalog: TenantCatalog, chain: Chain) -> tuple[str, ...]:
    ids = {migration.id for migration in chain.migrations}
    kept = list_kept(connection, catalog.chain_state)
    return tuple(one.label for one in kept if one.id not in ids)


def _write_export(
    state: ExportedState,
    target: Path,
    form: Form,
    migrations: str | Path | None,
    job: ProgressReporter,
) -> Manifest:
    """Write what was read into a new directory; raises `UsageError` for one that is not empty."""
    mode = mode_of_directory(state.file_mode)
    make_empty(target, mode)
    authored = None if migrations is None else Path(migrations)
    write_migrations(state.chain, target / MIGRATIONS, authored)
    (target / TABLES).mkdir(mode)
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    tables = tuple(
        _TableExport(table, schema, form, state.last, mode).write(target, job)
        for table, schema in state.tables
    )
    position = state.chain.end
    manifest = Manifest(
        FORMAT,
        __version__,
        made_at,
        form,
        position,
        digest_chain(state.chain, position),
        tables,
        tuple(state.settings),
        state.moment,
        state.left_out,
    )
    manifest.write(target)
    return manifest


def make_empty(directory: Path, mode: int) -> None:
    """Make a directory with a mode; raises `UsageError` if it is there and not empty, or a file."""
    require_path(directory)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        directory.mkdir(mode, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(
            "a file is where the directory should be",
            directory=directory,
            hint="give a new directory; `zapdb export --sql postgresql|sqlite FILE` writes a "
            "script",
        ) from None
    if any(directory.iterdir()):
        raise UsageError(
            "the directory is not empty",
            directory=directory,
            hint="give a new one; or, if an export failed there, delete this one",
        )


@dataclass(frozen=True)
class _TableExport:
    """The export of one table."""

    table: ReadableTable
    schema: TableSchema
    form: Form
    last: Mapping[int, int]
    """The last numbers of sequences, by the number of the field."""
    mode: int
    """Of a directory that is made."""

    def write(self, directory: Path, job: ProgressReporter) -> ExportedTable:
        """Write the table's files."""
        numbers = {f.name: self.last[f.number] for f in self.schema.fields if f.number in self.last}
        with naming_table(self.schema.name):
            records = self._write_records(directory, job)
        return structs.replace(records, sequences=numbers, archive=self._write_archive(directory))

    def _write_archive(self, directory: Path) -> ExportedArchive | None:
        if not self.schema.archived:
            return None
        file, digest = f"{ARCHIVES}/{self.schema.name}.ndjson", LineDigest("a1")
        (directory / ARCHIVES).mkdir(self.mode, exist_ok=True)
        with writing_file(directory / file) as stream:
            for line in list_archived_values(self.table):
                stream.write(f"{line}\n".encode())
                digest.add(line)
        return ExportedArchive(file, digest.lines, str(digest))

    def _write_records(self, directory: Path, job: ProgressReporter) -> ExportedTable:
        file = f"{TABLES}/{self.schema.name}.{self.form}"
        path = directory / file
        if self.form == "parquet":
            with writing_file(path) as stream:
                return self._with_long_numbers(file, partial(self._write_parquet, stream, job))
        with writing_file(path) as binary:
            digest = self._write_lines(binary, job)
        return ExportedTable(self.schema.name, file, digest.lines, str(digest))

    def _with_long_numbers(
        self, file: str, read: Callable[[list[str]], TableDigest]
    ) -> ExportedTable:
        """Read the table; again with text instead of numbers where some are too long."""
        digest, as_text = retry_as_text(read)
        return ExportedTable(self.schema.name, file, digest.records, str(digest), tuple(as_text))

    def _write_parquet(
        self, stream: IO[bytes], job: ProgressReporter, as_text: list[str]
    ) -> TableDigest:
        from zapdb.transfer.export.parquet_tables import TableDigest

        stream.seek(0)
        stream.truncate()
        digest, reader = TableDigest(self.schema), self.table.to_arrow(as_text=as_text)
        write_batches(
            reader.schema, _pass(digest, reader), stream, lambda read, size: job.note(read, 0, size)
        )
        return digest

    def _write_lines(self, stream: IO[bytes], job: ProgressReporter) -> LineDigest:
        digest = LineDigest("t1")
        with open(stream.fileno(), "w", encoding="utf-8", newline="", closefd=False) as text:
            make = csv_writer if self.form == "csv" else json_writer
            write = make(self.schema, text)
            for record in self.table.scan():
                digest.add(record_line(self.schema, record))
                job.note_one(write(record))
            job.flush()
        return digest


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


# Stored migrations as files: what the database knows of them is enough to apply them elsewhere.
#
# A file has the same digest as the stored migration. Comments, reasons and examples are in the
# author's files alone, so these are preferred where they are at hand.


def write_migrations(chain: Chain, directory: Path, authored: Path | None = None) -> None:
    """Write the files of a chain, with their lock file; `authored` is a directory of files that are
    copied if they are the same migrations."""
    directory.mkdir()
    sources = _read_authored(authored)
    for migration in chain.migrations:
        text = _find_authored(migration, sources) or write_document(migration).encode()
        with writing_file(directory / f"{migration.label}.yaml") as file:
            file.write(text)
    write_lock(directory, lock_lines(chain))


def _read_authored(directory: Path | None) -> dict[int, MigrationFile]:
    if directory is None or not directory.is_dir():
        return {}
    return {file.number: file for file in list_files(directory)}


def _find_authored(migration: Migration, files: dict[int, MigrationFile]) -> bytes | None:
    file = files.get(migration.number)
    if file is None or file.name != migration.name:
        return None
    with suppress(ZapdbError):
        source = file.read()
        if _digest(migration, source) == migration.digest:
            return source.raw
    return None


def write_document(migration: Migration) -> str:
    """The text of a file that is this migration; raises `CorruptCatalog` where there is none."""
    for rollback in (None, migration.rollback):
        text = _format(migration, rollback)
        source = DocumentText(f"{migration.label}.yaml", text.encode())
        with suppress(InvalidMigration):
            if _digest(migration, source) == migration.digest:
                return text
    raise CorruptCatalog(
        "a stored migration can't be written as a file",
        migration=migration.label,
        hint="give the directory of its file: --migrations DIRECTORY",
    )


def _format(migration: Migration, rollback: Sequence[Operation] | None) -> str:
    summary = json.dumps(migration.summary, ensure_ascii=False)
    text = f"zapdb: {migration.version}\nsummary: {summary}\n"
    if migration.replaces:
        text += "replaces:\n" + "".join(f"  - {digest}\n" for digest in migration.replaces)
    if migration.activation is not None:
        text += f"activation: {migration.activation}\n"
    text += f"changes:\n{_indent(to_yaml(migration.changes))}"
    if rollback is None:
        return f"{text}rollback: inferred\n"
    return f"{text}rollback:\n{_indent(to_yaml(tuple(rollback)))}"


def _indent(items: str) -> str:
    return "".join(f"  {line}\n" for line in items.splitlines())


def _digest(migration: Migration, source: DocumentText) -> str:
    parsed = parse_document(read_document(source), source, migration.number, migration.name)
    return resolve(parsed, migration.before, NumberAllocator.provisional()).digest
