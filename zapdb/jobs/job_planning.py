"""Plan the jobs that the active schema needs: indexes to build, records to convert, constraints.

Planning stores jobs with their ranges, supersedes those that are not needed any more, and puts the
most urgent first: a job's priority says how urgent it is, unless an operator has changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Final

from msgspec import structs

from zapdb.activation import IndexDescriptor, TableDescriptor, TenantCatalog
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.range_revisions import read_table_revisions
from zapdb.catalog.row_kinds import ConstraintRow, IndexRow, Job, JobKind, Tenant, row_key
from zapdb.catalog.schema_history import list_stale_layouts
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.datasets import Dependency, dataset_of
from zapdb.errors import CatalogChanged
from zapdb.jobs.job import OPEN_STATES, list_jobs, plan_job, supersede_job
from zapdb.jobs.job_types import JOB_TYPES, type_of
from zapdb.jobs.work import load_job_catalog
from zapdb.limits import CATALOG
from zapdb.migrations import Chain
from zapdb.storage import Connection, EntryStatements, RecordStatements, Storage, TransactionMode
from zapdb.storage.retries import retry
from zapdb.storage.statements import catalog_version_sql

REBUILT_PRIORITY: Final = 800
"""That of an index that queries used until its datasets changed."""


def plan_jobs(
    storage: Storage,
    tenant: int,
    kinds: Collection[JobKind] = ("index", "convert", "validate"),
    *,
    is_by_hand: bool = False,
    retries_quarantined: bool = False,
    known: TenantCatalog | None = None,
) -> list[Job]:
    """Plan whatever the tenant's tables need now; returns the planned jobs of `kinds`, by priority.

    Indexes come first, since queries wait for them, and of these the ones that queries used until
    their datasets changed; then validations, then conversions. Paused jobs are left out, and so are
    cancelled and blocked ones, unless they are planned again because somebody started the run
    (`is_by_hand`). Ones that records in quarantine block are planned again by `retries_quarantined`
    only. The chain is not read again if `known`, of any tenant, has it.
    """
    plan_one = partial(
        plan_job,
        storage,
        is_by_hand=is_by_hand,
        retries_quarantined=retries_quarantined,
    )
    plan = partial(_plan_jobs, storage, tenant, kinds, plan_one, known)
    return retry(CATALOG, plan, on=CatalogChanged)


def _plan_jobs(
    storage: Storage,
    tenant: int,
    kinds: Collection[JobKind],
    plan_one: Callable[..., Job],
    known: TenantCatalog | None,
) -> list[Job]:
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_job_catalog(connection, tenant, known)
    needed = list_needed_jobs(catalog)
    superseded = _supersede_all_but(storage, catalog, {job.id for job in needed})
    planned = [
        plan_one(_take_over(job, superseded), _entries_of(storage, catalog, job))
        for job in needed
        if job.kind in kinds
    ]
    return sort_by_priority(job for job in planned if job.state == "planned")


def plan_blocked_again(storage: Storage, tenant: int, known: TenantCatalog | None = None) -> None:
    """Plan the tenant's blocked jobs again, as a run by hand does: what was in their way may be
    gone. Those with records in quarantine stay blocked."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_job_catalog(connection, tenant, known)
        blocked = [job for job in list_jobs(connection, tenant) if is_blocked(job)]
    for job in blocked:
        plan_job(storage, job, _entries_of(storage, catalog, job), is_by_hand=True)


def is_blocked(job: Job) -> bool:
    """Whether a job that the active schema may need is blocked."""
    return job.state == "blocked" and type_of(job).needed


def sort_by_priority(jobs: Iterable[Job]) -> list[Job]:
    """The most urgent first; equally urgent ones stay in their order."""
    return sorted(jobs, key=lambda job: -job.priority)


def _take_over(job: Job, superseded: list[Job]) -> Job:
    """Return a job with the throttle, and the pause, of the one in whose place it comes."""
    for old in superseded:
        if type_of(job).takes_over and (old.kind, old.table) == (job.kind, job.table):
            return structs.replace(
                job,
                state="paused" if old.state == "paused" else job.state,
                priority=old.priority,
                throttle=old.throttle,
                changed_at=old.changed_at,
                changed_by=old.changed_by,
                held_at=old.held_at,
                held_by=old.held_by,
            )
    return job


