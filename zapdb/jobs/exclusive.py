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
from math import inf
from typing import Any, Final

import sqlalchemy as sa
from msgspec import structs

from zapdb.catalog import rows
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import Job, JobKind
from zapdb.errors import JobError, LeaseHeld, LeaseLost, UnknownName, ZapdbError
from zapdb.jobs.job import (
    FREE,
    Range,
    claim,
    delete_job,
    describe_failure,
    end_claim,
    insert_job,
    list_open_ranges,
    make_free,
    read_job,
    read_progress,
    set_state,
)
from zapdb.jobs.job_types import JOB_TYPES, can_go_on, type_of
from zapdb.jobs.progress import record_totals
from zapdb.jobs.throttle import STEP_SECONDS, Throttle
from zapdb.jobs.waiting import find_hold, find_more_urgent, is_worked_on
from zapdb.jobs.work import HeldBack, Superseded
from zapdb.limits import BATCH_RECORDS_MIN, CATALOG, RANGE_LEASE_SECONDS
from zapdb.printing import one_line, show_moment
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.fixed_tables import RANGES
from zapdb.storage.retries import retry
from zapdb.tables.session import Session

logger = logging.getLogger("zapdb.jobs")

OnWait = Callable[[str], object]
"""Is called with the reason for which a job waits."""
LOOK_SECONDS: Final = 0.3
"""How often the job's row is looked at."""
NOTE_SECONDS: Final = 1.0
"""How often progress is noted, if there is any."""
EXPECTED_SHARE: Final = 0.02
"""An estimate of how many records there are is noted if the last one was off by more."""
ONES_AT_ONCE: Final = 200
"""Records that are read one by one are told of so many at once, unless the job's rate asks for
fewer."""
NUMBER_SIZE_BYTES: Final = 8
"""What a value counts for that is no text, where bytes are counted."""


