"""Verification as jobs: one for each table, in ranges like all others.

A batch is read in a snapshot of its own, which holds up nobody; then what was found is noted with
the progress. At the end the table is counted, and its schema history is checked. A job with
findings ends blocked. Records that can't be read are in its quarantine, too, by their keys.

Each verification is a job of its own, since what was right may be damaged later. One that was
interrupted goes on where it stopped. A new one takes the place of the one before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.catalog import rows
from zapdb.catalog.row_kinds import ConstraintFinding, Job
from zapdb.jobs.findings import add_findings, merge_findings, read_findings
from zapdb.jobs.job import delete_job, plan_job, release_ranges, supersede_job
from zapdb.jobs.job_types import JOB_TYPES
from zapdb.jobs.quarantine import put_in_quarantine
from zapdb.jobs.record_checks import (
    ActiveChecks,
    Problems,
    RecordChecks,
    list_archived_tables,
    open_checks,
)
from zapdb.jobs.work import Findings, Superseded, Work
from zapdb.schema import TableSchema
from zapdb.storage import Connection, OfHeld, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.storage.data_tables import list_record_tables


class VerifyWork(Work):
    """Check every record of a table, with its entries, constraints, blobs and archived values."""

    only_reads = True

    def __init__(self, storage: Storage, catalog: TenantCatalog, job: Job) -> None:
        super().__init__(storage, catalog, job)
        checks = open_checks(storage, catalog, job.table)
        if checks is None or catalog.position < job.position:
            raise Superseded
        self.checks: RecordChecks = checks

    @property
    def condition(self) -> tuple[str, list[Any]]:
        return "1 = 1", []

    def count_left(self, connection: Connection) -> int:
        """What can't be read is among the findings."""
        return 0

    def finish(self) -> Findings:
        """What was found, and what the table as a whole shows."""
        with self.storage.transaction(TransactionMode.READ) as connection:
            catalog = load_tenant_catalog(connection, self.job.tenant, self.catalog)
            checks = open_checks(self.storage, catalog, self.job.table)
            if checks is None:
                raise Superseded
            return find_in_table(connection, checks, read_findings(connection, self.job.id))

    def fetch(
        self,
        connection: Connection,
        lower: bytes | None,
        upper: bytes | None,
        limit: int,
        *,
        of_held: OfHeld,
    ) -> list[tuple[bytes, bytes]]:
        """Nothing is locked."""
        condition, parameters = self.range_condition(lower, upper)
        found = connection.fetch_all(
            f"SELECT key, value FROM {self.records.name} WHERE {condition}"
            f" ORDER BY key LIMIT {int(limit)}",
            parameters,
        )
        return [(as_bytes(key), as_bytes(value)) for key, value in found]

    def try_to_read(self, connection: Connection, place: bytes, value: bytes) -> None:
        """What can't be read is found, and raises nothing."""

    def write(self, connection: Connection, batch: list[tuple[bytes, bytes]], number: int) -> int:
        self.examine(connection, batch)(connection, number)
        return 0

    def examine(
        self, connection: Connection, batch: list[tuple[bytes, bytes]]
    ) -> Callable[[Connection, int], None]:
        return partial(self._note, self.checks.check_page(connection, batch))

    def _note(self, found: Problems, connection: Connection, number: int) -> None:
        if not found:
            return
        add_findings(connection, self.job.id, number, to_findings(found))
        unreadable = {
            one.unreadable: one.text.removeprefix(self.checks.say(one.unreadable))
            for one in found
            if one.unreadable is not None
        }
        put_in_quarantine(connection, self.job.tenant, self.job.id, unreadable)


def find_in_table(connection: Connection, checks: RecordChecks, found: Findings) -> Findings:
    """What a table as a whole shows, and what was found in its records."""
    whole = to_findings(checks.check_table(connection, {one.what for one in found}))
    return merge_findings([*whole, *found])


def to_findings(problems: Problems) -> list[ConstraintFinding]:
    return [ConstraintFinding(one.what, 1, (one.text,)) for one in problems]


def plan_verification(storage: Storage, tenant: int, *, anew: bool = False) -> list[Job]:
    """The jobs that verify all tables of a tenant, dropped ones with archived records too.

    Those that are not at their end go on, unless `anew`; those before are deleted.
    """
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
        known = rows.list_rows(connection, Job, "verify", tenant)
        tables = list_tables_with_records(connection, catalog)
    goes_on = {one.table: one for one in known if one.state in ("planned", "paused") and not anew}
    _forget(storage, [one for one in known if one not in goes_on.values()])
    return [
        goes_on.get(one.number) or plan_job(storage, _new_job(storage, catalog, one))
        for one in tables
    ]


def list_tables_with_records(connection: Connection, catalog: TenantCatalog) -> list[TableSchema]:
    """The active tables of a tenant, and the dropped ones with archived records."""
    present = set(list_record_tables(connection))
    tables = [descriptor.schema for descriptor in catalog.all_tables]
    return tables + [one for one in list_archived_tables(catalog) if one.number in present]


def _new_job(storage: Storage, catalog: TenantCatalog, table: TableSchema) -> Job:
    return Job(
        f"verify/{catalog.tenant}/{table.number}/{uuid4().hex[:12]}",
        "verify",
        catalog.tenant,
        table.number,
        table.name,
        target=0,
        position=catalog.position,
        migration=catalog.migration,
        datasets=_datasets_of(storage, catalog, table),
        state="planned",
        records=0,
        created_at=0,
        priority=JOB_TYPES["verify"].priority,
    )


def _datasets_of(storage: Storage, catalog: TenantCatalog, table: TableSchema) -> dict[str, str]:
    """What the entries depend on that this process can check: every worker has to have the same."""
    checks = open_checks(storage, catalog, table.number)
    if not isinstance(checks, ActiveChecks):
        return {}
    return {
        name: dataset.fingerprint
        for index in checks.indexes
        for name, dataset in index.descriptor.built_with.items()
    }


def _forget(storage: Storage, jobs: list[Job]) -> None:
    """Delete verifications that are over; those that are being run end first, as superseded."""
    for job in jobs:
        with storage.transaction(TransactionMode.CATALOG) as connection:
            if job.state in ("planned", "paused"):
                supersede_job(connection, job)
                release_ranges(connection, job.id)
            else:
                delete_job(connection, job)
