"""The jobs of an open database, under an operator's hand: `db.jobs`."""

from __future__ import annotations

from collections.abc import Sequence

from zapdb.catalog.row_kinds import Job, JobKind, JobState, JobThrottle
from zapdb.jobs.control import (
    cancel_job,
    find_job,
    pause_job,
    resume_job,
    set_job_priority,
    throttle_job,
)
from zapdb.jobs.job import list_jobs
from zapdb.jobs.job_status import JobStatus, read_job_status
from zapdb.jobs.window import parse_window
from zapdb.tables.did_you_mean import Facet
from zapdb.tables.session import Session


class DatabaseJobs(Facet):
    """The jobs of an open database, for its tenant: conversions, index builds, validations,
    verifications, repairs, imports, exports and mirrors, of all processes.

    `db.jobs` returns it. A job is named by its id, or by the beginning of it, such as `convert`.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._storage = session.storage

    def __repr__(self) -> str:
        return f"<jobs of {self._storage.shown_url}>"

    def list(self, *, kind: JobKind | None = None, state: JobState | None = None) -> Sequence[Job]:
        """Return the jobs of this tenant as a list, in any state; or those of a kind, or a state.

        Those that are done are among them until the next one of their kind, or the next migration.
        """
        with self._session.reading() as connection:
            return [
                job
                for job in list_jobs(connection, self._tenant)
                if kind in (None, job.kind) and state in (None, job.state)
            ]

    def get(self, job: str) -> JobStatus:
        """Return how far a job is, who works on it, and what it waits for.

        Raises `UnknownName`, and `UsageError` if several jobs begin so; so do the methods below.
        """
        return read_job_status(self._storage, self._tenant, job)

    def pause(self, job: str) -> Job:
        """Stop all workers of a job after their present batches, until it is resumed."""
        return pause_job(self._storage, self._find(job))

    def resume(self, job: str) -> Job:
        """Let workers go on with a paused job where it stopped.

        Background jobs, and processes that wait in an import, export or mirror, do so by
        themselves; other jobs wait for `db.admin.run_jobs`.
        """
        return resume_job(self._storage, self._find(job))

    def cancel(self, job: str) -> Job:
        """Stop all workers of a job at once; what is done stays done.

        If its target is still needed, `db.admin.run_jobs` plans it again.
        """
        return cancel_job(self._storage, self._find(job))

    def set_priority(self, job: str, priority: int) -> Job:
        """Change the priority of a job, 0 to 1,000: jobs with a higher one run first."""
        return set_job_priority(self._storage, self._find(job), priority)

    def throttle(
        self,
        job: str,
        *,
        records_per_second: int | None = None,
        bytes_per_second: int | None = None,
        max_latency_ms: int | None = None,
        window: str | None = None,
        zone: str = "UTC",
    ) -> Job:
        """Bound how fast all workers of a job together read, and when; None removes a bound.

        `max_latency_ms` is a ceiling: the workers measure how long a small query takes beside the
        job, and slow down above it. `window` is a time of each day such as `22:00-06:00`, in a time
        zone. Takes effect within a batch. The settings `job_records_per_second` and
        `job_max_latency_ms` hold for a job that has no such bound.
        """
        daily = None if window is None else parse_window(window, zone)
        throttle = JobThrottle(records_per_second, bytes_per_second, daily, max_latency_ms)
        return throttle_job(self._storage, self._find(job), throttle)

    def _find(self, job: str) -> str:
        self._storage.require_writable()
        with self._session.reading() as connection:
            return find_job(connection, self._tenant, job).id

    @property
    def _tenant(self) -> int:
        return self._session.catalog.tenant