@dataclass(frozen=True, slots=True)
class ExclusiveWork:
    """What an exclusive job is about: `subject` is the source that is read, or the target that is
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


class ProgressReporter:
    """What work asks and tells between its batches.

    This one is of work that is no job: nobody asks, and it goes as fast as it can.
    """

    is_job = False

    def __init__(self) -> None:
        self.on_read: Callable[[int], object] = lambda _: None
        """Is called with how many more records were read."""
        self._ones = self._ones_bytes = 0

    @property
    def counts_bytes(self) -> bool:
        """Whether `note` has a use for numbers of bytes."""
        return False

    @property
    def batch_records_max(self) -> int | None:
        """How many records the next batch should have at most; None without such a bound."""
        return None

    @property
    def left(self) -> int | None:
        """About how many records are still to be read, if that is known."""
        return None

    def expect(self, left: int | None) -> None:
        """About so many records are still to be read; None if it has no end."""

    def note(self, read: int, written: int = 0, size_bytes: int = 0) -> None:
        """So much was done since the last call; waits until the next batch may begin.

        Raises `JobError` if the job was cancelled, and `LeaseLost`.
        """
        self.count(read, written)

    def count(self, read: int, written: int = 0) -> None:
        """Note the same where others wait for this work: it is not held back here.

        Raises `JobError` if the job was cancelled, and `LeaseLost`.
        """
        if read:
            self.on_read(read)

    def note_one(self, size_bytes: int) -> None:
        """One more record was read, which has about so many bytes; told in batches, as `note`."""
        self._ones += 1
        self._ones_bytes += size_bytes
        bound = self.batch_records_max
        if self._ones >= ONES_AT_ONCE or (bound is not None and self._ones >= bound):
            self.flush()

    def flush(self) -> None:
        """Tell of the last ones."""
        ones, size_bytes, self._ones, self._ones_bytes = self._ones, self._ones_bytes, 0, 0
        if ones:
            self.note(ones, 0, size_bytes)

    def wait_for(self, reason: str) -> None:
        """Say what the work itself waits for, such as a target that can't be reached; nothing once
        it goes on."""

    def leave_open(self) -> None:
        """Say that there is more to do when this process has ended its work."""


class ExclusiveJob(ProgressReporter):
    """A job that this process works on; to be used by one thread."""

    is_job = True

    def __init__(
        self,
        storage: Storage,
        about: ExclusiveWork,
        claimed: Range,
        on_wait: OnWait,
    ) -> None:
        super().__init__()
        self.held: str | None = None
        """Why nobody may go on now."""
        self.ended: ZapdbError | None = None
        """Why this process may not go on at all."""
        self.is_left_open = False
        """Whether it is not done when this process has worked on it."""
        self._storage = storage
        self._about = about
        self._claimed = claimed
        self._on_wait = on_wait
        self._throttle = Throttle(storage, claimed.job)
        self._read = self._written = self._expected = 0
        self._record_seconds: float | None = None
        """How long a record took in the last batch."""
        self._waits_for = ""
        self._noted: tuple[int, int, str] = 0, 0, ""
        self._noted_at = self._began = time.monotonic()
        self._stop = threading.Event()
        with storage.transaction(TransactionMode.READ) as connection:
            self._before = read_progress(connection, claimed.job)
        """What earlier processes have done, and noted."""
        self._look()
        self._thread = threading.Thread(target=self._watch, name="zapdb-job", daemon=True)
        self._thread.start()

    @property
    def counts_bytes(self) -> bool:
        return self._throttle.counts_bytes

    @property
    def batch_records_max(self) -> int | None:
        """Those of a fraction of a second at the job's rate, or of half the time that a query may
        wait."""
        found = self._throttle.find_records_at_once()
        if self._throttle.has_ceiling and self._record_seconds is None:
            found = min(found, BATCH_RECORDS_MIN)
        elif self._throttle.has_ceiling and self._record_seconds:
            found = min(found, self._throttle.batch_target_seconds / self._record_seconds)
        return None if found == inf else max(1, int(found))

    @property
    def left(self) -> int | None:
        read = self._before.read + self._read
        return max(0, self._expected - read) if self._expected else None

    def expect(self, left: int | None) -> None:
        self._expected = 0 if left is None else self._before.read + self._read + left

    def note(self, read: int, written: int = 0, size_bytes: int = 0) -> None:
        super().note(read, written)
        if read:
            self._record_seconds = (time.monotonic() - self._began) / read
        self._throttle.note(read, size_bytes, self._began)
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

    def count(self, read: int, written: int = 0) -> None:
        super().count(read)
        self._read += read
        self._written += written
        if self.ended is not None:
            raise self.ended

    def wait_for(self, reason: str) -> None:
        self._waits_for = reason

    def leave_open(self) -> None:
        self.is_left_open = True

    def close(self, *, is_done: bool, error: str = "") -> None:
        """End this process's work, because of an error if there is one: others may go on, unless it
        is done."""
        self._stop.set()
        self._thread.join(timeout=5)
        self._throttle.close()
        if isinstance(self.ended, LeaseLost):
            return  # it is another process's
        with suppress(ZapdbError):
            retry(CATALOG, partial(self._end, is_done, "" if self.ended else error))

    def _end(self, is_done: bool, error: str) -> None:
        """In one transaction: a job is done if its range is, whenever the process is killed.

        The thread may not have ended yet: what it notes later is refused, since the fence moves on.
        """
        with self._storage.transaction(TransactionMode.CATALOG) as connection:
            if self.ended is None:
                self._record(connection, done=is_done)
            make_free(connection, self._claimed)
            end_claim(connection, self._claimed)
            _note_end(connection, self._about, error, is_done=is_done)

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
            by=one_line(job.held_by),
            at=show_moment(job.held_at),
            hint=type_of(job).again,
        )

    def _save_now_and_then(self) -> None:
        since = time.monotonic() - self._noted_at
        is_new = self._noted != (self._read, self._written, self._waits_for)
        if since >= RANGE_LEASE_SECONDS / 3 or (is_new and since >= NOTE_SECONDS):
            self._save()

    def _save(self) -> None:
        waits_for = self._waits_for
        with self._storage.transaction(TransactionMode.CATALOG) as connection:
            now = self._record(connection)
            self._save_job(connection, waits_for)
        self._noted, self._noted_at = (*now, waits_for), time.monotonic()

    def _save_job(self, connection: Connection, waits_for: str) -> None:
        """Note how many records there are, and what the work waits for, if that is known otherwise
        than it was noted."""
        job = read_job(connection, self._claimed.job, lock=True)
        is_off = abs(self._expected - job.records) > EXPECTED_SHARE * self._expected
        if is_off or waits_for != job.waits_for:
            records = self._expected if is_off else job.records
            rows.put(connection, structs.replace(job, records=records, waits_for=waits_for))

    def _record(self, connection: Connection, *, done: bool = False) -> tuple[int, int]:
        """Returns how much is noted once the transaction is committed."""
        now = self._read, self._written
        in_all = self._before.read + now[0], self._before.written + now[1]
        record_totals(connection, self._claimed, *in_all, done=done)
        return now


def _log_wait(reason: str) -> None:
    """Tell the application's log why a job waits."""
    logger.info("a job waits: %s", reason)


