"""Whether what is known of key ranges is true of their records: somebody may have written to the
database beside zapdb, as when a record was restored from a backup."""

from __future__ import annotations

from zapdb.activation import TableDescriptor, load_tenant_catalog
from zapdb.catalog.range_revisions import (
    RangeRevision,
    forget_range_revisions,
    read_range_revisions,
)
from zapdb.jobs.job import list_jobs, set_state
from zapdb.records import encode_prefix
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.storage.statements import in_range


def list_range_revisions(
    connection: Connection, tenant: int, descriptor: TableDescriptor
) -> list[RangeRevision]:
    """What is known of all keys of a table, in their order; neighbours differ in their revisions.

    Where nothing is noted, records may have the first revision of the schema history.
    """
    first = min(descriptor.layouts)
    return read_range_revisions(connection, tenant, descriptor.schema.number, first)


def find_wrong_ranges(
    connection: Connection, tenant: int, descriptor: TableDescriptor
) -> list[tuple[RangeRevision, int]]:
    """The ranges of a table with records of lower revisions than is known, and how many."""
    records = RecordStatements(connection.storage, descriptor.schema.number, tenant)
    mark, found = connection.storage.placeholder, []
    for known in list_range_revisions(connection, tenant, descriptor):
        if known.revision == min(descriptor.layouts):
            continue
        condition, parameters = in_range(mark, known.lower, known.upper)
        (count,) = connection.fetch_one(
            f"{records.count_sql} AND value < {mark}{condition}",
            [encode_prefix(known.revision), *parameters],
        )
        if count:
            found.append((known, int(count)))
    return found


def forget_wrong_ranges(storage: Storage, tenant: int) -> list[str]:
    """Forget what is known of the tables of which some of it is wrong; returns their names.

    Their conversions are needed again, and look at all records.
    """
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
        wrong = [
            one.schema for one in catalog.all_tables if find_wrong_ranges(connection, tenant, one)
        ]
    for number in (table.number for table in wrong):
        with storage.transaction(TransactionMode.CATALOG) as connection:
            forget_range_revisions(connection, tenant, number)
            for job in list_jobs(connection, tenant):
                if (job.kind, job.table, job.state) == ("convert", number, "done"):
                    set_state(connection, job, "superseded")
    return [table.name for table in wrong]
