"""A tenant's database for commands that don't need, or must not ask for, what is in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zapdb.catalog.tenants import find_tenant
from zapdb.cli.configuration import find_tenant_name
from zapdb.cli.opening import connected
from zapdb.cluster import ensure_rows
from zapdb.cluster.level import check_level
from zapdb.storage import Mode, Storage, ensure_storage


@contextmanager
def opened_for(database: str | None, tenant: str | None) -> Iterator[tuple[Storage, int]]:
    """A database with migrations, and the number of the tenant; no missing history begins.

    Raises `PendingMigrations` for a database that is empty or missing, and `UnknownName`.
    """
    with connected(database) as storage:
        ensure_storage(storage, create=False)
        ensure_rows(storage)
        with storage.transaction(Mode.READ) as connection:
            check_level(connection)
            number = find_tenant(connection, find_tenant_name(tenant)).number
        yield storage, number
