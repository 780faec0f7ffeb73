"""The first rows of a database: its identity, its level, and the default tenant."""

from __future__ import annotations

import uuid

from zapdb.catalog import DEFAULT_TENANT, DEFAULT_TENANT_NAME, principal, rows
from zapdb.catalog.cluster.level import first_level
from zapdb.catalog.row_kinds import DatabaseRow, LevelRow
from zapdb.catalog.stored_migrations import NO_MIGRATIONS
from zapdb.catalog.tenants import add_tenant
from zapdb.log.incarnations import ensure_incarnation
from zapdb.release import __version__
from zapdb.storage import Storage, TransactionMode, ensure_storage


def ensure_database(storage: Storage, *, create: bool) -> None:
    """Create zapdb's own tables and their first rows if there are none.

    With `create` false, an empty database is refused, as `PendingMigrations`. One that was loaded
    into another server begins an incarnation. Several processes may do so at once.
    """
    ensure_storage(storage, create=create)
    ensure_incarnation(storage)
    if not storage.read_only:
        _ensure_rows(storage)


def _ensure_rows(storage: Storage) -> None:
    if rows.get(storage.connection(), DatabaseRow) is not None:
        return
    with storage.transaction(TransactionMode.CATALOG) as connection:
        storage.dialect.lock_storage_version(connection)
        if rows.get(connection, DatabaseRow) is not None:
            return
        now, who = storage.now_us(connection), principal.current()
        rows.put(connection, DatabaseRow(str(uuid.uuid4()), now, who, __version__))
        rows.put(connection, LevelRow(first_level(), now, who))
        rows.put(connection, NO_MIGRATIONS)
        tenant = add_tenant(connection, DEFAULT_TENANT_NAME)
        assert tenant.number == DEFAULT_TENANT
