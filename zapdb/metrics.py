"""Counters and histograms of this process, cheap enough for every transaction.

They belong to the process, not to one database, and begin at 0 when it starts.
`zapdb.database.metrics_text` reads the state of a database on each request, and writes both in
Prometheus's text format.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

Labels = tuple[str, ...]

WAIT_BUCKETS_SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


@dataclass(frozen=True, slots=True)
class Counter:
    """A sum for each combination of labels; it only rises."""

    name: str
    description: str
    labels: Labels = ()
    _values: dict[Labels, float] = field(default_factory=dict, hash=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, hash=False)

    def add(self, *labels: str, amount: float = 1) -> None:
        with self._lock:
            self._values[labels] = self._values.get(labels, 0) + amount

    def read(self) -> dict[Labels, float]:
        with self._lock:
            return dict(self._values)


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many observations were at most each bound, for each combination of labels."""

    name: str
    description: str
    labels: Labels = ()
    bounds: tuple[float, ...] = WAIT_BUCKETS_SECONDS
    _values: dict[Labels, list[float]] = field(default_factory=dict, hash=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, hash=False)

    def observe(self, value: float, *labels: str) -> None:
        at = bisect_left(self.bounds, value)
        with self._lock:
            found = self._values.get(labels)
            if found is None:
                found = self._values[labels] = [0.0] * (len(self.bounds) + 2)
            found[at] += 1
            found[-1] += value

    def read(self) -> dict[Labels, tuple[list[float], float]]:
        """Return by labels the counts up to each bound and beyond the last, and the sum."""
        with self._lock:
            copies = {labels: list(values) for labels, values in self._values.items()}
        found = {}
        for labels, values in copies.items():
            *counts, total = values
            found[labels] = ([sum(counts[: n + 1]) for n in range(len(counts))], total)
        return found


GATE_WAITS: Final = Histogram(
    "zapdb_gate_wait_seconds",
    "How long transactions waited until they had begun and held the gate, shared or exclusive.",
    ("gate",),
)
CONFLICTS: Final = Counter(
    "zapdb_transaction_conflicts",
    "Transactions that conflicted with a concurrent one and were rolled back.",
    ("mode",),
)
RETRIES: Final = Counter(
    "zapdb_retries",
    "Operations that were tried again, such as a write after a conflict.",
    ("policy",),
)
RETRIES_EXHAUSTED: Final = Counter(
    "zapdb_retries_exhausted",
    "Operations that failed because the tries or the time of their policy ran out.",
    ("policy",),
)
JOB_BATCHES: Final = Counter(
    "zapdb_job_batches", "Batches, each a transaction, that jobs of this process did.", ("kind",)
)
JOB_RECORDS_READ: Final = Counter(
    "zapdb_job_records_read", "Records that jobs of this process read.", ("kind",)
)
JOB_RECORDS_WRITTEN: Final = Counter(
    "zapdb_job_records_written", "Records that jobs of this process wrote.", ("kind",)
)
JOB_SECONDS: Final = Counter(
    "zapdb_job_seconds", "Time that jobs of this process spent in batches.", ("kind",)
)
TAKEOVERS: Final = Counter(
    "zapdb_lease_takeovers",
    "Leases that this process took over after another process's lease had expired.",
)

SERVICE_CALLS: Final = Histogram(
    "zapdb_service_call_seconds",
    "How long calls of `zapdb serve` took, streams to their end, by method and status.",
    ("method", "status"),
)

COUNTERS: Final = (
    CONFLICTS,
    RETRIES,
    RETRIES_EXHAUSTED,
    JOB_BATCHES,
    JOB_RECORDS_READ,
    JOB_RECORDS_WRITTEN,
    JOB_SECONDS,
    TAKEOVERS,
)
HISTOGRAMS: Final = (GATE_WAITS, SERVICE_CALLS)
