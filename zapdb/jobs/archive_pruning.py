"""Delete archived values at the end of their use: sweep restored ones, prune the others.

Only stale records need the archived values of a field that is active again; when no stale record is
left, the values are deleted. Archived values of dropped fields and tables are kept until an
operator prunes them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from zapdb.activation import TenantCatalog, load_tenant_catalog
from zapdb.activation.activate import (
    drop_unused_tables,
    forget_sequences,
    list_unused_tables,
)
from zapdb.activation.rollback import forget
from zapdb.activation.up import find_due
from zapdb.catalog import rows
from zapdb.catalog.retired_tables import delete_records, sweep_retired
from zapdb.catalog.row_kinds import ChainState
from zapdb.catalog.schema_events import append_archive_events
from zapdb.catalog.stored_migrations import (
    KeptMigration,
    read_chain_state,
    read_line,
)
from zapdb.catalog.tenants import list_tenants
from zapdb.errors import ConcurrencyError, UsageError
from zapdb.schema import TableSchema
from zapdb.storage import Connection, RecordStatements, Storage, TransactionMode
from zapdb.storage.archives import count_archives, delete_archives, has_archived
from zapdb.storage.sequences import read_last_numbers

logger = logging.getLogger("zapdb.retirement")

_Begin = Callable[[], AbstractContextManager[Connection]]


@dataclass(frozen=True, slots=True)
class ArchivedValues:
    """The archived values of one dropped field, or of one dropped table if `field` is None."""

    table: str
    field: str | None
    archived_by: int
    count: int


def sweep_archives(storage: Storage, tenant: int) -> int:
    """Delete the archived values of fields that are not archived any more, such as those that are
    active again, if no stale record needs them; returns how many. Safe to interrupt, and to run at
    the same time as everything else: if the schema changes meanwhile, which may drop such a field
    again, what is left stays."""
    with storage.transaction(TransactionMode.READ) as connection:
        kept = count_archives(connection, tenant)
        if not kept:
            return 0
        catalog = load_tenant_catalog(connection, tenant)
        unused = {
            table.number: cells
            for table in (descriptor.schema for descriptor in catalog.tables.values())
            if (cells := kept.get(table.number, {}).keys() - _needed_cells(catalog, table))
            and not _has_stale(connection, catalog, table.name)
        }
    try:
        return _delete(tenant, unused, partial(_begin_sweeping, storage, catalog))
    except ConcurrencyError:
        return 0  # the next sweep decides anew


def forget_migrations(
    storage: Storage, *, now: bool = False, evict: bool = False
) -> tuple[tuple[KeptMigration, ...], int]:
    """Forget migrations that were rolled back, as `activation.rollback.forget` does, and delete the
    values that only they made; returns how many these were, too. Safe to interrupt: what is left is
    deleted when the records of the table are converted next."""
    gone, values = forget(storage, now=now, evict=evict), 0
    for tenant in list_tenants(storage.connection()) if gone else ():
        if not tenant.removing:
            drop_kept_tables(storage, tenant.number)
            values += sweep_archives(storage, tenant.number)
            _forget_sequences(storage, tenant.number)
    if gone:
        sweep_chain_state(storage)
    return gone, values


def sweep_chain_state(storage: Storage) -> None:
    """Let go of migrations that were kept, and were forgotten, or applied again for all tenants, if
    no value that they made is archived. None is from then on, so this is looked at outside of the
    transaction that keeps others waiting."""
    with storage.transaction(TransactionMode.READ) as connection:
        state = read_chain_state(connection)
        unused = _list_without_values(connection, state)
    if not unused:
        return
    with storage.transaction(TransactionMode.DDL) as connection:
        now = read_chain_state(connection)
        if now.newest_id == state.newest_id:
            reapplied, forgotten = (
                tuple(one for one in some if one not in unused)
                for some in (now.reapplied, now.forgotten)
            )
            rows.put(connection, structs.replace(now, reapplied=reapplied, forgotten=forgotten))


def _list_without_values(connection: Connection, state: ChainState) -> set[tuple[int, int]]:
    waiting = list(state.forgotten)
    if state.reapplied and not find_due(connection):
        first = min(number for number, _ in state.reapplied)
        # One that is farther behind has no values that were kept.
        behind = [t.position for t in list_tenants(connection) if t.position >= first - 1 > 0]
        waiting += [one for one in state.reapplied if one[0] <= min(behind, default=one[0])]
    return {
        (number, id)
        for number, id in waiting
        if not has_archived(connection, read_line(connection, id).at(number).list_made_cells())
    }


def drop_what_is_unused(storage: Storage, tenant: int, known: TenantCatalog | None = None) -> None:
    """Forget migrations that are not kept any longer, and drop tables of a tenant that are not
    active, and that no process uses; `known` is a tenant catalog that was loaded before."""
    forget_migrations(storage)
    drop_kept_tables(storage, tenant, known)


def drop_kept_tables(storage: Storage, tenant: int, known: TenantCatalog | None = None) -> None:
    """Drop the tables of a tenant that are not active, and that no process uses any more."""
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant, known)
        if not catalog.kept_tables or not list_unused_tables(connection, catalog):
            return
    catalog.read_whole()
    try:
        with storage.transaction(TransactionMode.DDL) as connection:
            drop_unused_tables(connection, load_tenant_catalog(connection, tenant, catalog))
    except ConcurrencyError as error:
        logger.info("unused tables are dropped later: %s", error)
        return
    sweep_retired(storage)


def _forget_sequences(storage: Storage, tenant: int) -> None:
    """Take away the last numbers of fields that no migration has which is stored or kept."""
    with storage.transaction(TransactionMode.READ) as connection:
        if not read_last_numbers(connection, tenant):
            return
        catalog = load_tenant_catalog(connection, tenant)
    if catalog.is_due:
        return  # they are forgotten when it follows
    catalog.read_whole()
    with storage.transaction(TransactionMode.DDL) as connection:
        catalog = load_tenant_catalog(connection, tenant, catalog)
        forget_sequences(connection, catalog, catalog.stored_chain)


def _needed_cells(catalog: TenantCatalog, table: TableSchema) -> frozenset[int]:
    """Those of dropped fields, and those that a rolled-back migration made which is kept."""
    return table.archived_cells | (catalog.kept_fields(table.number).keys() - table.cells)


def _has_stale(connection: Connection, catalog: TenantCatalog, table: str) -> bool:
    descriptor = catalog.tables[table]
    records = RecordStatements(connection.storage, descriptor.schema.number, catalog.tenant)
    sql = f"SELECT 1 FROM {records.name} WHERE tenant = {records.tenant}"
    condition, parameters = descriptor.current.stale_sql(connection.storage.placeholder)
    return connection.fetch_one(f"{sql} AND {condition} LIMIT 1", parameters) is not None


def _delete(tenant: int, cells: Mapping[int, Collection[int]], begin: _Begin) -> int:
    """Delete archived values, by table and cell, in short transactions; returns how many."""
    deleted = 0
    for table, some in cells.items():
        after: bytes | None = b""
        while after is not None:
            with begin() as connection:
                found, after = delete_archives(connection, tenant, table, some, after)
            deleted += found
    return deleted


def list_archived(connection: Connection, catalog: TenantCatalog) -> list[ArchivedValues]:
    """What is archived at the tenant's position, in a READ transaction."""
    kept = count_archives(connection, catalog.tenant)
    schema = catalog.chain.schema_at(catalog.position)
    found = [
        ArchivedValues(table.name, a.field.name, a.archived_by, counts.get(a.field.cell, 0))
        for table in schema
        for counts in (kept.get(table.number, {}),)
        for a in table.archived
    ]
    for archived in schema.archived:
        records = RecordStatements(connection.storage, archived.table.number, catalog.tenant)
        (count,) = connection.fetch_one(records.count_sql)
        found.append(ArchivedValues(archived.table.name, None, archived.archived_by, int(count)))
    return found


