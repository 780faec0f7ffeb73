"""`zapdb migrate up` and `status`: applying what is pending, for one tenant or all of them."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from zapdb.activation import TenantCatalog
from zapdb.activation.all_tenants import (
    AllTenantsStatus,
    TenantResult,
    migrate_all_tenants,
    read_all_tenants,
)
from zapdb.activation.file_comparison import compare_files
from zapdb.activation.inspection import MigrationPhase, MigrationState, list_migration_states
from zapdb.activation.up import (
    AppliedMigration,
    MigrationChoice,
    migrate_up,
    require_no_ongoing_rollback,
)
from zapdb.catalog.feed import read_seq
from zapdb.catalog.stored import provisional_numbers
from zapdb.catalog.tenants import find_tenant
from zapdb.cli.configuration import (
    DatabaseOption,
    JsonOption,
    MigrationsOption,
    TenantOption,
    find_migrations,
    find_tenant_name,
)
from zapdb.cli.job_bar import progress_bar
from zapdb.cli.job_progress import JobRun, run_jobs_here
from zapdb.cli.opening import connected, read_tenant_catalog, read_tenant_catalog_if_any
from zapdb.cli.output import Output, format_count, print_note, report_error
from zapdb.cluster import ensure_database
from zapdb.errors import EXIT_ERROR, EXIT_PENDING, ActivationPending, UsageError
from zapdb.jobs import plan_jobs
from zapdb.migrations import Chain, MigrationFile, find_file, list_files, resolve_files
from zapdb.migrations.prove import require_proven
from zapdb.storage import Storage

_STYLES: dict[MigrationPhase, str] = {
    "applied": "green",
    "pending": "yellow",
    "stored-only": "cyan",
    "conflict": "bold red",
}
BEHIND_SHOWN_MAX = 20
FAILED_SHOWN_MAX = 10

AllTenantsOption = Annotated[
    bool, typer.Option("--all-tenants", help="Every tenant, instead of one.")
]


@dataclass
class _Done:
    """What one run of the command has done so far; `all_tenants` is None without --all-tenants."""

    applied: list[AppliedMigration] = field(default_factory=list)
    built: list[JobRun] = field(default_factory=list)
    all_tenants: list[TenantResult] | None = None

    @property
    def failed(self) -> list[TenantResult]:
        return [result for result in self.all_tenants or () if result.error is not None]

    @property
    def exit_status(self) -> int:
        statuses = {one.error.exit_status for one in self.failed if one.error is not None}
        if EXIT_ERROR in statuses or any(one.job.findings for one in self.built):
            return EXIT_ERROR
        return max(statuses, default=0)

    def to_json(self, storage: Storage, position: int) -> dict[str, Any]:
        return {
            "position": position,
            "applied": [
                {
                    "number": one.number,
                    "label": one.label,
                    "active": one.active,
                    "tables": list(one.tables),
                    "milliseconds": round(one.seconds * 1000, 1),
                }
                for one in self.applied
            ],
            "built": [one.to_json() for one in self.built],
            "all_tenants": None if self.all_tenants is None else _results_to_json(self.all_tenants),
            "seq": read_seq(storage.connection()),
        }


def migrate_up_command(
    database: DatabaseOption = None,
    migrations: MigrationsOption = None,
    tenant: TenantOption = None,
    all_tenants: AllTenantsOption = False,
    to: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this number.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="How long to wait for running processes, if a migration is activated only "
            "when all of them have its file.",
        ),
    ] = 0,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Leave new indexes to `zapdb convert run`.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Apply the pending migrations, then build their indexes.

    Creates the database if it does not exist. Migrations that were rolled back are applied again.
    All files are checked, and their rollbacks proven, before anything is changed. Exit status 1 if
    records violate a unique index: it binds new writes, and `zapdb convert run` finishes it after
    they are corrected; 3 if a migration is stored, but waits for running processes.

    With `--all-tenants`, every other tenant is then migrated to the stored end; without it, a
    tenant is migrated when it is opened.

    With `--json`: `{position, applied: [{number, label, active, tables, milliseconds}], built:
    [{id, kind, table, target, superseded, read, written, conflicts, seconds, records_per_second}],
    all_tenants, seq}`; `all_tenants` is null without `--all-tenants`, else `{migrated, failed:
    [{tenant, position, error}]}`. A process whose catalog cache has the seq sees the change.
    """
    if all_tenants and (tenant is not None or to is not None):
        raise UsageError(
            "--all-tenants migrates all tenants to the stored end, so it cannot be "
            "combined with a tenant or --to",
            hint="leave out --tenant, ZAPDB_TENANT and --to",
        )
    output = Output(as_json)
    directory = find_migrations(migrations)
    done = _Done()
    with connected(database) as storage:
        pending = _check_pending(storage, directory, tenant, to)
        note_applied = partial(_note_applied, output, done, _widest(pending))
        try:
            ensure_database(storage, create=True)
            number = find_tenant(storage.connection(), find_tenant_name(tenant)).number
            # With --all-tenants, a tenant that waits is reported, and migrated as far as possible.
            with suppress(ActivationPending) if all_tenants else nullcontext():
                wanted = MigrationChoice(to, again=True)
                migrate_up(
                    storage, number, directory, wanted, on_applied=note_applied, wait_seconds=wait
                )
            if all_tenants:
                done.all_tenants = _migrate_others(storage, output)
            if not no_build:
                _build_indexes(storage, tenant, output, done.built)
        except BaseException:
            if done.applied:
                output.document(done.to_json(storage, done.applied[-1].number))
            raise
        catalog = read_tenant_catalog(storage, tenant)
        document = done.to_json(storage, catalog.position)
    if done.applied:
        count = format_count(len(done.applied), "migration")
        output.write(f"{count} applied; now at {_newest(catalog)}")
    else:
        output.write(f"nothing to apply: the database is at {_newest(catalog)}")
    output.document(document)
    if not as_json:
        _report_failed(done.failed)
    return done.exit_status


