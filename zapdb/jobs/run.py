"""Finding what is to be done, and doing it: jobs are planned, run by a runner, and finished.

A runner takes a planned job and calls `run_range` until no range is open. The local one uses
threads of this process; the one in `zapdb.spark` uses executors. Planning and finishing are the
same for both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from zapdb.catalog import TableState, View, load_view
from zapdb.catalog.activation import publish_index
from zapdb.catalog.forget import Revert
from zapdb.catalog.leases import Owner
from zapdb.errors import JobError, LeaseLost
from zapdb.jobs.archives import sweep_archives
from zapdb.jobs.job import (
    Job,
    JobKind,
    Progress,
    list_jobs,
    open_ranges,
    plan,
    read_job,
    read_progress,
    reopen,
    set_state,
)
from zapdb.jobs.tasks import ConvertWork, IndexWork, Superseded, Work, load_work, run_range
from zapdb.limits import BATCH_RECORDS_MAX
from zapdb.migrations.chain import digest_chain
from zapdb.records import encode_prefix
from zapdb.storage import Mode, RecordTable, Storage
from zapdb.storage.physical import activation_sql

Runner = Callable[[Storage, Job], None]
"""Works on a job's open ranges until none is left, or the job is superseded."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """A job that was run to its end."""

    job: Job
    progress: Progress
    seconds: float

    @property
    def rate(self) -> float:
        """Records written per second."""
        return self.progress.written / self.seconds if self.seconds else 0.0


def plan_jobs(
    storage: Storage, tenant: int, kinds: Collection[JobKind] = ("index", "convert")
) -> list[Job]:
    """Plan whatever the tenant's tables need now; returns the jobs of `kinds` that are not done.

    First the indexes, since queries wait for them, then the conversions.
    """
    while True:
        with storage.transaction(Mode.READ) as connection:
            view = load_view(connection, tenant)
        if view.forgetting is not None:
            return []
        wanted = _wanted_jobs(view)
        if _supersede_all_but(storage, view, {job.id for job in wanted}):
            planned = [plan(storage, job) for job in wanted if job.kind in kinds]
            return [job for job in planned if job.state == "planned"]


def _wanted_jobs(view: View) -> list[Job]:
    wanted = [
        _new_job(view, state, "index", index.physical, view.position, index.datasets)
        for state in view.tables.values()
        for index in state.indexes
        if index.phase == "write-only"
    ]
    wanted += [
        _new_job(
            view, state, "convert", state.layout_revision, state.origins[state.layout_revision], {}
        )
        for state in view.tables.values()
        if state.layout_revision > min(state.layouts)
    ]
    return wanted


def _supersede_all_but(storage: Storage, view: View, wanted: set[str]) -> bool:
    """Give up jobs that nothing in force wants.

    False, with nothing done, if the view is no longer what is in force: some of the jobs may have
    been planned by a process that knows better.
    """
    with storage.transaction(Mode.CATALOG) as connection:
        unwanted = [
            job
            for job in list_jobs(connection)
            if job.tenant == view.tenant and job.state == "planned" and job.id not in wanted
        ]
        (activation,) = connection.fetch_one(activation_sql(view.tenant))
        if activation != view.activation:
            return False
        for job in unwanted:
            set_state(connection, job, "superseded")
    return True


def plan_revert(storage: Storage, view: View, revert: Revert) -> Job:
    """The job that takes a table's records back, of the forget that is under way."""
    return plan(
        storage, _new_job(view, revert.state, "revert", revert.revision or 0, view.position, {})
    )


def _new_job(
    view: View,
    state: TableState,
    kind: JobKind,
    target: int,
    position: int,
    datasets: dict[str, str],
) -> Job:
    # The chain is part of the name: after a forget and another migration, the same revision may
    # be wanted again by way of other changes.
    chain = digest_chain(view.chain, position)
    job_id = f"{kind}/{view.tenant}/{state.table.number}/{target}/{chain[:12]}"
    return Job(
        job_id,
        kind,
        view.tenant,
        state.table.number,
        state.table.name,
        target,
        position,
        chain,
        datasets,
        "planned",
        0,
        0,
    )


