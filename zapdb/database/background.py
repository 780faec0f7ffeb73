"""Jobs that an open database runs by itself, if the setting `convert` allows it (rule 14).

Indexes whose collation or time zone data changed are rebuilt even if it does not.

They begin when the database is opened, when the tenant's schema changes, and when a job is resumed
or its window opens. When the database is closed, the setting changes, or a rollback begins, they
end after their present batch. A change of the schema or of a priority interrupts them, and the most
urgent job continues first. Several processes share a job range by range.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from zapdb.activation import load_tenant_catalog
from zapdb.errors import UnknownZone, ZapdbError
from zapdb.jobs import plan_jobs
from zapdb.jobs.index_rebuilding import run_rebuilds
from zapdb.jobs.job_run import run_each, run_locally
from zapdb.jobs.waiting import find_next_opening
from zapdb.limits import BACKGROUND_RETRY_SECONDS
from zapdb.storage import Storage, TransactionMode

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
    reports = list(run_each(storage, plan_jobs(storage, tenant), runner, should_stop))
    held = [report.hold for report in reports if report.hold is not None]
    return None if should_stop() else find_next_opening(storage, held)


def run_urgent(storage: Storage, tenant: int, should_stop: Callable[[], bool]) -> float | None:
    """Build the tenant's indexes again whose data changed, one thread for all."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
    try:
        run_rebuilds(storage, catalog, should_stop, workers=1)
    except UnknownZone as error:  # others, with other data, can do it; trying again can't
        logger.warning("an index is left to processes with newer data: %s", error.message)
    return None