def _widest(files: list[MigrationFile]) -> int:
    return max((len(file.label) for file in files), default=0)


def _note_applied(output: Output, done: _Done, width: int, one: AppliedMigration) -> None:
    done.applied.append(one)
    said = ("applied ", "green") if one.active else ("stored  ", "yellow")
    output.write(
        said,
        f"{one.label:<{width}}  {', '.join(one.tables)}  ",
        (f"{one.seconds * 1000:.1f} ms", "dim"),
    )


def _migrate_others(storage: Storage, output: Output) -> list[TenantResult]:
    """Migrate the other tenants, with a progress bar on a terminal."""
    total = len(read_all_tenants(storage).behind)
    with progress_bar(output, "migrating tenants", total) as advance:
        results = migrate_all_tenants(storage, lambda result: advance())
    done = sum(result.error is None for result in results)
    output.write(("migrated ", "green"), format_count(done, "more tenant"))
    return results


def _report_failed(failed: list[TenantResult]) -> None:
    for result in failed[:FAILED_SHOWN_MAX]:
        assert result.error is not None
        print_note(f"tenant {result.tenant.name} is at {result.position:04d}:")
        report_error(result.error, as_json=False)
    if len(failed) > FAILED_SHOWN_MAX:
        count = format_count(len(failed) - FAILED_SHOWN_MAX, "more tenant")
        print_note(f"{count} could not be migrated: --json names all")


def _check_pending(
    storage: Storage, directory: Path, tenant: str | None, to: int | None
) -> list[MigrationFile]:
    """Return the files to apply; raises for any error in them before anything is changed."""
    files = list_files(directory)
    if to is not None:
        find_file(files, to)
    catalog = read_tenant_catalog_if_any(storage, tenant)
    chain, pending = Chain(), tuple(files)
    if catalog is not None:
        require_no_ongoing_rollback(catalog)
        chain, pending = (
            catalog.chain,
            compare_files(files, list(catalog.stored), catalog.chain).pending,
        )
    wanted = [file for file in pending if to is None or file.number <= to]
    checked = resolve_files(wanted, chain, provisional_numbers())
    require_proven(checked.after(chain.end))
    return wanted


