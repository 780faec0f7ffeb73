"""How fast a job may go, and whether it may go on: as its row and the settings say now.

A worker looks at the job in each batch, in the query that compares the catalog version. It reads
the job's row again only if something was written to the catalog since. So whatever is changed about
a job takes effect in the next batch of every worker, wherever it runs. The workers share the job's
rate equally: each keeps to its part of what all of them may read. If the job has a ceiling of
latency, each works for the share of the time that its process has found to be right (`latency`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain
from math import inf
from typing import Final

from msgspec import structs

from zapdb.catalog.row_kinds import Job, JobThrottle
from zapdb.catalog.stored_settings import read_settings
from zapdb.jobs.job import count_workers, read_job
from zapdb.jobs.job_types import type_of
from zapdb.jobs.latency import LatencyProbe, leave_probe, use_probe
from zapdb.jobs.window import find_closing
from zapdb.jobs.work import HeldBack, Superseded
from zapdb.limits import (
    BATCH_RECORDS_MAX,
    BATCH_RECORDS_MIN,
    BATCH_RECORDS_SLOW_MIN,
    BATCH_TARGET_SECONDS,
)
from zapdb.storage import Connection, Storage

STEP_SECONDS: Final = 0.1
"""How often one that waits looks whether it should stop."""
BATCH_SECONDS: Final = 0.25
"""The time that a throttled batch is for: waits stay shorter than leases."""
RATES: Final = ("records_per_second", "bytes_per_second")


class Stopped(Exception):
    """The work was asked to stop; its batches so far stay committed."""


def read_throttle(connection: Connection, job: Job) -> JobThrottle:
    """The job's own throttle, and what the settings bound that it does not.

    The settings do not slow down what is begun by hand.
    """
    own = job.throttle
    if type_of(job).is_exclusive:
        return own
    settings, missing = read_settings(connection, job.tenant), dict[str, int | None]()
    if own.records_per_second is None:
        missing["records_per_second"] = settings.number("job_records_per_second", job.table)
    if own.max_latency_ms is None:
        missing["max_latency_ms"] = settings.number("job_max_latency_ms", job.table)
    return structs.replace(own, **missing)


class Throttle:
    """Keeps one worker, on one range, to its part of the job's rate; to be closed at the end."""

    def __init__(
        self, storage: Storage, job_id: str, should_stop: Callable[[], bool] = lambda: False
    ) -> None:
        self.should_stop = should_stop
        self._storage = storage
        self._job_id = job_id
        self._probe: LatencyProbe | None = None
        self.seq: int | None = None
        """The catalog's seq when the job's row was last read."""
        self._bounds = JobThrottle()
        self._closes_at: float | None = None
        self._workers = 1
        self._record_size: float | None = None
        # What was read by the last batch, and from when on that counts, by the monotonic clock.
        self._records = self._size = 0
        self._since = self._busy_seconds = 0.0

    def look(self, connection: Connection, seq: int) -> None:
        """Take in what was changed up to the catalog's seq; raises `HeldBack` and `Superseded`."""
        if seq != self.seq:
            self._read(connection)
            self.seq = seq
        if self._closes_at is not None and time.monotonic() >= self._closes_at:
            raise HeldBack
        if self._is_bounded:
            self._workers = count_workers(connection, self._job_id)

    def _read(self, connection: Connection) -> None:
        job = read_job(connection, self._job_id)
        if job.state in ("paused", "cancelled"):
            raise HeldBack
        if job.state != "planned":
            raise Superseded
        self._bounds, self._closes_at = read_throttle(connection, job), None
        if self._bounds.window is not None:
            now_us = connection.storage.now_us(connection)
            closes_us = find_closing(self._bounds.window, now_us)
            if closes_us is None:
                raise HeldBack
            self._closes_at = time.monotonic() + (closes_us - now_us) / 1e6
        self._use_ceiling(job)

    def keep_to(self, job: Job, bounds: JobThrottle) -> None:
        """Take the bounds of work that is like a job, but stores nothing, not even itself."""
        self._bounds = bounds
        self._use_ceiling(job, only_reads=True)

    def _use_ceiling(self, job: Job, *, only_reads: bool = False) -> None:
        """Measure where the job has a ceiling by now."""
        ceiling_ms = self._bounds.max_latency_ms
        if ceiling_ms is None:
            self.close()
            return
        if self._probe is None:
            self._probe = use_probe(self._storage, job, only_reads=only_reads)
        self._probe.ceiling_seconds = ceiling_ms / 1e3

    def close(self) -> None:
        """Measure no longer; safe to repeat."""
        if self._probe is not None:
            self._probe = None
            leave_probe(self._storage, self._job_id)

    @property
    def batch_target_seconds(self) -> float:
        """How long a batch should hold its locks: half of what a query may take, if that is
        bounded."""
        ceiling_ms = self._bounds.max_latency_ms
        if ceiling_ms is None:
            return BATCH_TARGET_SECONDS
        return min(BATCH_TARGET_SECONDS, ceiling_ms / 2e3)

    @property
    def batch_records_min(self) -> int:
        """The smallest batch of a slow job without conflicts."""
        return BATCH_RECORDS_MIN if self.has_ceiling else BATCH_RECORDS_SLOW_MIN

    @property
    def _is_bounded(self) -> bool:
        return any(getattr(self._bounds, name) is not None for name in RATES)

    @property
    def counts_bytes(self) -> bool:
        """Whether the job's rate is one of bytes."""
        return self._bounds.bytes_per_second is not None

    @property
    def has_ceiling(self) -> bool:
        return self._bounds.max_latency_ms is not None

    @property
    def batch_records_max(self) -> int:
        """As many records as this worker may read in a fraction of a second."""
        return max(1, int(min(BATCH_RECORDS_MAX, self.find_records_at_once())))

    def adapt(self, limit: int, seconds: float, limit_max: int) -> int:
        """The size of the batch after one of `limit` records, which took so many seconds: so that
        it holds its locks for about the target time (rule 17).

        The time is that of the batch's own statements: beginning and committing cost what they
        cost. For the same reason only conflicts make batches really small, and not for long: where
        each statement takes milliseconds, small batches hold locks no shorter, only more often.
        """
        target, least = self.batch_target_seconds, self.batch_records_min
        if limit < least or seconds < target / 2:
            return min(limit_max, limit * 2)
        if seconds > target:
            return max(min(least, limit_max), limit // 2)
        return limit

    def find_records_at_once(self) -> float:
        """The same without the bound of all batches: infinite for a job without a rate."""
        records, size = self._bounds.records_per_second, self._bounds.bytes_per_second
        found = inf
        if records is not None:
            found = min(found, records * BATCH_SECONDS / self._workers)
        if size is not None and self._record_size is None:
            found = min(found, BATCH_RECORDS_MIN)
        elif size is not None and self._record_size:
            found = min(found, size * BATCH_SECONDS / self._workers / self._record_size)
        return found

    def count_bytes(self, rows: Sequence[tuple[bytes, bytes]]) -> int:
        """How many bytes keys and records have, if the job's rate is one of bytes; else 0."""
        if not self.counts_bytes:
            return 0
        return sum(map(len, chain.from_iterable(rows)))

    def note(self, records: int, size_bytes: int, began: float) -> None:
        """A batch that began then has read so much."""
        self._since = max(began, self._since + self._count_seconds())
        self._records, self._size = records, size_bytes
        self._busy_seconds = time.monotonic() - began
        self._record_size = size_bytes / records if size_bytes else None

    def count_seconds_left(self) -> float:
        """How long to wait before what follows the last batch may begin."""
        return self._since + self._count_seconds() - time.monotonic()

    def _count_seconds(self) -> float:
        """How long the last batch has to take at the rate as it is now."""
        records, size = self._bounds.records_per_second, self._bounds.bytes_per_second
        seconds = 0.0 if records is None else self._records / records
        if size is not None:
            seconds = max(seconds, self._size / size)
        seconds *= self._workers
        probe = self._probe  # another thread may look, and find no ceiling any more
        if probe is not None:
            seconds = max(seconds, self._busy_seconds / probe.share)
        return seconds


def wait(seconds: float, should_stop: Callable[[], bool]) -> None:
    """Wait so long, less where it should stop."""
    until = time.monotonic() + seconds
    while not should_stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, STEP_SECONDS))
