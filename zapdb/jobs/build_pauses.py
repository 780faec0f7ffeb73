"""Time between two builds of indexes that queries wait for.

Such an index was in use until its collation or time zone data changed, and queries scan, or wait
for locks, until it is there again. Once it is, those that waited all come at once: so the next
build, which reads a whole table, begins a little later. Other jobs are less urgent, and have no
such pause.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from zapdb.catalog.row_kinds import Job
from zapdb.jobs.job_planning import REBUILT_PRIORITY
from zapdb.jobs.throttle import wait
from zapdb.limits import BUILD_PAUSE_SECONDS_MAX, BUILD_PAUSE_SHARE


class FinishedRun(Protocol):
    """A job as it ended, and how long it was run."""

    @property
    def job(self) -> Job: ...

    @property
    def seconds(self) -> float: ...


class BuildPauses:
    """The pauses of one who runs jobs one after the other."""

    def __init__(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        self._should_stop = should_stop
        self._seconds = 0.0

    def wait_before(self, job: Job) -> None:
        """Wait if the job builds an index that queries wait for, and so did the last one."""
        if self._seconds and _is_waited_for(job):
            wait(self._seconds, self._should_stop)

    def note(self, run: FinishedRun | None) -> None:
        """Take in how the job ended: a part of its time is what queries get."""
        self._seconds = 0.0
        if run is not None and run.job.state == "done" and _is_waited_for(run.job):
            self._seconds = min(run.seconds * BUILD_PAUSE_SHARE, BUILD_PAUSE_SECONDS_MAX)


def _is_waited_for(job: Job) -> bool:
    return job.kind == "index" and job.priority >= REBUILT_PRIORITY
