"""A directory of an export, loaded into an empty database to the state that was exported.

The migrations are applied, the records inserted, and the counts and digests of the tables compared;
then everything is verified. A load that was interrupted goes on when it is called again: records
that are there must be those of the files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os.path import realpath
from pathlib import Path
from typing import Any, Final

from zapdb.catalog import DEFAULT_TENANT_NAME
from zapdb.database import Database, Table, open
from zapdb.errors import (
    CorruptExport,
    MigrationConflict,
    TenantExists,
    UsageError,
    ZapdbError,
)
from zapdb.jobs.exclusive import OnWait, ProgressReporter, measure_value, noted_as_job
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.migrations.chain import digest_chain, load_directory
from zapdb.records.record_lines import read_lines
from zapdb.schema import Field, Schema, TableSchema
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.storage.sequences import move_on
from zapdb.tables.bulk import KEYS_PER_STATEMENT
from zapdb.tables.generated_values import OperationNumbers, generate_values
from zapdb.tables.indexes import BoundTable
from zapdb.tables.writes import WritePlan, execute
from zapdb.transfer.export.archived_values import (
    list_archived_values,
    load_archived_values,
)
from zapdb.transfer.export.exported_settings import load_settings
from zapdb.transfer.export.line_digest import digest_lines, record_line
from zapdb.transfer.export.manifest import (
    FILE,
    MIGRATIONS,
    ExportedTable,
    Manifest,
    read_manifest,
)
from zapdb.transfer.export.record_files import require_form
from zapdb.values import Reference

Values = dict[str, Any]
WRONG_SHOWN: Final = 10
"""How many wrong parts of a manifest an error names."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded: how many records of each table, how many of them by this call, how many
    migrations are active, the number of the past moment that it is, if it is one, and which
    migrations, kept where it was exported, it has not."""

    records: dict[str, int]
    inserted: int
    position: int
    moment: int | None = None
    left_out: tuple[str, ...] = ()


def load_export(
    directory: str | Path,
    url: str,
    *,
    tenant: str = DEFAULT_TENANT_NAME,
    progress: Callable[[int], object] = lambda _: None,
    on_wait: OnWait | None = None,
) -> Loaded:
    """Load an exported directory into a database that has no records yet, and verify it.

    It is a job of `db.jobs`, and `on_wait` is called with the reason while that is held back.
    Raises `UsageError` for a database that has other migrations or records, `CorruptExport` if the
    files are not what was exported, or if verification finds a problem, and `MissingExtra` for
    Parquet without `pyarrow`.
    """
    source = Path(directory)
    manifest = check_export(source)
    with _opened(source, url, tenant) as db:
        _require_same_chain(db, manifest, source)
        db.admin.run_jobs()
        with noted_as_job(db._session, "import", realpath(source), on_wait=on_wait) as job:
            job.on_read = progress
            return _load(db, manifest, source, job)


def check_export(source: Path) -> Manifest:
    """Return the manifest of an export of which all files are there, and which has what its
    migrations make: so nothing is applied of another. Raises `CorruptExport`, and what is wrong
    with its migrations."""
    manifest = read_manifest(source)
    require_form(manifest.form)
    for file in manifest.list_files():
        if not (source / file).is_file():
            raise CorruptExport(
                "a file of the export is missing",
                file=source / file,
                hint="copy the whole directory again, or export again",
            )
    migrations = source / MIGRATIONS
    if not migrations.is_dir():
        raise CorruptExport(
            "the migrations of the export are missing",
            directory=migrations,
            hint="copy the whole directory again, or export again",
        )
    chain = load_directory(migrations)
    if chain.end != manifest.position or digest_chain(chain, chain.end) != manifest.chain:
        raise _changed_migrations(source)
    _require_tables(manifest, chain.schema_at(chain.end), source / FILE)
    if manifest.form == "parquet":
        from zapdb.transfer.export.parquet_tables import require_bounded_files

        require_bounded_files(manifest, source)
    return manifest


def _require_tables(manifest: Manifest, schema: Schema, path: Path) -> None:
    """Raise `CorruptExport` unless the manifest has each table of a schema once, and names nothing
    else."""
    wrong, names = list[str](), [table.name for table in manifest.tables]
    wrong += [f"table {name}, twice" for name in sorted(set(names)) if names.count(name) > 1]
    wrong += [f"table {one.name}, which is missing" for one in schema if one.name not in names]
    for exported in manifest.tables:
        table = schema.table_named(exported.name)
        if table is None:
            wrong.append(f"table {exported.name}")
            continue
        wrong += _unknown_fields(table, (*exported.as_text, *exported.sequences))
        if exported.archive is not None and not table.archived:
            wrong.append(f"archived values of {exported.name}")
    wrong += _unknown_settings(manifest, schema)
    if wrong:
        raise CorruptExport(
            "the manifest of an export does not have what its migrations make",
            file=path,
            names="; ".join(wrong[:WRONG_SHOWN]),
            hint="it was changed, or is none that zapdb wrote: copy the whole directory again, or "
            "export again",
        )


def _unknown_settings(manifest: Manifest, schema: Schema) -> list[str]:
    """What settings are for that a schema does not have."""
    wrong = list[str]()
    for setting in manifest.settings:
        table = schema.table_named(setting.table or "")
        if table is not None:
            wrong += _unknown_fields(table, [setting.field] if setting.field else [])
            indexes = {index.name for index in table.indexes}
            if setting.index is not None and setting.index not in indexes:
                wrong.append(f"index {table.name}.{setting.index}")
        elif setting.table or setting.field or setting.index:
            wrong.append(f"setting {setting.name} of table {setting.table}")
    return wrong


def _unknown_fields(table: TableSchema, names: Iterable[str]) -> list[str]:
    known = {field.name for field in table.fields}
    return [f"field {table.name}.{name}" for name in names if name not in known]


def _changed_migrations(source: Path) -> CorruptExport:
    return CorruptExport(
        "the migrations of the export were changed after it was made",
        directory=source / MIGRATIONS,
        hint="copy the whole directory again, or export again",
    )


def _load(db: Database, manifest: Manifest, source: Path, job: ProgressReporter) -> Loaded:
    inserted = 0
    if manifest.form == "parquet":
        from zapdb.transfer.export.parquet_tables import require_columns

        require_columns(db, manifest, source)
    job.expect(sum(table.records for table in manifest.tables))
    for found in _in_order(db, manifest):
        inserted += _TableLoad(db, db.table(found.name), source, found, manifest).run(job)
        _load_beside(db, db.table(found.name), source, found)
    _compare(db, manifest, source)
    _verify(db)
    load_settings(db, manifest.settings)
    records = {table.name: table.records for table in manifest.tables}
    moment = None if manifest.moment is None else manifest.moment.number
    return Loaded(records, inserted, db.position, moment, manifest.left_out)


def _opened(source: Path, url: str, tenant: str) -> Database:
    """Open the database with the export's migrations, which are applied."""
    migrations = source / MIGRATIONS
    try:
        if tenant != DEFAULT_TENANT_NAME:
            with open(url, migrations=migrations, apply="auto") as db, suppress(TenantExists):
                db.admin.create_tenant(tenant)
        return open(url, migrations=migrations, apply="auto", tenant=tenant)
    except MigrationConflict as error:
        raise _refuse("the database has other migrations than the export") from error


