"""Jobs and their ranges as rows: planned once, claimed, fenced, resumed.

A job's key ranges are fixed when it is planned, so progress is a set of finished ranges that only
grows. The last one ends at the highest key of that moment: whatever is written later is written as
the job would leave it, so a table that grows faster than a job comes on does not keep it from its
end. Each range has a lease and a fence: claiming raises the fence, and every batch commits under
the fence it was claimed with, so a worker that was taken for dead can do no harm. A range that lags
is cut in two (`splitting`): its worker goes on with the first part.

    planned ──▶ done            superseded: its target is no longer needed
    │  ▲ ├────▶ superseded      blocked: records are in the way, which its findings name
    │  │ ├────▶ blocked         paused: until somebody resumes it
    ▼  │ ╰────▶ cancelled       cancelled: until somebody starts a run by hand
    paused

A job that was superseded is planned again when its target is needed again. A run that is started by
hand also plans blocked jobs again, which finds out whether the records are still in the way, and
cancelled ones, which continue behind their finished ranges; jobs in the background leave both
alone.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import sqlalchemy as sa
from msgspec import structs

from zapdb.catalog import rows
from zapdb.catalog.cluster.leases import Lease, Owner
from zapdb.catalog.range_revisions import Bounds, find_ranges_below, intersect
from zapdb.catalog.row_kinds import Job, JobState
from zapdb.errors import UnknownName, ZapdbError
from zapdb.jobs.findings import clear_findings
from zapdb.jobs.job_types import type_of
from zapdb.jobs.quarantine import clear_quarantine, count_quarantined, is_in_range
from zapdb.limits import RANGE_LEASE_SECONDS, RANGE_RECORDS, RANGES_PER_JOB_MAX
from zapdb.printing import one_line
from zapdb.storage import Connection, EntryStatements, RecordStatements, Storage, TransactionMode
from zapdb.storage.cells import as_bytes, checked
from zapdb.storage.fixed_tables import CATALOG, RANGES

OPEN_STATES: Final[tuple[JobState, ...]] = ("planned", "paused", "cancelled", "blocked")
"""The states of jobs whose target was not reached, and is needed as far as is known."""

FREE, RUNNING, DONE = "free", "running", "done"


NAMED: Final = (
    "table",
    "tables",
    "field",
    "source",
    "row",
    "target",
    "directory",
    "master",
    "cause",
)
"""What of an error's context says where it was."""
ERROR_CHARS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Range:
    """Keys above `lower` up to `upper`, both open-ended where None; `resume_after` is done so far.

    If the job goes through entries, the keys are packed (`pack_entry`).
    """

    job: str
    number: int
    lower: bytes | None
    upper: bytes | None
    fence: int
    resume_after: bytes | None


@dataclass(frozen=True, slots=True)
class Progress:
    ranges: int
    ranges_done: int
    read: int
    written: int
    conflicts: int
    quarantined: int = 0
    """Records that can't be read, and were left as they are."""


def plan_job(
    storage: Storage,
    job: Job,
    entries: EntryStatements | None = None,
    *,
    is_by_hand: bool = False,
    retries_quarantined: bool = False,
) -> Job:
    """Store the job with its ranges unless it exists; returns it as it is stored.

    The ranges are ranges of the table's records, or of `entries` if the job goes through these. A
    conversion has none where records are known to be converted; if they all are, it is returned as
    done, and is not stored.

    A superseded job is needed again where records are other than was known, and begins anew. If
    `is_by_hand`, so does a blocked job, because the records that blocked it may have been repaired,
    and a cancelled job is planned again, too: what it has done stays done, writers keep it so. A
    job that records in quarantine block is planned again with `retries_quarantined` only, and then
    does the ranges of these records anew.
    """
    replanned = _list_replanned(is_by_hand=is_by_hand, retries_quarantined=retries_quarantined)
    with storage.transaction(TransactionMode.READ) as connection:
        stored = rows.get(connection, Job, job.id)
        if stored is not None and stored.state not in replanned:
            return stored
        unknown = _find_unknown(connection, job)
        if stored is None and not unknown:
            return structs.replace(job, state="done")
        sliced = slice_records(
            connection, RecordStatements(storage, job.table, job.tenant), entries
        )
        ranges = intersect(sliced.ranges, unknown)
    with storage.transaction(TransactionMode.CATALOG) as connection:
        job = structs.replace(
            job,
            records=sliced.records,
            is_estimated=sliced.is_estimated,
            created_at=storage.now_us(connection),
        )
        if stored is None and insert_job(connection, job, ranges):
            return job
        job = read_job(connection, job.id, lock=True)
        quarantined = count_quarantined(connection, job.id) if job.state == "blocked" else 0
        if job.state not in replanned or (quarantined and not retries_quarantined):
            return job
        if quarantined and entries is None and not job.findings:
            reopen_quarantined(connection, job.id)
        elif job.state != "cancelled":
            begin_anew(connection, job.id, ranges)
        return set_state(connection, structs.replace(job, findings=()), "planned")


