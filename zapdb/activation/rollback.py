"""The two ends of a rollback: mark the migration, and publish that it is rolled back (rule 13).

Each step holds the gate exclusively, briefly. After the mark, jobs convert the records of the
rolled-back revisions back, tenant by tenant. Application writes to a tenant are refused until its
records are converted and that is published. When the migration is active for no tenant, it is
removed from the chain. Everything works from the stored structures: no file is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.activation.activate import (
    drop_table,
    exchange_indexes,
    find_kept,
    find_layout,
    reconcile_constraints,
    set_position,
    warm_dataset_fingerprints,
)
from zapdb.activation.tenant_catalog import (
    OngoingRollback,
    TableDescriptor,
    TenantCatalog,
    load_tenant_catalog,
)
from zapdb.catalog import rows, schema_history
from zapdb.catalog.cluster import leases, nodes
from zapdb.catalog.cluster.leases import Lease
from zapdb.catalog.retired_tables import is_retired, retire_record_table
from zapdb.catalog.row_kinds import SettingRow, Tenant
from zapdb.catalog.settings import Scope
from zapdb.catalog.stored_migrations import (
    list_stored,
    mark_rolled_back,
    mark_rolling_back,
    read_chain,
    read_chain_state,
)
from zapdb.catalog.stored_settings import require_schema_changes_allowed
from zapdb.catalog.tenants import list_tenants
from zapdb.errors import ConcurrencyError, CorruptCatalog, UsageError
from zapdb.migrations import Migration
from zapdb.records import encode_prefix
from zapdb.schema import TableSchema
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.data_tables import create_record_table
from zapdb.storage.record_statements import RecordStatements
from zapdb.storage.sequences import delete_sequence, read_last_numbers
from zapdb.storage.statements import raise_catalog_version


@dataclass(frozen=True, slots=True)
class TableRollback:
    """A table's rollback: records of revisions above `keep` are converted to `revision`.

    `revision` is None for a table that the migration created: its records are deleted.
    """

    descriptor: TableDescriptor
    keep: int
    revision: int | None


@dataclass(frozen=True, slots=True)
class StartedRollback:
    """An ongoing rollback: the migration, and the tenants for which it is still active."""

    migration: Migration
    tenants: tuple[int, ...]


def start_rollback(
    storage: Storage, lease: Lease, *, digest: str | None = None, evict: bool = False
) -> StartedRollback:
    """Mark the newest migration as being rolled back; continues an interrupted rollback.

    With a `digest`, refuses to mark a migration that has another one. Raises `SchemaChangesRefused`
    if the migration is active for a tenant whose setting refuses changes; a rollback that has begun
    continues nevertheless.
    """
    with storage.transaction(TransactionMode.READ) as connection:
        chain = read_chain(list_stored(connection, read_chain_state(connection)))
    if not chain.migrations:
        raise UsageError("no migration is stored, so there is nothing to roll back")
    newest = chain.migrations[-1]
    if digest not in (None, newest.digest):
        raise ConcurrencyError(
            "a newer migration was stored in the meantime",
            found=newest.label,
            hint="nothing was rolled back; see `zapdb migrate status`",
        )
    if newest.replaces:
        raise UsageError(
            "a squash cannot be rolled back: the database begins with it",
            migration=newest.label,
        )
    warm_dataset_fingerprints(newest.before)
    with storage.transaction(TransactionMode.DDL) as connection:
        leases.check(connection, lease)
        _require_unused(connection, newest, evict=evict)
        # A tenant that is being removed is not rolled back: its records are never read again.
        tenants = [
            tenant
            for tenant in list_tenants(connection)
            if tenant.position >= newest.number and not tenant.removing
        ]
        if read_chain_state(connection, lock=True).rolling_back is None:
            _require_schema_changes_allowed(connection, tenants)
            mark_rolling_back(connection, newest.number)
            raise_catalog_version(connection)
    return StartedRollback(newest, tuple(t.number for t in tenants))


def _require_schema_changes_allowed(connection: Connection, tenants: list[Tenant]) -> None:
    require_schema_changes_allowed(connection)
    restricted = [row.key for row in rows.list_rows(connection, SettingRow)]
    for tenant in tenants:
        if Scope(tenant.number).key("schema_changes") in restricted:
            require_schema_changes_allowed(connection, tenant.number)


def _require_unused(connection: Connection, migration: Migration, *, evict: bool) -> None:
    users = []
    for node, alive in nodes.list_nodes(connection):
        if node.row.files_end < migration.number:
            continue
        # A process that is suspended may wake up: one whose lease is over is evicted for good.
        if evict or not alive:
            nodes.evict(connection, node)
        else:
            users.append(str(node.lease.owner))
    if users:
        raise UsageError(
            "running processes use the migration",
            migration=migration.label,
            nodes="; ".join(users),
            hint="stop them, or run `zapdb migrate rollback --evict`, which refuses their writes",
        )


def list_table_rollbacks(catalog: TenantCatalog) -> list[TableRollback]:
    """Return a tenant's tables whose records the ongoing rollback of the tenant catalog
    converts."""
    assert catalog.rolling_back is not None
    number = catalog.rolling_back.number
    before = catalog.chain.schema_at(number - 1)
    rollbacks = []
    for descriptor in catalog.tables.values():
        table = before.table_active_or_archived(descriptor.schema.number)
        if table is None:
            rollbacks.append(TableRollback(descriptor, 0, None))
        elif descriptor.schema.cells != table.cells:
            revision = catalog.rolling_back.revisions[table.number]
            rollbacks.append(
                TableRollback(descriptor, _last_kept(descriptor, number, revision), revision)
            )
    return rollbacks


def _last_kept(descriptor: TableDescriptor, number: int, reserved: int) -> int:
    """Return the newest revision whose records have the layout of a position before `number`.

    Returns 0 if the table has no such revision, because the tenant moved to `number` from a
    position without the table.
    """
    return max(
        (
            revision
            for revision, origin in descriptor.origins.items()
            if origin < number and revision != reserved
        ),
        default=0,
    )


def publish_rollback(storage: Storage, tenant: int, lease: Lease, migration: Migration) -> None:
    """Deactivate the migration for a tenant, once no record of its revisions is left."""
    with storage.transaction(TransactionMode.DDL) as connection:
        leases.check(connection, lease)
        catalog = load_tenant_catalog(connection, tenant)
        if catalog.rolling_back is None:
            return
        for rollback in list_table_rollbacks(catalog):
            _check_none_left(connection, tenant, rollback)
        _restore_tables(connection, catalog, catalog.rolling_back)
        _forget_sequences(connection, catalog, migration.number)
        place = schema_history.ChainPlace.on(catalog.chain, migration.number - 1)
        set_position(connection, tenant, "rollback", place)


def _forget_sequences(connection: Connection, catalog: TenantCatalog, number: int) -> None:
    """Take away the last numbers of fields that no earlier schema has: their numbers are never used
    again. A field that was dropped earlier may be restored, and goes on then."""
    left = set(read_last_numbers(connection, catalog.tenant))
    for position in range(number - 1, catalog.chain.start - 1, -1):
        if not left:
            return
        schema = catalog.chain.schema_at(position)
        left -= {field.number for table in schema for field in table.fields}
    for field in left:
        delete_sequence(connection, catalog.tenant, field)


def finish_rollback(storage: Storage, lease: Lease, migration: Migration) -> None:
    """Remove the migration from the chain, when it is active for no tenant."""
    with storage.transaction(TransactionMode.DDL) as connection:
        leases.check(connection, lease)
        mark_rolled_back(connection, migration.number)
        raise_catalog_version(connection)


def find_table_rollback(catalog: TenantCatalog, table: int) -> TableRollback:
    """Return the rollback of one table, as part of the ongoing rollback."""
    return next(
        rollback
        for rollback in list_table_rollbacks(catalog)
        if rollback.descriptor.schema.number == table
    )


def rollback_condition(mark: str, rollback: TableRollback) -> tuple[str, list[bytes]]:
    """The SQL condition and parameters of records at the rolled-back revisions."""
    condition, parameters = f"value >= {mark}", [encode_prefix(rollback.keep + 1)]
    if rollback.revision is not None:
        condition += f" AND value < {mark}"
        parameters.append(encode_prefix(rollback.revision))
    return condition, parameters


def _check_none_left(connection: Connection, tenant: int, rollback: TableRollback) -> None:
    records = RecordStatements(connection.storage, rollback.descriptor.schema.number, tenant)
    condition, parameters = rollback_condition(connection.storage.placeholder, rollback)
    (left,) = connection.fetch_one(f"{records.count_sql} AND {condition}", parameters)
    if left:
        raise CorruptCatalog(
            "some records still have the revision that was rolled back",
            table=rollback.descriptor.schema.name,
            records=left,
            hint="run `zapdb migrate rollback` again",
        )


def _restore_tables(
    connection: Connection, catalog: TenantCatalog, ongoing: OngoingRollback
) -> None:
    tenant, chain, number = catalog.tenant, catalog.chain, ongoing.number
    before = chain.schema_at(number - 1)
    place = schema_history.ChainPlace.on(chain, number - 1)
    for descriptor in catalog.tables.values():
        table = before.table_active_or_archived(descriptor.schema.number)
        if table is None:
            drop_table(connection, tenant, descriptor.schema, place)
            retire_record_table(connection, tenant, descriptor.schema.number)
            continue
        is_archived = before.table_numbered(table.number) is None
        stays = descriptor.schema.cells == table.cells
        # A tenant that jumped to the migration has nothing but that to say what records are of.
        is_origin = descriptor.origins.get(descriptor.layout_revision) == number
        if table != descriptor.schema or not stays or is_origin:
            layout = _restored_layout(catalog, descriptor, table, ongoing)
            made = schema_history.NewRevision(tenant, table, "rollback", place, layout)
            revision = schema_history.append_revision(connection, made)
            assert revision == ongoing.revisions[table.number]
            if not is_archived:
                kept = find_kept(chain, descriptor.schema, table, number, number - 1)
                exchange_indexes(connection, tenant, descriptor.schema, table, kept)
                reconcile_constraints(connection, tenant, descriptor.schema, table)
        if is_archived:
            drop_table(connection, tenant, descriptor.schema, place)
    for table in before:
        if chain.schema_at(number).table_numbered(table.number) is None:
            _bring_back(connection, catalog, table, place)


def _restored_layout(
    catalog: TenantCatalog,
    descriptor: TableDescriptor,
    table: TableSchema,
    ongoing: OngoingRollback,
) -> int | None:
    """The layout revision that the table returns to; None if no record ever had that layout.

    (A tenant that jumped over several migrations has no revision for those in between. Where the
    rolled-back one left the layout alone, records stay as they are, and so does its revision.)
    """
    if descriptor.schema.cells == table.cells:
        return descriptor.layout_revision
    last = _last_kept(descriptor, ongoing.number, ongoing.revisions[table.number])
    if not last:
        return None
    origin = descriptor.origins[last]
    old = catalog.chain.table_at(origin, table.number)
    if old.cells == table.cells:
        return descriptor.layouts[last]
    return None


def _bring_back(
    connection: Connection,
    catalog: TenantCatalog,
    table: TableSchema,
    place: schema_history.ChainPlace,
) -> None:
    """Activate a table again that the rolled-back migration dropped."""
    tenant = catalog.tenant
    if is_retired(connection, tenant, table.number):
        raise ConcurrencyError(
            "the records that this migration discarded are still being deleted",
            table=table.name,
            hint="run `zapdb migrate rollback` again",
        )
    create_record_table(connection, table.number)
    layout = find_layout(connection, tenant, catalog.chain, table)
    made = schema_history.NewRevision(tenant, table, "rollback", place, layout)
    schema_history.append_revision(connection, made)
    exchange_indexes(connection, tenant, None, table, frozenset())
    reconcile_constraints(connection, tenant, None, table)