def _refuse(message: str, **context: Any) -> UsageError:
    return UsageError(
        message, **context, hint="load an export into a new database, or into a new tenant"
    )


def _require_same_chain(db: Database, manifest: Manifest, source: Path) -> None:
    catalog = db._session.catalog
    if catalog.chain.end != manifest.position:
        raise _refuse(
            "the database has more migrations than the export",
            position=catalog.chain.end,
            exported=manifest.position,
        )
    if digest_chain(catalog.chain, catalog.position) != manifest.chain:
        raise _changed_migrations(source)


def _in_order(db: Database, manifest: Manifest) -> Iterator[ExportedTable]:
    """The tables, each after those that it refers to; where they refer to each other, in any
    order."""
    schemas = {name: one.schema for name, one in db._session.catalog.tables.items()}
    waiting = {table.name: table for table in manifest.tables}
    while waiting:
        ready = [name for name in waiting if not _targets_of(schemas[name]) & waiting.keys()]
        for name in ready or list(waiting)[:1]:
            yield waiting.pop(name)


def _targets_of(table: TableSchema) -> set[str]:
    """The names of the other tables that a table's references bind it to."""
    types = [table.field_numbered(key.field).type for key in table.foreign_keys]
    return {t.table for t in types if isinstance(t, Reference)} - {table.name}


