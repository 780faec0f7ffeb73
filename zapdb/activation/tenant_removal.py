"""Removing a tenant: its records, entries, archives, logs, and every other row with its number.

First the tenant is marked in the catalog, under the gate, so that no process works with it any
more. Its rows are then deleted in short transactions, table by table: in all tables with a column
`tenant`, which a query to the database finds. An interrupted removal is continued by the next call.
Blobs have no tenant: when no record owns them, the sweep deletes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from zapdb.catalog import DEFAULT_TENANT, rows
from zapdb.catalog.cluster.leases import delete_lease
from zapdb.catalog.retired_tables import drop_unused_record_tables, list_retired
from zapdb.catalog.row_kinds import (
    CatalogRow,
    ConstraintRow,
    FindingsRow,
    IndexRow,
    Job,
    SettingRow,
    Tenant,
    TenantNameRow,
)
from zapdb.catalog.tenants import find_tenant_row
from zapdb.errors import UnknownName, UsageError
from zapdb.limits import PAGE_RECORDS_MAX
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.data_tables import delete_of_tenant, list_tenant_tables
from zapdb.storage.fixed_tables import CATALOG_VERSIONS, SCHEMA_HISTORY
from zapdb.storage.statements import raise_catalog_version

PREFIXED: Final[tuple[type[CatalogRow], ...]] = (IndexRow, ConstraintRow, SettingRow)
"""Kinds of rows whose keys begin with the tenant's number."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A removed tenant, and the number of its rows in each table.

    `history_left` are directories with history files that were not deleted: another database may
    use them, of which this one is a copy.
    """

    tenant: Tenant
    rows: dict[str, int]
    history_left: tuple[str, ...] = ()


def remove_tenant(
    storage: Storage, name: str, delete_files: Callable[[int], tuple[str, ...]] = lambda tenant: ()
) -> Removed:
    """Erase a tenant and all its data; raises `UsageError` for the default one.

    `delete_files` is called with its number when nobody works with it any more, and before its rows
    are deleted; it returns the directories that it leaves. Continues a removal that was
    interrupted, or that another process is running. The process that finishes it returns, and the
    others raise `UnknownName`.
    """
    with storage.transaction(TransactionMode.DDL) as connection:
        tenant = find_tenant_row(connection, name)
        if tenant.number == DEFAULT_TENANT:
            raise UsageError(
                "the default tenant cannot be removed",
                tenant=name,
                hint="delete its records instead",
            )
        rows.put(connection, structs.replace(tenant, removing=True))
        raise_catalog_version(connection, tenant.number)  # its processes reload the tenant catalog
    left = delete_files(tenant.number)
    removed = _delete_rows(storage, tenant.number)
    with storage.transaction(TransactionMode.DDL) as connection:
        if rows.get(connection, Tenant, tenant.number) is None:
            raise UnknownName("another process removed the tenant", tenant=name)
        _delete_states(connection, tenant.number)
        rows.delete(connection, Tenant, tenant.number)
        connection.run(f"DELETE FROM {CATALOG_VERSIONS.name} WHERE tenant = {tenant.number}")
        rows.delete(connection, TenantNameRow, name)
    drop_unused_record_tables(storage)
    return Removed(tenant, removed, left)


def _delete_rows(storage: Storage, tenant: int) -> dict[str, int]:
    removed = {}
    tables = list_tenant_tables(storage.connection())
    del tables[CATALOG_VERSIONS.name]  # shows until the end that the tenant is removed
    # The schema history is last: without it, the rest could not be read after an interruption.
    for table, key in sorted(tables.items(), key=lambda item: item[0] == SCHEMA_HISTORY.name):
        count = 0
        while True:
            with storage.transaction(TransactionMode.CATALOG) as connection:
                deleted = delete_of_tenant(connection, table, key, tenant, PAGE_RECORDS_MAX)
            count += deleted
            if not deleted:
                break
        if count:
            removed[table] = count
    return removed


def _delete_states(connection: Connection, tenant: int) -> None:
    """The catalog's rows about the tenant's indexes, constraints, jobs and settings."""
    for kind in PREFIXED:
        for row in rows.list_rows(connection, kind, tenant):
            rows.delete(connection, kind, row.key)
    for retired in list_retired(connection):
        if retired.tenant == tenant:
            rows.delete(connection, type(retired), retired.key)
    delete_lease(connection, f"history/{tenant}")
    for job in rows.list_rows(connection, Job):
        if job.tenant == tenant:
            rows.delete(connection, Job, job.key)
            connection.run(
                f"DELETE FROM zapdb_ranges WHERE job = {connection.storage.placeholder}", (job.id,)
            )
            for finding in rows.list_rows(connection, FindingsRow, job.key):
                rows.delete(connection, FindingsRow, finding.key)
    connection.run(  # imports that were never brought to their end
        f"DELETE FROM zapdb_ranges WHERE job LIKE {connection.storage.placeholder}",
        (f"import/{tenant}/%",),
    )
    delete_lease(connection, f"catalog/tenant/{tenant}")