def _build_indexes(
    storage: Storage, tenant: str | None, output: Output, built: list[JobRun]
) -> None:
    catalog = read_tenant_catalog(storage, tenant)
    if not any(index.needs_build for state in catalog.tables.values() for index in state.indexes):
        return
    jobs = plan_jobs(storage, catalog.tenant, kinds=["index"])
    run_jobs_here(storage, catalog, jobs, output, built.append)


def _results_to_json(results: list[TenantResult]) -> dict[str, Any]:
    return {
        "migrated": sum(result.error is None for result in results),
        "failed": [
            {
                "tenant": result.tenant.name,
                "position": result.position,
                "error": result.error.to_json(),
            }
            for result in results
            if result.error is not None
        ],
    }


def migrate_status_command(
    database: DatabaseOption = None,
    migrations: MigrationsOption = None,
    tenant: TenantOption = None,
    all_tenants: AllTenantsOption = False,
    as_json: JsonOption = False,
) -> int:
    """Compare the files with what the database stores.

    Each migration is `applied`; `pending`: not active yet; `stored-only`: stored in the database,
    and beyond the end of the files; or in `conflict`: the file differs from the stored migration.
    Exit status 3 if a migration is pending, 1 if there is a conflict. With `--all-tenants`, also
    shows how many tenants are at each position, and which are behind.

    With `--json`: `{position, pending, rolling_back, migrations: [{number, name, state}],
    all_tenants}`. `pending` is a count; `rolling_back` is the number of a migration whose rollback
    was interrupted, or null; `all_tenants` is null without `--all-tenants`, else `{tenants,
    positions: {POSITION: COUNT}, behind: [{tenant, position}]}`.
    """
    output = Output(as_json)
    files = list_files(find_migrations(migrations))
    with connected(database) as storage:
        catalog = read_tenant_catalog_if_any(storage, tenant)
        status = read_all_tenants(storage) if all_tenants and catalog is not None else None
    states = list_migration_states(files, catalog)
    rolling_back = None if catalog is None else catalog.chain_state.rolling_back
    pending = sum(state.phase == "pending" for state in states)
    output.table(
        ("number", "name", "state"),
        [(f"{s.number:04d}", s.name, (s.phase, _STYLES[s.phase])) for s in states],
    )
    if rolling_back is not None:
        output.write()
        output.write(
            f"rolling back {rolling_back:04d} was interrupted: run `zapdb migrate rollback` to "
            "finish it"
        )
    if status is not None:
        _write_all_tenants(status, output)
    output.document(
        {
            "position": 0 if catalog is None else catalog.position,
            "pending": pending,
            "rolling_back": rolling_back,
            "migrations": [{"number": s.number, "name": s.name, "state": s.phase} for s in states],
            "all_tenants": None if status is None else _status_to_json(status),
        }
    )
    is_pending = pending or rolling_back is not None or (status is not None and status.behind)
    return _report_conflicts(states, as_json=as_json) or (EXIT_PENDING if is_pending else 0)


def _write_all_tenants(status: AllTenantsStatus, output: Output) -> None:
    output.write()
    output.write(format_count(status.tenants, "tenant"))
    for position, count in status.positions.items():
        output.write(
            f"  {count:,} at {position:04d}" + ("" if position < status.end else ", the newest")
        )
    shown = [tenant.name for tenant in status.behind[:BEHIND_SHOWN_MAX]]
    if shown:
        more = " …" if len(status.behind) > len(shown) else ""
        output.write(f"behind: {', '.join(shown)}{more}")


def _status_to_json(status: AllTenantsStatus) -> dict[str, Any]:
    return {
        "tenants": status.tenants,
        "positions": {str(position): count for position, count in status.positions.items()},
        "behind": [{"tenant": t.name, "position": t.position} for t in status.behind],
    }


def _report_conflicts(states: list[MigrationState], *, as_json: bool) -> int:
    conflicts = [state.conflict for state in states if state.conflict is not None]
    for conflict in conflicts:
        report_error(conflict, as_json=as_json)
    return EXIT_ERROR if conflicts else 0


def _newest(catalog: TenantCatalog) -> str:
    return catalog.chain.at(catalog.position).label if catalog.position else "none"
