"""Move a tenant from one place in the tree of stored migrations to another: the changes to the
catalog, and nothing else.

A migration that becomes active, one that is rolled back, and a tenant that is behind are one and
the same: from where the tenant is, back to where the two lines part, and from there on. No record
is touched: a table that differs gets a new revision, and records written under other ones are
converted when they are read, or by a job. A new index starts empty and "building", and a job fills
it. A new check or reference starts unvalidated.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from msgspec import structs

from zapdb.activation.descriptors import (
    ConstraintDescriptor,
    IndexDescriptor,
    constraints_of,
)
from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog
from zapdb.catalog import rows, schema_history
from zapdb.catalog.cluster import nodes
from zapdb.catalog.retired_tables import (
    assign_entry_table,
    is_retired,
    retire_entries,
    retire_record_table,
)
from zapdb.catalog.row_kinds import (
    ConstraintRow,
    ConstraintState,
    IndexRow,
    RetiredRecords,
    Tenant,
)
from zapdb.catalog.schema_events import append_position_event
from zapdb.catalog.schema_history import NEW_LAYOUT, KnownLayout, format_to_write
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.datasets import dataset_of
from zapdb.errors import CatalogChanged, ConcurrencyError
from zapdb.migrations import Chain
from zapdb.migrations.chain import find_parting, plan_between
from zapdb.records import ConversionPlan, copied_from
from zapdb.schema import Index, Schema, TableSchema
from zapdb.storage import Connection
from zapdb.storage.data_tables import create_record_table
from zapdb.storage.fixed_tables import RevisionEvent, TenantEvent
from zapdb.storage.record_statements import RecordStatements
from zapdb.storage.sequences import delete_sequence, read_last_numbers
from zapdb.storage.statements import raise_catalog_version
from zapdb.values import Reference


def switch(connection: Connection, catalog: TenantCatalog, chain: Chain, target: int) -> list[str]:
    """Move a tenant to a position of the chain, from wherever it is, inside a DDL transaction;
    returns the names of the changed tables.

    Appends one history entry for each table that differs, for any number of migrations in between
    (rule 6). Raises `ConcurrencyError` while the discarded records of a table are being deleted
    that comes back.
    """
    source, end = catalog.chain.up_to(catalog.position), chain.up_to(target)
    parting = find_parting(source, end)
    is_back = parting < catalog.position
    state = catalog.chain_state
    # A tenant that has yet to come to where it was rolled back has no values that were kept.
    first = end.after(parting)[:1] if state.kept or state.reapplied else ()
    is_again = bool(first) and first[0].keeps_values
    way = _Way(catalog.tenant, source, end, is_back, is_again, ChainPlace.on(chain, target))
    before, after = catalog.chain.schema_at(catalog.position), chain.schema_at(target)
    changed = _bring_tables(connection, way, catalog, before, after)
    users = _ServedTables(connection, catalog, chain)
    changed += _take_tables(connection, way, users, before, after)
    if is_back:
        forget_sequences(connection, catalog, end)
    event: TenantEvent = "rollback" if is_back else "activation"
    set_position(connection, catalog.tenant, event, way.place)
    return list(dict.fromkeys(changed))  # a dropped table may have the name of a new one


class _Way(NamedTuple):
    """From where a tenant is to where it goes: the ends of two chains. It `is_back` if migrations
    are left behind that are active now, and `is_again` if some come that were rolled back, and
    whose values may be archived."""

    tenant: int
    source: Chain
    target: Chain
    is_back: bool
    is_again: bool
    place: ChainPlace


def _bring_tables(
    connection: Connection, way: _Way, catalog: TenantCatalog, before: Schema, after: Schema
) -> list[str]:
    """Give the tables that differ their schemas; returns the names of those."""
    changed = list[str]()
    for table in after:
        kept = catalog.kept_tables.get(table.number)
        if kept is not None:  # it is active again, as it is or with another schema
            changed.append(table.name)
            if kept.schema != table:
                _change_kept_table(connection, way, catalog, kept, table)
        elif before.table_numbered(table.number) != table:
            changed.append(table.name)
            _change_table(connection, way, before, table)
    for archived in after.archived:
        if before.table_active_or_archived(archived.table.number) is None:
            _make_record_table(connection, way, archived.table)
    return changed


def _take_tables(
    connection: Connection, way: _Way, users: _ServedTables, before: Schema, after: Schema
) -> list[str]:
    """Drop the tables that are no more, but for those that processes go on with: these are kept.
    Returns their names."""
    changed = list[str]()
    for table in before:
        if after.table_numbered(table.number) is None:
            changed.append(table.name)
            if users.has(table.number):
                continue
            drop_table(connection, way.tenant, table, way.place)
            if after.table_active_or_archived(table.number) is None:
                retire_record_table(connection, way.tenant, table.number)
    for archived in before.archived:
        number = archived.table.number
        is_kept = number in users.catalog.kept_tables
        if after.table_active_or_archived(number) is None and not is_kept:
            retire_record_table(connection, way.tenant, number)
    return changed


def _change_table(connection: Connection, way: _Way, before: Schema, table: TableSchema) -> None:
    """Give a table its schema: a new one, one that is changed, or one that comes back."""
    old, known = before.table_numbered(table.number), before.table_active_or_archived(table.number)
    event: RevisionEvent = "create" if known is None else "restore" if old is None else "change"
    layout = NEW_LAYOUT
    if known is None:
        _make_record_table(connection, way, table)
    elif old is None:
        _require_swept(connection, way.tenant, table)
    if known is not None or way.is_back or way.is_again:  # else it is a new one
        layout = _find_layout(connection, way, table)
    event = "reapply" if way.is_again else "rollback" if way.is_back else event
    made = schema_history.NewRevision(way.tenant, table, event, way.place, layout)
    schema_history.append_revision(connection, made)
    kept = find_kept(old, table, way.source, way.target)
    exchange_indexes(connection, way.tenant, old, table, kept)
    reconcile_constraints(connection, way.tenant, old, table)


def _change_kept_table(
    connection: Connection,
    way: _Way,
    catalog: TenantCatalog,
    kept: TableDescriptor,
    table: TableSchema,
) -> None:
    """Make a table active again that was kept, with another schema than it has."""
    layout = _find_layout(connection, way, table)
    event: RevisionEvent = "reapply" if way.is_again else "rollback" if way.is_back else "restore"
    made = schema_history.NewRevision(way.tenant, table, event, way.place, layout)
    schema_history.append_revision(connection, made)
    source = catalog.line_to(catalog.place_of(kept))
    stay = find_kept(kept.schema, table, source, way.target)
    exchange_indexes(connection, way.tenant, kept.schema, table, stay)
    reconcile_constraints(connection, way.tenant, kept.schema, table)


class _ServedTables:
    """The tables that live processes, or such as may be started, are served."""

    def __init__(self, connection: Connection, catalog: TenantCatalog, chain: Chain) -> None:
        """`chain` is that of the stored migrations, to whose end the tenant comes."""
        self._connection, self.catalog, self._chain = connection, catalog, chain

    def has(self, number: int) -> bool:
        return number in self._numbers

    @cached_property
    def _numbers(self) -> set[int]:
        catalog, places = self.catalog, set(self.catalog.list_kept_places())
        found = {table.number for table in self._chain.schema_at(self._chain.end)}
        for node, is_alive in nodes.list_nodes(self._connection):
            if is_alive and node.row.served_migration:
                places.add(ChainPlace(node.row.served_position, node.row.served_migration))
        for place in places:
            with suppress(CatalogChanged):  # of before a backup was restored
                line = catalog.lines.find(place, catalog.chain, self._connection)
                found.update(table.number for table in line.schema_at(place.position))
        waiting = list(found)
        while waiting:  # with what a table refers to by the schema that it has
            table = catalog.find_numbered(waiting.pop())
            referred = set[int]() if table is None else _list_referred(table.schema)
            waiting += referred - found
            found |= referred
        return found


def _list_referred(table: TableSchema) -> set[int]:
    """The numbers of the tables that a table refers to."""
    kinds = (table.field_numbered(key.field).type for key in table.foreign_keys)
    return {kind.number for kind in kinds if isinstance(kind, Reference)}


def list_unused_tables(connection: Connection, catalog: TenantCatalog) -> list[TableSchema]:
    """The kept tables that nobody uses any more."""
    users = _ServedTables(connection, catalog, catalog.stored_chain)
    return [t.schema for number, t in catalog.kept_tables.items() if not users.has(number)]


def drop_unused_tables(connection: Connection, catalog: TenantCatalog) -> None:
    """Drop those, inside a DDL transaction."""
    gone, schema = list_unused_tables(connection, catalog), catalog.schema_at(catalog.place)
    for table in gone:
        drop_table(connection, catalog.tenant, table, catalog.place)
        if schema.table_active_or_archived(table.number) is None:
            retire_record_table(connection, catalog.tenant, table.number)
    if gone:
        raise_catalog_version(connection, catalog.tenant)


def _make_record_table(connection: Connection, way: _Way, table: TableSchema) -> None:
    """Create a table's record table; one that comes back is there already if another tenant has
    it, or if it could not be dropped yet."""
    if way.is_back or way.is_again:  # else it is a new one
        _require_swept(connection, way.tenant, table)
    create_record_table(connection, table.number)


def _require_swept(connection: Connection, tenant: int, table: TableSchema) -> None:
    """Raise `ConcurrencyError` if records of the table, which were discarded, are still to be
    deleted; no sweep does anything with it from now on."""
    if not is_retired(connection, tenant, table.number):
        return
    if not RecordStatements(connection.storage, table.number, tenant).is_empty(connection):
        raise ConcurrencyError(
            "the records of the table, which were discarded, are still being deleted",
            table=table.name,
            hint="run the command again",
        )
    rows.delete(connection, RetiredRecords, table.number, tenant)


def forget_sequences(connection: Connection, catalog: TenantCatalog, chain: Chain) -> None:
    """Take away the last numbers of fields that no schema of the chain has: their numbers are never
    used again. A field that was dropped earlier may be restored, and goes on then, and one of a
    migration that is kept still gets numbers."""
    tenant = catalog.tenant
    left = set(read_last_numbers(connection, tenant))
    for place in catalog.list_kept_places() if left else ():
        left -= {field.number for table in catalog.schema_at(place) for field in table.fields}
    for position in range(chain.end, chain.start, -1):
        if not left:
            return
        schema = chain.schema_at(position)
        left -= {field.number for table in schema for field in table.fields}
    for field in left:
        delete_sequence(connection, tenant, field)


def _find_layout(connection: Connection, way: _Way, table: TableSchema) -> KnownLayout:
    """Return what is known of a table's layout by the entries of its history that are no drops:
    records that had it before are current again, whatever layouts there were since, if it began on
    this line. A migration beside it may have made the same one, and declares another way back."""
    record_format, is_newest = format_to_write(connection, "record"), True
    entries = list(schema_history.read_entries(connection, way.tenant, table.number))
    places = {entry.revision: entry.place for entry in entries}
    for entry in reversed(entries):
        if entry.event == "drop":
            continue
        began = places.get(entry.first_layout_revision)  # None if that was pruned
        if began is not None and began != ChainPlace.on(way.target, began.position):
            is_newest = False
            continue
        if entry.record_format == record_format and entry.schema.layout == table.layout:
            since = entry.layout_revision if is_newest else None
            return KnownLayout(since, entry.first_layout_revision)
        is_newest = False
    return NEW_LAYOUT


def find_kept(
    old: TableSchema | None, table: TableSchema, source: Chain, target: Chain
) -> frozenset[int]:
    """The numbers of a table's indexes whose entries stay valid from the end of one chain to that
    of another."""
    if old is None or not table.indexes:
        return frozenset()
    plan = plan_between(source, target, table.number)
    return frozenset(
        index.number for index in table.indexes if keeps_entries(plan, old, table, index)
    )


def exchange_indexes(
    connection: Connection,
    tenant: int,
    old: TableSchema | None,
    table: TableSchema,
    kept: frozenset[int],
) -> None:
    """Drop the indexes of a table, and create those that it has now, but for the kept ones; inside
    a DDL transaction.

    An index is known by its number: one that has another name, too, is dropped and created.
    """
    # The gate excludes writers meanwhile, so a table that is empty now needs no index build.
    is_empty = RecordStatements(connection.storage, table.number, tenant).is_empty(connection)
    for index in () if old is None else old.indexes:
        if index.number not in kept:
            drop_index(connection, tenant, index)
    for index in table.indexes:
        if index.number not in kept:
            create_index(connection, tenant, table, index, empty=is_empty)


def keeps_entries(plan: ConversionPlan, old: TableSchema, new: TableSchema, index: Index) -> bool:
    """Return whether the existing entries are the same that the new schema would give, whose fields
    are made as the plan says (rule 20)."""
    before = next((i for i in old.indexes if i.number == index.number), None)
    if before is None or (before.components, before.unique) != (index.components, index.unique):
        return False
    path = plan.derivations
    return all(
        copied_from(path[component.field]) == component.field
        and old.field_numbered(component.field).type.index_encoding_id
        == new.field_numbered(component.field).type.index_encoding_id
        for component in index.components
    )


def create_index(
    connection: Connection,
    tenant: int,
    table: TableSchema,
    index: Index,
    *,
    empty: bool,
    former: dict[str, tuple[str, ...]] | None = None,
) -> IndexDescriptor:
    """Start an index in a new entry table; readable at once if the table has no records.

    `former` are the fingerprints of the datasets that it was built with before.
    """
    dependencies = table.datasets_of(index)
    made = IndexDescriptor(
        index,
        dependencies,
        "readable" if empty else "building",
        assign_entry_table(connection, tenant, index),
        rows.draw(connection, "index_build"),
        format_to_write(connection, "key"),
        {dataset.name: dataset for dataset in map(dataset_of, dependencies)},
        former=former or {},
    )
    _put_index(connection, tenant, table, made)
    return made


def drop_table(connection: Connection, tenant: int, table: TableSchema, place: ChainPlace) -> None:
    """Deactivate a table; its records are left to the caller."""
    for index in table.indexes:
        drop_index(connection, tenant, index)
    for kind, number, _ in constraints_of(table):
        rows.delete(connection, ConstraintRow, tenant, kind, number)
    schema_history.append_revision(
        connection, schema_history.NewRevision(tenant, table, "drop", place)
    )


def drop_index(connection: Connection, tenant: int, index: Index) -> None:
    row = rows.get(connection, IndexRow, tenant, index.number)
    if row is not None:
        retire_entries(connection, tenant, index.number, row.entry_table)
        rows.delete(connection, IndexRow, row.key)


def rebuild_index(
    connection: Connection, tenant: int, descriptor: TableDescriptor, index: Index
) -> None:
    """Retire the entries and build the index again, with the datasets of this process."""
    before = next(known for known in descriptor.indexes if known.index.number == index.number)
    drop_index(connection, tenant, index)
    former = before.find_former()
    create_index(connection, tenant, descriptor.schema, index, empty=False, former=former)
    raise_catalog_version(connection, tenant)


def rewrite_index(
    connection: Connection, tenant: int, table: TableSchema, index: IndexDescriptor
) -> None:
    """Begin to rewrite its entries with the datasets of this process, in place (rule 26)."""
    build = rows.draw(connection, "index_build")
    _put_index(connection, tenant, table, index.rewriting(build))
    raise_catalog_version(connection, tenant)


def disable_index(
    connection: Connection, tenant: int, table: TableSchema, index: IndexDescriptor
) -> None:
    """Retire the entries; no process reads or writes the index until it is rebuilt."""
    retire_entries(connection, tenant, index.index.number, index.entry_table)
    build = rows.draw(connection, "index_build")
    _put_index(connection, tenant, table, index.disabled(build))
    raise_catalog_version(connection, tenant)


def _put_index(
    connection: Connection, tenant: int, table: TableSchema, index: IndexDescriptor
) -> None:
    rows.put(connection, index.to_row(tenant, table.number))


def reconcile_constraints(
    connection: Connection, tenant: int, old: TableSchema | None, table: TableSchema
) -> None:
    """Create and delete the states of a table's checks and references.

    A new constraint is unvalidated until a job has checked all records; without records it is
    validated at once.
    """
    before = {} if old is None else {(kind, n): name for kind, n, name in constraints_of(old)}
    after = {(kind, number): name for kind, number, name in constraints_of(table)}
    for kind, number in sorted(before.keys() - after.keys()):
        rows.delete(connection, ConstraintRow, tenant, kind, number)
    added = sorted(after.keys() - before.keys())
    if not added:
        return
    records = RecordStatements(connection.storage, table.number, tenant)
    descriptor: ConstraintState = "validated" if records.is_empty(connection) else "unvalidated"
    for kind, number in added:
        rows.put(connection, ConstraintRow(tenant, kind, number, table.number, descriptor))


def publish_constraint(
    connection: Connection, tenant: int, table: TableSchema, constraint: ConstraintDescriptor
) -> None:
    """Mark a constraint as validated, inside a DDL transaction."""
    row = ConstraintRow(tenant, constraint.kind, constraint.number, table.number, state="validated")
    rows.put(connection, row)
    raise_catalog_version(connection, tenant)


def publish_index(
    connection: Connection, tenant: int, table: TableSchema, index: IndexDescriptor
) -> None:
    """Make a built index readable, inside a DDL transaction."""
    _put_index(connection, tenant, table, index.readable())
    raise_catalog_version(connection, tenant)


def set_position(
    connection: Connection, tenant: int, event: TenantEvent, place: ChainPlace
) -> None:
    row = rows.get(connection, Tenant, tenant, lock=True)
    assert row is not None
    moved = structs.replace(row, position=place.position, migration=place.migration)
    rows.put(connection, moved)
    append_position_event(connection, tenant, event, row.migration, place.migration)
    raise_catalog_version(connection, tenant)


def warm_dataset_fingerprints(schema: Schema) -> None:
    """Compute the fingerprints that an activation will need, before it takes the gate."""
    for table in schema:
        for index in table.indexes:
            for dependency in table.datasets_of(index):
                dataset_of(dependency)
