"""The jobs of many tenants: for which ones something has changed, and which job comes first.

No tenant is looked at itself until the catalog feed tells that something has changed for it.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Iterable

from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.row_kinds import Job, SettingRow
from zapdb.catalog.settings import CONVERT_AFTER
from zapdb.database.catalog_watch import ChangedRows

DEFINING: tuple[str, ...] = ("tenant", "index", "constraint")
"""The kinds of rows that define a tenant's catalog; their keys begin with the tenant's number."""


class ChangedTenants:
    """A listener of the catalog watch, and a queue: each tenant is in it once.

    A tenant is in it when what is active for it has changed, or an operator has changed one of its
    planned jobs, or when they may begin. With `only`, no other tenant ever is.
    """

    def __init__(self, only: int | None = None) -> None:
        self.arrived = threading.Event()
        """Set when a tenant has come since the queue was emptied, and by `stop`."""
        self._only = only
        self._tenants = dict[int, None]()
        self._lock = threading.Lock()
        self._is_loaded = False
        self._changed_at = dict[str, int]()

    def on_change(self, cache: CatalogCache, changed: ChangedRows) -> None:
        """Find the tenants that changed rows concern; the first cache has changed nothing."""
        found = {int(key.partition("/")[0]) for kind, key in changed if kind in DEFINING}
        found.update(self._find_changed_jobs(cache, changed))
        if any(kind == SettingRow.KIND and key.endswith(CONVERT_AFTER) for kind, key in changed):
            found.update(job.tenant for job in cache.list(Job, "convert"))
        if any(kind == "chain" for kind, _ in changed):  # it may wait for processes: that is told
            found.add(self._only or DEFAULT_TENANT)
        if self._is_loaded:
            self.add(found)
        self._is_loaded = True

    def _find_changed_jobs(self, cache: CatalogCache, changed: ChangedRows) -> Iterable[int]:
        """The tenants of planned jobs that an operator has changed, by the ids of the jobs."""
        for kind, key in changed:
            job = cache.get(Job, key) if kind == Job.KIND else None
            if job is None or job.changed_at == self._changed_at.get(key, 0):
                continue
            self._changed_at[key] = job.changed_at
            if job.state == "planned":
                yield job.tenant

    def concerns(self, tenant: int) -> bool:
        """Whether a tenant may ever be in the queue."""
        return self._only in (None, tenant)

    def add(self, tenants: Iterable[int]) -> None:
        wanted = [number for number in tenants if self.concerns(number)]
        with self._lock:
            self._tenants |= dict.fromkeys(wanted)
            if wanted:
                self.arrived.set()

    def take_all(self) -> list[int]:
        """Empty the queue."""
        with self._lock:
            found, self._tenants = list(self._tenants), {}
            self.arrived.clear()
        return found

    def stop(self) -> None:
        self.arrived.set()


class PlannedJobs:
    """The planned jobs of all tenants: the most urgent first, of equally urgent ones the oldest.

    It also knows when tenants are to be planned for again, by the monotonic clock.
    """

    def __init__(self) -> None:
        self._jobs = dict[str, Job]()
        self._ids = dict[int, list[str]]()
        self._order = list[tuple[int, int, str]]()
        self._numbers = itertools.count()
        self._later = dict[int, float]()

    def replace(self, tenant: int, jobs: Iterable[Job]) -> None:
        """Take these jobs for those of a tenant so far."""
        for job_id in self._ids.pop(tenant, ()):
            self._jobs.pop(job_id, None)
        for job in jobs:
            self._jobs[job.id] = job
            self._ids.setdefault(tenant, []).append(job.id)
            heapq.heappush(self._order, (-job.priority, next(self._numbers), job.id))

    def remove(self, job: Job) -> None:
        self._jobs.pop(job.id, None)

    def find_first(self) -> Job | None:
        """Return the most urgent job, which stays."""
        while self._order:
            negative, _, job_id = self._order[0]
            job = self._jobs.get(job_id)
            if job is not None and job.priority == -negative:
                return job
            heapq.heappop(self._order)
        return None

    def put_later(self, tenant: int, seconds: float) -> None:
        """Plan for a tenant again after these seconds, or earlier if an earlier time is set
        already."""
        at = time.monotonic() + seconds
        self._later[tenant] = min(at, self._later.get(tenant, at))

    def find_next_time(self) -> float | None:
        return min(self._later.values(), default=None)

    def take_later(self) -> list[int]:
        """Return the tenants whose time has come; they are forgotten."""
        now = time.monotonic()
        found = [tenant for tenant, at in self._later.items() if at <= now]
        for tenant in found:
            del self._later[tenant]
        return found
