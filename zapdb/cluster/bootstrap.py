"""The first rows of a database: its identity, its level, and the default tenant."""

from __future__ import annotations

import uuid

from zapdb.catalog import principal, rows
from zapdb.catalog.stored import ChainState
from zapdb.catalog.tenants import DEFAULT_TENANT, DEFAULT_TENANT_NAME, add_tenant
from zapdb.cluster.level import first_level
from zapdb.release import __version__
from zapdb.storage import Mode, Storage


def ensure_rows(storage: Storage) -> None:
    """Write the first rows if they are not there; safe to race."""
    if rows.get(storage.connection(), "database", "") is not None:
        return
    with storage.transaction(Mode.CATALOG) as connection:
        storage.lock_layout(connection)
        if rows.get(connection, "database", "") is not None:
            return
        now = storage.now_us(connection)
        rows.put(
            connection,
            "database",
            "",
            {
                "id": str(uuid.uuid4()),
                "created_at": now,
                "created_by": principal.current(),
                "release": __version__,
            },
        )
        rows.put(connection, "level", "", {"level": first_level()})
        ChainState.empty().put(connection)
        tenant = add_tenant(connection, DEFAULT_TENANT_NAME)
        assert tenant.number == DEFAULT_TENANT
