"""Building indexes again whose collation or time zone data changed, at once (rule 26).

The process that finds a dataset changed deletes the entries. From then on, each query that would
use the index scans, in all processes. So every process that opens the database rebuilds the index
before all other jobs, whatever the setting `convert` says of these: first for a limited time while
it opens the database, then in the background. Several processes share the work range by range; if
one of them stops, the next one continues.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial

from zapdb.activation import TenantCatalog
from zapdb.errors import ZapdbError
from zapdb.jobs.build_pauses import BuildPauses
from zapdb.jobs.job_planning import plan_jobs
from zapdb.jobs.job_run import run_job, run_locally
from zapdb.limits import REBUILD_WHEN_OPENING_SECONDS
from zapdb.storage import Storage

logger = logging.getLogger("zapdb.datasets")


def list_rebuilds(catalog: TenantCatalog) -> frozenset[int]:
    """The builds of a tenant's indexes that are to be done at once, with this process's data."""
    return frozenset(
        index.build
        for descriptor in catalog.tables.values()
        for index in descriptor.indexes
        if index.is_rebuilt
    )


def run_rebuilds(
    storage: Storage,
    catalog: TenantCatalog,
    should_stop: Callable[[], bool],
    workers: int | None = None,
) -> None:
    """Build what the tenant catalog says is to be built at once, until it is done or it should
    stop."""
    builds = list_rebuilds(catalog)
    if not builds or should_stop():
        return
    runner = partial(run_locally, workers=workers, should_stop=should_stop)
    pauses = BuildPauses(should_stop)
    for job in plan_jobs(storage, catalog.tenant, ["index"]):
        if job.target in builds:
            pauses.wait_before(job)
            if should_stop():
                return
            pauses.note(run_job(storage, job, runner))


def rebuild_when_opening(storage: Storage, catalog: TenantCatalog) -> None:
    """The same for a limited time; what keeps it from being done is logged, and no more."""
    deadline = time.monotonic() + REBUILD_WHEN_OPENING_SECONDS

    def is_over() -> bool:
        return storage.is_closed or time.monotonic() >= deadline

    try:
        run_rebuilds(storage, catalog, is_over)
    except ZapdbError as error:
        if not is_over():
            logger.warning("an index could not be built again yet: %s", error.message)
