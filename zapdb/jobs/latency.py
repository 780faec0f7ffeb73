"""What a job does to the queries beside it, measured; and the share of the time that it may work.

While a process works on a job that has a ceiling, a thread of it sends a small read and a small
write to the database a few times a second, as an application does, and takes the time. Above the
ceiling, the share of the time in which the process's workers may work is halved; below, it rises
slowly. So it comes to rest where few queries take longer than the ceiling. Each process measures
for itself: what is slow for one may be fast for another. The share never falls to nothing, so that
a job that queries would not have let go on comes to its end, too.

The write is also the report: a row with what was measured before. Beside work that stores nothing,
which is no job, the reads alone are measured, and nothing is reported.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

import sqlalchemy as sa

from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.row_kinds import Job
from zapdb.errors import ZapdbError
from zapdb.limits import (
    PROBE_FRESH_SECONDS,
    PROBE_KEPT_SECONDS,
    PROBE_SECONDS,
    SHARE_DECREASE,
    SHARE_FIRST,
    SHARE_INCREASE,
    SHARE_LEAST,
)
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.storage.fixed_tables import PROBES

logger = logging.getLogger("zapdb.jobs")

THREAD_NAME: Final = "zapdb-probe"


@dataclass(slots=True)
class DutyCycle:
    """The share of the time in which workers may work, from 0 to 1, and what it was made from."""

    share: float = SHARE_FIRST
    latency_seconds: float = 0.0
    measured_at: float = -PROBE_SECONDS
    """By the monotonic clock; nothing was measured at first."""

    def take_in(self, latency_seconds: float, ceiling_seconds: float) -> None:
        """Follow a measurement."""
        self.latency_seconds = latency_seconds
        if latency_seconds > ceiling_seconds:
            self.share = max(SHARE_LEAST, self.share * SHARE_DECREASE)
        else:
            self.share = min(1.0, self.share * SHARE_INCREASE)


class LatencyProbe:
    """A thread that measures for one job, as long as workers of this process use it."""

    def __init__(
        self, storage: Storage, job: Job, duty_cycle: DutyCycle, *, only_reads: bool = False
    ) -> None:
        self.duty_cycle = duty_cycle
        self.ceiling_seconds = float("inf")
        self.users = 0
        self._storage = storage
        self._job = job
        self._only_reads = only_reads
        self._owner = Owner.here(storage.node_id)
        self._asked_at: float | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

    @property
    def share(self) -> float:
        """The share of the time that workers may work; the least one while an answer is overdue."""
        asked_at = self._asked_at
        if asked_at is not None and time.monotonic() - asked_at > self.ceiling_seconds:
            return SHARE_LEAST
        return self.duty_cycle.share

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            with self._storage.writing_as_another_process():
                if not self._only_reads:
                    with suppress(ZapdbError):  # the next one does it
                        _purge(self._storage)
                while not self._stop.wait(
                    self.duty_cycle.measured_at + PROBE_SECONDS - time.monotonic()
                ):
                    self._step()
        finally:
            self._storage.release_connection()

    def _step(self) -> None:
        """One measurement; one that fails took as long as it took."""
        began = self._asked_at = time.monotonic()
        try:
            seconds = self._time_read()
            if not self._only_reads:
                seconds = max(seconds, self._time_write())
        except ZapdbError as error:
            logger.debug("the latency beside a job could not be measured: %s", error)
            seconds = time.monotonic() - began
        self._asked_at, self.duty_cycle.measured_at = None, time.monotonic()
        self.duty_cycle.take_in(seconds, self.ceiling_seconds)

    def _time_read(self) -> float:
        if not self._job.table:  # it is about all tables: the write tells enough
            return 0.0
        records = RecordStatements(self._storage, self._job.table, self._job.tenant)
        began = time.monotonic()
        records.find_key(self._storage.connection(), b"", 0)
        return time.monotonic() - began

    def _time_write(self) -> float:
        began = time.monotonic()
        # As an application writes: on PostgreSQL, all of it in one round trip.
        with self._storage.transaction(TransactionMode.WRITE) as connection:
            mark, clock = self._storage.placeholder, self._storage.dialect.clock_sql
            connection.send(
                "INSERT INTO zapdb_probes"
                " (job, worker, owner, latency_us, share_percent, probed_at)"
                f" VALUES ({mark}, {mark}, {mark}, {mark}, {mark}, ({clock}))"
                " ON CONFLICT (job, worker) DO UPDATE SET latency_us = excluded.latency_us,"
                " share_percent = excluded.share_percent, probed_at = excluded.probed_at",
                (
                    self._job.id,
                    self._owner.id,
                    self._owner.to_text(),
                    int(self.duty_cycle.latency_seconds * 1e6),
                    max(1, round(self.duty_cycle.share * 100)),
                ),
            )
        return time.monotonic() - began


@dataclass(slots=True)
class _Probes:
    """The probes of one storage that are in use, and the duty cycles of those that were, by job."""

    running: dict[str, LatencyProbe] = field(default_factory=dict)
    duty_cycles: dict[str, DutyCycle] = field(default_factory=dict)


_PROBES: Final[WeakKeyDictionary[Storage, _Probes]] = WeakKeyDictionary()
_LOCK: Final = threading.Lock()


def use_probe(storage: Storage, job: Job, *, only_reads: bool = False) -> LatencyProbe:
    """Return the probe that all workers of this process on a job share; `leave_probe` ends that."""
    with _LOCK:
        probes = _PROBES.setdefault(storage, _Probes())
        probe = probes.running.get(job.id)
        if probe is None:
            duty_cycle = probes.duty_cycles.setdefault(job.id, DutyCycle())
            probe = LatencyProbe(storage, job, duty_cycle, only_reads=only_reads)
            probes.running[job.id] = probe
            probe.start()
        probe.users += 1
    return probe


def leave_probe(storage: Storage, job_id: str) -> None:
    """The last one to leave ends the thread; the duty cycle stays for those who come."""
    with _LOCK:
        running = _PROBES[storage].running
        probe = running[job_id]
        probe.users -= 1
        if probe.users:
            return
        del running[job_id]
    probe.stop()


@dataclass(frozen=True, slots=True)
class ProbeStatus:
    """What a process measured last beside a job, and the share of the time that it works."""

    owner: str
    latency_ms: float
    share_percent: int

    def __str__(self) -> str:
        share = f"which works {self.share_percent} % of the time"
        return f"{self.latency_ms:.1f} ms at {self.owner}, {share}"


def list_probes(connection: Connection, job_id: str) -> list[ProbeStatus]:
    """Return what was measured in the last seconds, the slowest first."""
    since = connection.storage.now_us(connection) - int(PROBE_FRESH_SECONDS * 1e6)
    query = sa.select(PROBES).where(PROBES.c.job == job_id, PROBES.c.probed_at >= since)
    return [
        ProbeStatus(str(Owner.parse(row.owner)), row.latency_us / 1e3, row.share_percent)
        for row in connection.core_execute(query.order_by(PROBES.c.latency_us.desc()))
    ]


def _purge(storage: Storage) -> None:
    """Delete what is no longer of any use."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        before = storage.now_us(connection) - int(PROBE_KEPT_SECONDS * 1e6)
        connection.core_execute(sa.delete(PROBES).where(PROBES.c.probed_at < before))
