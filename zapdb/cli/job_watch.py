"""`zapdb convert watch`: run jobs as they come up, until interrupted."""

from __future__ import annotations

import threading
from functools import partial
from typing import Annotated, Any

import typer

from zapdb.activation import load_tenant_catalog
from zapdb.catalog.cache import CatalogCache
from zapdb.cli.configuration import DatabaseOption, JsonOption
from zapdb.cli.job_progress import JobRun, run_jobs, stopping_on_interrupt
from zapdb.cli.opening import opened
from zapdb.cli.output import Output, print_note
from zapdb.database.catalog_watch import CatalogWatcher, ChangedRows, concerns
from zapdb.jobs import plan_jobs, run_locally
from zapdb.storage import Storage, TransactionMode


class _JobTrigger:
    """Rings when something changes that may bring jobs."""

    def __init__(self, tenant: int) -> None:
        self.tenant = tenant
        self.is_due = threading.Event()

    def on_change(self, catalog: CatalogCache, changed: ChangedRows) -> None:
        if concerns(self.tenant, changed):
            self.is_due.set()

    def stop(self) -> None:
        self.is_due.set()


def convert_watch_command(
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, help="How many threads, as `convert run`.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--for", min=0, metavar="SECONDS", help="End after so long without a job."),
    ] = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow the catalog, and run jobs as schema changes bring them, until interrupted.

    For deployments where the applications themselves do not convert: one such process beside them
    builds the indexes, converts stale records, and validates checks and references.

    With `--json`: an object a line for each job that was run, as of `convert run`.
    """
    output = Output(as_json)
    with stopping_on_interrupt() as should_stop, opened(database) as (storage, catalog):
        watcher, trigger = CatalogWatcher(storage), _JobTrigger(catalog.tenant)
        watcher.add_listener(trigger)
        print_note("following the catalog; Ctrl-C ends it")
        runner = partial(run_locally, workers=workers, should_stop=should_stop)
        try:
            while True:
                trigger.is_due.clear()
                _run_all(storage, catalog.tenant, runner, output)
                if not trigger.is_due.wait(seconds):
                    return
        finally:
            watcher.remove_listener(trigger)
            watcher.stop()


def _run_all(storage: Storage, tenant: int, runner: Any, output: Output) -> None:
    def report(run: JobRun) -> None:
        output.lines([run.to_json()])

    jobs = plan_jobs(storage, tenant)
    if jobs:
        with storage.transaction(TransactionMode.READ) as connection:
            catalog = load_tenant_catalog(connection, tenant)
        run_jobs(storage, catalog, jobs, runner, output, report)
