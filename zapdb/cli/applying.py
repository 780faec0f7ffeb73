"""`zapdb migrate up`: applying what is pending, for one tenant or all of them."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from zapdb.activation import TenantCatalog
from zapdb.activation.file_comparison import compare_files
from zapdb.activation.up import (
    AppliedMigration,
    MigrationChoice,
    TenantResult,
    migrate_all_tenants,
    migrate_up,
    read_all_tenants,
    require_no_ongoing_rollback,
)
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.feed import read_seq
from zapdb.catalog.stored_migrations import provisional_numbers
from zapdb.catalog.tenants import find_tenant
from zapdb.cli.configuration import AllTenantsOption, MigrationsOption, find_migrations
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.job_bar import progress_bar
from zapdb.cli.job_progress import JobRun, run_jobs_here
from zapdb.cli.output import Output, format_count, print_note, report_error
from zapdb.errors import EXIT_ERROR, ActivationPending, UsageError
from zapdb.jobs import plan_jobs
from zapdb.migrations import Chain, MigrationFile, find_file, list_files, resolve_files
from zapdb.migrations.prove import require_proven
from zapdb.storage import Storage

FAILED_SHOWN_MAX = 10


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
                    "tables": one.tables,
                    "milliseconds": round(one.seconds * 1000, 1),
                }
                for one in self.applied
            ],
            "built": [one.to_json() for one in self.built],
            "all_tenants": None if self.all_tenants is None else _results_to_json(self.all_tenants),
            "seq": read_seq(storage.connection()),
        }


def migrate_up_command(
    options: TenantOptions,
    output: Output,
    migrations: MigrationsOption = None,
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
    if all_tenants and (options.tenant is not None or to is not None):
        raise UsageError(
            "--all-tenants migrates all tenants to the stored end, so it cannot be "
            "combined with a tenant or --to",
            hint="leave out --tenant, ZAPDB_TENANT and --to",
        )
    directory = find_migrations(migrations)
    done = _Done()
    with options.connected() as storage:
        pending = _check_pending(storage, options, directory, to)
        note_applied = partial(_note_applied, output, done, _widest(pending))
        try:
            ensure_database(storage, create=True)
            number = find_tenant(storage.connection(), options.tenant_name).number
            # With --all-tenants, a tenant that waits is reported, and migrated as far as possible.
            with suppress(ActivationPending) if all_tenants else nullcontext():
                wanted = MigrationChoice(to, again=True)
                migrate_up(
                    storage, number, directory, wanted, on_applied=note_applied, wait_seconds=wait
                )
            if all_tenants:
                done.all_tenants = _migrate_others(storage, output)
            if not no_build:
                _build_indexes(storage, options, output, done.built)
        except BaseException:
            if done.applied:
                output.document(done.to_json(storage, done.applied[-1].number))
            raise
        catalog = options.read_catalog(storage)
        document = done.to_json(storage, catalog.position)
    if done.applied:
        count = format_count(len(done.applied), "migration")
        output.write(f"{count} applied; now at {_newest(catalog)}")
    else:
        output.write(f"nothing to apply: the database is at {_newest(catalog)}")
    output.document(document)
    if not output.as_json:
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
    storage: Storage, options: TenantOptions, directory: Path, to: int | None
) -> list[MigrationFile]:
    """Return the files to apply; raises for any error in them before anything is changed."""
    files = list_files(directory)
    if to is not None:
        find_file(files, to)
    catalog = options.read_catalog_if_any(storage)
    chain, pending = Chain(), tuple(files)
    if catalog is not None:
        require_no_ongoing_rollback(catalog)
        chain, pending = (
            catalog.chain,
            compare_files(files, catalog.stored, catalog.chain).pending,
        )
    wanted = [file for file in pending if to is None or file.number <= to]
    checked = resolve_files(wanted, chain, provisional_numbers())
    require_proven(checked.after(chain.end))
    return wanted


def _build_indexes(
    storage: Storage, options: TenantOptions, output: Output, built: list[JobRun]
) -> None:
    catalog = options.read_catalog(storage)
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


def _newest(catalog: TenantCatalog) -> str:
    return catalog.chain.at(catalog.position).label if catalog.position else "none"
