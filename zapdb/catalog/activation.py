"""Bringing a tenant from one position to another: what changes in the catalog, and nothing else.

No record is touched: the table gets a new revision, and records written under older ones are
converted when they are read, or by a job. Whatever needs building (an index) starts empty and
write-only; a job fills it.
"""

from __future__ import annotations

from dataclasses import replace

from zapdb.catalog import history, rows
from zapdb.catalog.retirement import retire_index_table
from zapdb.catalog.view import Forgetting, IndexState, TableState, View, index_key
from zapdb.datasets import dataset_of
from zapdb.migrations import Chain
from zapdb.records import Input, Layout
from zapdb.release import INDEX_KEY_FORMAT
from zapdb.schema import Index, Schema, Table
from zapdb.storage import Connection
from zapdb.storage.physical import create_index_table, create_record_table


def activate(connection: Connection, view: View, chain: Chain, target: int) -> list[str]:
    """Move a tenant forward to `target`, inside a CHANGE transaction; returns changed tables.

    One history entry for each table that differs, however many migrations lie between (rule 6).
    """
    before, after = chain.schema_at(view.position), chain.schema_at(target)
    changed = []
    for table in after:
        old = before.table_numbered(table.number)
        if old == table:
            continue
        changed.append(table.name)
        if old is None:
            create_record_table(connection, table.number)
        _append_entry(connection, view, chain, target, old, table)
        _build_indexes(connection, view.tenant, old, table, chain, view.position, target)
    for table in before:
        if after.table_numbered(table.number) is None:
            changed.append(table.name)
            for index in table.indexes:
                drop_index(connection, view.tenant, index)
    set_position(connection, view.tenant, target, forgetting=None)
    return changed


def _append_entry(
    connection: Connection,
    view: View,
    chain: Chain,
    target: int,
    old: Table | None,
    table: Table,
) -> None:
    layout_revision = None
    if old is not None and is_same_layout(chain, old, table, view.position, target):
        layout_revision = view.tables[old.name].layout_revision
    history.append(
        connection,
        view.tenant,
        table,
        "create" if old is None else "change",
        target,
        chain.migrations[target - 1].digest,
        layout_revision,
    )


def is_same_layout(chain: Chain, old: Table, new: Table, source: int, target: int) -> bool:
    """Whether records of the two shapes have the same bytes but for their prefix."""
    if Layout.of(old) != Layout.of(new):
        return False
    path = chain.path(new.number, source, target)
    return all(derivation == Input(number) for number, derivation in path.items())


def _build_indexes(
    connection: Connection,
    tenant: int,
    old: Table | None,
    table: Table,
    chain: Chain,
    source: int,
    target: int,
) -> None:
    for index in table.indexes:
        if old is None or not keeps_entries(chain, old, table, index, source, target):
            if old is not None and index in old.indexes:
                drop_index(connection, tenant, index)
            create_index(connection, tenant, table, index, empty=old is None)
    if old is not None:
        for index in old.indexes:
            if all(kept.number != index.number for kept in table.indexes):
                drop_index(connection, tenant, index)


def keeps_entries(
    chain: Chain, old: Table, new: Table, index: Index, source: int, target: int
) -> bool:
    """Whether entries built before are those that would be built after (rule 20)."""
    before = next((i for i in old.indexes if i.number == index.number), None)
    if before is None or before.components != index.components:
        return False
    path = chain.path(new.number, source, target)
    return all(
        path[component.field] == Input(component.field)
        and old.field_numbered(component.field).type.index_wire
        == new.field_numbered(component.field).type.index_wire
        for component in index.components
    )


def create_index(
    connection: Connection, tenant: int, table: Table, index: Index, *, empty: bool
) -> IndexState:
    """Start an index in a physical table of its own; readable at once if there are no records."""
    dependencies = table.datasets_of(index)
    datasets = [dataset_of(dependency) for dependency in dependencies]
    state = IndexState(
        index,
        dependencies,
        "readable" if empty else "write-only",
        rows.draw(connection, "physical"),
        INDEX_KEY_FORMAT,
        {dataset.name: dataset.fingerprint for dataset in datasets},
        {dataset.name: dataset.version for dataset in datasets},
    )
    create_index_table(connection, state.physical)
    key = index_key(tenant, index.number)
    rows.put(connection, "index", key, state.to_row(table.number))
    return state


def drop_index(connection: Connection, tenant: int, index: Index) -> None:
    key = index_key(tenant, index.number)
    row = rows.get(connection, "index", key)
    if row is not None:
        retire_index_table(connection, row["physical"])
        rows.delete(connection, "index", key)


def rebuild_index(connection: Connection, tenant: int, state: TableState, index: Index) -> None:
    """Throw the entries away and start again, with the datasets of this process."""
    drop_index(connection, tenant, index)
    create_index(connection, tenant, state.table, index, empty=False)
    bump_activation(connection, tenant)


def publish_index(connection: Connection, tenant: int, table: Table, state: IndexState) -> None:
    """Make a built index readable, inside a CHANGE transaction."""
    readable = replace(state, phase="readable")
    key = index_key(tenant, state.index.number)
    rows.put(connection, "index", key, readable.to_row(table.number))
    bump_activation(connection, tenant)


def set_position(
    connection: Connection, tenant: int, position: int, *, forgetting: Forgetting | None
) -> None:
    row = rows.get(connection, "tenant", str(tenant), lock=True)
    assert row is not None
    mark = None if forgetting is None else forgetting.to_row()
    value = row | {"position": position, "forgetting": mark}
    rows.put(connection, "tenant", str(tenant), value)
    bump_activation(connection, tenant)


def bump_activation(connection: Connection, tenant: int) -> None:
    connection.run(f"UPDATE zapdb_activations SET number = number + 1 WHERE tenant = {int(tenant)}")


def warm_datasets(schema: Schema) -> None:
    """Compute the fingerprints that an activation will need, before it takes the gate."""
    for table in schema:
        for index in table.indexes:
            for dependency in table.datasets_of(index):
                dataset_of(dependency)
