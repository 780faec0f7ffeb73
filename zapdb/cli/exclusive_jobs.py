"""The jobs of `import`, `export` and `mirror run`: what they wait for is told, what they have done
is counted, and Spark is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Final

import typer

from zapdb.catalog.row_kinds import JobKind
from zapdb.catalog.tenants import find_tenant
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.job_engine import EngineName
from zapdb.cli.output import format_duration, print_note
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.control.job_runs import RateMeter
from zapdb.errors import StorageError, UsageError
from zapdb.jobs.exclusive import ExclusiveWork, ProgressReporter, working_on
from zapdb.jobs.job_types import JOB_TYPES
from zapdb.storage import TransactionMode

OnlyLocalOption = Annotated[
    EngineName, typer.Option("--engine", help="Only local: this process does the work.")
]

ELSEWHERE: Final[dict[JobKind, str]] = {
    "import": 'write a frame with Spark: frame.write.format("zapdb").option("table", …).save()',
    "export": 'read with Spark, and write what you like: spark.read.format("zapdb")',
    "mirror": "leave it out: a mirror applies one log in its order, which is the work of one "
    "process; a stream of Spark can follow the changes, too",
}


def refuse_spark(kind: JobKind, engine: EngineName) -> None:
    """Raise `UsageError`: one process does the work of an exclusive job."""
    if engine == "spark":
        command = JOB_TYPES[kind].command
        raise UsageError(f"`{command}` does not run on Spark", hint=ELSEWHERE[kind])


class JobCounter(ProgressCounter):
    """Counts records for people, and says how long the rest takes, as far as the job knows."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.job = ProgressReporter()
        """What the work asks and tells between its batches."""
        self._meter = RateMeter()

    def _describe(self, now: float) -> str:
        rate, left = self._meter.measure(now, self.count), self.job.left
        if left is None or not rate:
            return ""
        return f" of about {self.count + left:,}, ETA {format_duration(left / rate)}"


@contextmanager
def counted_job(
    options: DatabaseOptions,
    kind: JobKind,
    subject: str,
    table: tuple[int, str] = (0, ""),
    *,
    is_resumable: bool = True,
) -> Iterator[JobCounter]:
    """Work on the job of a command in the block, by a connection of its own; waits while it is held
    back.

    What only reads goes on without a job in a database that can't be written.
    """
    try:
        with ExitStack() as stack, JobCounter(JOB_TYPES[kind].counts) as counter:
            try:
                storage = stack.enter_context(options.connected())
                with storage.transaction(TransactionMode.READ) as connection:
                    number = find_tenant(connection, options.tenant_name).number
                about = ExclusiveWork(kind, number, subject, *table, is_resumable=is_resumable)
                counter.job = stack.enter_context(working_on(storage, about, tell_wait))
            except StorageError as error:
                if kind != "export":
                    raise
                print_note(f"this export is not among the jobs of the database: {error.message}")
            yield counter
    except KeyboardInterrupt:
        if kind == "import" and is_resumable:
            print_note("nothing is lost: the same command goes on where this stopped")
        raise


def tell_wait(reason: str) -> None:
    """Say why a job waits."""
    print_note(f"waiting: {reason}")


def place_of(path: str | os.PathLike[str]) -> str:
    """What a file is called in the table of jobs, wherever the command runs."""
    return os.path.realpath(path)
