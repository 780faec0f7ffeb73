"""How far jobs are, and what is left to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from zapdb.activation import IndexDescriptor, TableDescriptor, TenantCatalog
from zapdb.activation.datasets import needs_rebuilding
from zapdb.answers import hidden
from zapdb.catalog.row_kinds import ConstraintFinding, Job
from zapdb.catalog.settings import Settings
from zapdb.catalog.stored_settings import read_settings
from zapdb.control.bounds import Between
from zapdb.control.jobs.listing import JobSummary, describe_job, show_findings, shows_records
from zapdb.control.target import Target, paced
from zapdb.datasets import dataset_of
from zapdb.jobs.job import read_progress
from zapdb.jobs.job_status import (
    JobStatus,
    TableStatus,
    list_blocked_jobs,
    list_open_jobs,
    measure_rate,
    read_job_status,
    read_table_statuses,
)
from zapdb.jobs.job_types import name_job
from zapdb.jobs.latency import ProbeStatus
from zapdb.limits import JOB_LOOK_SECONDS, JOB_MEASURE_SECONDS_MAX
from zapdb.records import codec_for
from zapdb.records.unreadable import DecodeKey

ENDS: Final = ("done", "superseded", "blocked", "cancelled")
"""The states of jobs that come no further by themselves."""


@dataclass(frozen=True, slots=True)
class JobWorker:
    """Who has a range of a job, and for how long unless the lease is renewed."""

    range: int
    owner: str
    lease_left_us: int


@dataclass(frozen=True, slots=True)
class UnreadableKey:
    """A record that can't be read, by its key, and when that was found, in microseconds since 1970
    UTC. `shown` is what people are told of it."""

    key: bytes
    reason: str
    found_at: int
    shown: str = hidden()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetails(JobSummary):
    """A job, who works on it, and its rate, if that was measured.

    `reads` is how many records it will have read at its end, as far as that is known. `latencies`
    are what its processes measured last, if it has a ceiling; `quarantine` are the first records
    that can't be read.
    """

    reads: int
    workers: tuple[JobWorker, ...]
    latencies: tuple[ProbeStatus, ...]
    records_per_second: float | None
    seconds_left: float | None
    quarantine: tuple[UnreadableKey, ...]


def get_job(
    target: Target,
    job: str,
    measure_seconds: Annotated[float, Between(0.0, JOB_MEASURE_SECONDS_MAX)] = 0.0,
) -> JobDetails:
    """A job by its id, or the beginning of it; its rate is measured for so long, up to 60 seconds,
    if a process works on it. Keys of records are for those who may see them.

    Raises `UnknownName` and `UsageError`.
    """
    catalog = target.catalog()
    status = read_job_status(target.storage, catalog.tenant, job)
    rate = measure_rate(target.storage, status, measure_seconds)
    left = _find_left(status, status.progress.read, rate)
    decode_key = _find_key_decoder(catalog, status.job)
    return JobDetails(
        **describe_job(
            target,
            catalog,
            status.job,
            status.progress,
            status.waits,
            is_running=status.is_running,
        ),
        reads=status.reads,
        workers=tuple(
            JobWorker(one.number, one.owner, one.lease_left_us)
            for one in status.open_ranges
            if one.is_held
        ),
        latencies=status.probes,
        records_per_second=None if rate is None else round(rate, 1),
        seconds_left=None if left is None else round(left, 1),
        quarantine=tuple(
            UnreadableKey(one.key, one.reason, one.found_at, one.show(decode_key))
            for one in (status.quarantine if shows_records(target, catalog, status.job) else ())
        ),
    )


def _find_left(status: JobStatus, read: int, rate: float | None) -> float | None:
    """The seconds until the end, at this rate."""
    return max(0, status.reads - read) / rate if rate and status.has_end else None


def _find_key_decoder(catalog: TenantCatalog, job: Job) -> DecodeKey | None:
    """What decodes the keys of a job's table; None if that is not active."""
    for descriptor in catalog.tables.values():
        if descriptor.schema.number == job.table:
            return codec_for(descriptor.schema, catalog.zones).decode_key
    return None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is at one moment, and its rate since the look before, if there was one."""

    id: str
    state: str
    is_running: bool
    reads: int
    ranges: int
    ranges_done: int
    read: int
    written: int
    conflicts: int
    quarantined: int
    records_per_second: float | None
    seconds_left: float | None
    waits: tuple[str, ...]


@paced(JOB_LOOK_SECONDS)
def watch_job(target: Target, job: str) -> Iterator[JobProgress]:
    """How far a job is, again and again, until it comes no further by itself: it is done, not
    needed any more, blocked by records, or cancelled. Raises `UnknownName` and `UsageError`."""
    tenant = target.tenant()
    looked_at, read = 0.0, None
    while True:
        status, now = read_job_status(target.storage, tenant, job), time.monotonic()
        progress = status.progress
        rate = None if read is None else (progress.read - read) / max(now - looked_at, 1e-6)
        left = _find_left(status, progress.read, rate)
        yield JobProgress(
            id=status.job.id,
            state=status.job.state,
            is_running=status.is_running,
            reads=status.reads,
            ranges=progress.ranges,
            ranges_done=progress.ranges_done,
            read=progress.read,
            written=progress.written,
            conflicts=progress.conflicts,
            quarantined=progress.quarantined,
            records_per_second=None if rate is None else round(rate, 1),
            seconds_left=None if left is None else round(left, 1),
            waits=status.waits,
        )
        if status.job.state in ENDS:
            return
        job, looked_at, read = status.job.id, now, progress.read


# --- what is left to do --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnfinishedJob:
    """A job that the schema needs, and how far it is; `doing` is what people call it."""

    id: str
    kind: str
    table: str
    target: int
    records: int
    ranges: int
    ranges_done: int
    read: int
    written: int
    conflicts: int
    doing: str = hidden()


@dataclass(frozen=True, slots=True)
class BlockedJob:
    """A job that found violating records, or `quarantined` ones that can't be read."""

    id: str
    kind: str
    table: str
    findings: tuple[ConstraintFinding, ...]
    quarantined: int
    doing: str = hidden()


