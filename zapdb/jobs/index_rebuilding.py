"""Building indexes again: at once where their collation or time zone data changed (rule 26), and
because somebody asks for it.

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
from dataclasses import dataclass
from functools import partial

from zapdb.activation import IndexDescriptor, TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.activation.datasets import needs_rebuilding, restart_indexes
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.row_kinds import Job
from zapdb.errors import UnknownName, UsageError, ZapdbError
from zapdb.jobs.job_planning import plan_jobs
from zapdb.jobs.job_run import run_each, run_locally
from zapdb.limits import REBUILD_WHEN_OPENING_SECONDS
from zapdb.storage import Storage, TransactionMode

logger = logging.getLogger("zapdb.datasets")


def list_rebuilds(catalog: TenantCatalog) -> frozenset[int]:
    """The builds of a tenant's indexes that are to be done at once, with this process's data."""
    return frozenset(
        index.build
        for descriptor in catalog.all_tables
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
    jobs = [job for job in plan_jobs(storage, catalog.tenant, ["index"]) if job.target in builds]
    list(run_each(storage, jobs, runner, should_stop))


def rebuild_when_opening(storage: Storage, catalog: TenantCatalog) -> None:
    """The same for a limited time; what keeps it from being done is logged, and no more."""
    deadline = time.monotonic() + REBUILD_WHEN_OPENING_SECONDS

    def is_over() -> bool:
        return storage.pool.is_closed or time.monotonic() >= deadline

    try:
        run_rebuilds(storage, catalog, is_over)
    except ZapdbError as error:
        if not is_over():
            logger.warning("an index could not be built again yet: %s", error.message)


Choice = Callable[[TableDescriptor, IndexDescriptor], bool]


@dataclass(frozen=True, slots=True)
class Reindexing:
    """The indexes whose build was begun again, as they were, the jobs that do it, and the catalog
    since."""

    indexes: list[tuple[TableDescriptor, IndexDescriptor]]
    jobs: list[Job]
    catalog: TenantCatalog


def plan_reindexing(
    storage: Storage,
    catalog: TenantCatalog,
    table: str | None,
    index: str | None,
    node: Node | None = None,
) -> Reindexing:
    """Begin the builds of indexes again, and plan their jobs.

    Without a table, those that this process can't use as they are; else all of the table, or one.
    Raises `DatasetMismatch` while processes other than `node` have other data, and `UnknownName`.
    """
    found = restart_indexes(storage, catalog, _choose(catalog, table, index), node)
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
    numbers = {index.index.number for _, index in found}
    builds = {
        index.build
        for descriptor in catalog.all_tables
        for index in descriptor.indexes
        if index.index.number in numbers
    }
    jobs = [job for job in plan_jobs(storage, catalog.tenant, ["index"]) if job.target in builds]
    return Reindexing(found, jobs, catalog)


def _choose(catalog: TenantCatalog, table: str | None, index: str | None) -> Choice:
    if table is None:
        if index is not None:
            raise UsageError("an index needs its table", index=index, hint="add --table, or table=")
        return lambda _, found: needs_rebuilding(found)
    descriptor = catalog.table(table)
    if index is None:
        return lambda s, _: s.schema.number == descriptor.schema.number
    named = next((i.index for i in descriptor.indexes if i.index.name == index), None)
    if named is None:
        there = ", ".join(i.index.name for i in descriptor.indexes) or "(none)"
        raise UnknownName("there is no such index", table=table, index=index, indexes=there)
    return lambda _, found: found.index.number == named.number
