"""Why a job does not come on, or not fast: whether it is held back, and what else it waits for."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from zapdb.activation import TenantCatalog
from zapdb.catalog.cluster.nodes import find_reachable_position
from zapdb.catalog.row_kinds import Job
from zapdb.catalog.schema_history import read_migrated_at
from zapdb.catalog.settings import CONVERT_AFTER
from zapdb.catalog.stored_settings import read_settings
from zapdb.jobs.job import OpenRange, list_jobs, list_open_ranges
from zapdb.jobs.job_types import CONVERT, type_of
from zapdb.jobs.latency import list_probes
from zapdb.jobs.quarantine import count_quarantined
from zapdb.jobs.throttle import read_throttle
from zapdb.jobs.window import find_closing, find_opening
from zapdb.limits import JOB_PRIORITY_MAX
from zapdb.printing import one_line, show_moment
from zapdb.storage import Connection, Storage, TransactionMode

SeenBy = Literal["others", "worker", "driver"]
"""Who asks what a job waits for: another process, the one that works on it, or one whose executors
do."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why nobody may work on a job now, and until when, in microseconds since 1970 UTC; None if
    only an operator can change it."""

    reason: str
    until_us: int | None = None

    def __str__(self) -> str:
        return self.reason


def find_hold(connection: Connection, job: Job) -> Hold | None:
    """Return what holds a job back that is not at its end; None if it may be worked on."""
    if job.state in ("paused", "cancelled"):
        return Hold(f"{job.state} by {one_line(job.held_by)}, {show_moment(job.held_at)}")
    window = job.throttle.window
    if job.state != "planned" or window is None:
        return None
    now_us = connection.storage.now_us(connection)
    if find_closing(window, now_us) is not None:
        return None
    opens_us = find_opening(window, now_us)
    return Hold(f"outside its window {window}, which opens {show_moment(opens_us)}", opens_us)


def find_delay(connection: Connection, job: Job) -> Hold | None:
    """Return why the background leaves a job for later, while a run by hand may begin: records stay
    as they are for so long after a schema change as the setting says."""
    if not type_of(job).rewrites_records:
        return None
    seconds = read_settings(connection, job.tenant).number(CONVERT_AFTER, job.table)
    if not seconds:
        return None
    changed_us = read_migrated_at(connection, job.tenant, job.table, job.target)
    until_us = 0 if changed_us is None else changed_us + seconds * 1_000_000
    if until_us <= connection.storage.now_us(connection):
        return None
    return Hold(f"left until {show_moment(until_us)} by {CONVERT_AFTER}", until_us)


def part_delayed(storage: Storage, jobs: Iterable[Job]) -> tuple[list[Job], list[Hold]]:
    """Part the jobs that the background may run from the delays of the others."""
    ready, delays = list[Job](), list[Hold]()
    with storage.transaction(TransactionMode.READ) as connection:
        for job in jobs:
            delay = find_delay(connection, job)
            if delay is None:
                ready.append(job)
            else:
                delays.append(delay)
    return ready, delays


def find_next_opening(storage: Storage, holds: Iterable[Hold]) -> float | None:
    """Return in how many seconds the first of the holds is over; None if none ends by itself."""
    until = [hold.until_us for hold in holds if hold.until_us is not None]
    if not until:
        return None
    with storage.transaction(TransactionMode.READ) as connection:
        return max(0.0, (min(until) - storage.now_us(connection)) / 1e6)


def find_waits(
    connection: Connection, catalog: TenantCatalog, job: Job, seen_by: SeenBy = "others"
) -> tuple[str, ...]:
    """Return in words what a job waits for; nothing for one that is at its end, or runs at full
    speed. What comes before a colon says what kind of reason it is."""
    return tuple(_list_waits(connection, catalog, job, seen_by))


def find_lagging(connection: Connection, catalog: TenantCatalog) -> str | None:
    """Return in words which migration is not active yet because processes lack its file, and which
    these are; what it needs can't be planned before. None if no such process is in the way."""
    chain = catalog.stored_chain
    if catalog.is_due or catalog.position >= chain.end:
        return None
    _, blocked = find_reachable_position(connection, chain, catalog.position, chain.end)
    if blocked is None:
        return None
    nodes = "; ".join(blocked.nodes)
    return f"{blocked.migration.label} is not active until these have its file: {nodes}"


