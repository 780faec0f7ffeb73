"""What an open database keeps up to date as the catalog changes: its tables, settings and jobs.

It runs jobs by itself if the setting `convert` allows it (rule 14); indexes whose collation or time
zone data changed are rebuilt even if it does not. They begin when the database is opened, when the
tenant's schema changes, and when a job is resumed or its window opens. When the database is closed,
or the setting changes, they end after their present batch. A change of the schema or of a priority
interrupts them, and the most urgent job continues first. Several processes share a job range by
range.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from zapdb.activation import load_tenant_catalog
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.row_kinds import Tenant
from zapdb.catalog.settings import Settings
from zapdb.catalog.stored_settings import read_settings
from zapdb.database.catalog_watch import CatalogWatcher, ChangedRows, concerns, find_job_change
from zapdb.errors import (
    PendingMigrations,
    ServedSchemaUnavailable,
    UnknownName,
    UnknownZone,
    ZapdbError,
)
from zapdb.jobs import plan_jobs
from zapdb.jobs.archive_pruning import drop_what_is_unused
from zapdb.jobs.index_rebuilding import list_rebuilds, run_rebuilds
from zapdb.jobs.job_run import run_each, run_locally
from zapdb.jobs.waiting import find_next_opening, part_delayed
from zapdb.limits import BACKGROUND_RETRY_SECONDS
from zapdb.storage import Storage, TransactionMode
from zapdb.tables.session import Session

logger = logging.getLogger("zapdb.background")

BackgroundWork = Callable[[Storage, int, Callable[[], bool]], float | None]
"""What is done for a tenant until it is done, or until it should stop; returns after how many
seconds there is more to do, None if only a change makes more."""


class BackgroundJobs:
    """A thread that does some work for one tenant whenever it is woken; idle until then."""

    def __init__(self, storage: Storage, tenant: int, work: BackgroundWork) -> None:
        self.work = work
        self._storage = storage
        self._tenant = tenant
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._wake.set()
        self._thread = threading.Thread(target=self._run, name="zapdb-background", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for jobs: something changed."""
        self._wake.set()

    def stop(self, *, wait: bool = True) -> None:
        self._stop.set()
        self._wake.set()
        if wait:
            self._thread.join(timeout=30)

    def _should_stop(self) -> bool:
        return self._stop.is_set() or self._wake.is_set()

    def _run(self) -> None:
        timeout: float | None = None
        while True:
            self._wake.wait(timeout)
            self._wake.clear()
            if self._stop.is_set():
                return
            timeout = None
            try:
                timeout = self.work(self._storage, self._tenant, self._should_stop)
            except ZapdbError as error:
                if not self._should_stop():
                    logger.warning("the jobs are tried again later: %s", error)
                    timeout = BACKGROUND_RETRY_SECONDS
            finally:
                self._storage.release_connection()


def run_all(storage: Storage, tenant: int, should_stop: Callable[[], bool]) -> float | None:
    """Run the tenant's jobs, one thread for all, until none is left or it should stop."""
    runner = partial(run_locally, workers=1, should_stop=should_stop)
    drop_what_is_unused(storage, tenant)
    jobs, delays = part_delayed(storage, plan_jobs(storage, tenant))
    reports = list(run_each(storage, jobs, runner, should_stop))
    held = [report.hold for report in reports if report.hold is not None]
    return None if should_stop() else find_next_opening(storage, [*held, *delays])


def run_urgent(storage: Storage, tenant: int, should_stop: Callable[[], bool]) -> float | None:
    """Build the tenant's indexes again whose data changed, one thread for all."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
    try:
        run_rebuilds(storage, catalog, should_stop, workers=1)
    except UnknownZone as error:  # others, with other data, can do it; trying again can't
        logger.warning("an index is left to processes with newer data: %s", error.message)
    return None


class TenantRefresher:
    """Watches the catalog for one tenant, from the opening of a database to its closing."""

    def __init__(self, watcher: CatalogWatcher, session: Session) -> None:
        self._watcher = watcher
        self._session = session
        self._tenant = session.catalog.tenant
        self._background: BackgroundJobs | None = None
        self._jobs_changed_at = 0
        self._is_over = False
        self._lock = threading.Lock()
        self._start_or_stop_jobs()
        watcher.add_listener(self)

    def _start_or_stop_jobs(self) -> None:
        """Begin or end the background's work as the settings and the indexes say."""
        with self._lock:
            work = self._find_work()
            if self._background is not None and self._background.work is not work:
                self._background.stop(wait=self._is_over)
                self._background = None
            if self._background is None and work is not None:
                self._background = BackgroundJobs(self._session.storage, self._tenant, work)

    def _find_work(self) -> BackgroundWork | None:
        if self._is_over or self._session.is_read_only:
            return None
        if self._session.settings.converts_in_background:
            return run_all
        return run_urgent if list_rebuilds(self._session.catalog) else None

    def use(self, settings: Settings) -> None:
        self._session.settings = settings
        self._start_or_stop_jobs()

    def stop(self) -> None:
        """End the background's work; safe to repeat."""
        self._watcher.remove_listener(self)
        self._is_over = True
        self._start_or_stop_jobs()

    def _end_work(self) -> None:
        with self._lock:
            self._is_over = True
            if self._background is not None:
                self._background.stop(wait=False)
                self._background = None

    def on_change(self, cache: CatalogCache, changed: ChangedRows) -> None:
        """Take in what changed, in the watcher's thread, before its cache is shown."""
        tenant = cache.get(Tenant, self._tenant)
        if tenant is None or tenant.removing:
            self._end_work()  # calls that use the tenant raise an error
            return
        if any(kind == "setting" for kind, _ in changed):
            self.use(read_settings(cache, self._tenant))
            self._wake_jobs()  # a conversion may be to begin earlier
        if concerns(self._tenant, changed):
            # Calls that use the tenant raise it: it was removed just now, restored, or rolled back.
            with suppress(PendingMigrations, ServedSchemaUnavailable, UnknownName):
                self._session.reload(cache)
            self._start_or_stop_jobs()
            self._wake_jobs()
        elif (changed_at := find_job_change(self._tenant, cache, changed)) > self._jobs_changed_at:
            self._jobs_changed_at = changed_at
            self._wake_jobs()

    def _wake_jobs(self) -> None:
        background = self._background
        if background is not None:
            background.wake()
