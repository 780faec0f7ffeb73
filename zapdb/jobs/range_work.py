"""Work on one range of a job, the same for every runner.

`run_range` claims one range of a job and works through it in batches. Each batch is one
transaction: it locks a slice of records in key order, writes what follows from them, and notes its
progress under the range's fence. A retry, a twin or a concurrent writer loses nothing.

On PostgreSQL a batch is two round trips (decisions/0052): BEGIN, the gate, the look at the catalog
and the rows; then what is written, the progress and COMMIT. So the rows come with the answer that
tells whether they are still wanted. If anything was changed, they are read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from zapdb.activation import load_tenant_catalog
from zapdb.catalog.cluster.leases import Owner
from zapdb.errors import CommitUnknown, LeaseLost, StorageError, TransactionConflict, ZapdbError
from zapdb.errors.zapdb_error import describe_error
from zapdb.jobs.job import Range, claim, give_back
from zapdb.jobs.progress import (
    BatchCounts,
    ProgressRefused,
    RangeShortened,
    claim_again,
    explain_refusal,
    record_progress,
    send_progress,
)
from zapdb.jobs.quarantine import (
    put_in_quarantine,
    read_keys_between,
)
from zapdb.jobs.splitting import claim_or_split
from zapdb.jobs.throttle import Stopped, Throttle, wait
from zapdb.jobs.work import HeldBack, Superseded, Work
from zapdb.jobs.work_loading import make_work
from zapdb.limits import (
    BATCH,
    BATCH_RECORDS_MAX,
    BATCH_RECORDS_MIN,
    THROTTLE_LOOK_SECONDS,
)
from zapdb.logs import log_event
from zapdb.metrics import JOB_BATCHES, JOB_RECORDS_READ, JOB_RECORDS_WRITTEN, JOB_SECONDS
from zapdb.records import UNREADABLE
from zapdb.storage import Connection, OfHeld, PendingRows, RowsHeld, Storage, TransactionMode
from zapdb.storage.interruption import CallInterrupted, finish_even_if_interrupted
from zapdb.storage.retries import attempts, retry
from zapdb.storage.statements import catalog_version_sql

logger = logging.getLogger("zapdb.jobs")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RangeResult:
    """What one task did; `finished` is false where the range was taken over or superseded."""

    number: int
    read: int
    written: int
    conflicts: int
    finished: bool
    seconds: float


def run_range(
    storage: Storage,
    work: Work,
    owner: Owner,
    number: int | None = None,
    *,
    batch_records_max: int = BATCH_RECORDS_MAX,
    should_stop: Callable[[], bool] = lambda: False,
) -> RangeResult | None:
    """Claim a range and work through it; None if there is none to claim.

    If all are other workers', the rest of one that lags is claimed (`splitting`).
    Gives the range back and raises `Stopped` between batches where it should stop, or `HeldBack`
    where the job was paused or cancelled, or its window has closed.
    """
    started = time.perf_counter()
    if number is None:
        claimed = claim_or_split(storage, work, owner)
    else:
        claimed = claim(storage, work.job.id, owner, number)
    if claimed is None:
        return None
    throttle = Throttle(storage, work.job.id, should_stop)
    run = _RangeRun(storage, work, claimed, batch_records_max, throttle)
    try:
        finished = run.run()
    except LeaseLost:  # another worker continues the range
        finished = False
    except (Stopped, HeldBack, CallInterrupted):
        finish_even_if_interrupted(
            lambda: give_back(storage, run.claimed), storage.release_connection
        )
        raise
    finally:
        throttle.close()
    seconds = time.perf_counter() - started
    if finished:  # the first batch of one that was lost may have come before any pause
        work.rate = run.read / seconds
    return RangeResult(claimed.number, run.read, run.written, run.conflicts, finished, seconds)


class _LookFirst(Exception):
    """Rows could not be read under the tenant catalog as it was last known."""

    def __init__(self, error: ZapdbError) -> None:
        super().__init__()
        self.error = error


class _RangeRun:
    """One run through one range."""

    def __init__(
        self,
        storage: Storage,
        work: Work,
        claimed: Range,
        batch_records_max: int,
        throttle: Throttle,
    ) -> None:
        self.storage = storage
        self.work = work
        self.claimed = claimed
        self.throttle = throttle
        self.batch_records_max = batch_records_max
        self.limit = work.batch_records
        self.has_looked = False
        """Whether rows may be asked for together with the look at the catalog."""
        self.last_rows: list[tuple[bytes, bytes]] = []
        """The rows of the last batch whose COMMIT was sent."""
        self.read = self.written = self.conflicts = self.conflicts_noted = 0
        self.quarantined = set[bytes]()
        self.of_held: OfHeld = "refuse" if work.skips_locked else "wait"
        # Rows that were held when their batch passed are behind this key, if there are any. The
        # worker before, which may be dead, has left them anywhere.
        self.has_left = work.skips_locked and claimed.resume_after is not None
        self.left_after = claimed.lower

    @property
    def limit_max(self) -> int:
        return min(self.batch_records_max, self.throttle.batch_records_max)

    def run(self) -> bool:
        if self.work.goes_back:
            self.quarantined = self._load_quarantined()
        resume_after = self.claimed.resume_after
        if resume_after is None:
            resume_after = self.claimed.lower
        while True:
            self._run_pass(resume_after)
            if not self._any_left():
                return True
            resume_after = self.left_after
            self.has_left, self.of_held = False, "wait"

    def _run_pass(self, resume_after: bytes | None) -> None:
        """Batches from `resume_after` to the end of the range.

        None of their records is held by a writer, or the batch would be refused. From the first one
        that is, held records are left behind, and looked for at the end of the range: to look for
        them takes a fifth of the time of the whole conversion.
        """
        while True:
            began = time.monotonic()
            try:
                rows = self._do_batch(resume_after)
            except RowsHeld:
                if not self.has_left:
                    self.has_left, self.left_after = True, resume_after
                self.of_held = "skip"
                continue
            if not rows:
                return
            resume_after = rows[-1][0]
            self.throttle.note(len(rows), self.throttle.count_bytes(rows), began)
            self._keep_pace(resume_after)

    def _do_batch(self, resume_after: bytes | None) -> list[tuple[bytes, bytes]]:
        """Do the next batch; after a COMMIT whose outcome is unknown, only if it was not done."""

        def find_done() -> list[tuple[bytes, bytes]] | None:
            is_done = self.claimed.resume_after not in (None, resume_after)
            return self.last_rows if is_done else None

        return self._repeat_unless_done(partial(self._try_batch, resume_after), find_done)

    def _repeat_unless_done(self, action: Callable[[], T], find_done: Callable[[], T | None]) -> T:
        """Do a transaction again after an unknown COMMIT, unless it was done: then `find_done`
        returns its result. The end of the range, if it was done, raises `LeaseLost`."""
        unknown: CommitUnknown | None = None
        for _ in attempts(BATCH):
            try:
                return action()
            except CommitUnknown as error:
                unknown = error
            renew = partial(claim_again, self.storage, self.claimed)
            self.claimed = retry(BATCH, renew, on=(StorageError, TransactionConflict))
            if (done := find_done()) is not None:
                return done
        assert unknown is not None
        raise unknown

    def _try_batch(self, resume_after: bytes | None) -> list[tuple[bytes, bytes]]:
        if self.work.only_reads:
            return self._retry(partial(self._examine_batch, resume_after))
        try:
            return self._retry(partial(self._run_batch, resume_after))
        except UNREADABLE:
            return self._retry(partial(self._run_batch, resume_after, is_tried=True))

    def _keep_pace(self, resume_after: bytes) -> None:
        """Wait until the next batch may begin. A wait that is long is cut short by whatever is
        changed about the job, and keeps the lease."""
        throttle = self.throttle
        while not throttle.should_stop() and (seconds := throttle.count_seconds_left()) > 0:
            wait(min(seconds, THROTTLE_LOOK_SECONDS), throttle.should_stop)
            if seconds > THROTTLE_LOOK_SECONDS:
                self._retry(partial(self._stay, resume_after))
        if throttle.should_stop():
            raise Stopped

    def _stay(self, resume_after: bytes) -> None:
        with self.storage.transaction(TransactionMode.JOB) as connection:
            self._current_work(connection)
            record_progress(connection, self.claimed, resume_after)

    def _retry(self, action: Callable[[], T]) -> T:
        """Try a transaction again after conflicts, and where the range ends earlier by now."""
        while True:
            try:
                return retry(BATCH, action, before_again=self._shrink)
            except RangeShortened as shortened:
                self.claimed = replace(self.claimed, upper=shortened.upper)
            except _LookFirst as ahead:
                if not self._has_moved():
                    raise ahead.error from None
                self.has_looked = False

    def _has_moved(self) -> bool:
        """Whether the tenant catalog is another one than the work's, or gone."""
        with self.storage.transaction(TransactionMode.READ) as connection:
            row = connection.fetch_one(catalog_version_sql(self.work.job.tenant))
        return row is None or row[0] != self.work.catalog.version

    def _shrink(self, _: int) -> None:
        """After a conflict (rule 17)."""
        self.conflicts += 1
        self.limit = max(min(BATCH_RECORDS_MIN, self.limit_max), self.limit // 2)

    def _load_quarantined(self) -> set[bytes]:
        lower, upper = self.claimed.lower, self.claimed.upper
        with self.storage.transaction(TransactionMode.READ) as connection:
            return read_keys_between(connection, self.claimed.job, lower, upper)

    def _run_batch(
        self, resume_after: bytes | None, *, is_tried: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Do the next batch; with `is_tried`, put those of its records in quarantine that can't be
        read."""
        try:
            return self._commit_batch(resume_after, is_tried=is_tried)
        except ProgressRefused:
            with self.storage.transaction(TransactionMode.READ) as connection:
                raise explain_refusal(connection, self.claimed) from None

    def _commit_batch(
        self, resume_after: bytes | None, *, is_tried: bool
    ) -> list[tuple[bytes, bytes]]:
        reasons = dict[bytes, str]()
        with self.storage.transaction(TransactionMode.JOB) as connection:
            started = time.perf_counter()
            work, rows, clock = self._fetch(connection, resume_after)
            if not rows:
                return rows
            if is_tried:
                reasons = self._find_unreadable(connection, work, rows)
            batch = rows
            if left_out := self.quarantined | reasons.keys():
                batch = [row for row in rows if work.record_key(row[0]) not in left_out]
            written = work.write(connection, batch, self.claimed.number)
            counted = BatchCounts(len(rows), written, self.conflicts - self.conflicts_noted)
            read_end = send_progress(connection, self.claimed, rows[-1][0], counted)
            self.last_rows, seconds = rows, time.perf_counter() - started
        if (ended := read_end()) is not None:  # COMMIT and the gate are not of the batch's time
            seconds = max(0.0, (ended - clock) / 1e6)
        if work.goes_back:
            self.quarantined |= reasons.keys()
        self._note_batch(len(rows), written, seconds)
        return rows

    def _fetch(
        self, connection: Connection, resume_after: bytes | None
    ) -> tuple[Work, list[tuple[bytes, bytes]], int]:
        """The next rows, the work as it is now, and the time behind the gate in microseconds."""
        looked, work, rows = self._ask(connection), self.work, None
        if self.has_looked and connection.is_pipelined:
            try:
                rows = self._fetch_rows(connection, work, resume_after)
            except (RowsHeld, TransactionConflict):
                raise
            except ZapdbError as error:
                raise _LookFirst(error) from error
        seq = self.throttle.seq
        if self._take_in(connection, looked) is not work or self.throttle.seq != seq:
            work, rows = self.work, None
        if rows is None:
            rows = self._fetch_rows(connection, work, resume_after)
        self.has_looked = True
        return work, rows, int(looked.rows[0][2])

    def _fetch_rows(
        self, connection: Connection, work: Work, resume_after: bytes | None
    ) -> list[tuple[bytes, bytes]]:
        self.limit = min(self.limit, self.limit_max)
        return work.fetch(
            connection, resume_after, self.claimed.upper, self.limit, of_held=self.of_held
        )

    def _examine_batch(self, resume_after: bytes | None) -> list[tuple[bytes, bytes]]:
        """The same for work that only reads: what is found in a snapshot is noted afterwards.

        If the tenant catalog has changed between, it is looked for again: an erasure, too, changes
        it, and what was found before may name what was erased.
        """
        while True:
            with self.storage.transaction(TransactionMode.READ) as connection:
                work = self._current_work(connection)
                self.limit = min(self.limit, self.limit_max)
                started = time.perf_counter()
                rows = work.fetch(
                    connection, resume_after, self.claimed.upper, self.limit, of_held="wait"
                )
                if not rows:
                    return rows
                note = work.examine(connection, rows)
                seconds = time.perf_counter() - started
            with self.storage.transaction(TransactionMode.JOB) as connection:
                if self._current_work(connection) is not work:
                    continue
                note(connection, self.claimed.number)
                counted = BatchCounts(len(rows), 0, self.conflicts - self.conflicts_noted)
                record_progress(connection, self.claimed, rows[-1][0], counted)
                self.last_rows = rows
            self._note_batch(len(rows), 0, seconds)
            return rows

    def _note_batch(self, read: int, written: int, seconds: float) -> None:
        self.limit = self.throttle.adapt(self.limit, seconds, self.limit_max)
        self.work.batch_records = self.limit
        kind = self.work.job.kind
        JOB_RECORDS_READ.add(kind, amount=read)
        JOB_RECORDS_WRITTEN.add(kind, amount=written)
        JOB_SECONDS.add(kind, amount=seconds)
        JOB_BATCHES.add(kind)
        self.read += read
        self.written += written
        self.conflicts_noted = self.conflicts

    def _find_unreadable(
        self, connection: Connection, work: Work, rows: list[tuple[bytes, bytes]]
    ) -> dict[bytes, str]:
        """Put the rows in quarantine that can't be read; returns why, by their records' keys."""
        reasons = {}
        for place, value in rows:
            try:
                work.try_to_read(connection, place, value)
            except UNREADABLE as error:
                reasons[work.record_key(place)] = describe_error(error)
        if reasons:
            put_in_quarantine(connection, work.job.tenant, work.job.id, reasons)
            log_event(
                logger,
                "job.quarantined",
                "records can't be read, and are left as they are",
                level=logging.WARNING,
                job=work.job.id,
                table=work.job.table_name,
                records=len(reasons),
            )
        return reasons

    def _current_work(self, connection: Connection) -> Work:
        """Return the work with the tenant catalog of now, and look at the job.

        Raises `Superseded` if the catalog makes the job pointless, and `HeldBack`.
        """
        return self._take_in(connection, self._ask(connection))

    def _ask(self, connection: Connection) -> PendingRows:
        """Look at the catalog: its version, the number of its newest row, and the time."""
        return connection.fetch_later(
            "SELECT version, (SELECT value FROM zapdb_counters WHERE name = 'seq'),"
            f" ({self.storage.dialect.clock_sql})"
            f" FROM zapdb_catalog_versions WHERE tenant = {self.work.job.tenant}"
        )

    def _take_in(self, connection: Connection, looked: PendingRows) -> Work:
        if not looked.rows:  # the tenant was removed
            raise Superseded
        version, seq, _ = looked.rows[0]
        self.throttle.look(connection, seq)
        if version != self.work.catalog.version:
            catalog = load_tenant_catalog(connection, self.work.job.tenant, self.work.catalog)
            self.work = make_work(self.storage, catalog, self.work.job)
        return self.work

    def _any_left(self) -> bool:
        """Return whether records were left behind, so that the range has to be gone through again;
        if not, mark it as done."""

        def look() -> bool:
            with self.storage.transaction(TransactionMode.JOB) as connection:
                work = self._current_work(connection)
                if self.has_left:
                    after = self.left_after
                    condition, parameters = work.range_condition(after, self.claimed.upper)
                    if self.quarantined:
                        condition += (
                            " AND NOT EXISTS (SELECT 1 FROM zapdb_quarantine AS q WHERE q.job ="
                            f" {self.storage.placeholder} AND q.key = {work.records.name}.key)"
                        )
                        parameters.append(self.claimed.job)
                    sql = f"SELECT 1 FROM {work.records.name} WHERE {condition} LIMIT 1"
                    if connection.fetch_one(sql, parameters) is not None:
                        record_progress(connection, self.claimed, after)
                        return True
                record_progress(connection, self.claimed, self.claimed.upper, done=True)
                if not self.quarantined:
                    work.note_done(connection, self.claimed.lower, self.claimed.upper)
                return False

        return self._repeat_unless_done(partial(self._retry, look), lambda: None)
