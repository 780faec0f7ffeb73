"""The tenant catalog that a storage's jobs used last: what still holds of it is not read again.

A job loads it where it is planned, by each of its workers, and at its end. Reading and compiling a
long chain takes longer than a batch does.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.storage import Connection, Storage

_LAST: Final[WeakKeyDictionary[Storage, TenantCatalog]] = WeakKeyDictionary()


def load_job_catalog(
    connection: Connection, tenant: int, known: TenantCatalog | None = None
) -> TenantCatalog:
    """Load the tenant catalog, inside a transaction, as `load_tenant_catalog` does. Parts of
    `known` that are still valid are kept, or of the one that was loaded last."""
    storage = connection.storage
    catalog = load_tenant_catalog(connection, tenant, known or _LAST.get(storage))
    _LAST[storage] = catalog
    return catalog
