"""`zapdb history export` and `restore`: a past moment as a directory, and a database made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zapdb.cli.configuration import MigrationsOption, find_migrations_if_any
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.exclusive_jobs import counted_job, place_of
from zapdb.cli.export import describe_export, note_left_out, report_export
from zapdb.cli.history import AtOption, note_doubts
from zapdb.cli.output import Output
from zapdb.cli.sources.exports import load_exported
from zapdb.cli.sources.request import ImportRequest
from zapdb.control.history import read_named_moment
from zapdb.errors import UsageError
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.manifest import Form


def history_export_command(
    target: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="A new directory.")],
    at: AtOption,
    options: TenantOptions,
    output: Output,
    form: Annotated[
        Form, typer.Option("--format", "-f", help="The format of the records' files.")
    ] = "parquet",
    migrations: MigrationsOption = None,
) -> None:
    """Write all tables as they were at a moment, with the migrations of that time, as a directory.

    The directory has to be new or empty. It is what `zapdb export` would have written then. `zapdb
    history restore DIRECTORY`, or `zapdb import DIRECTORY`, loads it into an empty database, on
    either engine. Settings and the last numbers of sequences are the current ones. Archived values
    of fields that had been dropped by then are in it, but for those that were pruned since.

    Of migrations that are kept since they were rolled back, it has those that were active then.

    With `--json`: as `zapdb export`, and `moment`: `{number, visible_at, doubts}`.
    """

    with options.open() as db:
        past = db.at(read_named_moment(db, at))
        with counted_job(options, "export", place_of(target)) as counter:
            made = export_directory(
                past,
                target,
                form=form,
                migrations=find_migrations_if_any(migrations),
                progress=counter.add,
                pace=counter.job,
            )
    report_export(sum(table.records for table in made.tables), len(made.tables), target, output)
    note_left_out([made])
    note_doubts({} if made.moment is None else made.moment.doubts)
    output.document({"path": target, **describe_export(made)})


def history_restore_command(
    source: Annotated[
        Path, typer.Argument(metavar="DIRECTORY", help="What `zapdb history export` wrote.")
    ],
    options: TenantOptions,
    output: Output,
) -> int:
    """Load a directory that `zapdb history export` wrote into an empty database.

    `zapdb import DIRECTORY` does the same: the directories have one format. The migrations of then
    are applied, the records loaded, and their counts and digests compared; then all is verified.
    Run an interrupted restore again: it continues.

    With `--json`: as `zapdb import`.
    """
    if not source.is_dir():
        raise UsageError(
            "there is no such directory",
            directory=source,
            hint="`zapdb history export DIRECTORY --at MOMENT` writes one",
        )
    request = ImportRequest(source=str(source), database=options.database, tenant=options.tenant)
    return load_exported(request, output, "restored")
