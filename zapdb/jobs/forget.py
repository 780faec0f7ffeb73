"""Forgetting the newest migration, from its mark to its publication (rule 13)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from zapdb.catalog import leases
from zapdb.catalog.forget import mark, publish
from zapdb.catalog.leases import Lease, Owner
from zapdb.catalog.retirement import sweep
from zapdb.catalog.up import CHAIN_LEASE
from zapdb.errors import ZapdbError
from zapdb.jobs.archives import sweep_archives
from zapdb.jobs.run import JobReport, Runner, plan_revert, run_job, run_locally
from zapdb.limits import CHAIN_LEASE_SECONDS
from zapdb.storage import Mode, Storage


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A migration that is out of force, and the jobs that took its records back."""

    number: int
    label: str
    jobs: tuple[JobReport, ...]


def forget_newest(
    storage: Storage,
    tenant: int,
    *,
    digest: str | None = None,
    evict: bool = False,
    runner: Runner = run_locally,
) -> Forgotten:
    """Take the newest stored migration out of force; resumes one that was interrupted.

    With a `digest`, it must be the newest migration's: what somebody agreed to, and no other.
    Raises `UsageError` while live processes use the migration, unless `evict`.
    """
    owner = Owner.here()
    with leases.held(storage, CHAIN_LEASE, owner, CHAIN_LEASE_SECONDS, 0) as lease:
        marked = mark(storage, tenant, lease, digest=digest, evict=evict)
        with _renewed(storage, lease):
            reports = []
            for revert in marked.reverts:
                job = plan_revert(storage, marked.view, revert)
                if job.state == "planned":
                    report = run_job(storage, job, runner)
                    if report is not None:
                        reports.append(report)
        sweep(storage)  # what the migration discarded is gone before its table comes back
        publish(storage, tenant, lease, marked)
    sweep(storage)
    sweep_archives(storage, tenant)
    return Forgotten(marked.migration.number, marked.migration.label, tuple(reports))


@contextmanager
def _renewed(storage: Storage, lease: Lease) -> Iterator[None]:
    """Renew the lease from a thread while a long step runs."""
    stop = threading.Event()

    def run() -> None:
        try:
            while not stop.wait(CHAIN_LEASE_SECONDS / 3):
                with storage.transaction(Mode.CATALOG) as connection:
                    leases.renew(connection, lease, CHAIN_LEASE_SECONDS)
        except ZapdbError:
            return  # the epoch check at the end says what became of it
        finally:
            storage.release_connection()

    thread = threading.Thread(target=run, name="zapdb-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
