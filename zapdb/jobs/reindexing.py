"""Rebuilding indexes because somebody asks for it, with this process's datasets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zapdb.activation import IndexDescriptor, TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.activation.datasets import needs_rebuilding, restart_indexes
from zapdb.activation.up import require_not_rolling_back
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.row_kinds import Job
from zapdb.errors import UnknownName, UsageError
from zapdb.jobs.job_planning import plan_jobs
from zapdb.storage import Storage, TransactionMode

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
    Raises `DatasetMismatch` while processes other than `node` have other data, `RollbackInProgress`
    and `UnknownName`.
    """
    require_not_rolling_back(catalog)
    found = restart_indexes(storage, catalog, _choose(catalog, table, index), node)
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
    numbers = {index.index.number for _, index in found}
    builds = {
        index.build
        for descriptor in catalog.tables.values()
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
