"""Events of the change log: schema changes, in one order with the changes of records.

The DDL transaction of the schema change writes them, so they have its place in the order: the gate
puts each writing transaction before or after it. There is one event for each entry of a table's
schema history, and one for each change of a tenant's position. (`zapdb.catalog.stored_settings`
writes another event when the change log is switched on or off.)

Pruning archived values takes many short transactions, so it has two events. What a restore between
them finds in the archive, the log does not tell.
"""

from __future__ import annotations

from collections.abc import Iterable

from zapdb.catalog import principal
from zapdb.catalog.settings import Settings
from zapdb.catalog.stored_settings import read_history_settings
from zapdb.log.pending_changes import (
    ARCHIVE_PRUNED,
    ARCHIVE_PRUNING,
    HISTORY_ERASED,
    HISTORY_FIELD_ERASED,
    HISTORY_PURGED,
    OF_TENANT,
    append_event,
)
from zapdb.records import encode_prefix
from zapdb.storage import Connection
from zapdb.storage.fixed_tables import TenantEvent


def append_revision_event(
    connection: Connection, tenant: int, table: int, event: str, revision: int
) -> None:
    """Write the event of a table's new revision, from the entry of its schema history."""
    if read_history_settings(connection, tenant).records(table):
        made = encode_prefix(revision)
        append_event(connection, principal.current(), (tenant, table, made, event, None, made))


def append_position_event(
    connection: Connection, tenant: int, event: TenantEvent, before: int, after: int
) -> None:
    """Write the event of a tenant's new position, with the ids of the newest migrations before and
    after it."""
    settings = read_history_settings(connection, tenant)
    if not _records_any(settings):
        return
    migrations = encode_prefix(before), encode_prefix(after)
    append_event(connection, principal.current(), (tenant, OF_TENANT, b"", event, *migrations))


def append_archive_events(
    connection: Connection, tenant: int, fields: Iterable[tuple[int, int]], *, is_done: bool
) -> None:
    """Write the events of pruning archives, given by (table, field); field 0 is the table itself.

    Runs in a JOB transaction, which is before or after every schema change.
    """
    event = ARCHIVE_PRUNED if is_done else ARCHIVE_PRUNING
    settings = read_history_settings(connection, tenant)
    for table, field in fields:
        if settings.records(table):
            made = (tenant, table, encode_prefix(field), event, None, b"")
            append_event(connection, principal.current(), made)


def append_purge_event(connection: Connection, tenant: int, kept_from: int) -> None:
    """Write the event of a purge of the history store, which keeps moments from one on."""
    if _records_any(read_history_settings(connection, tenant)):
        moment = encode_prefix(kept_from)
        event = (tenant, OF_TENANT, b"", HISTORY_PURGED, None, moment)
        append_event(connection, principal.current(), event)


def append_erasure_event(connection: Connection, tenant: int, table: int, digest: bytes) -> None:
    """Write the event of erasing a record of a table from the past, by the digest of its key."""
    if _records_any(read_history_settings(connection, tenant)):
        event = (tenant, table, digest, HISTORY_ERASED, None, b"")
        append_event(connection, principal.current(), event)


def append_field_erasure_events(
    connection: Connection, tenant: int, table: int, fields: Iterable[int], digest: bytes
) -> None:
    """Write the events of erasing the past values of fields, by the digest of a record's key."""
    if _records_any(read_history_settings(connection, tenant)):
        for field in fields:
            event = (tenant, table, encode_prefix(field), HISTORY_FIELD_ERASED, digest, b"")
            append_event(connection, principal.current(), event)


def _records_any(settings: Settings) -> bool:
    return "on" in settings.values.values()
