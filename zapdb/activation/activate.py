"""Move a tenant from one position to another: the changes to the catalog, and nothing else.

No record is touched: the table gets a new revision, and records written under older ones are
converted when they are read, or by a job. A new index starts empty and "building", and a job fills
it. A new check or reference starts unvalidated.
"""

from __future__ import annotations

from msgspec import structs

from zapdb.activation.descriptors import (
    ConstraintDescriptor,
    IndexDescriptor,
    constraints_of,
)
from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog
from zapdb.catalog import rows, schema_history
from zapdb.catalog.retired_tables import (
    assign_entry_table,
    retire_entries,
    retire_record_table,
)
from zapdb.catalog.row_kinds import ConstraintRow, ConstraintState, IndexRow, Tenant
from zapdb.catalog.schema_events import append_position_event
from zapdb.catalog.schema_history import format_to_write
from zapdb.datasets import dataset_of
from zapdb.migrations import Chain
from zapdb.records import copied_from
from zapdb.schema import Index, Schema, TableSchema
from zapdb.storage import Connection
from zapdb.storage.data_tables import create_record_table
from zapdb.storage.fixed_tables import RevisionEvent, TenantEvent
from zapdb.storage.record_statements import RecordStatements
from zapdb.storage.statements import raise_catalog_version


def activate(
    connection: Connection, catalog: TenantCatalog, chain: Chain, target: int
) -> list[str]:
    """Move a tenant forward to `target`, inside a DDL transaction; returns the names of the changed
    tables.

    Appends one history entry for each table that differs, for any number of migrations in between
    (rule 6).
    """
    before, after = chain.schema_at(catalog.position), chain.schema_at(target)
    changed = []
    for table in after:
        old = before.table_numbered(table.number)
        if old == table:
            continue
        changed.append(table.name)
        if old is None:
            create_record_table(connection, table.number)
        _append_entry(connection, catalog, chain, target, table)
        kept = find_kept(chain, old, table, catalog.position, target)
        exchange_indexes(connection, catalog.tenant, old, table, kept)
        reconcile_constraints(connection, catalog.tenant, old, table)
    place = schema_history.ChainPlace.on(chain, target)
    for table in before:
        if after.table_numbered(table.number) is None:
            changed.append(table.name)
            drop_table(connection, catalog.tenant, table, place)
            if after.table_active_or_archived(table.number) is None:
                retire_record_table(connection, catalog.tenant, table.number)
    set_position(connection, catalog.tenant, "activation", place)
    return list(dict.fromkeys(changed))  # a dropped table may have the name of a new one


def _append_entry(
    connection: Connection,
    catalog: TenantCatalog,
    chain: Chain,
    target: int,
    table: TableSchema,
) -> None:
    before = chain.schema_at(catalog.position)
    old = before.table_active_or_archived(table.number)
    is_archived = before.table_numbered(table.number) is None
    event: RevisionEvent = "create" if old is None else "restore" if is_archived else "change"
    place = schema_history.ChainPlace.on(chain, target)
    layout = find_layout(connection, catalog.tenant, chain, table)
    made = schema_history.NewRevision(catalog.tenant, table, event, place, layout)
    schema_history.append_revision(connection, made)


def find_layout(
    connection: Connection, tenant: int, chain: Chain, table: TableSchema
) -> int | None:
    """Return the layout revision that a table's records already have, if it fits the table.

    Compares with the newest entry of the table's history that is on the chain and no drop. Returns
    None without such an entry, or if its records have another layout.
    """
    for entry in reversed(list(schema_history.read_entries(connection, tenant, table.number))):
        if entry.event == "drop" or not schema_history.is_on_chain(entry, chain):
            continue
        is_same = entry.record_format == format_to_write(connection, "record")
        is_same = is_same and entry.schema.cells == table.cells
        return entry.layout_revision if is_same else None
    return None


def find_kept(
    chain: Chain, old: TableSchema | None, table: TableSchema, source: int, target: int
) -> frozenset[int]:
    """The numbers of a table's indexes whose entries stay valid between two positions."""
    return frozenset(
        index.number
        for index in table.indexes
        if old is not None and keeps_entries(chain, old, table, index, source, target)
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


def keeps_entries(
    chain: Chain, old: TableSchema, new: TableSchema, index: Index, source: int, target: int
) -> bool:
    """Return whether the existing entries are the same that the new schema would give (rule 20)."""
    before = next((i for i in old.indexes if i.number == index.number), None)
    if before is None or (before.components, before.unique) != (index.components, index.unique):
        return False
    path = chain.conversion_plan(new.number, source, target).derivations
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


def drop_table(
    connection: Connection, tenant: int, table: TableSchema, place: schema_history.ChainPlace
) -> None:
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
    connection: Connection, tenant: int, event: TenantEvent, place: schema_history.ChainPlace
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