@dataclass(frozen=True)
class _TableLoad:
    db: Database
    table: Table
    source: Path
    exported: ExportedTable
    manifest: Manifest

    def run(self, job: ProgressReporter) -> int:
        """Insert what is not there yet; returns how many records."""
        is_empty = self.table.first() is None
        inserted, stream = 0, self._read()
        size = INSERT_BATCH_RECORDS if is_empty else KEYS_PER_STATEMENT
        session = self.db._session
        while batch := list(islice(stream, min(size, job.batch_records_max or size))):
            inserted += session.run(partial(self._insert, batch, is_empty))
            size_bytes = 0
            if job.counts_bytes:
                size_bytes = sum(measure_value(value) for one in batch for value in one.values())
            job.note(len(batch), len(batch), size_bytes)
        return inserted

    def _insert(self, batch: list[Values], is_empty: bool) -> int:
        with self.db._session.writing() as connection:
            bound = self.table._current()
            new = batch if is_empty else self._find_new(connection, bound, batch)
            # The record that another refers to may stand behind it in the files, or in a later one:
            # all references are validated at the end.
            numbers = OperationNumbers(self.db._session)
            values = generate_values(numbers, connection, bound, new)
            plan = WritePlan(bound)
            plan.insert_many(values)
            plan.targets.clear()
            execute(connection, plan)
            return len(new)

    def _find_new(
        self, connection: Connection, bound: BoundTable, batch: list[Values]
    ) -> list[Values]:
        """Those that are not there; raises `UsageError` if another record has the key of one."""
        codec = bound.codec
        keyed = {codec.encode_key(values): values for values in batch}
        _, found = bound.records.find_many(connection, list(keyed))
        for key, raw in found.items():
            stored, values = as_bytes(raw), keyed.pop(key)
            attachments = bound.make_attachments(key, stored)
            record, _ = bound.reader.open(key, stored, attachments)
            for field in bound.schema.fields:
                if not _is_same(field, getattr(record, field.name), values[field.name]):
                    raise _refuse(
                        "the table has another record with the key of an exported one",
                        table=bound.schema.name,
                        key=", ".join(map(repr, codec.decode_key(key))),
                        field=field.name,
                    )
        return list(keyed.values())

    def _read(self) -> Iterator[Values]:
        schema = self.db._session.catalog.table(self.exported.name).schema
        path = self.source / self.exported.file
        form = self.manifest.form
        try:
            if form == "parquet":
                from zapdb.transfer.export.parquet_tables import read_parquet_records

                yield from read_parquet_records(schema, path, self.db._session.catalog.zones)
            else:
                with path.open(encoding="utf-8", newline="") as text:
                    for _, values in read_lines(schema, text, form):
                        yield values
        except ZapdbError as error:
            error.context.setdefault("file", path)
            raise


def _load_beside(db: Database, table: Table, source: Path, exported: ExportedTable) -> None:
    """What a table has beside its records: archived values, and the last numbers of sequences."""
    if exported.archive is not None:
        with (source / exported.archive.file).open(encoding="utf-8") as stream:
            load_archived_values(db, table, stream)

    def have_numbers() -> None:
        with db._session.writing() as connection:
            bound = table._current()
            numbers = {field.name: field.number for field in bound.schema.fields}
            for name, last in exported.sequences.items():
                move_on(connection, bound.catalog.tenant, numbers[name], last)

    if exported.sequences:
        db._session.run(have_numbers)


def _is_same(field: Field, stored: Any, given: Any) -> bool:
    if stored is None or given is None:
        return stored is given
    return field.type.is_same(stored, field.type.check(given, field.name))


def _compare(db: Database, manifest: Manifest, source: Path) -> None:
    """Raise `CorruptExport` unless each table has the records that were exported, and the archived
    values."""
    with db.snapshot() as snap:
        for one in manifest.tables:
            table, schema = snap.table(one.name), db._session.catalog.table(one.name).schema
            digest = _digest_columns if manifest.form == "parquet" else _digest_lines
            exported = one.records, one.digest
            _require_same(
                one.name, "records", exported, digest(table, schema, one), source / one.file
            )
            if one.archive is not None:
                found = digest_lines("a1", list_archived_values(table))
                exported, here = (one.archive.values, one.archive.digest), (found.lines, str(found))
                file = source / one.archive.file
                _require_same(one.name, "archived values", exported, here, file)


def _digest_columns(table: Table, schema: TableSchema, exported: ExportedTable) -> tuple[int, str]:
    """How many records there are, and their digest."""
    from zapdb.transfer.export.parquet_tables import digest_batches

    found = digest_batches(schema, table.to_arrow(as_text=list(exported.as_text)))
    return found.records, str(found)


def _digest_lines(table: Table, schema: TableSchema, _: ExportedTable) -> tuple[int, str]:
    found = digest_lines("t1", (record_line(schema, record) for record in table.scan()))
    return found.lines, str(found)


def _require_same(
    table: str, what: str, exported: tuple[int, str], found: tuple[int, str], file: Path
) -> None:
    if found == exported:
        return
    noun = what.split()[-1]
    raise CorruptExport(
        f"a table does not have the {what} that were exported",
        table=table,
        exported=f"{exported[0]:,} {noun}, {exported[1]}",
        found=f"{found[0]:,} {noun}, {found[1]}",
        file=file,
        hint=f"the file was changed, or the table had other {noun}: copy the directory again, and "
        "load it into a new database",
    )


def _verify(db: Database) -> None:
    problems: Iterable[str] = (
        f"{report.table}: {problem}" for report in db.admin.verify() for problem in report.problems
    )
    first = next(iter(problems), None)
    if first is not None:
        raise CorruptExport(
            "verification found a problem in what was loaded",
            problem=first,
            hint="run `zapdb verify` on both databases; what was wrong before is wrong here",
        )
