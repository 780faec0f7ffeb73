"""What a write leaves for the change log, where history is switched on for its table (rule 29).

A change is recorded as the bytes of the record before and after, both under the revision that is in
force: a record that was stale is converted for it, with what is archived beside it, so that one
schema reads both. Conversions themselves record nothing (rule 22).
"""

from __future__ import annotations

from collections.abc import Iterable

from zapdb.catalog import principal
from zapdb.indexes import LiveTable
from zapdb.records import decode_prefix, new_blobs
from zapdb.storage import Connection
from zapdb.storage.changes import record_change


def record_inserted(
    connection: Connection, live: LiveTable, rows: Iterable[tuple[bytes, bytes]]
) -> None:
    """New records: their keys and bytes."""
    tenant, table, who = live.view.tenant, live.table.number, principal.current()
    for key, value in rows:
        record_change(connection, who, tenant, table, key, None, value)


def record_changed(
    connection: Connection, live: LiveTable, key: bytes, before: bytes, after: bytes | None
) -> None:
    """A record was `before`, as `read_before` gave it, and is `after`; None where it is deleted."""
    tenant, table = live.view.tenant, live.table.number
    record_change(connection, principal.current(), tenant, table, key, before, after)


def read_before(connection: Connection, live: LiveTable, key: bytes, stored: bytes) -> bytes:
    """A stored record as it is recorded; to be called before anything of it is changed.

    Large values that only the conversion of a stale one makes are stored: the log owns them.
    """
    beside = live.make_beside(key, stored)
    value = live.reader.convert(key, stored, beside)
    if beside.blobs:
        record = live.codec.decode(key, value, len(live.prefix), beside)
        live.blobs.insert(connection, new_blobs(record, beside))
    _, start = decode_prefix(value, 0)
    return live.prefix + value[start:]
