"""Discarding records that can't be read.

A deletion reads its record, to find what belongs to it. This one proves first that the record can't
be read, in the transaction that deletes it; so what can be read is never lost by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zapdb.catalog import principal
from zapdb.errors import RecordNotFound, UsageError, ZapdbError
from zapdb.errors.zapdb_error import describe_error
from zapdb.log.pending_changes import LoggedChange, append_change
from zapdb.records import UNREADABLE, encode_unreadable
from zapdb.records.archive_cells import encode_archive
from zapdb.records.unreadable import show_stored_key
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.tables.blob_streams import StreamedValues
from zapdb.tables.generated_values import OperationNumbers
from zapdb.tables.indexes import BoundTable
from zapdb.tables.on_delete import apply_on_delete
from zapdb.tables.writes import WritePlan

if TYPE_CHECKING:
    from zapdb.tables.writable_table import WritableTable


@dataclass(frozen=True, slots=True)
class DiscardedRecord:
    """A record that could not be read: its key and its bytes as they were stored, and why it could
    not be read. The ids of large values may be in the bytes, the values are not."""

    table: str
    key: bytes
    value: bytes = field(repr=False)
    reason: str


@dataclass(frozen=True, slots=True)
class Discarding:
    """What is to be discarded: a record of a table, by its key, or by `stored_key` as it is stored.

    Values of a `replacement` take its place; then references stay as they are. `keep` is called
    with the record before it is deleted for good.
    """

    table: WritableTable[Any]
    key: tuple[Any, ...]
    stored_key: bytes | None = None
    replacement: Mapping[str, Any] | None = None
    keep: Callable[[DiscardedRecord], object] = lambda _: None

    def run(self) -> DiscardedRecord:
        """Raises `RecordNotFound`, `UsageError` for a record that can be read, and the errors of
        deleting and inserting."""
        session = self.table._session
        numbers = OperationNumbers(session)
        streamed = StreamedValues({} if self.replacement is None else self.replacement)

        def discard() -> DiscardedRecord:
            with session.writing(numbers) as connection:
                bound, key = self._find()
                discarded = self._delete(connection, bound, key)
                if self.replacement is not None:
                    values = self._make_values(bound, key, self.replacement)
                    self.table._insert(connection, bound, values, streamed, numbers)
                elif has_key(bound, key):
                    apply_on_delete(session, connection, bound, [key])
                return discarded

        return session.run(discard)

    def _find(self) -> tuple[BoundTable, bytes]:
        bound = self.table._current()
        if self.stored_key is not None:
            return bound, self.stored_key
        return bound, self.table._encode_key(bound, self.key)

    def _make_values(
        self, bound: BoundTable, key: bytes, replacement: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the values of the new record, which has the same key."""
        self.table._require_same_key(bound, key, replacement)
        fields = zip(bound.adapter.key_names, bound.adapter.codec.decode_key(key), strict=True)
        return {**dict(fields), **replacement}

    def _delete(self, connection: Connection, bound: BoundTable, key: bytes) -> DiscardedRecord:
        name = bound.adapter.schema.name
        shown = show_stored_key(bound.codec.decode_key, key)
        row = connection.fetch_one(bound.statements.get_sql, (key,))
        if row is None:
            raise RecordNotFound("no record has this key", table=name, key=shown)
        damage = find_damage(bound, key, row[0])
        if damage is None:
            raise UsageError(
                "this record can be read, so it is not discarded",
                table=name,
                key=shown,
                hint="delete it with delete(), or change it with update()",
            )
        # SQLite keeps values of any type.
        stored = row[0] if isinstance(row[0], bytes) else str(row[0]).encode()
        discarded = DiscardedRecord(name, key, stored, describe_error(damage))
        self.keep(discarded)
        execute_discard(connection, bound, key, stored)
        return discarded


# Discarding a record that can't be read: a deletion that takes nothing from its bytes.
#
# Its entries are found by its key, in all entries of each index. It is for one record at a time.


def find_damage(bound: BoundTable, key: bytes, stored: object) -> ZapdbError | None:
    """Return why a stored record can't be read, or can't be deleted without being read; None if it
    can. Raises `UnknownZone`: another process may be able to."""
    try:
        value = as_bytes(stored)
        bound.reader.read(key, value)
        WritePlan(bound).delete(key, value)
    except UNREADABLE as error:
        return error
    return None


def execute_discard(connection: Connection, bound: BoundTable, key: bytes, stored: bytes) -> None:
    """Delete a record and all that belongs to it, inside a transaction; references to it are not
    checked.

    The change log keeps its bytes under a mark. A record whose key can't be decoded either was
    never seen by anything that follows the log, and is not logged.
    """
    connection.send(bound.statements.delete_sql, (key,))
    if bound.logs_changes and has_key(bound, key):
        place = bound.catalog.tenant, bound.schema.number, key
        before = encode_unreadable(bound.descriptor.revision, stored)
        stored_archive = bound.archives.load_many(connection, [key]).get(key, {})
        archive = {f: v for f, v in stored_archive.items() if f in bound.archived}
        change = LoggedChange(before, None, encode_archive(archive))
        append_change(connection, principal.current(), place, change)
    bound.archives.delete_many(connection, [key])
    for index in bound.indexes:
        if index.has_entries:  # else their table may be gone, too
            index.entries.delete_of(connection, key)


def has_key(bound: BoundTable, key: bytes) -> bool:
    """Whether the bytes are a key of the table."""
    try:
        bound.codec.decode_key(key)
    except UNREADABLE:
        return False
    return True
