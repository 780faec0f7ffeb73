"""`zapdb convert watch`: running jobs as schema changes need them, until interrupted."""

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
from zapdb.database.catalog_watch import CatalogWatcher, ChangedRows, concerns, find_job_change
from zapdb.errors import JobError
from zapdb.jobs import plan_jobs, run_locally
from zapdb.jobs.waiting import Hold, find_next_opening
from zapdb.storage import Storage, TransactionMode


class _JobTrigger:
    """A listener that sets `is_due` when a change of the catalog may need jobs."""

    def __init__(self, tenant: int) -> None:
        self.tenant = tenant
        self.is_due = threading.Event()
        self._jobs_changed_at = 0

    def on_change(self, catalog: CatalogCache, changed: ChangedRows) -> None:
        changed_at = find_job_change(self.tenant, catalog, changed)
        if concerns(self.tenant, changed) or changed_at > self._jobs_changed_at:
            self._jobs_changed_at = max(changed_at, self._jobs_changed_at)
            self.is_due.set()

    def stop(self) -> None:
        self.is_due.set()


def convert_watch_command(
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Number of threads, as for `convert run`.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--for", min=0, metavar="SECONDS", help="Exit after this time without a job."),
    ] = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Watch the catalog and run jobs as schema changes need them, until interrupted.

    For deployments whose applications run no background jobs: one such process builds indexes,
    converts stale records, and validates checks and references.

    With `--json`: one object per line for each job, as in `convert run`.
    """
    output = Output(as_json)
    with stopping_on_interrupt() as should_stop, opened(database) as (storage, catalog):
        watcher, trigger = CatalogWatcher(storage), _JobTrigger(catalog.tenant)
        watcher.add_listener(trigger)
        print_note("watching the catalog; Ctrl-C ends it")

        def is_interrupted() -> bool:
            return should_stop() or trigger.is_due.is_set()

        runner = partial(run_locally, workers=workers, should_stop=is_interrupted)
        try:
            while True:
                trigger.is_due.clear()
                try:
                    opens_in = _run_all(storage, catalog.tenant, runner, output)
                except JobError:
                    if not trigger.is_due.is_set():
                        raise
                    continue  # something more urgent may have come up
                opens_first = opens_in is not None and (seconds is None or opens_in <= seconds)
                timeout = opens_in if opens_first else seconds
                if not trigger.is_due.wait(timeout) and not opens_first:
                    return
        finally:
            watcher.remove_listener(trigger)
            watcher.stop()


def _run_all(storage: Storage, tenant: int, runner: Any, output: Output) -> float | None:
    """Run the jobs that are needed now; returns after how many seconds a window opens."""
    held = list[Hold]()

    def report(run: JobRun) -> None:
        output.lines([run.to_json()])
        if run.hold is not None:
            held.append(run.hold)

    jobs = plan_jobs(storage, tenant)
    if jobs:
        with storage.transaction(TransactionMode.READ) as connection:
            catalog = load_tenant_catalog(connection, tenant)
        run_jobs(storage, catalog, jobs, runner, output, report)
    return find_next_opening(storage, held)
