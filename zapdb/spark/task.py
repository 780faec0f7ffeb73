"""The task of an executor: it processes ranges as everywhere, by the numbers that Spark gives it.

An executor opens the database itself and loads the job from it, once for all tasks of its process.
The task checks that this process matches the job before it reads or writes data. Results return as
values, refusals included: Spark retries a task that raises, which helps after a lost connection,
but not for a refusal.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from typing import Final

from zapdb.cluster.leases import Owner
from zapdb.cluster.level import check_level
from zapdb.errors import ConcurrencyError, LeaseLost, StorageError, ZapdbError
from zapdb.jobs.job import read_job
from zapdb.jobs.loading import load_work
from zapdb.jobs.range_work import RangeResult, run_range
from zapdb.jobs.splitting import has_free_ranges, split_lagging_range
from zapdb.jobs.throttle import wait
from zapdb.jobs.work import HeldBack, Superseded, Work
from zapdb.limits import OTHERS_POLL_SECONDS
from zapdb.spark.driver import DriverContext
from zapdb.spark.kept_open import KEPT_OPEN, Opening
from zapdb.storage import Storage, TransactionMode, connect

STARTING_POLLS: Final = 10
"""How often a task without work looks whether those that are to begin have begun."""

Refusal = Superseded | HeldBack | ZapdbError
"""Why a task did not work on a range, for the driver to raise."""


@dataclass(frozen=True, slots=True)
class TaskReport(RangeResult):
    """The report of an executor on one range."""

    host: str
    process: int

    @classmethod
    def of(cls, result: RangeResult) -> TaskReport:
        """The result of a range that was worked on in this process."""
        return cls(**asdict(result), host=socket.gethostname(), process=os.getpid())


@dataclass(slots=True)
class OpenedJobs:
    """A database, and the job as it was loaded from it last."""

    storage: Storage
    work: Work | None = None

    def load(self, job_id: str) -> Work:
        """A job's work, loaded anew if the job was changed, or planned again, since."""
        with self.storage.transaction(TransactionMode.READ) as connection:
            check_level(connection)
            job = read_job(connection, job_id)
        if self.work is None or self.work.job != job:
            self.work = load_work(self.storage, job_id)
        return self.work


@dataclass(frozen=True, slots=True)
class JobOpening(Opening[OpenedJobs]):
    """How a database is opened for jobs: the next job uses what is open."""

    def open(self) -> OpenedJobs:
        return OpenedJobs(connect(self.address))

    def close(self, opened: OpenedJobs) -> None:
        opened.storage.close()

    def storage(self, opened: OpenedJobs) -> Storage:
        return opened.storage


@dataclass(frozen=True, slots=True)
class RangeTask:
    """The function of the tasks, as data: it is pickled and sent to the executors."""

    address: str = field(repr=False)  # it may hold a password
    job_id: str
    batch_records_max: int
    are_few: bool = False
    """Whether there are more tasks than ranges, all of which begin at once."""
    driver: DriverContext = field(default_factory=DriverContext)

    def __call__(self, numbers: Iterable[int]) -> Iterator[TaskReport | Refusal]:
        owner = Owner.here()
        with KEPT_OPEN.using(JobOpening(self.address)) as opened:
            load = cache(partial(opened.load, self.job_id))
            for number in numbers:
                yield self._run(opened.storage, load, owner, number)
            while (rest := self._take_rest(opened.storage, load)) is not None:
                yield self._run(opened.storage, load, owner, rest)

    def _take_rest(self, storage: Storage, load: Callable[[], Work]) -> int | None:
        """Cut a range that lags in two, and return the number of its second part; None if none is
        worth it.

        Ranges that are free are other tasks'. If there are more tasks than ranges, these are just
        starting, and lag later; otherwise, they may wait for the place that this task has.
        """
        for _ in range(STARTING_POLLS):
            try:
                number = split_lagging_range(storage, load())
                if number is not None or not has_free_ranges(storage, self.job_id):
                    return number
            except (ZapdbError, HeldBack, Superseded):
                return None  # the worker that has the range says so
            if not self.are_few:
                return None
            wait(OTHERS_POLL_SECONDS, lambda: False)
        return None

    def _run(
        self, storage: Storage, load: Callable[[], Work], owner: Owner, number: int
    ) -> TaskReport | Refusal:
        try:
            self.driver.check_process()
            result = run_range(
                storage, load(), owner, number, batch_records_max=self.batch_records_max
            )
        except LeaseLost:
            result = RangeResult(number, 0, 0, 0, False, 0.0)
        except (StorageError, ConcurrencyError):
            raise  # another attempt may succeed
        except (Superseded, HeldBack, ZapdbError) as refusal:
            return refusal
        # A range that was finished meanwhile can't be claimed.
        return TaskReport.of(result or RangeResult(number, 0, 0, 0, True, 0.0))
