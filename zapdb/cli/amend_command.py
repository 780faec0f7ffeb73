"""`zapdb migrate amend`: the edited text of the newest migration in the place of what is stored."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from zapdb.activation.amending import Amendment, amend, find_amendment, require_development
from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.output import Confirmation, Output, format_seconds
from zapdb.errors import EXIT_ERROR, UsageError
from zapdb.jobs.archive_pruning import forget_migrations
from zapdb.migrations import list_files
from zapdb.migrations.structure_diff import diff_structures


def migrate_amend_command(
    options: TenantOptions,
    confirmation: Confirmation,
    output: Output,
    file: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]", help="The file that was edited: that of the newest stored migration."
        ),
    ] = None,
    migrations: MigrationsOption = None,
) -> int:
    """Store the edited text of the newest migration in the place of what was applied.

    For development: while you write a migration, apply it, edit its file, and amend. What the file
    makes as before keeps its values: a field that is added by the same operation, or whose table
    has all changes of before and others, too. What only the former text made is lost, and shown
    before; tables that it made are made anew. Running processes, such as a server, go on with the
    former schema until they have loaded their code again. Everything is checked and proven before
    anything is changed. Refused in the profile `production`.

    With `--json`, which needs `--yes`: `{number, label, digest, former_digest, lost: [{table,
    fields}], milliseconds}`; a table that is made anew has no fields.
    """
    output = Output(output.as_json)
    files = list_files(find_migrations(migrations))
    with options.opened() as (storage, catalog):
        require_development(storage.connection())
        amendment = find_amendment(catalog, files)
        former = amendment.former
        if file is not None and not _is_named(file, amendment):
            raise UsageError(
                "only the newest stored migration can be amended",
                newest=former.label,
                file=file,
                hint="roll the newer ones back first (`zapdb migrate rollback --to N`)",
            )
        output.write((former.label, "bold"), f": {amendment.amended.summary}")
        for line in diff_structures(former.structure, amendment.amended.structure):
            output.write(f"  {line}")
        lost = [(table.name, fields) for table, fields in amendment.list_lost()]
        for table, fields in lost:
            what = f"the values of {', '.join(fields)} are lost"
            if not fields:
                what = "the table is made anew: its records are lost"
            output.write(f"  {table}: {what}")
        if not confirmation.is_given("an amendment", f"amend {former.label}?", output):
            return EXIT_ERROR
        began = time.perf_counter()
        made = amend(storage, catalog.tenant, amendment)
        forget_migrations(storage)
        seconds = time.perf_counter() - began
    output.write(("amended ", "green"), f"{made.label}, {format_seconds(seconds)}")
    output.document(
        {
            "number": made.number,
            "label": made.label,
            "digest": made.digest,
            "former_digest": former.digest,
            "lost": [{"table": table, "fields": list(fields)} for table, fields in lost],
            "milliseconds": round(seconds * 1000, 1),
        }
    )
    return 0


def _is_named(file: str, amendment: Amendment) -> bool:
    name = file.rsplit("/", 1)[-1].removesuffix(".yaml")
    return name in (amendment.amended.label, str(amendment.former.number))
