"""`zapdb migrate`: migrations written, checked, applied, looked at and forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from zapdb.catalog import DEFAULT_TENANT, View, ensure_rows
from zapdb.catalog.inspection import MigrationPhase, MigrationState, list_migration_states
from zapdb.catalog.stored import provisional_numbers
from zapdb.catalog.up import Applied, migrate_up, refuse_while_forgetting
from zapdb.catalog.verification import compare_files
from zapdb.cli.configuration import (
    DatabaseOption,
    JsonOption,
    MigrationsOption,
    find_migrations,
)
from zapdb.cli.forgetting import confirm, plan_steps, run_step, step_to_json, write_step
from zapdb.cli.opening import connected, opened, read_view, read_view_if_any
from zapdb.cli.output import Output, format_count, note, report_error
from zapdb.cli.running import Ran, run_jobs, stopping_on_interrupt
from zapdb.cli.scaffold import create_migration, describe_added_field
from zapdb.errors import EXIT_ERROR, EXIT_PENDING
from zapdb.jobs import Job, plan_jobs, run_locally
from zapdb.migrations import (
    Chain,
    MigrationFile,
    find_file,
    list_files,
    load_directory,
    resolve_files,
)
from zapdb.migrations.lockfile import FILE, check_lock, write_lock
from zapdb.migrations.prove import require_proven
from zapdb.migrations.undo import to_yaml
from zapdb.migrations.undo import undo as undo_changes
from zapdb.storage import Storage, ensure_layout

group = typer.Typer(name="migrate", help="Write, check, apply and forget migrations.")

STYLES: dict[MigrationPhase, str] = {
    "applied": "green",
    "pending": "yellow",
    "stored-only": "cyan",
    "conflict": "bold red",
}


@group.command("new")
def new(
    summary: Annotated[str, typer.Argument(help="What the migration does, in a line.")],
    migrations: MigrationsOption = None,
    add_field: Annotated[
        list[str] | None,
        typer.Option(
            "--add-field",
            metavar="TABLE.FIELD:TYPE",
            help="Begin with a field, such as people.fax:string? (optional); may be repeated.",
        ),
    ] = None,
    undo: Annotated[
        int | None,
        typer.Option("--undo", min=1, metavar="N", help="Take migration N back."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Start a migration file with the next number.

    With `--undo`, its changes are the resolved rollback of migration N: what that one added is
    dropped, into the archive, and what it archived is restored. With `--add-field`, fields are
    added. The JSON Schema for editors is written beside it.

    With `--json`: `{path, number, name}`.
    """
    output = Output(as_json)
    directory = find_migrations(migrations)
    changes = "".join(map(describe_added_field, add_field or []))
    if undo is not None:
        find_file(list_files(directory), undo)
        changes += to_yaml(undo_changes(load_directory(directory), undo))
    path = create_migration(directory, summary, changes)
    number, _, name = path.stem.partition("_")
    output.write((str(path), "bold"))
    what = "look at its changes" if changes else "write its changes"
    output.write(f"next: {what}, then `zapdb migrate check --write` and `zapdb migrate up`")
    output.document({"path": str(path), "number": int(number), "name": name})


