"""The Spark runner: a job's open ranges as a frame, the work on each range on executors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from zapdb.catalog.kinds import Job
from zapdb.errors import JobError, ZapdbError
from zapdb.jobs.job import open_ranges
from zapdb.jobs.range_work import Superseded
from zapdb.limits import BATCH_RECORDS_MAX
from zapdb.spark.session import LOCAL_MASTER, check_session, start_session
from zapdb.spark.task import RESULT_SCHEMA, RangeTask
from zapdb.storage import Storage, TransactionMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS_MAX: Final = 3
"""How often ranges that a round left open are handed out again."""
TASKS_PER_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class TaskReport:
    """One range as an executor worked on it."""

    number: int
    read: int
    written: int
    conflicts: int
    finished: bool
    seconds: float
    host: str
    process: int


def run_on_spark(
    storage: Storage,
    job: Job,
    *,
    master: str = LOCAL_MASTER,
    batch_records_max: int = BATCH_RECORDS_MAX,
    on_tasks: Callable[[list[TaskReport]], None] = lambda reports: None,
) -> None:
    """Work on a job's open ranges in the active Spark session, or in a new one on `master`.

    `on_tasks` gets what the executors report. Raises what a task was refused with.
    """
    spark = start_session(master)
    check_session(spark, storage)
    for _ in range(ROUNDS_MAX):
        with storage.transaction(TransactionMode.READ) as connection:
            numbers = open_ranges(connection, job.id)
        if not numbers:
            return
        on_tasks(_run_open_ranges(spark, storage, job, numbers, batch_records_max))


def _run_open_ranges(
    spark: SparkSession, storage: Storage, job: Job, numbers: list[int], batch_records_max: int
) -> list[TaskReport]:
    frame = spark.range(0, len(numbers), numPartitions=_count_tasks(spark, storage, len(numbers)))
    address = storage.full_address()
    task = RangeTask(address, job.id, batch_records_max, numbers)
    try:
        rows = frame.mapInArrow(task, RESULT_SCHEMA).collect()
    except ZapdbError:
        raise
    except Exception as error:  # whatever Spark makes of a task that failed for good
        raise JobError(
            "Spark gave up on the job",
            job=job.id,
            cause=_last_line(str(error)),
            hint="run it again; it continues where it stopped",
        ) from error
    for row in rows:
        if row.error is not None:
            # Written by our own task a moment ago.
            raise pickle.loads(bytes(row.error))  # noqa: S301 - see above
        if row.superseded:
            raise Superseded
    return [
        TaskReport(
            row["range"],
            row.read,
            row.written,
            row.conflicts,
            row.finished,
            row.seconds,
            row.host,
            row.process,
        )
        for row in rows
    ]


def _count_tasks(spark: SparkSession, storage: Storage, ranges: int) -> int:
    """Several for each core, so that an executor that is done takes the next, and not one for each
    range: beginning a task takes Spark and the executor about as long as a quarter of a range."""
    if storage.dialect == "sqlite":
        return 1  # it has room for one writer
    return min(ranges, spark.sparkContext.defaultParallelism * TASKS_PER_CORE)


def _last_line(text: str) -> str:
    """The line of a long Spark error that says what happened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and not line.startswith("at ")]
    return (telling or lines or [""])[-1][:300]
