"""`zapdb convert watch`: running the jobs of all tenants as schema changes need them."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Final

import typer

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.activation.datasets import apply_dataset_policies
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.cluster.level import check_level
from zapdb.catalog.cluster.node_registration import Heartbeat, deregister, register
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.row_kinds import Tenant
from zapdb.catalog.stored_migrations import list_stored, read_chain, read_chain_state
from zapdb.catalog.tenants import find_tenant
from zapdb.catalog.zone_numbers import append_zones
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.job_progress import run_one, stopping_on_interrupt, write_job_run
from zapdb.cli.output import Output, print_note
from zapdb.control.job_runs import JobRun
from zapdb.database.catalog_watch import CatalogWatcher
from zapdb.database.job_queue import ChangedTenants, PlannedJobs
from zapdb.datasets import dataset_of
from zapdb.errors import JobError, UnknownName, ZapdbError
from zapdb.jobs import Job, Progress, plan_jobs, read_progress
from zapdb.jobs.archive_pruning import drop_what_is_unused
from zapdb.jobs.job_planning import (
    find_needy_tenants,
    is_blocked,
    list_dependencies,
    plan_blocked_again,
)
from zapdb.jobs.job_run import BuildPauses, Runner, run_locally
from zapdb.jobs.waiting import Hold, find_lagging, find_next_opening, part_delayed
from zapdb.limits import (
    BACKGROUND_RETRY_SECONDS,
    BLOCKED_RETRY_PAUSES,
    BLOCKED_RETRY_SECONDS,
    CATALOG_WAIT_SECONDS,
)
from zapdb.migrations import Chain
from zapdb.storage import Storage, TransactionMode

LOOK_SECONDS: Final = 1.0
"""How often an idle watch looks whether it should end."""


def convert_watch_command(
    options: DatabaseOptions,
    output: Output,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Number of threads, as for `convert run`.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--for", min=0, metavar="SECONDS", help="Exit after this time without a job."),
    ] = None,
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Watch only this tenant, instead of all of them."),
    ] = None,
) -> None:
    """Watch the catalog, and run the jobs of all tenants as they come up, until interrupted.

    For deployments whose applications run no background jobs: one such process builds indexes,
    converts stale records, and validates checks and references. The most urgent job runs first,
    whatever its tenant. Conversions begin when the setting `convert_after_seconds` allows it.
    Several processes share the work. Each is a node that `zapdb cluster nodes` lists. SIGTERM ends
    it after its present batch, with exit status 0.

    With `--json`: one object per line for each job, as in `convert run`, with its `tenant`.
    """
    with stopping_on_interrupt() as is_interrupted, options.connected() as storage:
        ensure_database(storage, create=False)
        append_zones(storage)
        check_level(storage.connection())
        only = None if tenant is None else find_tenant(storage.connection(), tenant).number
        changed, watcher = ChangedTenants(only), CatalogWatcher(storage)
        watcher.add_listener(changed)
        try:
            with _registered(storage, watcher) as (node, heartbeat):
                watch = _Watch(storage, watcher, changed, node, output)
                watch.should_stop = lambda: is_interrupted() or heartbeat.lost is not None
                with _ending_on_sigterm(watch):
                    watch.run(workers, seconds)
                if heartbeat.lost is not None:
                    raise heartbeat.lost
        finally:
            watcher.remove_listener(changed)
            watcher.stop()


@contextmanager
def _registered(storage: Storage, watcher: CatalogWatcher) -> Iterator[tuple[Node, Heartbeat]]:
    """This process as a node without files: it works with whatever is active."""
    dependencies = list_dependencies(watcher.cache(CATALOG_WAIT_SECONDS), _read_chain(storage))
    found = [dataset_of(one) for needed in dependencies.values() for one in needed]
    datasets = {one.name: (one.version, one.fingerprint) for one in found}
    node = register(storage, 0, datasets=datasets)
    heartbeat = Heartbeat(storage, node)
    try:
        yield node, heartbeat
    finally:
        heartbeat.stop()
        with suppress(ZapdbError):  # or its lease ends by itself
            deregister(storage, node)


def _read_chain(storage: Storage) -> Chain:
    with storage.transaction(TransactionMode.READ) as connection:
        return read_chain(list(list_stored(connection, read_chain_state(connection))))


@contextmanager
def _ending_on_sigterm(watch: _Watch) -> Iterator[None]:
    """SIGTERM is what service managers send."""

    def end(number: int, frame: object) -> None:
        watch.is_ended = True

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Watch:
    """Plans the jobs of tenants that have changed, and runs the most urgent one."""

    should_stop: Callable[[], bool]

    def __init__(
        self,
        storage: Storage,
        watcher: CatalogWatcher,
        changed: ChangedTenants,
        node: Node,
        output: Output,
    ) -> None:
        self.is_ended = False
        self._storage = storage
        self._watcher = watcher
        self._changed = changed
        self._node = node
        self._output = output
        self._planned = PlannedJobs()
        self._pauses = BuildPauses(self._is_interrupted)
        self._known: TenantCatalog | None = None
        self._begun = dict[str, tuple[Progress, float]]()
        """How far jobs were, and when, that were begun and interrupted by more urgent ones."""
        self._problems = dict[int, str]()
        self._told = set[str]()
        self._blocked_until = dict[int, float]()
        """When blocked jobs of tenants are tried again, by the monotonic clock."""
        self._findings = dict[str, object]()
        """What was told of blocked jobs."""

    def run(self, workers: int | None, seconds: float | None) -> None:
        """Run jobs until it should stop, or until none came up for so long."""
        runner = partial(run_locally, workers=workers, should_stop=self._is_interrupted)
        self._changed.add(self._find_needy())
        for stored in self._watcher.cache(CATALOG_WAIT_SECONDS).list(Job):
            if is_blocked(stored) and self._changed.concerns(stored.tenant):
                self._try_again_later(stored.tenant, BLOCKED_RETRY_SECONDS)
        print_note("watching the catalog; Ctrl-C ends it")
        while not self._is_over():
            for tenant in [*self._changed.take_all(), *self._planned.take_later()]:
                if self._is_over():
                    return
                self._try_to(partial(self._plan, tenant), tenant)
            job = self._planned.find_first()
            if job is not None:
                self._try_to(partial(self._run, job, runner), job.tenant)
            elif not self._wait(seconds):
                return

    def _is_over(self) -> bool:
        return self.is_ended or self.should_stop()

    def _is_interrupted(self) -> bool:
        return self._is_over() or self._changed.arrived.is_set()

    def _find_needy(self) -> set[int]:
        cache = self._watcher.cache(CATALOG_WAIT_SECONDS)
        chain = _read_chain(self._storage)
        with self._storage.transaction(TransactionMode.READ) as connection:
            return find_needy_tenants(connection, cache, chain)

    def _wait(self, seconds: float | None) -> bool:
        """Wait until a tenant has changed, or it should stop; returns whether more is to do."""
        over = None if seconds is None else time.monotonic() + seconds
        while not self._is_over():
            now, later = time.monotonic(), self._planned.find_next_time()
            if later is not None and later <= now:
                return True
            if over is not None and over <= now:
                return False
            times = [now + LOOK_SECONDS, *(at for at in (later, over) if at is not None)]
            if self._changed.arrived.wait(min(times) - now):
                return True
        return False

    def _try_to(self, work: Callable[[], None], tenant: int) -> None:
        """Do what is to be done for a tenant; errors are told, and keep no other tenant waiting."""
        try:
            work()
        except ZapdbError as error:
            if isinstance(error, JobError) and self._is_interrupted():
                return  # something more urgent may have come up
            self._planned.replace(tenant, [])
            self._planned.put_later(tenant, BACKGROUND_RETRY_SECONDS)
            if self._problems.get(tenant) != str(error):
                self._problems[tenant] = str(error)
                print_note(f"{self._prefix(tenant)}{error}\nthis is tried again")
        else:
            self._problems.pop(tenant, None)

    def _plan(self, tenant: int) -> None:
        try:
            drop_what_is_unused(self._storage, tenant, self._known)
            with self._storage.transaction(TransactionMode.READ) as connection:
                catalog = load_tenant_catalog(connection, tenant, self._known)
            catalog = apply_dataset_policies(self._storage, catalog, self._node)
            self._known = catalog
            self._tell_lagging(catalog)
            if self._blocked_until.get(tenant, float("inf")) <= time.monotonic():
                del self._blocked_until[tenant]
                plan_blocked_again(self._storage, tenant, catalog)
            jobs, delays = part_delayed(
                self._storage, plan_jobs(self._storage, tenant, known=catalog)
            )
            self._planned.replace(tenant, jobs)
            self._await_end(delays, tenant)
        except UnknownName:  # the tenant was removed
            self._planned.replace(tenant, [])

    def _tell_lagging(self, catalog: TenantCatalog) -> None:
        """Say once which migration of a tenant waits for which processes."""
        with self._storage.transaction(TransactionMode.READ) as connection:
            lagging = find_lagging(connection, catalog)
        if lagging is not None and lagging not in self._told:
            self._told.add(lagging)
            print_note(f"waiting: {lagging}")

    def _run(self, job: Job, runner: Runner) -> None:
        with self._storage.transaction(TransactionMode.READ) as connection:
            catalog = load_tenant_catalog(connection, job.tenant, self._known)
        self._pauses.wait_before(job)
        if job.id not in self._begun:
            progress = read_progress(self._storage.connection(), job.id)
            self._begun[job.id] = progress, time.perf_counter()
        since, began = self._begun[job.id]
        run = run_one(self._storage, catalog, job, runner, self._output, since)
        del self._begun[job.id]
        run = replace(run, seconds=time.perf_counter() - began)
        self._pauses.note(run.job, run.seconds)
        self._planned.remove(job)
        self._report(run, catalog)
        if run.hold is not None:
            self._await_end([run.hold], job.tenant)
        if is_blocked(run.job):
            pause = max(BLOCKED_RETRY_SECONDS, BLOCKED_RETRY_PAUSES * run.seconds)
            self._try_again_later(job.tenant, pause)

    def _try_again_later(self, tenant: int, seconds: float) -> None:
        """Have blocked jobs of a tenant tried again."""
        until = time.monotonic() + seconds
        self._blocked_until[tenant] = max(until, self._blocked_until.get(tenant, until))
        self._planned.put_later(tenant, seconds)

    def _report(self, run: JobRun, catalog: TenantCatalog) -> None:
        told = self._findings.pop(run.job.id, None)
        if is_blocked(run.job):
            self._findings[run.job.id] = run.job.findings
            if told == run.job.findings:
                return
        name = self._name(run.job.tenant)
        self._output.lines([run.to_json() | {"tenant": name}])
        write_job_run(run, catalog, self._output, self._prefix(run.job.tenant))

    def _await_end(self, holds: list[Hold], tenant: int) -> None:
        opens_in = find_next_opening(self._storage, holds)
        if opens_in is not None:
            self._planned.put_later(tenant, opens_in)

    def _name(self, tenant: int) -> str:
        cache = self._watcher.known
        row = None if cache is None else cache.get(Tenant, tenant)
        return str(tenant) if row is None else row.name

    def _prefix(self, tenant: int) -> str:
        return "" if tenant == DEFAULT_TENANT else f"{self._name(tenant)}: "
