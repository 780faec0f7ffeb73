"""The work of a job as this process would do it, and whether that is what was planned."""

from __future__ import annotations

from collections.abc import Callable

from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog
from zapdb.catalog.kinds import Job
from zapdb.cluster.level import check_level
from zapdb.datasets import dataset_of
from zapdb.errors import ExecutorMismatch
from zapdb.jobs.building import open_index_work
from zapdb.jobs.converting import ConvertWork, RollbackWork
from zapdb.jobs.job import read_job
from zapdb.jobs.known_catalog import load_job_catalog
from zapdb.jobs.validation import ValidateWork
from zapdb.jobs.verifying import VerifyWork
from zapdb.jobs.work import HeldBack, Superseded, Work
from zapdb.migrations.chain import digest_chain
from zapdb.storage import Storage, TransactionMode

WORK: dict[str, Callable[[Storage, TenantCatalog, TableDescriptor, Job], Work]] = {
    "convert": ConvertWork,
    "index": open_index_work,
    "roll_back": RollbackWork,
    "validate": ValidateWork,
}
"""By kind, the work on an active table."""


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
    descriptor = next((s for s in catalog.tables.values() if s.schema.number == job.table), None)
    if job.state in ("paused", "cancelled"):
        raise HeldBack
    if job.state != "planned":
        raise Superseded
    work: Work
    if job.kind == "verify":
        work = VerifyWork(storage, catalog, job)
    elif descriptor is None:
        raise Superseded
    else:
        work = WORK[job.kind](storage, catalog, descriptor, job)
    digest = digest_chain(catalog.chain, job.position)
    if digest != job.chain:
        raise ExecutorMismatch(
            "this process has another chain than the job was planned with",
            job=job.id,
            chain=digest,
            planned=job.chain,
            hint="run the job again, which plans it again",
        )
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
