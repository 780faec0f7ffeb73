"""Events of the change log: what became of a schema, in the order of the changes of records.

They are written by the CHANGE transaction that does it, so they are as old as that: whoever wrote
before held the gate, and is older; whoever writes after is younger. There is one for each entry of
a table's schema history, and one where a tenant's position moves. (Another one, of
`zapdb.catalog.settings`, says where history is switched on or off.)
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
    """A table has a new revision, by an entry of its schema history."""
    if read_history_settings(connection, tenant).records(table):
        made = encode_prefix(revision)
        append_event(connection, principal.current(), (tenant, table, made, event, None, made))


def append_position_event(connection: Connection, tenant: int, before: int, after: int) -> None:
    """A tenant stands somewhere else: an activation, or the end of a rollback."""
    settings = read_history_settings(connection, tenant)
    if not _records_any(settings):
        return
    event: TenantEvent = "activation" if after > before else "rollback"
    positions = encode_prefix(before), encode_prefix(after)
    append_event(connection, principal.current(), (tenant, OF_TENANT, b"", event, *positions))


def _records_any(settings: Settings) -> bool:
    return "on" in settings.values.values()