def prune_archives(storage: Storage, tenant: int) -> int:
    """Delete everything that is archived; returns how many values and records.

    A rollback, or restoring, gives records then what is declared for those without an archived
    value. Raises `UsageError` while stale records are left: converting them archives more; and
    `ConcurrencyError` if the schema changes meanwhile, which may need what is left.

    The change log has two events for each field and table: `archive_pruning` before anything is
    deleted, and `archive_pruned` once all is.
    """
    drop_kept_tables(storage, tenant)
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, tenant)
        schema = catalog.chain.schema_at(catalog.position)
        for dropped in schema.archived:
            if dropped.table.number in catalog.kept_tables:
                raise UsageError(
                    "a table that was dropped is still used by processes with other files",
                    table=dropped.table.name,
                    hint="`zapdb cluster nodes` lists them: stop them first",
                )
        for table in schema:
            if table.archived and _has_stale(connection, catalog, table.name):
                raise UsageError(
                    "some records are not converted yet and would be archived later",
                    table=table.name,
                    hint="run `zapdb convert run` first",
                )
    cells = {table.number: table.archived_cells for table in schema if table.archived}
    tables = [dropped.table.number for dropped in schema.archived]
    pruned = [(table, cell) for table, some in cells.items() for cell in sorted(some)]
    pruned += ((number, 0) for number in tables)
    begin = partial(_begin_deleting, storage, catalog)
    with begin() as connection:
        append_archive_events(connection, tenant, pruned, is_done=False)
    deleted = _delete(tenant, cells, begin)
    for number in tables:
        deleted += delete_records(storage, tenant, number, begin)
    # What was archived meanwhile goes together with the event, beside which nobody writes: so what
    # was archived before it is gone, and what comes after it stays.
    with _begin_deleting(storage, catalog, TransactionMode.DDL) as connection:
        deleted += _delete(tenant, cells, lambda: nullcontext(connection))
        append_archive_events(connection, tenant, pruned, is_done=True)
    return deleted


@contextmanager
def _begin_deleting(
    storage: Storage, catalog: TenantCatalog, mode: TransactionMode = TransactionMode.JOB
) -> Iterator[Connection]:
    """A transaction beside which the schema does not change, and has not changed; raises
    `ConcurrencyError`. An index, a setting or an erasure is no change of the schema. The newest
    migration has an id of its own, also where it was rolled back and stored again."""
    with storage.transaction(mode) as connection:
        now = load_tenant_catalog(connection, catalog.tenant, catalog)
        if (now.place, now.chain_state) != (catalog.place, catalog.chain_state):
            raise ConcurrencyError(
                "the schema changed while archived values were deleted",
                position=now.position,
                before=catalog.position,
                hint="some are left; see what is archived now with `zapdb migrate prune-archive"
                " --dry-run`",
            )
        yield connection


@contextmanager
def _begin_sweeping(storage: Storage, catalog: TenantCatalog) -> Iterator[Connection]:
    """The same, where nothing else of the catalog has changed either: another sweep follows."""
    with _begin_deleting(storage, catalog) as connection:
        if load_tenant_catalog(connection, catalog.tenant, catalog).version != catalog.version:
            raise ConcurrencyError("the catalog changed while archived values were swept")
        yield connection
