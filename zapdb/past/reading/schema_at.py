"""The tables at a past moment: their names and schemas, and whether they can be rewound to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from zapdb.activation import TenantCatalog
from zapdb.catalog.schema_history import (
    LaterEvents,
    RevisionEntry,
    makes_other_bytes,
    read_entries,
    read_later_events,
)
from zapdb.catalog.stored_migrations import read_line, read_number
from zapdb.errors import (
    HistoryGap,
    HistoryNotStored,
    HistoryPurged,
    HistoryUnavailable,
    UnknownName,
)
from zapdb.log.moments import LaterSql, LoggedMoment, Moments
from zapdb.migrations import Chain
from zapdb.past.files.history_manifest import list_timelines
from zapdb.past.reading.moment import is_pruned, make_pruned
from zapdb.schema import TableSchema
from zapdb.storage import Connection


@dataclass(frozen=True, slots=True)
class TableAt:
    """A table at a moment.

    `is_recorded` says whether its changes were recorded all the time since; `obstacle` is why its
    records of then can't be read, or None.
    """

    schema: TableSchema
    revision: int
    layout_revision: int
    is_recorded: bool
    obstacle: HistoryUnavailable | None


@dataclass(frozen=True)
class SchemaAt:
    """The tables at a moment by their names, and the newest migration that was active: its number
    and its id, 0 if there was none."""

    tables: dict[str, TableAt]
    position: int
    migration: int

    def find(self, name: str) -> TableAt:
        """Return a table by its name at the moment; raises `UnknownName`."""
        found = self.tables.get(name)
        if found is None:
            raise UnknownName.of_table(name, self.tables)
        return found

    def numbered(self, number: int) -> TableAt | None:
        return next((t for t in self.tables.values() if t.schema.number == number), None)

    def find_numbered(self, number: int, name: str) -> TableAt:
        """The same by a table's number; `name` is what it is called now."""
        found = self.numbered(number)
        if found is None:
            raise UnknownName(
                "the table did not exist at that moment",
                table=name,
                hint="past.tables has the names of those that did",
            )
        return found


def read_schema_at(
    connection: Connection, catalog: TenantCatalog, moments: Moments, moment: LoggedMoment
) -> SchemaAt:
    """Read the tables at a moment, in one snapshot, of which the catalog is.

    In front of the log's beginning, the files of the history store tell them. Raises
    `HistoryPurged` and `HistoryDamaged`.
    """
    if not is_pruned(connection, moments, moment):
        later = moments.find_later(connection, moment)
        return read_schema_then(connection, catalog, moment.number, later)
    if not list_timelines(connection, catalog.tenant):
        raise make_pruned(connection, moments, moment.number)
    from zapdb.past.reading.stored_moments import StoredMoments

    stored, obstacle = (
        StoredMoments(connection, moments),
        make_pruned(connection, moments, moment.number),
    )
    found = stored.read_catalog(moment)
    if found is None:
        events = [(e.table, e.event, e.before, e.after) for e in stored.list_later_events(moment)]
        later_events = read_later_events(
            connection, catalog.tenant, lambda column: f"{column} > 0", events
        )
        then = _find_at(connection, catalog, moment.number, later_events)
        tables = {
            name: replace(table, is_recorded=False, obstacle=obstacle)
            for name, table in then.tables.items()
        }
        return replace(then, tables=tables)
    there = [
        TableAt(entry.schema, entry.revision, entry.layout_revision, False, obstacle)
        for entry in read_entries(connection, catalog.tenant)
        if entry.revision == found.revisions.get(entry.table_number)
    ]
    tables = _name_tables(connection, catalog, there, found.migration)
    return SchemaAt(tables, read_number(connection, found.migration), found.migration)


def read_schema_then(
    connection: Connection, catalog: TenantCatalog, moment: int, later_sql: LaterSql
) -> SchemaAt:
    """Read the tables at a moment that is in the log, in one snapshot, of which the catalog
    is."""
    later = read_later_events(connection, catalog.tenant, later_sql)
    return _find_at(connection, catalog, moment, later)


def _find_at(
    connection: Connection, catalog: TenantCatalog, moment: int, later: LaterEvents
) -> SchemaAt:
    entries: dict[int, list[RevisionEntry]] = {}
    for entry in read_entries(connection, catalog.tenant):
        entries.setdefault(entry.table_number, []).append(entry)
    found = list[TableAt]()
    for number, logged in entries.items():
        earlier = later.list_earlier(number, logged)
        if not earlier or earlier[-1].event == "drop":
            continue
        then = earlier[-1]
        descriptor = catalog.find_numbered(number)
        is_recorded = (
            descriptor is not None and descriptor.logs_changes and not later.switches(number)
        )
        obstacle = _find_obstacle(logged, then, later.revisions.get(number), moment)
        if obstacle is None and not is_recorded:
            obstacle = make_gap(then.schema.name, moment)
        schema = then.schema
        made = TableAt(schema, then.revision, then.layout_revision, is_recorded, obstacle)
        found.append(made)
    migration = later.find_migration(catalog.migration)
    tables = _name_tables(connection, catalog, found, migration)
    return SchemaAt(tables, read_number(connection, migration), migration)


def _name_tables(
    connection: Connection, catalog: TenantCatalog, found: Sequence[TableAt], migration: int
) -> dict[str, TableAt]:
    """The tables by name. One that was kept for processes with other files may have had the name of
    an active one, which is meant then."""
    tables = {one.schema.name: one for one in found}
    if len(tables) < len(found) and migration:
        line = read_line(connection, migration, catalog.chain)
        active = {table.number for table in line.schema_at(line.end)}
        tables |= {one.schema.name: one for one in found if one.schema.number in active}
    return tables


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
    changed = next((entry for entry in logged if makes_other_bytes(then, entry)), None)
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


def read_chain_at(connection: Connection, catalog: TenantCatalog, then: SchemaAt) -> Chain:
    """Return the migrations that were active, those included that were rolled back since."""
    if not then.migration:
        return Chain()
    return read_line(connection, then.migration, catalog.chain)
