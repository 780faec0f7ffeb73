"""How commands open a database: only connected, for a tenant, or with what is active for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zapdb.activation import TenantCatalog, schema_history_recovery
from zapdb.catalog.tenants import find_tenant
from zapdb.cli.configuration import find_database, find_tenant_name
from zapdb.cluster import ensure_database
from zapdb.cluster.level import check_level
from zapdb.storage import Storage, TransactionMode, connect, read_storage_version


@contextmanager
def connected(database: str | None) -> Iterator[Storage]:
    """The storage of the database that a command is about, whatever is in it; closed at the end."""
    storage = connect(find_database(database))
    try:
        yield storage
    finally:
        storage.close()


@contextmanager
def opened(
    database: str | None, tenant: str | None = None
) -> Iterator[tuple[Storage, TenantCatalog]]:
    """A database with migrations, as a tenant sees it.

    Raises `PendingMigrations` for one that is empty or missing.
    """
    with connected(database) as storage:
        ensure_database(storage, create=False)
        yield storage, read_tenant_catalog(storage, tenant)


@contextmanager
def opened_for(database: str | None, tenant: str | None) -> Iterator[tuple[Storage, int]]:
    """A database with migrations, and the number of the tenant; no missing history begins.

    Raises `PendingMigrations` for a database that is empty or missing, and `UnknownName`.
    """
    with connected(database) as storage:
        ensure_database(storage, create=False)
        with storage.transaction(TransactionMode.READ) as connection:
            check_level(connection)
            number = find_tenant(connection, find_tenant_name(tenant)).number
        yield storage, number


def read_tenant_catalog(storage: Storage, tenant: str | None = None) -> TenantCatalog:
    """Return the tenant catalog of the tenant that a command is about."""
    connection = storage.connection()
    check_level(connection)
    return schema_history_recovery.load_or_recover(
        storage, find_tenant(connection, find_tenant_name(tenant)).number
    )


def read_tenant_catalog_if_any(storage: Storage, tenant: str | None = None) -> TenantCatalog | None:
    """Return the tenant catalog, or None if the database is empty or missing; nothing is
    created."""
    if read_storage_version(storage) is None:
        return None
    ensure_database(storage, create=False)
    return read_tenant_catalog(storage, tenant)
