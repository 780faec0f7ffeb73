"""Who does the work of a command's jobs: threads of this process, or executors of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import typer

from zapdb.cli.job_progress import stopping_on_interrupt
from zapdb.errors import MissingExtra, UsageError
from zapdb.jobs.job_run import Runner, run_locally
from zapdb.limits import JOB_WORKERS_MAX
from zapdb.storage import Storage

EngineName = Literal["local", "spark"]


@dataclass(frozen=True, slots=True)
class Engine:
    """What a command says about who does its work."""

    name: Annotated[
        EngineName,
        typer.Option(
            "--engine", help="Run in threads of this process, or on executors of Apache Spark."
        ),
    ] = "local"
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            max=JOB_WORKERS_MAX,
            help="Number of threads; by default one per processor, and one on SQLite, which "
            "has a single writer.",
        ),
    ] = None
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="URL of Spark's master; local[*] by default."),
    ] = None

    @contextmanager
    def runner(self) -> Iterator[Runner]:
        """The runner of jobs; Ctrl-C in the block also ends threads. Raises `UsageError`."""
        self.require_valid()
        if self.name == "local":
            with stopping_on_interrupt() as should_stop:
                yield partial(run_locally, workers=self.workers, should_stop=should_stop)
            return
        run_on_spark = _import_spark()
        yield run_on_spark if self.master is None else partial(run_on_spark, master=self.master)

    def prepare(self, storage: Storage) -> None:
        """Start Spark now, if it is the engine; raises what keeps it from working with a database.

        For what should not be begun if the engine can't finish it.
        """
        if self.name == "spark":
            from zapdb.spark import start_session_for

            start_session_for(storage, self.master)

    def require_valid(self) -> None:
        """Raise `UsageError` for options that do not go together, or `MissingExtra`."""
        if self.name == "local":
            if self.master is not None:
                raise UsageError("--master needs Spark", hint="add --engine spark")
            return
        if self.workers is not None:
            raise UsageError(
                "--workers sets the threads of this process, which Spark does not use",
                hint=f"use --master 'local[{self.workers}]'",
            )
        _import_spark()


def _import_spark() -> Any:
    try:
        from zapdb.spark import run_on_spark
    except ModuleNotFoundError as missing:
        raise MissingExtra.named(
            "spark", (missing.name or "pyspark").partition(".")[0]
        ) from missing
    return run_on_spark
