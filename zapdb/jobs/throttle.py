"""How fast a job may go: shared by the threads of one process that work on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from zapdb.catalog.kinds import Job
from zapdb.catalog.stored_settings import read_settings
from zapdb.limits import BATCH_RECORDS_MAX
from zapdb.storage import Storage, TransactionMode

STEP_SECONDS: Final = 0.1
"""How often one that waits looks whether it should stop."""


class Stopped(Exception):
    """The work was asked to stop; its batches so far stay committed."""


class Throttle:
    """Keeps to so many records a second, and stops between batches when it should."""

    def __init__(
        self,
        records_per_second: int | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.records_per_second = records_per_second
        self.should_stop = should_stop
        self._lock = threading.Lock()
        self._free_at = 0.0

    @classmethod
    def of(
        cls, storage: Storage, job: Job, should_stop: Callable[[], bool] = lambda: False
    ) -> Throttle:
        """As the settings say when the job begins."""
        if job.kind == "roll_back":  # application writes wait for it
            return cls(None, should_stop)
        with storage.transaction(TransactionMode.READ) as connection:
            settings = read_settings(connection, job.tenant)
        return cls(settings.number("job_records_per_second", job.table), should_stop)

    @property
    def batch_records_max(self) -> int:
        """A batch is no more than a quarter of a second's work: waits stay shorter than leases."""
        if self.records_per_second is None:
            return BATCH_RECORDS_MAX
        return min(BATCH_RECORDS_MAX, max(1, self.records_per_second // 4))

    def wait(self, records: int) -> None:
        """Wait until what follows a batch may begin; raises `Stopped`."""
        if self.records_per_second is not None:
            with self._lock:
                begins = max(self._free_at, time.monotonic())
                self._free_at = begins + records / self.records_per_second
                until = self._free_at
            self.pause(until - time.monotonic())
        if self.should_stop():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Wait so long, less where it should stop."""
        until = time.monotonic() + seconds
        while not self.should_stop() and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, STEP_SECONDS))