def _entries_of(storage: Storage, catalog: TenantCatalog, job: Job) -> EntryStatements | None:
    """Return the entries that a job goes through if it rewrites an index, else None."""
    for descriptor in catalog.all_tables:
        for index in descriptor.indexes:
            if job.kind == "index" and index.build == job.target and index.state == "rewriting":
                records = RecordStatements(storage, job.table, job.tenant)
                return EntryStatements(storage, index.entry_table, records)
    return None


def list_needed_jobs(catalog: TenantCatalog) -> list[Job]:
    """Return the jobs that the active schema needs, done or not, as they are planned."""
    to_build = [
        (descriptor, index)
        for descriptor in catalog.all_tables
        for index in descriptor.indexes
        if index.needs_build
    ]
    needed = [
        _new_job(catalog, descriptor, "index", index.build, catalog.place, _fingerprints(index))
        for descriptor, index in to_build
    ]
    needed += [
        _new_job(
            catalog,
            descriptor,
            "convert",
            descriptor.current.since,
            _find_place(catalog, descriptor),
            {},
        )
        for descriptor in catalog.tables.values()
        if descriptor.current.since > min(descriptor.layouts)
    ]
    needed += [
        _new_job(catalog, descriptor, "validate", descriptor.revision, catalog.place, {})
        for descriptor in catalog.all_tables
        if descriptor.unvalidated
    ]
    return needed


def _find_place(catalog: TenantCatalog, descriptor: TableDescriptor) -> ChainPlace:
    """The place on the chain since which a table has the layout of now; the tenant's, if that
    was on another line."""
    origin = descriptor.origins[descriptor.current.since]
    return origin if catalog.is_on_chain(origin) else catalog.place


def _fingerprints(index: IndexDescriptor) -> dict[str, str]:
    return {name: dataset.fingerprint for name, dataset in index.built_with.items()}


def _supersede_all_but(storage: Storage, catalog: TenantCatalog, needed: set[str]) -> list[Job]:
    """Supersede the jobs that the active schema does not need; returns them as they were.

    Raises `CatalogChanged`, with nothing done, if the tenant catalog is no longer the active one: a
    process with a newer one may have planned some of the jobs.
    """
    with storage.transaction(TransactionMode.CATALOG) as connection:
        unwanted = [
            job
            for job in list_jobs(connection, catalog.tenant)
            if type_of(job).needed and job.state in OPEN_STATES and job.id not in needed
        ]
        (version,) = connection.fetch_one(catalog_version_sql(catalog.tenant))
        if version != catalog.version:
            raise CatalogChanged(
                "the schema kept changing while jobs were planned",
                database=storage.shown_url,
                hint="run it again when the running migrations have finished",
            )
        for job in unwanted:
            supersede_job(connection, job)
    return unwanted


def _new_job(
    catalog: TenantCatalog,
    descriptor: TableDescriptor,
    kind: JobKind,
    target: int,
    place: ChainPlace,
    datasets: dict[str, str],
) -> Job:
    priority = JOB_TYPES[kind].priority
    if kind == "index" and any(i.build == target and i.is_rebuilt for i in descriptor.indexes):
        priority = REBUILT_PRIORITY
    return Job(
        f"{kind}/{catalog.tenant}/{descriptor.schema.number}/{target}",
        kind,
        catalog.tenant,
        descriptor.schema.number,
        descriptor.schema.name,
        target,
        place.position,
        place.migration,
        datasets,
        "planned",
        0,
        0,
        priority,
    )


# Which tenants may need jobs: found for all of them at once, without loading each one's catalog.
#
# Planning takes milliseconds. With thousands of tenants of which nearly all have nothing to do,
# that would be a minute. So a few queries on all of them find those to plan for. They may find a
# tenant too many, but they never miss one.

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
    return found | {one.number for one in cache.list(Tenant) if not _is_on_chain(one, chain)}


def _is_on_chain(row: Tenant | Job, chain: Chain) -> bool:
    return ChainPlace(row.position, row.migration) == ChainPlace.on(chain, row.position)


def list_dependencies(cache: CatalogCache, chain: Chain) -> Dependencies:
    """Return what the indexes at the tenants' positions depend on."""
    positions = {one.position for one in cache.list(Tenant) if _is_on_chain(one, chain)}
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
        if job.state == "done" and _is_on_chain(job, chain)
    }
    known = read_table_revisions(connection)
    for tenant, table, since in list_stale_layouts(connection):
        if known.get((tenant, table), 0) >= since:
            continue
        if row_key(tenant, table, since) not in done:
            yield tenant