@dataclass(frozen=True, slots=True)
class ConversionStatus:
    """How many records of each table have which revision, and which jobs are not finished.

    It is `pending` if records are stale, an index is not built, or a check or reference is not
    validated.
    """

    pending: bool
    tables: tuple[TableStatus, ...]
    jobs: tuple[UnfinishedJob, ...]
    blocked: tuple[BlockedJob, ...]


def get_conversion_status(target: Target) -> ConversionStatus:
    """What is left to build, to convert and to validate."""
    catalog = target.catalog()
    with target.reading() as connection:
        tables = read_table_statuses(connection, catalog)
        jobs = list_open_jobs(connection, catalog.tenant)
        blocked = [
            (job, read_progress(connection, job.id))
            for job in list_blocked_jobs(connection, catalog.tenant)
        ]
    return ConversionStatus(
        any(table.is_pending for table in tables),
        tuple(tables),
        tuple(
            UnfinishedJob(
                id=job.id,
                kind=job.kind,
                table=job.table_name,
                target=job.target,
                records=job.records,
                ranges=progress.ranges,
                ranges_done=progress.ranges_done,
                read=progress.read,
                written=progress.written,
                conflicts=progress.conflicts,
                doing=name_job(catalog, job).doing,
            )
            for job, progress in jobs
        ),
        tuple(
            BlockedJob(
                job.id,
                job.kind,
                job.table_name,
                show_findings(job, shows_values=shows_records(target, catalog, job)),
                progress.quarantined,
                name_job(catalog, job).doing,
            )
            for job, progress in blocked
        ),
    )


@dataclass(frozen=True, slots=True)
class IndexDatasets:
    """An index, the policy for when its collation or time zone data change, and whether those that
    it was built with are those of this process; versions by the names of the data."""

    table: str
    index: str
    state: str
    policy: str | None
    matches: bool
    built_with: Mapping[str, str]
    this_process: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReindexStatus:
    """It is `pending` if a process with the data of this one can't read an index."""

    pending: bool
    indexes: tuple[IndexDatasets, ...]


def get_reindex_status(target: Target) -> ReindexStatus:
    """Each index, and the collation and time zone data of its entries."""
    catalog = target.catalog()
    with target.reading() as connection:
        settings = read_settings(connection, catalog.tenant)
    found = tuple(
        _describe_datasets(settings, descriptor, index)
        for descriptor in catalog.tables.values()
        for index in descriptor.indexes
    )
    is_pending = any(one.state != "readable" or not one.matches for one in found)
    return ReindexStatus(is_pending, found)


def _describe_datasets(
    settings: Settings, descriptor: TableDescriptor, index: IndexDescriptor
) -> IndexDatasets:
    here = sorted((dataset_of(one) for one in index.dependencies), key=lambda one: one.name)
    policy = settings.dataset_policy(descriptor.schema, index.index) if here else None
    return IndexDatasets(
        table=descriptor.schema.name,
        index=index.index.name,
        state=index.state,
        policy=policy,
        matches=not needs_rebuilding(index),
        built_with={
            one.name: index.built_with[one.name].version
            for one in here
            if one.name in index.built_with
        },
        this_process={one.name: one.version for one in here},
    )
