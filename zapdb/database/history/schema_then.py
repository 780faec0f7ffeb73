"""The tables at a past moment: their names and schemas, and whether they can be rewound to it.

The change log has an event for each entry of a recorded table's schema history, in one order with
the changes of records. So the entry at a moment is the last one whose event is not after it.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

from zapdb.activation import TenantCatalog
from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.errors import (
    HistoryGap,
    HistoryNotStored,
    HistoryPurged,
    HistoryUnavailable,
    UnknownName,
)
from zapdb.records import decode_prefix
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes, as_number
from zapdb.storage.moments import LaterSql
from zapdb.storage.pending_changes import CHANGE_LOG_OFF, CHANGE_LOG_ON, OF_TENANT


@dataclass(frozen=True, slots=True)
class TableThen:
    """A table at a moment.

    `is_recorded` says whether its changes were recorded all the time since; `obstacle` is why its
    records of then can't be read, or None.
    """

    schema: TableSchema
    layout_revision: int
    is_recorded: bool
    obstacle: HistoryUnavailable | None


@dataclass(frozen=True, slots=True)
class _Later:
    """The events after a moment: the first new revision of each table, and the tables (0: all)
    whose recording was switched on or off."""

    revisions: dict[int, int]
    switched: frozenset[int]
    position: int | None
    """The tenant's position at the moment, if it changed since."""


@dataclass(frozen=True)
class SchemaThen:
    """The tables at a moment by their names, and the tenant's position."""

    tables: dict[str, TableThen]
    position: int

    def find(self, name: str) -> TableThen:
        """Return a table by its name at the moment; raises `UnknownName`."""
        found = self.tables.get(name)
        if found is None:
            raise UnknownName.of_table(name, self.tables)
        return found

    def table(self, name: str) -> TableThen:
        """Return a table that can be rewound; raises the error of its obstacle otherwise."""
        found = self.find(name)
        if found.obstacle is not None:
            raise copy.copy(found.obstacle)  # each with a traceback of its own
        return found

    def numbered(self, number: int) -> TableThen | None:
        return next((t for t in self.tables.values() if t.schema.number == number), None)

    def table_numbered(self, number: int, name: str) -> TableThen:
        """The same by a table's number; `name` is what it is called now."""
        found = self.numbered(number)
        if found is None:
            raise UnknownName(
                "the table did not exist at that moment",
                table=name,
                hint="past.tables has the names of those that did",
            )
        return self.table(found.schema.name)


def read_schema_then(
    connection: Connection, catalog: TenantCatalog, moment: int, later_sql: LaterSql
) -> SchemaThen:
    """Read the tables at a moment, in one snapshot; the catalog is that of now, or older."""
    later = _read_later(connection, catalog.tenant, later_sql)
    entries: dict[int, list[RevisionEntry]] = {}
    for entry in read_entries(connection, catalog.tenant):
        entries.setdefault(entry.table_number, []).append(entry)
    tables = {}
    for number, logged in entries.items():
        then = _find_entry(logged, later.revisions.get(number))
        if then is None or then.event == "drop":
            continue
        descriptor = next((t for t in catalog.tables.values() if t.schema.number == number), None)
        switched = later.switched & {number, OF_TENANT}
        is_recorded = descriptor is not None and descriptor.logs_changes and not switched
        obstacle = _find_obstacle(logged, then, later.revisions.get(number), moment)
        if obstacle is None and not is_recorded:
            obstacle = make_gap(then.schema.name, moment)
        schema = then.schema
        tables[schema.name] = TableThen(schema, then.layout_revision, is_recorded, obstacle)
    position = catalog.position if later.position is None else later.position
    return SchemaThen(tables, position)


def _read_later(connection: Connection, tenant: int, later_sql: LaterSql) -> _Later:
    rows = connection.fetch_all(
        "SELECT table_number, event, before, after FROM zapdb_changes"
        f" WHERE tenant = {int(tenant)} AND event IS NOT NULL AND {later_sql('transaction_number')}"
    )
    revisions: dict[int, int] = {}
    switched, positions = set[int](), list[int]()
    for table, event, before, after in rows:
        number = as_number(table)
        if event in (CHANGE_LOG_ON, CHANGE_LOG_OFF):
            switched.add(number)
        elif number == OF_TENANT:
            positions.append(decode_prefix(as_bytes(before), 0)[0])
        else:
            revision, _ = decode_prefix(as_bytes(after), 0)
            revisions[number] = min(revision, revisions.get(number, revision))
    return _Later(revisions, frozenset(switched), positions[0] if positions else None)


def _find_entry(logged: Sequence[RevisionEntry], first_later: int | None) -> RevisionEntry | None:
    """Return the last entry before the first later one; None if the table did not exist."""
    earlier = [entry for entry in logged if first_later is None or entry.revision < first_later]
    return earlier[-1] if earlier else None


def _find_obstacle(
    logged: Sequence[RevisionEntry], then: RevisionEntry, first_later: int | None, moment: int
) -> HistoryUnavailable | None:
    """Return why the schema history doesn't let the records of then be made of those of now."""
    name = then.schema.name
    if first_later is not None and then.revision != first_later - 1:
        return HistoryPurged(
            "the schema of the table at that moment was pruned from the schema history",
            table=name,
            moment=moment,
            hint="ask for a later moment",
        )
    changed = next((entry for entry in logged if _makes_other_bytes(then, entry)), None)
    if changed is not None:
        return HistoryNotStored(
            "a later migration has changed the table's stored values",
            table=name,
            moment=moment,
            migration=changed.position,
            event=changed.event,
            hint="the change log leads back to that migration: ask for a moment after it",
        )
    return None


def make_gap(table: str, moment: int) -> HistoryGap:
    return HistoryGap(
        "the changes of the table were not recorded all the time since that moment",
        table=table,
        moment=moment,
        hint="`zapdb changes list` shows when the change log was switched on: ask for a moment "
        "after it",
    )


def _makes_other_bytes(then: RevisionEntry, entry: RevisionEntry) -> bool:
    return entry.revision > then.revision and (
        entry.layout_revision != then.layout_revision or entry.event in ("drop", "recovered")
    )
