"""A change as applications see it, and how it is decoded from a row of the change log.

A change is decoded under the schema of its time, which the schema history keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.catalog.stored_migrations import read_number
from zapdb.errors import CorruptCatalog
from zapdb.log.change_log import Bookmark, ChangeRow
from zapdb.log.pending_changes import HISTORY_ERASED, HISTORY_PURGED
from zapdb.printing import one_line, show_moment
from zapdb.records import (
    Attachments,
    Codec,
    Record,
    codec_for,
    decode_prefix,
    decode_unreadable,
    was_unreadable,
)
from zapdb.records.archive_cells import decode_archive, decode_archived_values
from zapdb.records.unreadable import name_record
from zapdb.schema import TableSchema
from zapdb.storage import BlobStatements
from zapdb.storage.cells import as_time, as_word, empty_change
from zapdb.storage.fixed_tables import CHANGES
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.session import Session

Operation = Literal["insert", "update", "delete"]


@dataclass(frozen=True, slots=True)
class RecordChange:
    """The change of one record by one transaction, all its writes taken together.

    `before` and `after` are records under the table's schema of that time, or None. `key` are the
    values of the key's fields. `transaction` is the same for all changes of one transaction,
    `stamp` for all changes that became visible together; `stamped_at`, its time, never decreases
    from change to change. `made_at` is when the transaction wrote its changes, by the database's
    clock. An update is `replaced` if the transaction deleted the record and inserted it again.
    `schema_before` and `schema_after` are the table's schema before and after, None where there is
    no record. `archived_before` and `archived_after` have the archived values of dropped fields, by
    their names, if one of them was changed: by a process with older files, or since the record was
    deleted; else both are empty. A record that could not be read when it was discarded has no
    `before`, but `unreadable`: its bytes as they were stored.
    """

    table: str
    operation: Operation
    key: tuple[Any, ...]
    before: Record | None
    after: Record | None
    replaced: bool
    revision: int
    principal: str
    made_at: datetime
    transaction: int
    stamp: int
    stamped_at: datetime
    bookmark: Bookmark
    schema_before: TableSchema | None = field(repr=False)
    schema_after: TableSchema | None = field(repr=False)
    unreadable: bytes | None = field(default=None, repr=False)
    archived_before: Mapping[str, Any] = field(default_factory=dict)
    archived_after: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        values = f"{self.before!r} → {self.after!r}" if self.before and self.after else ""
        return (
            f"<{self.operation} in {self.table!r}, key {self.key!r}: "
            f"{values or repr(self.after or self.before)}, {_repr_made(self)}>"
        )


@dataclass(frozen=True, slots=True)
class SchemaEvent:
    """The change of a schema, in order with the changes of records.

    For a table, `event` is `create`, `change`, `drop`, `restore` or `rollback`, and `revision` the
    table's revision from then on, as in `db.admin.schema_history`. If `table` is None, the event is
    for all tables: `activation` or `rollback`, after which the tenant is at `position`. After
    `change_log_on`, for one table or all, changes are recorded; after `change_log_off` they are
    missing. From `archive_pruning` to `archive_pruned` an operator deleted what was archived of a
    dropped `field`, or of the dropped table. By `history_erased` a record of the table was erased
    from the past, by `history_field_erased` the past values of `field`; by `history_purged` earlier
    moments were deleted from the history store.
    """

    event: str
    table: str | None
    field: str | None
    revision: int | None
    position: int | None
    principal: str
    made_at: datetime
    transaction: int
    stamp: int
    stamped_at: datetime
    bookmark: Bookmark

    def __repr__(self) -> str:
        name = ".".join(name for name in (self.table, self.field) if name is not None)
        table = f" of {name!r}" if name else ""
        revision = "" if self.revision is None else f", revision {self.revision}"
        position = "" if self.position is None else f", position {self.position}"
        return f"<{self.event}{table}{revision}{position}, {_repr_made(self)}>"


def _repr_made(made: RecordChange | SchemaEvent) -> str:
    """Return the text for the transaction, its time and its principal."""
    at, by = show_moment(made.made_at), one_line(made.principal)
    return f"transaction {made.transaction}, {at} by {by}"


class ChangeDecoder:
    """A decoder of the log's rows by the schema history."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._tenant = session.catalog.tenant
        self._entries: dict[int, dict[int, RevisionEntry]] = {}
        self._codecs: dict[tuple[int, int], tuple[TableSchema, Codec]] = {}
        self._positions: dict[int, int] = {}
        self._attachments = Attachments(BlobStatements(session.storage).load, make_uuid7)

    def decode(self, row: ChangeRow) -> RecordChange | SchemaEvent:
        """Decode a row; raises `IncompatibleVersion` for an event of a later release."""
        if row.event is not None:
            return self._decode_event(row, as_word(row.event, CHANGES.c.event))
        value = row.before if row.after is None else row.after
        if value is None:
            raise empty_change(row.table, row.transaction.number)
        unreadable = decode_unreadable(row.before)
        revision = _read_revision(value)
        schema, codec = self._open(row.table, revision)
        schema_before, before = self.decode_record(row.table, row.key, row.before)
        schema_after, after = self.decode_record(row.table, row.key, row.after)
        return RecordChange(
            table=schema.name,
            operation=_name_operation(row),
            key=codec.decode_key(row.key),
            before=before,
            after=after,
            replaced=row.is_replaced,
            revision=revision,
            schema_before=schema_before,
            schema_after=schema_after,
            unreadable=None if unreadable is None else unreadable.stored,
            archived_before=self.decode_archive(row.archive_before, schema_before),
            archived_after=self.decode_archive(row.archive_after, schema_after),
            **_common_members(row),
        )

    def decode_archive(self, cell: bytes | None, schema: TableSchema | None) -> dict[str, Any]:
        """Return the archived values of a cell by the names of the dropped fields."""
        if cell is None or schema is None:
            return {}
        zones = self._session.catalog.zones
        return decode_archived_values(decode_archive(cell), schema, zones, self._attachments)

    def decode_record(
        self, table: int, key: bytes, value: bytes | None
    ) -> tuple[TableSchema | None, Record | None]:
        """Decode a record as it was logged, and return its schema; Nones for no record. One that
        could not be read has a schema."""
        if value is None:
            return None, None
        schema, codec = self._open(table, _read_revision(value))
        if decode_unreadable(value) is not None:
            return schema, None
        _, start = decode_prefix(value, 0)
        return schema, codec.decode(key, value, start, self._attachments)

    def decode_under(
        self, schema: TableSchema, layout_revision: int, key: bytes, value: bytes | None
    ) -> tuple[TableSchema | None, Record | None]:
        """Decode a record by another schema of its table; as it was logged, if that has another
        layout. Raises `CorruptRecord` for one that could not be read."""
        if value is not None:
            if decode_unreadable(value) is not None:
                error = was_unreadable(value)
                name_record(error, schema.name, codec_for(schema).decode_key, key)
                raise error
            revision, start = decode_prefix(value, 0)
            entry = self._find_entry(schema.number, revision)
            if entry.layout_revision == layout_revision:
                codec = codec_for(schema, self._session.catalog.zones)
                return schema, codec.decode(key, value, start, self._attachments)
        return self.decode_record(schema.number, key, value)

    def _decode_event(self, row: ChangeRow, event: str) -> SchemaEvent:
        table = revision = position = field = None
        if event == HISTORY_PURGED:
            pass
        elif row.table and row.after:  # a new revision
            revision, _ = decode_prefix(row.after, 0)
            entry = self._find_entry(row.table, revision)
            table, position = entry.schema.name, entry.position
        elif row.table:  # the setting change_log was changed for it, or archives were pruned
            entries = self._load_entries(row.table)
            table = entries[max(entries)].schema.name if entries else None
            has_field = row.key and event != HISTORY_ERASED
            number, _ = decode_prefix(row.key, 0) if has_field else (0, 0)
            field = _name_field(entries, number)
        elif row.after:
            position = self._find_position(decode_prefix(row.after, 0)[0])
        return SchemaEvent(
            event=event,
            table=table,
            field=field,
            revision=revision,
            position=position,
            **_common_members(row),
        )

    def _find_position(self, migration: int) -> int:
        """The number of a migration, by its id."""
        if migration not in self._positions:
            connection = self._session.storage.connection()
            self._positions[migration] = read_number(connection, migration)
        return self._positions[migration]

    def _open(self, table: int, revision: int) -> tuple[TableSchema, Codec]:
        opened = self._codecs.get((table, revision))
        if opened is None:
            schema = self._find_entry(table, revision).schema
            opened = (schema, codec_for(schema, self._session.catalog.zones))
            self._codecs[table, revision] = opened
        return opened

    def _find_entry(self, table: int, revision: int) -> RevisionEntry:
        found = self._entries.get(table, {}).get(revision)
        if found is None:
            found = self._load_entries(table).get(revision)
        if found is None:
            raise CorruptCatalog(
                "the change log has a revision that the schema history lacks",
                table=table,
                revision=revision,
                hint="restore zapdb_schema_history from a backup, or prune the earlier "
                "changes with `zapdb changes prune`",
            )
        return found

    def _load_entries(self, table: int) -> dict[int, RevisionEntry]:
        connection = self._session.storage.connection()
        found = {e.revision: e for e in read_entries(connection, self._tenant, table)}
        self._entries[table] = found
        return found


def _read_revision(value: bytes) -> int:
    """Return the revision of a logged record, or that of its table when it could not be read."""
    unreadable = decode_unreadable(value)
    return decode_prefix(value, 0)[0] if unreadable is None else unreadable.revision


def _name_field(entries: Mapping[int, RevisionEntry], number: int) -> str | None:
    """Return the last name of a field that may be dropped, by its number or one of its cells; None
    for no field."""
    for _, entry in sorted(entries.items(), reverse=True):
        archived = (one.field for one in entry.schema.archived)
        for one in (*entry.schema.fields, *archived):
            if number in (one.number, one.cell):
                return one.name
    return None


def _name_operation(row: ChangeRow) -> Operation:
    if row.before is None:
        return "insert"
    return "delete" if row.after is None else "update"


def _common_members(row: ChangeRow) -> dict[str, Any]:
    """Return the members that changes and events share."""
    made = row.transaction
    return {
        "principal": made.principal,
        "made_at": as_time(made.made_at),
        "transaction": made.number,
        "stamp": made.stamp,
        "stamped_at": as_time(made.stamped_at),
        "bookmark": row.bookmark,
    }
