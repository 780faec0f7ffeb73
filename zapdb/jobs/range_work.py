"""Work on one range of a job, the same for every runner.

`run_range` claims one range of a job and works through it in batches. Each batch is one
transaction: it locks a slice of records in key order, writes what follows from them, and notes its
progress under the range's fence. A retry, a twin or a concurrent writer loses nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TypeVar

from zapdb.activation import load_tenant_catalog
from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog
from zapdb.catalog.kinds import Job
from zapdb.cluster.leases import Owner
from zapdb.cluster.level import check_level
from zapdb.datasets import dataset_of
from zapdb.errors import ExecutorMismatch
from zapdb.jobs.building import open_index_work
from zapdb.jobs.converting import ConvertWork, RollbackWork
from zapdb.jobs.job import (
    BatchCounts,
    Range,
    RangeShortened,
    claim,
    give_back,
    read_job,
    record_progress,
)
from zapdb.jobs.quarantine import (
    UNREADABLE,
    describe_error,
    put_in_quarantine,
    read_keys_between,
)
from zapdb.jobs.splitting import split_lagging_range
from zapdb.jobs.throttle import Stopped, Throttle, wait
from zapdb.jobs.validation import ValidateWork
from zapdb.jobs.verifying import VerifyWork
from zapdb.jobs.work import HeldBack, ReadingWork, Work
from zapdb.jobs.work import Superseded as Superseded
from zapdb.limits import (
    BATCH,
    BATCH_RECORDS_MAX,
    BATCH_RECORDS_MIN,
    THROTTLE_LOOK_SECONDS,
)
from zapdb.logs import log_event
from zapdb.metrics import JOB_BATCHES, JOB_RECORDS_READ, JOB_RECORDS_WRITTEN, JOB_SECONDS
from zapdb.migrations.chain import digest_chain
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.retries import retry

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


WORK: dict[str, Callable[[Storage, TenantCatalog, TableDescriptor, Job], Work]] = {
    "convert": ConvertWork,
    "index": open_index_work,
    "roll_back": RollbackWork,
    "validate": ValidateWork,
}
"""By kind, the work on an active table."""


def load_work(storage: Storage, job_id: str) -> Work:
    """The job's work in this process; raises `ExecutorMismatch` where it would do something
    else."""
    with storage.transaction(TransactionMode.READ) as connection:
        check_level(connection)
        job = read_job(connection, job_id)
        catalog = load_tenant_catalog(connection, job.tenant)
    return make_work(storage, catalog, job)


def make_work(storage: Storage, catalog: TenantCatalog, job: Job) -> Work:
    """The work of a planned job; raises `HeldBack` and `Superseded` for any other one."""
    descriptor = next((s for s in catalog.tables.values() if s.schema.number == job.table), None)
    if job.state in ("paused", "cancelled"):
        raise HeldBack
    if job.state != "planned":
        raise Superseded
    work: Work
    if job.kind == "verify":
        work = VerifyWork(storage, catalog, job)
    elif descriptor is None:
        raise Superseded
    else:
        work = WORK[job.kind](storage, catalog, descriptor, job)
    digest = digest_chain(catalog.chain, job.position)
    if digest != job.chain:
        raise ExecutorMismatch(
            "this process has another chain than the job was planned with",
            job=job.id,
            chain=digest,
            planned=job.chain,
            hint="run the job again, which plans it again",
        )
    if descriptor is not None:
        _check_datasets(descriptor, job)
    return work


def _check_datasets(descriptor: TableDescriptor, job: Job) -> None:
    for index in descriptor.schema.indexes:
        for dependency in descriptor.schema.datasets_of(index):
            expected = job.datasets.get(dependency.dataset)
            if expected is None:
                continue
            found = dataset_of(dependency)
            if found.fingerprint != expected:
                raise ExecutorMismatch(
                    "this process has other collation or time zone data than the job's "
                    "index was built with",
                    dataset=found.name,
                    version=found.version,
                    fingerprint=found.fingerprint,
                    expected=expected,
                    hint="install the same ICU and time zone data on every machine that runs jobs",
                )


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
    claimed = claim(storage, work.job.id, owner, number)
    if claimed is None and number is None and split_lagging_range(storage, work) is not None:
        claimed = claim(storage, work.job.id, owner)
    if claimed is None:
        return None
    throttle = Throttle(storage, work.job.id, should_stop)
    run = _RangeRun(storage, work, claimed, batch_records_max, throttle)
    try:
        finished = run.run()
    except (Stopped, HeldBack):
        give_back(storage, claimed)
        raise
    finally:
        throttle.close()
    seconds = time.perf_counter() - started
    work.rate = run.read / seconds
    return RangeResult(claimed.number, run.read, run.written, run.conflicts, finished, seconds)


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
        self.read = self.written = self.conflicts = self.conflicts_noted = 0
        self.quarantined = set[bytes]()

    @property
    def limit_max(self) -> int:
        return min(self.batch_records_max, self.throttle.batch_records_max)

    def run(self) -> bool:
        if self.work.goes_back:
            self.quarantined = self._load_quarantined()
        resume_after, skips = self.claimed.resume_after, self.work.skips_locked
        if resume_after is None:
            resume_after = self.claimed.lower
        while True:
            resume_after = self._run_pass(resume_after, skips=skips)
            # Rows that were locked when their batch passed are before `resume_after`, also before
            # that of a task that died. So the whole range is checked before it is done.
            if not self._any_left():
                return True
            resume_after, skips = self.claimed.lower, False

    def _run_pass(self, resume_after: bytes | None, *, skips: bool) -> bytes | None:
        """Batches from `resume_after` to the end of the range."""
        while True:
            if isinstance(self.work, ReadingWork):
                run_batch = partial(self._examine_batch, resume_after)
            else:
                run_batch = partial(self._run_batch, resume_after, skips)
            began = time.monotonic()
            try:
                rows = self._retry(run_batch)
            except UNREADABLE:
                run_batch = partial(self._run_batch, resume_after, skips, is_tried=True)
                rows = self._retry(run_batch)
            if not rows:
                return resume_after
            resume_after = rows[-1][0]
            size_bytes = sum(map(len, chain.from_iterable(rows)))
            self.throttle.note(len(rows), size_bytes, began)
            self._keep_pace(resume_after)

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

    def _shrink(self, _: int) -> None:
        """After a conflict (rule 17)."""
        self.conflicts += 1
        self.limit = max(min(BATCH_RECORDS_MIN, self.limit_max), self.limit // 2)

    def _adapt(self, seconds: float) -> None:
        """Hold locks for about the target time (rule 17).

        The time is that of the batch's own statements: beginning and committing cost what they
        cost. For the same reason only conflicts make batches really small, and not for long: where
        each statement takes milliseconds, small batches hold locks no shorter, only more often.
        """
        target, least = self.throttle.batch_target_seconds, self.throttle.batch_records_min
        if self.limit < least or seconds < target / 2:
            self.limit = min(self.limit_max, self.limit * 2)
        elif seconds > target:
            self.limit = max(min(least, self.limit_max), self.limit // 2)
        self.work.batch_records = self.limit

    def _load_quarantined(self) -> set[bytes]:
        lower, upper = self.claimed.lower, self.claimed.upper
        with self.storage.transaction(TransactionMode.READ) as connection:
            return read_keys_between(connection, self.claimed.job, lower, upper)

    def _run_batch(
        self, resume_after: bytes | None, skips: bool, *, is_tried: bool = False
    ) -> list[tuple[bytes, bytes]]:
        """Do the next batch; with `is_tried`, put those of its records in quarantine that can't be
        read."""
        work, reasons = self.work, dict[bytes, str]()
        with self.storage.transaction(TransactionMode.JOB) as connection:
            work = self._current_work(connection)
            self.limit = min(self.limit, self.limit_max)
            started = time.perf_counter()
            rows = work.fetch(
                connection, resume_after, self.claimed.upper, self.limit, skip_locked=skips
            )
            if not rows:
                return rows
            if is_tried:
                reasons = self._find_unreadable(connection, work, rows)
            batch = rows
            if left_out := self.quarantined | reasons.keys():
                batch = [row for row in rows if work.record_key(row[0]) not in left_out]
            written = work.write(connection, batch, self.claimed.number)
            counted = BatchCounts(len(rows), written, self.conflicts - self.conflicts_noted)
            record_progress(connection, self.claimed, rows[-1][0], counted)
            seconds = time.perf_counter() - started
        if work.goes_back:
            self.quarantined |= reasons.keys()
        self._note_batch(len(rows), written, seconds)
        return rows

    def _examine_batch(self, resume_after: bytes | None) -> list[tuple[bytes, bytes]]:
        """The same for work that only reads: what is found in a snapshot is noted afterwards."""
        with self.storage.transaction(TransactionMode.READ) as connection:
            work = self._current_work(connection)
            assert isinstance(work, ReadingWork)
            self.limit = min(self.limit, self.limit_max)
            started = time.perf_counter()
            rows = work.fetch(
                connection, resume_after, self.claimed.upper, self.limit, skip_locked=False
            )
            if not rows:
                return rows
            found = work.examine(connection, rows)
            seconds = time.perf_counter() - started
        with self.storage.transaction(TransactionMode.JOB) as connection:
            self._current_work(connection)
            work.note(connection, found, self.claimed.number)
            counted = BatchCounts(len(rows), 0, self.conflicts - self.conflicts_noted)
            record_progress(connection, self.claimed, rows[-1][0], counted)
        self._note_batch(len(rows), 0, seconds)
        return rows

    def _note_batch(self, read: int, written: int, seconds: float) -> None:
        self._adapt(seconds)
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
        row = connection.fetch_one(
            "SELECT version, (SELECT value FROM zapdb_counters WHERE name = 'seq')"
            f" FROM zapdb_catalog_versions WHERE tenant = {self.work.job.tenant}"
        )
        if row is None:  # the tenant was removed
            raise Superseded
        version, seq = row
        self.throttle.look(connection, seq)
        if version != self.work.catalog.version:
            catalog = load_tenant_catalog(connection, self.work.job.tenant, self.work.catalog)
            self.work = make_work(self.storage, catalog, self.work.job)
        return self.work

    def _any_left(self) -> bool:
        """Return whether the range has to be gone through again; if not, mark it as done."""

        def look() -> bool:
            with self.storage.transaction(TransactionMode.JOB) as connection:
                work = self._current_work(connection)
                if work.goes_back:
                    condition, parameters = work.range_condition(
                        self.claimed.lower, self.claimed.upper
                    )
                    if self.quarantined:
                        condition += (
                            " AND NOT EXISTS (SELECT 1 FROM zapdb_quarantine AS q WHERE q.job ="
                            f" {self.storage.placeholder} AND q.key = {work.records.name}.key)"
                        )
                        parameters.append(self.claimed.job)
                    left = connection.fetch_one(
                        f"SELECT 1 FROM {work.records.name} WHERE {condition} LIMIT 1",
                        parameters,
                    )
                    if left is not None:
                        record_progress(connection, self.claimed, self.claimed.lower)
                        return True
                record_progress(connection, self.claimed, self.claimed.upper, done=True)
                if not self.quarantined:
                    work.note_done(connection, self.claimed.lower, self.claimed.upper)
                return False

        return self._retry(look)
