"""Discarding a record that can't be read: a deletion that takes nothing from its bytes.

Its entries are found by its key, in all entries of each index. It is for one record at a time.
"""

from __future__ import annotations

from zapdb.catalog import principal
from zapdb.errors import ZapdbError
from zapdb.indexes import BoundTable
from zapdb.records import UNREADABLE, encode_unreadable
from zapdb.records.archive_cells import encode_archive
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.storage.pending_changes import LoggedChange, append_change
from zapdb.writes.planning import plan_delete


def find_damage(bound: BoundTable, key: bytes, stored: object) -> ZapdbError | None:
    """Return why a stored record can't be read, or can't be deleted without being read; None if it
    can. Raises `UnknownZone`: another process may be able to."""
    try:
        value = as_bytes(stored)
        bound.reader.read(key, value)
        plan_delete(bound, key, value)
    except UNREADABLE as error:
        return error
    return None


def execute_discard(connection: Connection, bound: BoundTable, key: bytes, stored: bytes) -> None:
    """Delete a record and all that belongs to it, inside a transaction; references to it are not
    checked.

    The change log keeps its bytes under a mark. A record whose key can't be decoded either was
    never seen by anything that follows the log, and is not logged.
    """
    connection.send(bound.records.delete_sql, (key,))
    if bound.logs_changes and has_key(bound, key):
        place = bound.catalog.tenant, bound.schema.number, key
        before = encode_unreadable(bound.descriptor.revision, stored)
        stored_archive = bound.archives.load_many(connection, [key]).get(key, {})
        archive = {f: v for f, v in stored_archive.items() if f in bound.archived}
        change = LoggedChange(before, None, encode_archive(archive))
        append_change(connection, principal.current(), place, change)
    if bound.archives.fields:
        bound.archives.delete_many(connection, [key])
    for index in bound.indexes:
        if index.descriptor.state != "disabled":  # it has none, and their table may be gone
            index.entries.delete_of(connection, key)


def has_key(bound: BoundTable, key: bytes) -> bool:
    """Whether the bytes are a key of the table."""
    try:
        bound.codec.decode_key(key)
    except UNREADABLE:
        return False
    return True
