"""Verification of a tenant: every record decodes, and every index holds exactly the entries of its
records.

Every stored migration can be activated and rolled back, and the rows from which the active schema
is loaded are what the migrations make.

Every record satisfies the validated checks and references.

Every entry of the schema history has the fingerprint of its table schema, and the table schema that
the migrations lead to; entries of dropped tables, too.

Every blob that a record or an archived value refers to exists and has the size that is said there,
and its chunks are the bytes that were written. Blobs that no record owns are no problem: the sweep
deletes them.

No record has a lower revision than is noted of its range of keys.

With a runner, that is the work of jobs (`verifying`); without, one snapshot shows it all, and
nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.catalog.row_kinds import Job
from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.catalog.stored_migrations import pair_stored
from zapdb.catalog.stored_schemas import check_schemas
from zapdb.errors import CorruptionError, JobError
from zapdb.jobs.blob_sweep import count_blobs
from zapdb.jobs.findings import merge_findings
from zapdb.jobs.job import read_progress
from zapdb.jobs.job_run import JobReport, Runner, run_job
from zapdb.jobs.record_checks import check_history, count_entries, open_checks
from zapdb.jobs.verification_jobs import (
    find_in_table,
    list_tables_with_records,
    plan_verification,
    to_findings,
)
from zapdb.jobs.work import Findings
from zapdb.limits import PAGE_RECORDS_MAX, VIOLATIONS_SHOWN_MAX
from zapdb.records import group_by_revision
from zapdb.schema import TableSchema
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.storage.cells import as_bytes
from zapdb.tables.indexes import BoundTable


@dataclass(frozen=True, slots=True)
class TableReport:
    """The problems of one table; `problems` has the first ones, `problem_count` the number of all.

    There is one report for each active table, and one for each dropped table whose archived records
    or whose history have problems.
    """

    table: str
    records: int
    revisions: dict[int, int]
    entries: dict[str, int]
    building: tuple[str, ...]
    problem_count: int
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlobsReport:
    """How many blobs the database has, and how many of them no record owns."""

    blobs: int
    unowned: int


def verify_tenant(storage: Storage, tenant: int) -> list[TableReport]:
    """Check all tables of a tenant in one snapshot, in memory that does not grow with them."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
        check_migrations(connection, catalog)
        found = {
            table.number: _verify_table(connection, catalog, table)
            for table in list_tables_with_records(connection, catalog)
        }
        return _report(connection, catalog, found)


def check_migrations(connection: Connection, catalog: TenantCatalog) -> None:
    """Raise unless every stored migration can be activated and rolled back, and zapdb_schemas is
    what they make."""
    for migration in catalog.stored_chain.migrations:
        migration.check()
    check_schemas(connection, pair_stored(catalog.stored, catalog.stored_chain))


def _verify_table(connection: Connection, catalog: TenantCatalog, table: TableSchema) -> Findings:
    checks, found, after = open_checks(connection.storage, catalog, table.number), Findings(), b""
    assert checks is not None, "the table is one of the catalog's"
    while page := connection.fetch_all(checks.records.page_sql, (after, PAGE_RECORDS_MAX)):
        records = [(as_bytes(key), as_bytes(value)) for key, value in page]
        problems = checks.check_page(connection, records)
        found, after = merge_findings([*found, *to_findings(problems)]), records[-1][0]
    return find_in_table(connection, checks, found)


def _require_not_held(job: Job, report: JobReport | None) -> None:
    if report is not None and report.hold is not None:
        raise JobError(
            "the verification is held back",
            table=job.table_name,
            reason=str(report.hold),
            hint=f"`zapdb jobs show {job.id}` tells more; verify again when it may go on",
        )


def verify_by_jobs(
    storage: Storage,
    tenant: int,
    runner: Runner,
    *,
    anew: bool = False,
    on_begun: Callable[[Job], object] = lambda _: None,
    on_run: Callable[[Job, JobReport | None], object] = _require_not_held,
) -> list[TableReport]:
    """The same by jobs, which go on where they stopped unless `anew`; then `on_begun` is called
    with each that does.

    After each, `on_run` is called with its report, which is None if the table was dropped. Without
    it, raises `JobError` if an operator holds one of them back.
    """
    with storage.transaction(TransactionMode.READ) as connection:
        check_migrations(connection, load_tenant_catalog(connection, tenant))
    planned, found = plan_verification(storage, tenant, anew=anew), dict[int, Findings]()
    for job in planned:
        if read_progress(storage.connection(), job.id).read:
            on_begun(job)
    for job in planned:
        report = run_job(storage, job, runner)
        on_run(job, report)
        if report is not None:
            found[job.table] = report.job.findings
    with storage.transaction(TransactionMode.READ) as connection:
        return _report(connection, load_tenant_catalog(connection, tenant), found)


def _report(
    connection: Connection, catalog: TenantCatalog, found: dict[int, Findings]
) -> list[TableReport]:
    """A report for each active table, and for each dropped one with a problem."""
    reports = []
    for descriptor in catalog.all_tables:
        bound = BoundTable(connection.storage, catalog, descriptor)
        reports.append(_report_active(connection, bound, found.get(bound.schema.number, ())))
    active = {descriptor.schema.number for descriptor in catalog.all_tables}
    logs: dict[int, list[RevisionEntry]] = {}
    for entry in read_entries(connection, catalog.tenant):
        logs.setdefault(entry.table_number, []).append(entry)
    for number, log in logs.items():
        if number in active:
            continue
        problems = found.get(number)
        if problems is None:  # its records are not archived
            problems = merge_findings(to_findings(check_history(log, catalog)))
        if problems:
            reports.append(_report_dropped(connection, catalog, log, problems))
    return reports


def _report_active(connection: Connection, bound: BoundTable, found: Findings) -> TableReport:
    revisions = _count_by_revision(connection, bound.statements)
    return TableReport(
        bound.schema.name,
        sum(revisions.values()),
        revisions,
        {
            index.name: count_entries(connection, index)
            for index in bound.indexes
            if index.is_readable
        },
        tuple(index.name for index in bound.indexes if not index.is_readable),
        *_count_and_show(found),
    )


def _report_dropped(
    connection: Connection, catalog: TenantCatalog, log: list[RevisionEntry], found: Findings
) -> TableReport:
    number, revisions = log[-1].table_number, dict[int, int]()
    try:
        name = log[-1].schema.name
    except CorruptionError:
        name = f"(table {number})"
    if any(table.number == number for table in list_tables_with_records(connection, catalog)):
        records = RecordStatements(connection.storage, number, catalog.tenant)
        revisions = _count_by_revision(connection, records)
    counted = sum(revisions.values())
    return TableReport(name, counted, revisions, {}, (), *_count_and_show(found))


def _count_and_show(found: Findings) -> tuple[int, tuple[str, ...]]:
    shown = [text for one in found for text in one.examples]
    return sum(one.count for one in found), tuple(shown[:VIOLATIONS_SHOWN_MAX])


def _count_by_revision(connection: Connection, records: RecordStatements) -> dict[int, int]:
    return group_by_revision(records.count_by_prefix(connection))


def verify_blobs(storage: Storage) -> BlobsReport:
    """Count the blobs of all tenants; raises `CorruptRecord` where a record can't be read."""
    with storage.transaction(TransactionMode.READ) as connection:
        return BlobsReport(*count_blobs(connection))
