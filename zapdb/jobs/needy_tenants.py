"""Which tenants may need jobs: found for all of them at once, without loading each one's catalog.

Planning decides what a tenant needs, and takes milliseconds. With thousands of tenants of which
nearly all have nothing to do, that would be a minute. So a few queries on all of them find those to
plan for. They may find a tenant too many, but they never miss one.
"""

from __future__ import annotations

from collections.abc import Iterator

from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.range_revisions import read_table_revisions
from zapdb.catalog.row_kinds import ConstraintRow, IndexRow, Job, Tenant, row_key
from zapdb.catalog.schema_history import list_stale_layouts
from zapdb.datasets import Dependency, dataset_of
from zapdb.migrations import Chain
from zapdb.migrations.chain import digest_chain
from zapdb.storage import Connection

Dependencies = dict[int, tuple[Dependency, ...]]
"""What the keys of each index depend on, by the index's number."""


def find_needy_tenants(connection: Connection, cache: CatalogCache, chain: Chain) -> set[int]:
    """Return the numbers of the tenants that have something to build, convert or validate, or a job
    that is planned; also of those with an index whose data are not those of this machine."""
    dependencies = list_dependencies(cache, chain)
    found = set(_list_unconverted(connection, cache, chain))
    found |= {job.tenant for job in cache.list(Job) if job.state == "planned"}
    found |= {row.tenant for row in cache.list(ConstraintRow) if row.state == "unvalidated"}
    found |= {row.tenant for row in cache.list(IndexRow) if _is_needy(row, dependencies)}
    return found


def list_dependencies(cache: CatalogCache, chain: Chain) -> Dependencies:
    """Return what the indexes at the tenants' positions depend on."""
    positions = {tenant.position for tenant in cache.list(Tenant)}
    return {
        index.number: table.datasets_of(index)
        for position in sorted(positions)
        for table in chain.schema_at(position)
        for index in table.indexes
    }


def _is_needy(row: IndexRow, dependencies: Dependencies) -> bool:
    if row.state in ("building", "rewriting"):
        return True
    return row.state != "disabled" and any(
        found.name not in row.built_with
        or row.built_with[found.name].fingerprint != found.fingerprint
        for found in map(dataset_of, dependencies.get(row.index, ()))
    )


def _list_unconverted(connection: Connection, cache: CatalogCache, chain: Chain) -> Iterator[int]:
    """The tenants with tables that may have stale records: nothing is known of their revisions, and
    no conversion to their layout, by the present chain, is done."""
    done = {
        row_key(job.tenant, job.table, job.target)
        for job in cache.list(Job, "convert")
        if job.state == "done"
        and job.position <= chain.end
        and job.chain == digest_chain(chain, job.position)
    }
    known = read_table_revisions(connection)
    for tenant, table, layout_revision in list_stale_layouts(connection):
        if known.get((tenant, table), 0) >= layout_revision:
            continue
        if row_key(tenant, table, layout_revision) not in done:
            yield tenant