def _list_replanned(*, is_by_hand: bool, retries_quarantined: bool) -> Collection[JobState]:
    """The states of jobs that are planned again."""
    states: set[JobState] = {"superseded"}
    if is_by_hand:
        states |= {"blocked", "cancelled"}
    if retries_quarantined:
        states.add("blocked")
    return states


def _find_unknown(connection: Connection, job: Job) -> list[Bounds]:
    """The ranges in which a job may have something to do, as far as is known before it looks."""
    if not type_of(job).skips_current:
        return [(None, None)]
    return find_ranges_below(connection, job.tenant, job.table, job.target)


@dataclass(frozen=True, slots=True)
class SlicedRecords:
    """How many records a table has, about if it `is_estimated`, and the ranges of a job."""

    records: int
    is_estimated: bool
    ranges: list[Bounds]


def slice_records(
    connection: Connection, records: RecordStatements, entries: EntryStatements | None = None
) -> SlicedRecords:
    """Cut a table into ranges of about as many records each, or of `entries`, up to the last one;
    a large one by a sample, where the engine draws one (decisions/0056)."""
    sample = records.sample_keys(connection, None, None)
    if entries is not None:
        count = records.count(connection) if sample is None else sample.records
        found = entries.slice_entries(connection, _find_size(count))
        last = entries.find_last_entry(connection)
    elif sample is not None:
        count, found = sample.records, sample.cut(_find_size(sample.records))
        last = records.find_last_key(connection)
    else:
        count, found = records.slice_keys(connection, RANGE_RECORDS)
        every = -(-len(found) // RANGES_PER_JOB_MAX) or 1
        found, last = found[every - 1 :: every], records.find_last_key(connection)
    bounds = [] if last is None else [None, *(key for key in found if key < last), last]
    return SlicedRecords(count, sample is not None, list(pairwise(bounds)))


def _find_size(count: int) -> int:
    """How many of so many records a range has: all have as many."""
    most = max(RANGE_RECORDS, -(-count // RANGES_PER_JOB_MAX))
    return max(1, -(-count // max(1, -(-count // most))))


def insert_job(connection: Connection, job: Job, ranges: Sequence[Bounds]) -> bool:
    """Store a job with its ranges; returns whether there was none with its id."""
    is_new = rows.put_if_absent(connection, job)
    if is_new:
        insert_ranges(connection, job.id, ranges, draw_first_fence())
    return is_new


def delete_job(connection: Connection, job: Job) -> None:
    """Delete a job, with its ranges and all that they found."""
    clear_findings(connection, job.id)
    clear_quarantine(connection, job.id)
    rows.delete(connection, Job, job.key)
    connection.core_execute(sa.delete(RANGES).where(RANGES.c.job == job.id))


def insert_ranges(
    connection: Connection, job_id: str, ranges: Sequence[Bounds], fence: int, first: int = 0
) -> None:
    """Store free ranges, numbered from `first` on; claims have fences above `fence`."""
    mark = connection.storage.placeholder
    connection.run_many(
        "INSERT INTO zapdb_ranges (job, range, lower, upper, state, fence, owner, expires_at,"
        f" read, written, conflicts) VALUES ({', '.join([mark] * 6)}, '', 0, 0, 0, 0)",
        (
            (job_id, number, lower, upper, FREE, fence)
            for number, (lower, upper) in enumerate(ranges, first)
        ),
    )


def draw_first_fence() -> int:
    """Return a number above which the fences of a job's ranges begin. A worker of earlier rows,
    which were deleted or taken back by a backup, has another fence, though it was only suspended.
    """
    return secrets.randbits(48)


def read_job(connection: Connection, job_id: str, *, lock: bool = False) -> Job:
    job = rows.get(connection, Job, job_id, lock=lock)
    if job is None:
        raise UnknownName("there is no such job", job=job_id)
    return job


def list_jobs(connection: Connection, tenant: int | None = None) -> list[Job]:
    """Return the jobs of a tenant, or of all; a job's id begins with its kind and its tenant. It
    may be of a kind that only a later release knows: raises `IncompatibleVersion` then."""
    if tenant is None:
        return rows.list_rows(connection, Job)
    found = connection.fetch_all(
        "SELECT key, value FROM zapdb_catalog WHERE kind = 'job' AND value IS NOT NULL"
        f" AND key LIKE {connection.storage.placeholder} ORDER BY key",
        (f"%/{tenant}/%",),
    )
    jobs = checked((CATALOG.c.key, CATALOG.c.value), found)
    return [rows.load_row(Job, key, text) for key, text in jobs if tenant_of_job(key) == tenant]


def tenant_of_job(job_id: str) -> int:
    """Return the tenant of a job: its id begins with its kind and its tenant."""
    return int(job_id.split("/")[1])


def set_state(connection: Connection, job: Job, state: JobState) -> Job:
    job = structs.replace(job, state=state)
    rows.put(connection, job)
    return job


def supersede_job(connection: Connection, job: Job) -> None:
    """Note that a job is not needed any more; what it found is forgotten."""
    clear_findings(connection, job.id)
    clear_quarantine(connection, job.id)
    set_state(connection, structs.replace(job, findings=()), "superseded")


def describe_failure(error: Exception) -> str:
    """An error on a line, without values of records."""
    if not isinstance(error, ZapdbError):
        return type(error).__name__
    named = (f"{name} {error.context[name]}" for name in NAMED if name in error.context)
    place = "" if error.location is None else f"{error.location}: "
    found = ", ".join(named)
    return one_line(f"{place}{error.message}{f' ({found})' if found else ''}", ERROR_CHARS_MAX)


def note_failure(storage: Storage, job_id: str, text: str) -> None:
    """Note in a job's row what has ended its run, or, with an empty text, that it runs again; in
    vain if the database can't be reached."""
    with suppress(ZapdbError), storage.transaction(TransactionMode.CATALOG) as connection:
        job = read_job(connection, job_id, lock=True)
        if job.error != text:
            rows.put(connection, structs.replace(job, error=text))


def open_ranges(connection: Connection, job_id: str) -> list[int]:
    """The numbers of the ranges that are not done."""
    query = sa.select(RANGES.c.range, RANGES.c.state).where(
        RANGES.c.job == job_id, RANGES.c.state != DONE
    )
    return [number for number, _ in connection.core_execute(query.order_by(RANGES.c.range))]


@dataclass(frozen=True, slots=True)
class OpenRange:
    """A range that is not done: who has it, or had it last, and for how long, in microseconds."""

    number: int
    is_held: bool
    owner: str
    lease_left_us: int
    read: int

    def __str__(self) -> str:
        if not self.is_held:
            return f"{self.number} (nobody has it)"
        seconds = self.lease_left_us / 1e6
        over = "expired" if seconds <= 0 else f"for {seconds:.0f} s more unless renewed"
        return f"{self.number} ({self.owner} has it, {over})"


def list_open_ranges(connection: Connection, job_id: str) -> list[OpenRange]:
    now_us = connection.storage.now_us(connection)
    query = sa.select(RANGES).where(RANGES.c.job == job_id, RANGES.c.state != DONE)
    return [
        OpenRange(
            row.range,
            row.state == RUNNING,
            str(Owner.parse(row.owner)) if row.owner else "",
            row.expires_at - now_us,
            row.read,
        )
        for row in connection.core_execute(query.order_by(RANGES.c.range))
    ]


def release_ranges(connection: Connection, job_id: str) -> None:
    """Take a job's ranges from their workers: what these have not committed yet is undone."""
    connection.core_execute(
        sa.update(RANGES)
        .where(RANGES.c.job == job_id, RANGES.c.state == RUNNING)
        .values(state=FREE, fence=RANGES.c.fence + 1, expires_at=0)
    )


def count_workers(connection: Connection, job_id: str) -> int:
    """How many workers have a range of a job, as far as their leases tell; at least 1."""
    mark = connection.storage.placeholder
    (count,) = connection.fetch_one(
        f"SELECT count(*) FROM zapdb_ranges WHERE job = {mark} AND state = {mark}"
        f" AND expires_at > ({connection.storage.dialect.clock_sql})",
        (job_id, RUNNING),
    )
    return max(1, int(count))


def begin_anew(connection: Connection, job_id: str, ranges: Sequence[Bounds]) -> None:
    """Give a job other ranges, above all fences so far; what it has counted stays counted."""
    clear_findings(connection, job_id)
    clear_quarantine(connection, job_id)
    columns = (RANGES.c.read, RANGES.c.written, RANGES.c.conflicts)
    sums = [sa.func.coalesce(sa.func.sum(column), 0) for column in columns]
    of_job = RANGES.c.job == job_id
    query = sa.select(sa.func.coalesce(sa.func.max(RANGES.c.fence), 0), *sums).where(of_job)
    fence, read, written, conflicts = map(int, connection.core_execute(query).one())
    connection.core_execute(sa.delete(RANGES).where(of_job))
    insert_ranges(connection, job_id, ranges, fence=fence)
    connection.core_execute(
        sa.update(RANGES)
        .where(of_job, RANGES.c.range == 0)
        .values(read=read, written=written, conflicts=conflicts)
    )


def reopen_quarantined(connection: Connection, job_id: str) -> None:
    """Make the ranges free again that have records in quarantine, which are taken out of it."""
    connection.core_execute(
        sa.update(RANGES)
        .where(sa.and_(RANGES.c.job == job_id, is_in_range()))
        .values(state=FREE, fence=RANGES.c.fence + 1, resume_after=None, expires_at=0)
    )
    clear_quarantine(connection, job_id)


def read_progress(connection: Connection, job_id: str) -> Progress:
    done = sa.func.coalesce(sa.func.sum(sa.case((RANGES.c.state == DONE, 1), else_=0)), 0)
    sums = [
        sa.func.coalesce(sa.func.sum(column), 0)
        for column in (RANGES.c.read, RANGES.c.written, RANGES.c.conflicts)
    ]
    query = sa.select(sa.func.count(), done, *sums).where(RANGES.c.job == job_id)
    ranges, ranges_done, read, written, conflicts = map(int, connection.core_execute(query).one())
    quarantined = count_quarantined(connection, job_id)
    return Progress(ranges, ranges_done, read, written, conflicts, quarantined)


def claim(storage: Storage, job_id: str, owner: Owner, number: int | None = None) -> Range | None:
    """Claim a range: `number`, or else the first one that is free or whose worker is dead.

    A range that is given by its number is claimed from any holder: of two runs of the same task,
    the second takes over.
    """
    with storage.transaction(TransactionMode.CATALOG) as connection:
        now = storage.now_us(connection)
        row = _choose(connection, job_id, number, now)
        if row is None:
            return None
        fence = row.fence + 1
        connection.core_execute(
            sa.update(RANGES)
            .where(RANGES.c.job == job_id, RANGES.c.range == row.range)
            .values(
                state=RUNNING,
                fence=fence,
                owner=owner.to_text(),
                expires_at=now + lease_us(),
            )
        )
        return Range(
            job_id,
            row.range,
            as_place(row.lower),
            as_place(row.upper),
            fence,
            as_place(row.resume_after),
        )


def _choose(connection: Connection, job_id: str, number: int | None, now_us: int) -> Any:
    """The row of the range to claim, locked, or None."""
    query = sa.select(RANGES).where(RANGES.c.job == job_id, RANGES.c.state != DONE)
    if number is not None:
        return connection.core_execute(
            query.where(RANGES.c.range == number).with_for_update()
        ).one_or_none()
    # Only one row: other workers skip locked rows, and would find nothing to do.
    query = query.order_by(RANGES.c.range).limit(1).with_for_update(skip_locked=True)
    free = connection.core_execute(query.where(RANGES.c.state == FREE)).one_or_none()
    if free is not None:
        return free
    running = sa.select(RANGES).where(RANGES.c.job == job_id, RANGES.c.state == RUNNING)
    for row in connection.core_execute(running.order_by(RANGES.c.range)):
        if _is_over(row, now_us):
            again = query.where(RANGES.c.range == row.range, RANGES.c.fence == row.fence)
            taken = connection.core_execute(again).one_or_none()
            if taken is not None and _is_over(taken, now_us):
                return taken
    return None


def _is_over(row: Any, now_us: int) -> bool:
    """Whether the lease of a range is over, whose epoch is the fence: as any other's."""
    owner = Owner.parse(row.owner)
    return Lease(f"{row.job}/{row.range}", owner, row.fence, 0, row.expires_at).is_over(now_us)


def give_back(storage: Storage, claimed: Range) -> None:
    """Let another worker continue a range at once, after the work that is done."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        make_free(connection, claimed)


def make_free(connection: Connection, claimed: Range) -> None:
    """The same, in a transaction."""
    row = sa.and_(RANGES.c.job == claimed.job, RANGES.c.range == claimed.number)
    ours = sa.and_(row, RANGES.c.fence == claimed.fence, RANGES.c.state == RUNNING)
    connection.core_execute(sa.update(RANGES).where(ours).values(state=FREE, expires_at=0))


def end_claim(connection: Connection, claimed: Range) -> None:
    """Have everything refused that its worker notes from now on, such as a thread that is late."""
    ours = sa.and_(
        RANGES.c.job == claimed.job,
        RANGES.c.range == claimed.number,
        RANGES.c.fence == claimed.fence,
    )
    connection.core_execute(sa.update(RANGES).where(ours).values(fence=RANGES.c.fence + 1))


def lease_us() -> int:
    """How long a claim and each batch keep a range, in microseconds."""
    return int(RANGE_LEASE_SECONDS * 1e6)


def as_place(value: Any) -> bytes | None:
    """A bound of a range, or how far it is done, as a column has it."""
    return None if value is None else as_bytes(value)
