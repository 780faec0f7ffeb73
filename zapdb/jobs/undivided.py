"""Imports, exports and mirrors as jobs: one process works on each, so there is one range.

The work itself knows nothing of it, and keeps its own marks of how far it has come. It calls `note`
between its batches, which waits while the job is held back, keeps to its rate, and raises if it was
cancelled. A thread looks at the job's row meanwhile, renews the lease of the range, and notes the
progress; it has a connection to the database of its own, since the work may be in a transaction.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import sqlalchemy as sa
from msgspec import structs

from zapdb.catalog import rows
from zapdb.catalog.feed import read_seq
from zapdb.catalog.kinds import Job, JobKind
from zapdb.cluster.leases import Owner
from zapdb.errors import JobError, LeaseHeld, LeaseLost, UnknownName, ZapdbError
from zapdb.jobs.job import (
    FREE,
    BatchCounts,
    Range,
    claim,
    give_back,
    insert_ranges,
    list_jobs,
    list_open_ranges,
    read_job,
    record_progress,
    set_state,
)
from zapdb.jobs.kinds import BEGINS_ANEW, KINDS_OF_JOBS, kind_of
from zapdb.jobs.throttle import STEP_SECONDS, Throttle
from zapdb.jobs.waiting import find_hold, find_more_urgent, is_worked_on
from zapdb.jobs.work import HeldBack, Superseded
from zapdb.limits import CATALOG, RANGE_LEASE_SECONDS
from zapdb.printing import one_line, show_moment
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.fixed_tables import RANGES
from zapdb.storage.retries import retry

logger = logging.getLogger("zapdb.jobs")

LOOK_SECONDS: Final = 0.3
"""How often the job's row is looked at."""
NOTE_SECONDS: Final = 1.0
"""How often progress is noted, if there is any."""


@dataclass(frozen=True, slots=True)
class Undivided:
    """What an undivided job is about: `subject` is the source that is read, or the target that is
    written; without a `table` it is about all tables of the tenant."""

    kind: JobKind
    tenant: int
    subject: str
    table: int = 0
    table_name: str = ""
    is_resumable: bool = True

    @property
    def job_id(self) -> str:
        digest = hashlib.sha256(f"{self.table}/{self.subject}".encode()).hexdigest()[:16]
        return f"{self.kind}/{self.tenant}/{digest}"


class UndividedJob:
    """A job that this process works on; to be used by one thread."""

    def __init__(
        self,
        storage: Storage,
        about: Undivided,
        claimed: Range,
        on_wait: Callable[[str], object],
    ) -> None:
        self.held: str | None = None
        """Why nobody may go on now."""
        self.ended: ZapdbError | None = None
        """Why this process may not go on at all."""
        self._storage = storage
        self._about = about
        self._claimed = claimed
        self._on_wait = on_wait
        self._throttle = Throttle(storage, claimed.job)
        self._read = self._written = 0
        self._noted = 0, 0
        self._noted_at = self._began = time.monotonic()
        self._stop = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._watch, name="zapdb-job", daemon=True)
        self._thread.start()

    def note(self, read: int, written: int = 0) -> None:
        """So much was done since the last call; waits until the next batch may begin.

        Raises `JobError` if the job was cancelled, and `LeaseLost`.
        """
        self._read += read
        self._written += written
        self._throttle.note(read, 0, self._began)
        told = None
        while True:
            if self.ended is not None:
                raise self.ended
            if self.held is None and self._throttle.count_seconds_left() <= 0:
                break
            if self.held not in (None, told):
                told = self.held
                self._on_wait(self.held or "")
            time.sleep(STEP_SECONDS)
        self._began = time.monotonic()

    def close(self, *, is_done: bool) -> None:
        """End this process's work: others may go on, unless it is done."""
        self._stop.set()
        self._thread.join(timeout=5)
        self._throttle.close()
        if isinstance(self.ended, LeaseLost):
            return  # it is another process's
        with suppress(ZapdbError):
            if self.ended is None:
                self._save(done=is_done)
            give_back(self._storage, self._claimed)
            _end(self._storage, self._about, is_done=is_done)

    # The thread

    def _watch(self) -> None:
        try:
            while self.ended is None and not self._stop.wait(LOOK_SECONDS):
                try:
                    self._look()
                    self._save_now_and_then()
                except LeaseLost as error:
                    self._find_why(error)
                except ZapdbError as error:  # the work meets it by itself, if it stays
                    logger.info("a job was not looked at, which is tried again: %s", error)
        finally:
            self._storage.release_connection()

    def _find_why(self, error: LeaseLost) -> None:
        """The range was taken away: the job was cancelled, or somebody else works on it."""
        with suppress(ZapdbError):
            self._look()
        self.ended = self.ended or error

    def _look(self) -> None:
        """Take in what an operator says now."""
        with self._storage.transaction(TransactionMode.READ) as connection:
            try:
                self._throttle.look(connection, read_seq(connection))
                urgent = find_more_urgent(connection, read_job(connection, self._claimed.job))
                self.held = None if urgent is None else f"{urgent.id} comes first"
            except HeldBack:
                self._take_hold(read_job(connection, self._claimed.job), connection)
                self._throttle.close()
                self._throttle = Throttle(self._storage, self._claimed.job)
            except (Superseded, UnknownName):
                self.ended = JobError(
                    "the job was deleted", job=self._claimed.job, hint="run the command again"
                )

    def _take_hold(self, job: Job, connection: Connection) -> None:
        if job.state != "cancelled":
            hold = find_hold(connection, job)
            self.held = None if hold is None else str(hold)
            return
        self.ended = JobError(
            f"the {job.kind} was cancelled",
            job=job.id,
            by=one_line(job.changed_by),
            at=show_moment(job.changed_at),
            hint=kind_of(job).again,
        )

    def _save_now_and_then(self) -> None:
        since = time.monotonic() - self._noted_at
        is_new = self._noted != (self._read, self._written)
        if since >= RANGE_LEASE_SECONDS / 3 or (is_new and since >= NOTE_SECONDS):
            self._save()

    def _save(self, *, done: bool = False) -> None:
        now = self._read, self._written
        counts = BatchCounts(now[0] - self._noted[0], now[1] - self._noted[1])
        with self._storage.transaction(TransactionMode.CATALOG) as connection:
            record_progress(connection, self._claimed, None, counts, done=done)
        self._noted, self._noted_at = now, time.monotonic()