@group.command("check")
def check(
    migrations: MigrationsOption = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write zapdb.lock anew, if the files are valid.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the files alone, without any database.

    Every file is valid and exhaustive, its rollback and its examples hold for the records that
    `migrate prove` makes up, and `zapdb.lock` has the digest of each.

    With `--json`: `{migrations: [{number, name, summary, digest}], lock_lines_written}`.
    """
    output = Output(as_json)
    directory = find_migrations(migrations)
    chain = load_directory(directory)
    require_proven(chain.migrations)
    written = 0
    if write:
        written = write_lock(directory, chain)
    check_lock(directory, chain)
    output.write(
        ("ok", "green"),
        f": {format_count(chain.end, 'migration')}, all valid and exhaustive, and as in {FILE}"
        + (f" ({format_count(written, 'line')} written)" if write else ""),
    )
    output.document(
        {
            "migrations": [
                {"number": m.number, "name": m.name, "summary": m.summary, "digest": m.digest}
                for m in chain.migrations
            ],
            "lock_lines_written": written,
        }
    )


@group.command("up")
def up(
    database: DatabaseOption = None,
    migrations: MigrationsOption = None,
    to: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this number.")
    ] = None,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Leave new indexes to `zapdb convert run`.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Apply the pending migrations, then build the indexes that they began.

    Creates the database if it is not there. Migrations that were forgotten are applied again.
    All files are checked, and their rollbacks proven, before anything is changed. Exit status 1 if
    records are in the way of a unique index: it binds new records, and `zapdb convert run` finishes
    it once they are repaired.

    With `--json`: `{position, applied: [{number, label, tables, milliseconds}], built: [{id, kind,
    table, target, superseded, read, written, conflicts, seconds, records_per_second}]}`.
    """
    output = Output(as_json)
    directory = find_migrations(migrations)
    applied: list[Applied] = []
    built: list[Ran] = []
    with connected(database) as storage:
        pending = _check_pending(storage, directory, to)
        width = max((len(file.label) for file in pending), default=0)

        def note_applied(one: Applied) -> None:
            applied.append(one)
            output.write(
                ("applied ", "green"),
                f"{one.label:<{width}}  {', '.join(one.tables)}  ",
                (f"{one.seconds * 1000:.1f} ms", "dim"),
            )

        try:
            ensure_layout(storage, create=True)
            ensure_rows(storage)
            migrate_up(
                storage, DEFAULT_TENANT, directory, to=to, again=True, on_applied=note_applied
            )
            if not no_build:
                _build_indexes(storage, output, built)
        except BaseException:
            if applied:
                output.document(_up_to_json(applied[-1].number, applied, built))
            raise
        view = read_view(storage)
    if applied:
        output.write(f"{format_count(len(applied), 'migration')} applied; now at {_newest(view)}")
    else:
        output.write(f"nothing to apply: the database is at {_newest(view)}")
    output.document(_up_to_json(view.position, applied, built))
    return EXIT_ERROR if any(one.job.findings for one in built) else 0


def _check_pending(storage: Storage, directory: Path, to: int | None) -> list[MigrationFile]:
    """The files that are to be applied; raises for whatever is wrong before anything is changed."""
    files = list_files(directory)
    if to is not None:
        find_file(files, to)
    view = read_view_if_any(storage)
    chain, pending = Chain(), tuple(files)
    if view is not None:
        refuse_while_forgetting(view)
        chain, pending = view.chain, compare_files(files, list(view.stored), view.chain).pending
    wanted = [file for file in pending if to is None or file.number <= to]
    checked = resolve_files(wanted, chain, provisional_numbers())
    require_proven(checked.after(chain.end))
    return wanted


def _build_indexes(storage: Storage, output: Output, built: list[Ran]) -> None:
    view = read_view(storage)
    phases = {index.phase for state in view.tables.values() for index in state.indexes}
    if "write-only" not in phases:
        return
    jobs = plan_jobs(storage, view.tenant, kinds=["index"])
    with stopping_on_interrupt() as should_stop:

        def runner(storage: Storage, job: Job) -> None:
            run_locally(storage, job, should_stop=should_stop)

        try:
            run_jobs(storage, view, jobs, runner, output, built.append)
        except KeyboardInterrupt:
            note("the migrations are applied; `zapdb convert run` goes on with the indexes")
            raise


def _up_to_json(position: int, applied: list[Applied], built: list[Ran]) -> dict[str, Any]:
    return {
        "position": position,
        "applied": [
            {
                "number": one.number,
                "label": one.label,
                "tables": list(one.tables),
                "milliseconds": round(one.seconds * 1000, 1),
            }
            for one in applied
        ],
        "built": [one.to_json() for one in built],
    }


@group.command("status")
def status(
    database: DatabaseOption = None,
    migrations: MigrationsOption = None,
    as_json: JsonOption = False,
) -> int:
    """Compare the files with what the database stores.

    Each migration is `applied`; `pending`, that is not in force yet; `stored-only`, that is in the
    database and beyond the end of the files; or in `conflict`: the file is not what was stored.
    Exit status 3 if something is pending, 1 if there is a conflict.

    With `--json`: `{position, pending, forgetting, migrations: [{number, name, state}]}`.
    `pending` is a count; `forgetting` is the number of a migration whose forget was interrupted, or
    null.
    """
    output = Output(as_json)
    files = list_files(find_migrations(migrations))
    with connected(database) as storage:
        view = read_view_if_any(storage)
    states = list_migration_states(files, view)
    forgetting = None if view is None or view.forgetting is None else view.forgetting.number
    pending = sum(state.phase == "pending" for state in states)
    output.table(
        ("number", "name", "state"),
        [(f"{s.number:04d}", s.name, (s.phase, STYLES[s.phase])) for s in states],
    )
    if forgetting is not None:
        output.write()
        output.write(
            f"forgetting {states[forgetting - 1].number:04d} was interrupted: "
            "run `zapdb migrate forget` to finish it"
        )
    output.document(
        {
            "position": 0 if view is None else view.position,
            "pending": pending,
            "forgetting": forgetting,
            "migrations": [{"number": s.number, "name": s.name, "state": s.phase} for s in states],
        }
    )
    return _report_conflicts(states, as_json=as_json) or (
        EXIT_PENDING if pending or forgetting is not None else 0
    )


def _report_conflicts(states: list[MigrationState], *, as_json: bool) -> int:
    conflicts = [state.conflict for state in states if state.conflict is not None]
    for conflict in conflicts:
        report_error(conflict, as_json=as_json)
    return EXIT_ERROR if conflicts else 0


@group.command("forget")
def forget(
    database: DatabaseOption = None,
    to: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Forget all above this number; the newest one by default."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    evict: Annotated[
        bool, typer.Option("--evict", help="Shut running processes that use them out.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Take the newest migration out of force, and convert its records back.

    Shows what is lost, and asks. It works from what the database stores, without any files; one
    that was interrupted is finished.

    With `--json`, which needs `--yes`: `{position, forgotten: [{number, label, lossy, tables:
    [{table, fate, records, fields, indexes}], milliseconds}]}`. `fate` says what became of the
    records: `deleted`, `converted` or `kept`; `fields` and `indexes` are lost.
    """
    output = Output(as_json)
    with opened(database) as (storage, view):
        steps = plan_steps(storage, view, to)
        if not steps:
            output.write(f"nothing to forget: the newest migration is {_newest(view)}")
        for step in steps:
            write_step(step, output)
        if steps and not yes and not confirm(steps, as_json=as_json):
            output.write("nothing was changed")
            return EXIT_ERROR
        forgotten = []
        try:
            for step in steps:
                seconds = run_step(storage, view, step, output, evict=evict)
                forgotten.append(step_to_json(step, seconds))
                view = read_view(storage)
        finally:
            if forgotten or not steps:
                output.document({"position": view.position, "forgotten": forgotten})
    return 0


def _newest(view: View) -> str:
    return view.chain.at(view.position).label if view.position else "none"