def run_job(storage: Storage, job: Job, runner: Runner) -> JobReport | None:
    """Run a planned job to its end; None if it was superseded meanwhile."""
    started = time.perf_counter()
    for _ in range(2):
        try:
            runner(storage, job)
            finished = _finish(storage, job)
        except Superseded:
            finished = _is_done(storage, job)
            if not finished:
                return None
        if finished:
            with storage.transaction(Mode.READ) as connection:
                progress = read_progress(connection, job.id)
            return JobReport(job, progress, time.perf_counter() - started)
    raise JobError(
        "an index and its records do not match after it was built twice",
        job=job.id,
        table=job.table_name,
        hint="run `zapdb verify`, and report this: it should not be possible",
    )


def _is_done(storage: Storage, job: Job) -> bool:
    """Whether a twin finished the job; otherwise nobody wants it any more, and that is noted."""
    with storage.transaction(Mode.CATALOG) as connection:
        known = read_job(connection, job.id, lock=True)
        if known.state == "planned":
            set_state(connection, known, "superseded")
        return known.state == "done"


def _finish(storage: Storage, job: Job) -> bool:
    """Count before the result is relied upon; false if the ranges had to be opened again."""
    work = load_work(storage, job.id)
    with storage.transaction(Mode.READ) as connection:
        if open_ranges(connection, job.id):
            raise JobError(
                "a runner stopped before its job was done",
                job=job.id,
                hint="run it again: it goes on where it stopped",
            )
        complete = _is_complete(storage, work)
    if not complete:
        with storage.transaction(Mode.CATALOG) as connection:
            reopen(connection, job.id)
        return False
    if isinstance(work, IndexWork):
        _publish(storage, work)
    with storage.transaction(Mode.CATALOG) as connection:
        set_state(connection, job, "done")
    if job.kind == "convert":
        sweep_archives(storage, job.tenant)
    return True


def _is_complete(storage: Storage, work: Work) -> bool:
    connection = storage.connection()
    records = work.records
    if isinstance(work, IndexWork):
        assert work.index is not None
        (entries,) = connection.fetch_one(work.index.entries.count_sql)
        (count,) = connection.fetch_one(records.count_sql)
        return bool(entries == count)
    if isinstance(work, ConvertWork):
        (stale,) = connection.fetch_one(
            f"{records.count_sql} AND value < {storage.mark}", (encode_prefix(work.job.target),)
        )
        return not stale
    return True  # a forget counts for itself, under the gate


def _publish(storage: Storage, work: IndexWork) -> None:
    """The counted snapshot is enough: since the build began, every writer keeps the index."""
    with storage.transaction(Mode.CHANGE) as connection:
        view = load_view(connection, work.job.tenant, work.view)
        for state in view.tables.values():
            for index in state.indexes:
                if index.physical == work.job.target:
                    if index.phase == "write-only":  # else a twin was faster
                        publish_index(connection, view.tenant, state.table, index)
                    return
    raise Superseded


def run_locally(
    storage: Storage,
    job: Job,
    *,
    workers: int | None = None,
    batch_records_max: int = BATCH_RECORDS_MAX,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """The local runner: threads of this process; SQLite has room for one writer only."""
    count = workers or (1 if storage.dialect == "sqlite" else os.cpu_count() or 1)
    owner = Owner.here()

    def run_ranges() -> None:
        try:
            work = load_work(storage, job.id)
            while not should_stop():
                try:
                    result = run_range(storage, work, owner, batch_records_max=batch_records_max)
                except LeaseLost:
                    continue  # another worker goes on with that range
                if result is None:
                    return
        finally:
            if count > 1:
                storage.release_connection()

    if count == 1:
        run_ranges()
    else:
        with ThreadPoolExecutor(count, thread_name_prefix="zapdb-job") as pool:
            for future in [pool.submit(run_ranges) for _ in range(count)]:
                future.result()
    _wait_for_others(storage, job, batch_records_max, should_stop)


def _wait_for_others(
    storage: Storage, job: Job, batch_records_max: int, should_stop: Callable[[], bool]
) -> None:
    """Ranges that other live processes hold are theirs; wait until they are done or given up."""
    owner = Owner.here()
    while not should_stop():
        with storage.transaction(Mode.READ) as connection:
            if not open_ranges(connection, job.id):
                return
        work = load_work(storage, job.id)
        try:
            if run_range(storage, work, owner, batch_records_max=batch_records_max) is None:
                time.sleep(0.2)
        except LeaseLost:
            continue


def count_stale(storage: Storage, view: View, state: TableState) -> int:
    """How many records of a table have an older layout."""
    records = RecordTable(storage, state.table.number, view.tenant)
    (count,) = storage.connection().fetch_one(
        f"{records.count_sql} AND value < {storage.mark}", (encode_prefix(state.layout_revision),)
    )
    return int(count)
