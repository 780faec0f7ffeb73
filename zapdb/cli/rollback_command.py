"""`zapdb migrate rollback`: the preview, the confirmation, and each step."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.catalog.feed import read_seq
from zapdb.cli.connecting import DatabaseOptions, read_tenant_catalog
from zapdb.cli.job_engine import Engine
from zapdb.cli.job_progress import with_bar
from zapdb.cli.output import Confirmation, Output, format_count, format_seconds, print_note
from zapdb.errors import EXIT_ERROR, UsageError
from zapdb.jobs.job_status import RollbackStep, TableRollbackPreview, preview_rollback
from zapdb.jobs.job_types import name_job
from zapdb.jobs.rollback_run import roll_back_newest
from zapdb.storage import Storage, TransactionMode


def migrate_rollback_command(
    options: DatabaseOptions,
    engine: Engine,
    confirmation: Confirmation,
    output: Output,
    to: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Roll back all migrations above this number; by default the newest one.",
        ),
    ] = None,
    evict: Annotated[
        bool,
        typer.Option("--evict", help="Evict running processes whose files contain the migration."),
    ] = False,
) -> int:
    """Roll back the newest migration and convert its records back.

    Rolls back every tenant for which the migration is active. Shows what is lost, and asks for
    confirmation. The stored migrations are used, not the files. A rollback that was interrupted is
    finished.

    With `--json`, which needs `--yes`: `{position, rolled_back: [{number, label, tenants, lossy,
    tables: [{table, action, records, fields, indexes}], milliseconds}], seq}`. A process whose
    catalog cache has the seq sees the change. `tenants` is a count, and `records` a count over all
    these tenants. `action` is what happened to the records: `deleted`, `converted` or `kept`;
    `fields` and `indexes` are lost.
    """
    output, runs_on = Output(output.as_json), engine
    runs_on.require_valid()
    with options.opened() as (storage, catalog):
        steps = preview_steps(storage, catalog, to)
        if not steps:
            output.write(f"nothing to roll back: the newest migration is {_newest(catalog)}")
        for step in steps:
            write_step(step, output)
        if steps and not confirmation.is_given("a rollback", _ask(steps), output):
            return EXIT_ERROR
        rolled_back = []
        runs_on.prepare(storage)  # before writes are refused
        try:
            for step in steps:
                seconds = run_step(storage, catalog, step, output, runs_on, evict=evict)
                rolled_back.append(step_to_json(step, seconds))
                catalog = read_tenant_catalog(storage)
        finally:
            if rolled_back or not steps:
                seq = read_seq(storage.connection())
                document = {"position": catalog.position, "rolled_back": rolled_back, "seq": seq}
                output.document(document)
    return 0


def _newest(catalog: TenantCatalog) -> str:
    return catalog.chain.at(catalog.position).label if catalog.position else "none"


def preview_steps(storage: Storage, catalog: TenantCatalog, to: int | None) -> list[RollbackStep]:
    """Return the migrations above `to`, newest first, each with the effects of its rollback."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
        end = catalog.chain.end
        if not end:
            raise UsageError("no migration is stored, so there is nothing to roll back")
        if to is not None and to > end:
            raise UsageError(
                "no migration with this number is stored",
                number=to,
                newest=catalog.chain.migrations[-1].label,
            )
        return preview_rollback(connection, catalog, end - 1 if to is None else to)


def write_step(step: RollbackStep, output: Output) -> None:
    """Print the effects of rolling back one migration."""
    migration = step.migration
    output.write((migration.label, "bold"), f": {migration.summary}")
    if not step.active:
        output.write("  it was never active: nothing is lost")
    if step.tenants > 1:
        output.write(f"  it is active for {format_count(step.tenants, 'tenant')}")
    if step.active and step.lossy:
        output.write("  it is declared lossy: not every value is restored exactly")
    for loss in step.tables:
        output.write(f"  {loss.table}: {'; '.join(_describe(loss))}")


def _describe(loss: TableRollbackPreview) -> list[str]:
    records = format_count(loss.records, "record")
    if loss.action == "deleted":
        return [f"the table is deleted with its {records}"]
    is_one = loss.records == 1
    said = [f"{records} {'is' if is_one else 'are'} converted back"]
    if not loss.records:
        said = ["no record changes"]
    if loss.fields:
        said.append(f"the values of {', '.join(loss.fields)} are lost")
    if loss.indexes:
        said.append(f"the index {', '.join(loss.indexes)} is dropped")
    return said


def _ask(steps: list[RollbackStep]) -> str:
    what = steps[0].migration.label if len(steps) == 1 else f"these {len(steps)} migrations"
    return f"roll back {what}?"


def run_step(
    storage: Storage,
    catalog: TenantCatalog,
    step: RollbackStep,
    output: Output,
    engine: Engine,
    *,
    evict: bool,
) -> float:
    """Roll back the migration of a step; returns the duration in seconds."""
    expected = step.migration
    started = time.perf_counter()
    with engine.runner() as runner:
        try:
            roll_back_newest(
                storage,
                digest=expected.digest,
                evict=evict,
                runner=with_bar(runner, catalog, output),
                on_wait=lambda report: print_note(
                    f"waiting: {name_job(catalog, report.job).doing} is {report.hold}; Ctrl-C "
                    "ends this command, and writes stay refused"
                ),
            )
        except KeyboardInterrupt:
            if read_tenant_catalog(storage).chain_state.rolling_back is not None:
                print_note(
                    "the rollback is not finished, and writes are refused until it is: run "
                    "`zapdb migrate rollback` again"
                )
            raise
    seconds = time.perf_counter() - started
    records = format_count(sum(loss.records for loss in step.tables), "record")
    output.write(
        ("rolled back ", "green"), f"{expected.label}: {records}, {format_seconds(seconds)}"
    )
    return seconds


def step_to_json(step: RollbackStep, seconds: float) -> dict[str, Any]:
    return {
        "number": step.migration.number,
        "label": step.migration.label,
        "tenants": step.tenants,
        "lossy": step.lossy,
        "tables": step.tables,
        "milliseconds": round(seconds * 1000, 1),
    }
