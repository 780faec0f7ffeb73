"""The schemas of a tenant's tables: by revision, and as they were at a moment of the change log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zapdb.activation import TenantCatalog
from zapdb.catalog.schema_history import (
    RevisionEntry,
    makes_other_bytes,
    read_entries,
    read_later_events,
)
from zapdb.log.moments import LaterSql
from zapdb.past.files.file_columns import has_same_columns
from zapdb.schema import TableSchema
from zapdb.storage import Connection


class TableRevisions:
    """The entries of the schema history of a tenant, read again when one is missing."""

    def __init__(self, tenant: int) -> None:
        self._tenant = tenant
        self._entries: dict[int, dict[int, RevisionEntry]] = {}
        self._schemas: dict[tuple[int, int], TableSchema] = {}

    def reload(self, connection: Connection) -> None:
        self._entries, self._schemas = {}, {}
        for entry in read_entries(connection, self._tenant):
            self._entries.setdefault(entry.table_number, {})[entry.revision] = entry

    def find(self, table: int, revision: int) -> RevisionEntry | None:
        """Return an entry, as far as it was read."""
        return self._entries.get(table, {}).get(revision)

    def list_of(self, table: int) -> list[RevisionEntry]:
        """Return the entries of a table, the oldest first."""
        return sorted(self._entries.get(table, {}).values(), key=lambda entry: entry.revision)

    def schema_of(self, entry: RevisionEntry) -> TableSchema:
        """Return the schema of an entry, which is read from its bytes once."""
        key = entry.table_number, entry.revision
        found = self._schemas.get(key)
        if found is None:
            found = self._schemas[key] = entry.schema
        return found

    def goes_on(self, earlier: RevisionEntry, later: RevisionEntry) -> bool:
        """As `can_share_era`, of schemas that are read from their bytes once."""
        return earlier.layout_revision == later.layout_revision and has_same_columns(
            self.schema_of(earlier), self.schema_of(later)
        )

    @property
    def tables(self) -> Iterable[int]:
        return self._entries.keys()


def can_share_era(began: RevisionEntry, layout_revision: int, schema: TableSchema) -> bool:
    """Return whether records of a layout and schema of a table can stand in an era that began with
    an earlier entry: a new name of a member, too, ends an era, since files have the names."""
    return began.layout_revision == layout_revision and has_same_columns(began.schema, schema)


@dataclass(frozen=True, slots=True)
class EarlierTable:
    """A table at a moment: its entry, and whether the present records can be rewound to it."""

    entry: RevisionEntry
    is_rewindable: bool


def read_tables_at(
    connection: Connection, catalog: TenantCatalog, revisions: TableRevisions, later_sql: LaterSql
) -> dict[int, EarlierTable]:
    """Return the tables by number that there were before the transactions of a condition; reads in
    one snapshot, of which `catalog` and `revisions` are."""
    later = read_later_events(connection, catalog.tenant, later_sql)
    found = {}
    active = {descriptor.schema.number: descriptor for descriptor in catalog.all_tables}
    for table in revisions.tables:
        entries = revisions.list_of(table)
        then = later.list_earlier(table, entries)
        if not then or then[-1].event == "drop":
            continue
        descriptor = active.get(table)
        is_rewindable = (
            descriptor is not None
            and descriptor.logs_changes
            and not later.switches(table)
            and not any(makes_other_bytes(then[-1], entry) for entry in entries)
        )
        found[table] = EarlierTable(then[-1], is_rewindable)
    return found
