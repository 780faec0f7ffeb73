"""The jobs of `import`, `export` and `mirror run`: what they wait for is told, what they have done
is counted, and Spark is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Annotated, Final

import typer

from zapdb.catalog.row_kinds import JobKind
from zapdb.catalog.tenants import find_tenant
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.engine import EngineName
from zapdb.cli.output import format_duration, print_note
from zapdb.cli.progress_counter import ProgressCounter, RateMeter
from zapdb.errors import StorageError, UsageError
from zapdb.jobs.exclusive import (
    ExclusiveJob,
    ExclusiveWork,
    JobReporter,
    SilentReporter,
    working_on,
)
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


@dataclass(frozen=True, slots=True)
class CommandJob:
    """The job of a command: its kind and subject, where, and the number and name of its table."""

    kind: JobKind
    subject: str
    options: DatabaseOptions
    table: tuple[int, str] = (0, "")
    is_resumable: bool = True

    @contextmanager
    def work(self) -> Iterator[ExclusiveJob]:
        """Work on the job in the block, by a connection of its own."""
        with self.options.connected() as storage:
            with storage.transaction(TransactionMode.READ) as connection:
                number = find_tenant(connection, self.options.tenant_name).number
            about = ExclusiveWork(
                self.kind, number, self.subject, *self.table, is_resumable=self.is_resumable
            )
            with working_on(storage, about, tell_wait) as job:
                yield job


class JobCounter(ProgressCounter):
    """Counts records for people, with a job, which may wait meanwhile, or end the command."""

    def __init__(self, job: CommandJob) -> None:
        super().__init__(JOB_TYPES[job.kind].counts)
        self._about = job
        self._job: ExclusiveJob | None = None
        self._is_begun = False
        self._stack = ExitStack()
        self._meter = RateMeter()

    def __enter__(self) -> JobCounter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        super().__exit__()
        self._stack.__exit__(kind, error, trace)
        if kind is KeyboardInterrupt and self._about.kind == "import" and self._about.is_resumable:
            print_note("nothing is lost: the same command goes on where this stopped")

    def begin(self) -> None:
        """Work on the job from now on, instead of from the first count on; waits while it is held
        back.

        What only reads goes on without a job in a database that can't be written.
        """
        self._is_begun = True
        try:
            self._job = self._stack.enter_context(self._about.work())
        except StorageError as error:
            if self._about.kind != "export":
                raise
            print_note(f"this export is not among the jobs of the database: {error.message}")

    def _describe(self, now: float) -> str:
        rate, left = self._meter.measure(now, self.count), self.pace.left
        if left is None or not rate:
            return ""
        return f" of about {self.count + left:,}, ETA {format_duration(left / rate)}"

    @property
    def pace(self) -> JobReporter:
        """What the work asks and tells between its batches."""
        if not self._is_begun:
            self.begin()
        return self._job or SilentReporter()


def tell_wait(reason: str) -> None:
    """Say why a job waits."""
    print_note(f"waiting: {reason}")


def place_of(path: str | os.PathLike[str]) -> str:
    """What a file is called in the table of jobs, wherever the command runs."""
    return os.path.realpath(path)
