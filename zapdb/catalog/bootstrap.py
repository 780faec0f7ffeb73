"""The first rows of a database: its identity, its level, and the default tenant."""

from __future__ import annotations

import uuid
from typing import Final

import sqlalchemy as sa

from zapdb.catalog import rows
from zapdb.catalog.stored import principal
from zapdb.release import LEVEL, __version__
from zapdb.storage import Mode, Storage
from zapdb.storage.tables import ACTIVATIONS

DEFAULT_TENANT: Final = 1
DEFAULT_TENANT_NAME: Final = "default"


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
                "created_by": principal(),
                "release": __version__,
            },
        )
        rows.put(connection, "level", "", {"level": LEVEL})
        tenant = rows.draw(connection, "tenant")
        assert tenant == DEFAULT_TENANT
        value = {"name": DEFAULT_TENANT_NAME, "position": 0, "forgetting": None}
        rows.put(connection, "tenant", str(tenant), value)
        connection.core_execute(sa.insert(ACTIVATIONS).values(tenant=tenant, number=1))