@contextmanager
def working_on(
    storage: Storage, about: Undivided, on_wait: Callable[[str], object]
) -> Iterator[UndividedJob]:
    """Work on an undivided job in the block, at whose end it is done; an error leaves it open.

    A cancelled one begins again. Waits while it is held back, and calls `on_wait` with the reason.
    Raises `LeaseHeld` while another process works on it.
    """
    retry(CATALOG, partial(_plan, storage, about))
    claimed = claim(storage, about.job_id, Owner.here())
    if claimed is None:
        raise LeaseHeld(
            f"another process is at work on the same {about.kind}",
            job=about.job_id,
            subject=about.subject,
            hint=f"wait until it has finished, or see `zapdb jobs show {about.job_id}`",
        )
    job, is_done = UndividedJob(storage, about, claimed, on_wait), False
    try:
        job.note(0)
        yield job
        is_done = True
    finally:
        job.close(is_done=is_done)


def _plan(storage: Storage, about: Undivided) -> None:
    """Store the job, or open it again; delete those of its kind that nobody can go on with."""
    kind = KINDS_OF_JOBS[about.kind]
    with storage.transaction(TransactionMode.CATALOG) as connection:
        for other in list_jobs(connection, about.tenant):
            if (
                other.kind == about.kind
                and other.id != about.job_id
                and _is_over(connection, other)
            ):
                _delete(connection, other)
        now = storage.now_us(connection)
        job = rows.get(connection, Job, about.job_id, lock=True)
        if job is not None and job.state in ("planned", "paused"):
            return
        if job is not None:
            _reopen_range(connection, job.id)
            rows.put(connection, structs.replace(job, state="planned", created_at=now))
        else:
            rows.put(
                connection,
                Job(
                    about.job_id,
                    about.kind,
                    about.tenant,
                    about.table,
                    about.table_name,
                    0,
                    0,
                    "",
                    {},
                    "planned",
                    0,
                    now,
                    kind.priority,
                    subject=about.subject,
                ),
            )
            insert_ranges(connection, about.job_id, [(None, None)])


def _is_over(connection: Connection, job: Job) -> bool:
    """Whether a job is done, or can't be gone on with and has no process."""
    if job.state in ("done", "superseded"):
        return True
    if any(is_worked_on(one) for one in list_open_ranges(connection, job.id)):
        return False
    return job.state == "cancelled" or kind_of(job).goes_on == BEGINS_ANEW


def _end(storage: Storage, about: Undivided, *, is_done: bool) -> None:
    """Note in the job's row that it is done, or that nobody can go on with it."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        job = read_job(connection, about.job_id, lock=True)
        if is_done:
            set_state(connection, job, "done")
        elif not about.is_resumable or kind_of(job).goes_on == BEGINS_ANEW:
            set_state(connection, job, "superseded")


def _reopen_range(connection: Connection, job_id: str) -> None:
    """Make the range free, above its fences so far: a process that was cancelled may be there."""
    connection.core_execute(
        sa.update(RANGES)
        .where(RANGES.c.job == job_id)
        .values(state=FREE, fence=RANGES.c.fence + 1, expires_at=0, read=0, written=0)
    )


def _delete(connection: Connection, job: Job) -> None:
    rows.delete(connection, Job, job.key)
    connection.core_execute(sa.delete(RANGES).where(RANGES.c.job == job.id))