def _list_waits(
    connection: Connection, catalog: TenantCatalog, job: Job, seen_by: SeenBy
) -> Iterator[str]:
    quarantined = count_quarantined(connection, job.id)
    if quarantined:
        are = "1 record is" if quarantined == 1 else f"{quarantined:,} records are"
        again = type_of(job).retry_command
        yield f"{are} in quarantine, until restored or deleted, and tried again by `{again}`"
    if job.state == "blocked" and job.findings:
        yield "records are in its way, until they are changed or deleted"
    hold = find_hold(connection, job)
    if hold is not None:
        yield str(hold)
    if job.state != "planned":
        return
    if _is_of_dropped_table(catalog, job):
        needed = type_of(job).needed
        way = (
            "the next `zapdb convert run` removes it" if needed else f"`zapdb jobs cancel {job.id}`"
        )
        yield f"its table {job.table_name} was dropped: {way}"
        return
    delay = find_delay(connection, job) if seen_by == "others" else None
    if delay is not None and not has_worker(connection, job):
        yield f"{delay}: `{type_of(job).command}` does not wait"
    elif hold is None:
        yield from _list_waits_of_ranges(connection, job, seen_by)
    lagging = find_lagging(connection, catalog)
    if lagging is not None:
        yield lagging
    yield from _list_throttles(connection, job)


def _is_of_dropped_table(catalog: TenantCatalog, job: Job) -> bool:
    """Whether a job can't go on; one that the schema needed is superseded when jobs are planned."""
    active = {descriptor.schema.number for descriptor in catalog.all_tables}
    return job.table != 0 and job.table not in active


def _list_throttles(connection: Connection, job: Job) -> Iterator[str]:
    throttle = read_throttle(connection, job)
    slowed = [probe for probe in list_probes(connection, job.id) if probe.share_percent < 100]
    if throttle.max_latency_ms is not None and slowed:
        yield f"slowed down, since queries may take {throttle.max_latency_ms:,} ms: {slowed[0]}"
    if throttle.records_per_second is not None:
        yield f"throttled to {throttle.records_per_second:,} records per second"
    if throttle.bytes_per_second is not None:
        yield f"throttled to {throttle.bytes_per_second:,} bytes per second"


def _list_waits_of_ranges(connection: Connection, job: Job, seen_by: SeenBy) -> Iterator[str]:
    left = list_open_ranges(connection, job.id)
    if seen_by == "worker":
        yield from _list_waits_for_others(left)
    elif not left:
        if seen_by == "others":
            yield (
                "all its ranges are done; it is counted and published by its next run, which takes "
                "the gate and waits for running transactions"
            )
    elif not any(one.is_held for one in left):
        if seen_by == "driver":
            return
        if job.error:
            yield f"the last run has ended with an error: {job.error}"
        urgent = find_more_urgent(connection, job)
        if urgent is not None:
            yield f"{urgent.id} comes first"
        else:
            command = type_of(job).command
            watch = ", or `zapdb convert watch`" if command == CONVERT else ""
            yield f"no process works on it: run `{command}`{watch}"
    elif all(one.lease_left_us <= 0 for one in left if one.is_held):
        yield _describe_interruption(job)
    elif job.waits_for and seen_by == "others":
        yield one_line(job.waits_for)


def _describe_interruption(job: Job) -> str:
    """What became of a job whose workers were killed, and the way on."""
    if not type_of(job).is_exclusive:
        return "its workers ended without giving their ranges back: the next run takes these over"
    if not job.is_resumable:
        return (
            "interrupted: its process ended, and nobody else has its rows; import them again, as "
            "an upsert, since some are here. The next import removes this job"
        )
    return f"interrupted: its process ended; {type_of(job).again}"


def _list_waits_for_others(left: list[OpenRange]) -> Iterator[str]:
    """What the workers of this process wait for, if all ranges that are left are others'."""
    here = f"(host {socket.gethostname()}, process {os.getpid()})"
    if left and all(one.is_held and not one.owner.endswith(here) for one in left):
        yield f"another process holds the lease of what is left: range {left[0]}"


def find_more_urgent(connection: Connection, job: Job) -> Job | None:
    """Return a job of the tenant that comes before this one, and that a process works on."""
    if job.priority >= JOB_PRIORITY_MAX:
        return None
    for other in list_jobs(connection, job.tenant):
        comes_before = other.state == "planned" and other.priority > job.priority
        # What is begun by hand is beside the jobs of the schema: these do not wait for it.
        is_counted = type_of(other).needed or not type_of(job).needed
        if comes_before and is_counted and has_worker(connection, other):
            return other
    return None


def has_worker(connection: Connection, job: Job) -> bool:
    """Return whether a process works on a job, as far as leases tell."""
    return any(is_worked_on(one) for one in list_open_ranges(connection, job.id))


def is_worked_on(one: OpenRange) -> bool:
    """Return whether a worker has the range, as far as its lease tells."""
    return one.is_held and one.lease_left_us > 0
