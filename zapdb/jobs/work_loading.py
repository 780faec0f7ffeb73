"""The work of a job as this process would do it, and whether that is what was planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog
from zapdb.catalog.cluster.level import check_level
from zapdb.catalog.row_kinds import Job, JobKind
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.datasets import dataset_of
from zapdb.errors import ExecutorMismatch
from zapdb.jobs.building import open_index_work
from zapdb.jobs.converting import ConvertWork
from zapdb.jobs.job import read_job
from zapdb.jobs.validation import ValidateWork
from zapdb.jobs.verification_jobs import VerifyWork
from zapdb.jobs.work import HeldBack, Superseded, Work, load_job_catalog
from zapdb.storage import Storage, TransactionMode

WORK: Final[dict[JobKind, Callable[[Storage, TenantCatalog, Job], Work]]] = {
    "convert": ConvertWork,
    "index": open_index_work,
    "validate": ValidateWork,
    "verify": VerifyWork,
}
"""What ranges of keys are worked on with; an exclusive job is the work of its command."""


def load_work(storage: Storage, job_id: str) -> Work:
    """The job's work in this process; raises `ExecutorMismatch` where it would do something
    else."""
    with storage.transaction(TransactionMode.READ) as connection:
        check_level(connection)
        job = read_job(connection, job_id)
        catalog = load_job_catalog(connection, job.tenant)
    return make_work(storage, catalog, job)


def make_work(storage: Storage, catalog: TenantCatalog, job: Job) -> Work:
    """The work of a planned job; raises `HeldBack` and `Superseded` for any other one."""
    if job.state in ("paused", "cancelled"):
        raise HeldBack
    if job.state != "planned":
        raise Superseded
    work = WORK[job.kind](storage, catalog, job)
    if not catalog.is_behind(ChainPlace(job.position, job.migration)):
        raise ExecutorMismatch(
            "this process has another chain than the job was planned with",
            job=job.id,
            position=catalog.position,
            planned=job.position,
            hint="run the job again, which plans it again",
        )
    descriptor = catalog.find_numbered(job.table)
    if descriptor is not None:
        _check_datasets(descriptor, job)
    return work


def _check_datasets(descriptor: TableDescriptor, job: Job) -> None:
    for index in descriptor.schema.indexes:
        for dependency in descriptor.schema.datasets_of(index):
            expected = job.datasets.get(dependency.dataset)
            if expected is None:
                continue
            found = dataset_of(dependency)
            if found.fingerprint != expected:
                raise ExecutorMismatch(
                    "this process has other collation or time zone data than the job's "
                    "index was built with",
                    dataset=found.name,
                    version=found.version,
                    fingerprint=found.fingerprint,
                    expected=expected,
                    hint="install the same ICU and time zone data on every machine that runs jobs",
                )
