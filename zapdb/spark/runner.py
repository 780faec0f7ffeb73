"""The Spark runner: the numbers of a job's open ranges are distributed, and executors process each.

They are an RDD, not a DataFrame: there is nothing to plan about them, and planning a query and
compiling its code took the JVM longer than all the rest of its part (decisions/0059).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from zapdb.catalog.row_kinds import Job
from zapdb.errors import JobError
from zapdb.jobs.job import list_open_ranges, open_ranges, read_progress
from zapdb.limits import BATCH_RECORDS_MAX, SPLIT_RECORDS_MIN
from zapdb.spark.spark_session import start_session_for
from zapdb.spark.task import RangeTask, TaskReport
from zapdb.storage import Storage, TransactionMode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_ROUNDS_MAX: Final = 3
"""After so many rounds in a row in which no record was read, the runner gives up."""
RANGES_NAMED_MAX: Final = 5
TASKS_PER_CORE: Final = 4
MISSING_PACKAGE: Final = "No module named"
AGAIN_HINT: Final = "run it again; it continues where it stopped"
PACKAGE_HINT: Final = (
    "the executors do not find zapdb, or a package that it needs: install them there; zapdb itself "
    "can be sent: run `zapdb spark package zapdb.zip`, and give spark-submit --py-files zapdb.zip"
)


def run_on_spark(
    storage: Storage,
    job: Job,
    *,
    master: str | None = None,
    batch_records_max: int = BATCH_RECORDS_MAX,
    on_tasks: Callable[[list[TaskReport]], None] = lambda reports: None,
) -> None:
    """Process a job's open ranges in the active Spark session, or in a new one on `master`:
    `local[*]` if none is given. An active session on another master is refused.

    `on_tasks` gets the executors' reports. Raises the error with which a task was refused, and
    `JobError` if ranges are left that no round comes on with.
    """
    spark = start_session_for(storage, master)
    before, idle_rounds = None, 0
    while True:
        with storage.transaction(TransactionMode.READ) as connection:
            numbers, progress = open_ranges(connection, job.id), read_progress(connection, job.id)
        if not numbers:
            return
        idle_rounds = idle_rounds + 1 if progress == before else 0
        if idle_rounds >= IDLE_ROUNDS_MAX:
            raise _left_over(storage, job)
        before = progress
        on_tasks(_run_open_ranges(spark, storage, job, numbers, batch_records_max))


def _left_over(storage: Storage, job: Job) -> JobError:
    """The error that names the ranges that are left, and who has them."""
    with storage.transaction(TransactionMode.READ) as connection:
        left = list_open_ranges(connection, job.id)
        progress = read_progress(connection, job.id)
    named = ", ".join(map(str, left[:RANGES_NAMED_MAX]))
    if len(left) > RANGES_NAMED_MAX:
        named += f" and {len(left) - RANGES_NAMED_MAX:,} more"
    return JobError(
        "Spark could not finish ranges of the job: other workers took each of them over",
        job=job.id,
        left=f"{len(left):,} of {progress.ranges:,}",
        ranges=named,
        hint="end other runs of this job, or wait for them, and run it again; it continues where "
        "it stopped",
    )


def _run_open_ranges(
    spark: SparkSession, storage: Storage, job: Job, numbers: list[int], batch_records_max: int
) -> list[TaskReport]:
    tasks = _count_tasks(spark, storage, job, len(numbers))
    are_few = len(numbers) < tasks
    task = RangeTask(storage.engine.full_address(), job.id, batch_records_max, are_few)
    try:
        found = spark.sparkContext.parallelize(numbers, tasks).mapPartitions(task).collect()
    except Exception as error:  # any error of Spark for a task that failed
        cause = _last_line(str(error))
        raise JobError(
            "Spark gave up on the job",
            job=job.id,
            cause=cause,
            hint=PACKAGE_HINT if MISSING_PACKAGE in cause else AGAIN_HINT,
        ) from error
    reports = list[TaskReport]()
    for one in found:
        if not isinstance(one, TaskReport):
            raise one
        reports.append(one)
    return reports


def _count_tasks(spark: SparkSession, storage: Storage, job: Job, ranges: int) -> int:
    """Return the number of tasks: several per core, so that an idle executor takes the next one,
    but fewer than one per range, because starting a task takes about as long as a quarter of a
    range. Where ranges are fewer than cores, one task for each core: those without a range take the
    rest of another's, if there are records enough."""
    if storage.dialect.name == "sqlite":
        return 1  # it has room for one writer
    cores = spark.sparkContext.defaultParallelism
    if ranges < cores and job.records >= 2 * SPLIT_RECORDS_MIN:
        return cores
    return min(ranges, cores * TASKS_PER_CORE)


def _last_line(text: str) -> str:
    """Return the line of a long Spark error that has the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and not line.startswith("at ")]
    return (telling or lines or [""])[-1][:300]
