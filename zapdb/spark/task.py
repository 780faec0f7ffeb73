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
from itertools import chain

from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.cluster.level import check_level
from zapdb.errors import ConcurrencyError, StorageError, ZapdbError
from zapdb.jobs.job import read_job
from zapdb.jobs.range_work import RangeResult, run_range
from zapdb.jobs.splitting import split_lagging_range
from zapdb.jobs.work import HeldBack, Superseded, Work
from zapdb.jobs.work_loading import load_work
from zapdb.spark.driver import DriverContext
from zapdb.spark.kept_open import KEPT_OPEN, Opening
from zapdb.storage import Storage, TransactionMode, connect

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
            wanted = chain(numbers, iter(partial(self._take_rest, opened.storage, load), None))
            for number in wanted:
                found = self._run(opened.storage, load, owner, number)
                yield found
                if not isinstance(found, TaskReport):
                    return  # the range is free again, as long as nobody has mended what is wrong

    def _take_rest(self, storage: Storage, load: Callable[[], Work]) -> int | None:
        """Cut a range that lags in two, and return the number of its second part; None if none is
        worth it.

        A range that is free is another task's, which may wait for the place that this one has. If
        there are more tasks than ranges, all of them have a place, and the first takes it.
        """
        try:
            return split_lagging_range(storage, load(), takes_free=self.are_few)
        except (ZapdbError, HeldBack, Superseded):
            return None  # the worker that has the range says so

    def _run(
        self, storage: Storage, load: Callable[[], Work], owner: Owner, number: int
    ) -> TaskReport | Refusal:
        try:
            self.driver.check_process()
            result = run_range(
                storage, load(), owner, number, batch_records_max=self.batch_records_max
            )
        except (StorageError, ConcurrencyError):
            raise  # another attempt may succeed
        except (Superseded, HeldBack, ZapdbError) as refusal:
            return refusal
        # A range that was finished meanwhile can't be claimed.
        return TaskReport.of(result or RangeResult(number, 0, 0, 0, True, 0.0))
