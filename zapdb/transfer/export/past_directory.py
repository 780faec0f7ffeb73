"""A past moment of a tenant as a directory of files: what an export of then would have been.

The past has records, schemas and migrations. It has no settings and no last numbers of sequences:
those of now are written, for the parts that there were, so that no number is drawn twice. Archived
values of fields that were dropped before the moment are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from os.path import realpath
from pathlib import Path

from zapdb.database.past import Past
from zapdb.errors import UsageError
from zapdb.jobs.exclusive import ProgressReporter, noted_as_job
from zapdb.past.reading.chain_at import read_chain_at
from zapdb.storage.sequences import read_last_numbers
from zapdb.transfer.export.directory import ExportedState, write_export
from zapdb.transfer.export.exported_settings import list_exported_settings
from zapdb.transfer.export.manifest import ExportedMoment, Form, Manifest
from zapdb.transfer.export.record_files import TEXT_HINT, require_form


def export_past(
    past: Past,
    directory: str | Path,
    *,
    form: Form = "parquet",
    migrations: str | Path | None = None,
    progress: Callable[[int], object] = lambda _: None,
    pace: ProgressReporter | None = None,
) -> Manifest:
    """Write all tables as they were at a moment, `db.at(…)`, into a new directory, with the
    migrations that were active then: `zapdb import` makes the tenant of then of it.

    The directory is that of `export_directory`, and its manifest says which moment it is. Settings
    and the last numbers of sequences are those of now; archived values that were pruned since may
    be missing.

    It is a job of `db.jobs`, as that of `export_directory`; `pace` is the job of a caller that has
    its own. Raises `UsageError` for a directory that is not empty, before anything is written the
    errors of `past.table`, `JobError` if the job is cancelled, and `MissingExtra` for Parquet
    without `pyarrow`.
    """
    require_form(form, TEXT_HINT)
    noted = noted_as_job(past._session, "export", realpath(directory), given=pace)
    with noted as job, past:
        job.on_read = progress
        state = _read_state(past)
        if job.is_job:
            job.expect(sum(table.count() for table, _ in state.tables))
        return write_export(state, Path(directory), form, migrations, job)


def _read_state(past: Past) -> ExportedState:
    session, then = past._session, past._session.then
    if not then.position:
        raise UsageError(
            "there is nothing to export: no migration was active at that moment",
            moment=past.moment.number,
            hint="give a later moment: `zapdb history moments` lists them",
        )
    tables = [(past.table(name), found.schema) for name, found in then.tables.items()]
    visible_at = past.moment.visible_at
    moment = ExportedMoment(
        past.moment.number,
        None if visible_at is None else visible_at.isoformat(),
        dict(past.doubts),
    )
    with session.reading() as connection:
        tenant = session.catalog.tenant
        chain = read_chain_at(connection, session.catalog, then)
        settings = list_exported_settings(connection, tenant, (schema for _, schema in tables))
        last = read_last_numbers(connection, tenant)
        mode = connection.storage.file_mode
        return ExportedState(chain, tables, last, [*settings], mode, moment)