@contextmanager
def working_on(
    storage: Storage, about: ExclusiveWork, on_wait: OnWait = _log_wait
) -> Iterator[ExclusiveJob]:
    """Work on an exclusive job in the block, at whose end it is done; an error leaves it open.

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
    job, is_done, failure = ExclusiveJob(storage, about, claimed, on_wait), False, ""
    try:
        job.note(0)
        yield job
        is_done = not job.is_left_open
    except Exception as error:
        failure = describe_failure(error)
        raise
    finally:
        job.close(is_done=is_done, error=failure)


def is_noted(session: Session) -> bool:
    """Whether work of an application that begins now is a job: in a transaction nobody could see
    it, and in a database that was opened read-only it could not be noted."""
    return not session.storage.read_only and session.storage.connection().mode is None


@contextmanager
def noted_as_job(
    session: Session,
    kind: JobKind,
    subject: str,
    table: tuple[int, str] = (0, ""),
    *,
    on_wait: OnWait | None = None,
    given: ProgressReporter | None = None,
) -> Iterator[ProgressReporter]:
    """Work on a job in the block, which notes each batch, or on the one that a caller has `given`.

    The application is told in its log what the job waits for, if not by `on_wait`. A job that was
    cancelled begins again. Raises `LeaseHeld` while a process works on the same one.
    """
    if given is not None or not is_noted(session):
        yield given or ProgressReporter()
        return
    about = ExclusiveWork(kind, session.catalog.tenant, subject, *table)
    with working_on(session.storage, about, on_wait or _log_wait) as job:
        yield job


def measure_value(value: Any) -> int:
    """About how many bytes a value has, where they are counted."""
    return len(value) if isinstance(value, str | bytes | list | dict) else NUMBER_SIZE_BYTES


def _plan(storage: Storage, about: ExclusiveWork) -> None:
    """Store the job, or open it again; delete those of its kind that nobody can go on with."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        for other in rows.list_rows(connection, Job, about.kind, about.tenant):
            if other.id != about.job_id and _is_over(connection, other):
                delete_job(connection, other)
        now = storage.now_us(connection)
        job = rows.get(connection, Job, about.job_id, lock=True)
        if job is not None and job.state in ("planned", "paused"):
            if job.error:
                rows.put(connection, structs.replace(job, error=""))
            return
        if job is not None:
            _reopen_range(connection, job.id)
            rows.put(
                connection,
                structs.replace(job, state="planned", created_at=now, records=0, error=""),
            )
        else:
            made = Job(
                about.job_id,
                about.kind,
                about.tenant,
                about.table,
                about.table_name,
                target=0,
                position=0,
                migration=0,
                datasets={},
                state="planned",
                records=0,
                created_at=now,
                priority=JOB_TYPES[about.kind].priority,
                subject=about.subject,
                is_resumable=about.is_resumable,
            )
            insert_job(connection, made, [(None, None)])


def _is_over(connection: Connection, job: Job) -> bool:
    """Whether a job is done, or can't be gone on with and has no process."""
    if job.state in ("done", "superseded"):
        return True
    if any(is_worked_on(one) for one in list_open_ranges(connection, job.id)):
        return False
    return job.state == "cancelled" or not can_go_on(job)


def _note_end(connection: Connection, about: ExclusiveWork, error: str, *, is_done: bool) -> None:
    """Note in the job's row that it is done, or why not, and that nobody can go on with it."""
    job = read_job(connection, about.job_id, lock=True)
    is_waiting, job = job.waits_for != "", structs.replace(job, error=error, waits_for="")
    if is_done:
        set_state(connection, job, "done")
    elif not can_go_on(job):
        set_state(connection, job, "superseded")
    elif error or is_waiting:
        rows.put(connection, job)


def _reopen_range(connection: Connection, job_id: str) -> None:
    """Make the range free, above its fences so far: a process that was cancelled may be there."""
    connection.core_execute(
        sa.update(RANGES)
        .where(RANGES.c.job == job_id)
        .values(state=FREE, fence=RANGES.c.fence + 1, expires_at=0, read=0, written=0)
    )
