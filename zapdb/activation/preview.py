"""The schema that migration files would lead to, over records as they are: a look into the future.

Nothing is stored. The tenant catalog is the one that the tenant would have if the files were
applied now: records are converted when they are read, as after a migration, and an index that would
be built is scanned for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from zapdb.activation.activate import find_kept
from zapdb.activation.descriptors import (
    ConstraintDescriptor,
    IndexDescriptor,
    constraints_of,
)
from zapdb.activation.file_comparison import compare_files, resolve_pending
from zapdb.activation.tenant_catalog import (
    NOT_STORED,
    RevisionLog,
    TableDescriptor,
    TenantCatalog,
)
from zapdb.catalog.row_kinds import ConstraintKind, ConstraintState
from zapdb.catalog.schema_history import read_newest
from zapdb.catalog.stored_migrations import ChainPlace, StoredMigrations
from zapdb.memo import MadeWhenRead
from zapdb.migrations import Chain, MigrationFile
from zapdb.migrations.prove import require_proven
from zapdb.schema import TableSchema
from zapdb.storage import Storage

NO_STATES: Final[Mapping[tuple[ConstraintKind, int], ConstraintState]] = {}


@dataclass(frozen=True, slots=True, repr=False)
class PreviewCatalog(TenantCatalog):
    """`active` is the tenant catalog as it is; `created` are the numbers of the tables that the
    database has no rows of, since a file creates them."""

    active: TenantCatalog = field(kw_only=True, hash=False)
    created: frozenset[int] = field(kw_only=True)


class Preview:
    """Migration files up to the one with the number `target`, over a tenant catalog.

    The files are read now, and compared and proven once for each state of the stored migrations.
    """

    def __init__(self, storage: Storage, files: list[MigrationFile], target: int) -> None:
        self._storage = storage
        self._files = [replace(file, content=file.read().raw) for file in files]
        self._target = target
        self._resolved: tuple[StoredMigrations, Chain] | None = None

    def over(self, active: TenantCatalog) -> TenantCatalog:
        """The tenant catalog of a tenant with this one, if the files were applied.

        Raises `MigrationConflict`, `InvalidMigration` and `NotProven`.
        """
        chain = self._resolve(active)
        if self._target <= active.find_parting(chain):
            return active
        return catalog_at(self._storage, active, chain, self._target)

    def _resolve(self, active: TenantCatalog) -> Chain:
        known = self._resolved
        if known is not None and known[0] is active.stored:
            return known[1]
        pending = compare_files(self._files, active.stored, active.stored_chain).pending
        wanted = [file for file in pending if file.number <= self._target]
        chain = resolve_pending(wanted, active)
        require_proven([one for one in chain.after(active.stored_chain.end) if not one.is_stored])
        self._resolved = active.stored, chain
        return chain


def has_no_table(catalog: TenantCatalog, number: int) -> bool:
    """Whether the database has no records of a table yet, since a file creates it."""
    return isinstance(catalog, PreviewCatalog) and number in catalog.created


def catalog_at(
    storage: Storage, active: TenantCatalog, chain: Chain, target: int
) -> PreviewCatalog:
    """The tenant catalog of a tenant with this one that follows the chain to `target`."""
    before, after = active.chain.schema_at(active.position), chain.schema_at(target)
    tables, created = dict[str, TableDescriptor](), set[int]()
    for table in after:
        old = active.find_numbered(table.number)
        if old is not None:
            tables[table.name] = _change(active, chain, old, table, target)
        elif before.table_active_or_archived(table.number) is not None:
            tables[table.name] = _restore(storage, active, chain, table)
        else:
            created.add(table.number)
            tables[table.name] = _describe(table, {}, {})
    return PreviewCatalog(
        active.tenant,
        active.created_at,
        active.version,
        target,
        chain.at(target).id if target > chain.start else 0,
        active.chain_state,
        active.stored,
        active.stored_chain,
        chain,
        active.lines,
        tables,
        {},
        [*tables.values()],
        active.zones,
        active=active,
        created=frozenset(created),
    )


def _change(
    active: TenantCatalog,
    chain: Chain,
    descriptor: TableDescriptor,
    table: TableSchema,
    target: int,
) -> TableDescriptor:
    old = descriptor.schema
    if old == table:
        return replace(descriptor, kept_at=None)
    way = active.line_to(active.place_of(descriptor)), chain.up_to(target)
    kept = find_kept(old, table, *way)
    known = {one.index.number: one for one in descriptor.indexes if one.index.number in kept}
    indexes = tuple(
        replace(known[index.number], index=index)
        if index.number in known
        else IndexDescriptor.planned(table, index)
        for index in table.indexes
    )
    known_states = {(one.kind, one.number): one.state for one in descriptor.constraints}
    made = _describe(table, descriptor.origins, descriptor.layouts, indexes, known_states)
    if old.layout == table.layout:
        return replace(
            made,
            revision=descriptor.revision,
            layout_revision=descriptor.layout_revision,
            current=descriptor.current,
        )
    return made


def _restore(
    storage: Storage, active: TenantCatalog, chain: Chain, table: TableSchema
) -> TableDescriptor:
    """A table that was dropped, and its records archived."""
    newest = storage.read_now(lambda connection: read_newest(connection, active.tenant))
    log = RevisionLog(storage, active.tenant, newest)
    origins = MadeWhenRead(partial(log.find_origins, table.number))
    layouts = MadeWhenRead(partial(log.find_layouts, table.number))
    return _describe(table, origins, layouts)


def _describe(
    table: TableSchema,
    origins: Mapping[int, ChainPlace],
    layouts: Mapping[int, int],
    indexes: tuple[IndexDescriptor, ...] = (),
    states: Mapping[tuple[ConstraintKind, int], ConstraintState] = NO_STATES,
) -> TableDescriptor:
    return TableDescriptor(
        table,
        NOT_STORED,
        NOT_STORED,
        origins,
        layouts,
        indexes or tuple(IndexDescriptor.planned(table, index) for index in table.indexes),
        tuple(
            ConstraintDescriptor(kind, number, name, states.get((kind, number), "unvalidated"))
            for kind, number, name in constraints_of(table)
        ),
    )
