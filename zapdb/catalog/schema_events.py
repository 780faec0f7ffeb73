"""Events of the change log: schema changes, in one order with the changes of records.

The DDL transaction of the schema change writes them, so they have its place in the order: the gate
puts each writing transaction before or after it. There is one event for each entry of a table's
schema history, and one for each change of a tenant's position. (`zapdb.catalog.stored_settings`
writes another event when the change log is switched on or off.)
"""

from __future__ import annotations

from typing import Literal

from zapdb.catalog import principal
from zapdb.catalog.settings import Settings
from zapdb.catalog.stored_settings import read_history_settings
from zapdb.records import encode_prefix
from zapdb.storage import Connection
from zapdb.storage.pending_changes import OF_TENANT, append_event

TenantEvent = Literal["activation", "rollback"]


def append_revision_event(
    connection: Connection, tenant: int, table: int, event: str, revision: int
) -> None:
    """Write the event of a table's new revision, from the entry of its schema history."""
    if read_history_settings(connection, tenant).records(table):
        made = encode_prefix(revision)
        append_event(connection, principal.current(), (tenant, table, made, event, None, made))


def append_position_event(connection: Connection, tenant: int, before: int, after: int) -> None:
    """Write the event of a tenant's new position: an activation, or the end of a rollback."""
    settings = read_history_settings(connection, tenant)
    if not _records_any(settings):
        return
    event: TenantEvent = "activation" if after > before else "rollback"
    positions = encode_prefix(before), encode_prefix(after)
    append_event(connection, principal.current(), (tenant, OF_TENANT, b"", event, *positions))


def _records_any(settings: Settings) -> bool:
    return "on" in settings.values.values()
