"""The active schema of a tenant: an immutable tenant catalog, loaded whole and replaced after a
change.

Tables, fields and types are those that the stored migrations lead to at the tenant's position: they
stand in rows (`catalog.stored_schemas`). The revisions come from the schema history, the states of
indexes and constraints from the catalog's rows. Loading takes no longer for a longer chain:
migrations, and earlier revisions of tables, are read when something asks for them. The tenant
catalog carries the catalog version that it was loaded under; a statement that sees another one
reloads it (rule 8).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

from zapdb.activation.descriptors import (
    ConstraintDescriptor,
    IndexDescriptor,
    constraints_of,
)
from zapdb.catalog import rows
from zapdb.catalog.cache import CatalogCache, LoadedRows, SomeRows
from zapdb.catalog.cluster.level import require_supported
from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import (
    ChainState,
    ConstraintRow,
    IndexRow,
    LevelRow,
    SettingRow,
    Tenant,
    row_key,
)
from zapdb.catalog.schema_history import (
    RevisionEntry,
    read_entries,
    read_newest,
    read_other_layouts,
)
from zapdb.catalog.settings import ANY
from zapdb.catalog.stored_migrations import (
    ChainPlace,
    StoredChain,
    StoredLines,
    StoredMigrations,
    find_chain_state,
    is_rolled_back,
    open_line,
)
from zapdb.catalog.stored_schemas import load_schema
from zapdb.catalog.stored_settings import read_history_settings
from zapdb.catalog.zone_numbers import load_zones
from zapdb.errors import CorruptCatalog, MissingSchemaHistory, UnknownName
from zapdb.formats import require_known
from zapdb.memo import MadeWhenRead
from zapdb.migrations import Chain, Migration
from zapdb.migrations.chain import find_parting, plan_between, program_between
from zapdb.records import Conversion, ConversionPlan, CurrentRevisions, inputs_made_of
from zapdb.schema import Field, Schema, TableSchema, canonical_bytes
from zapdb.storage import Connection, Storage
from zapdb.storage.cells import as_number, reading
from zapdb.storage.statements import catalog_version_sql
from zapdb.values import Zones

NOT_STORED: Final = 0
"""The revision of records that are read by another schema than the stored one; no stored record has
it."""


@dataclass(frozen=True, slots=True)
class TableDescriptor:
    """A table of a tenant: its schema, its revisions, its indexes, its checks and references.

    `origins` has, for each revision that a record may have, the place in the tree of stored
    migrations whose layout the record has: the source of its conversion.
    """

    schema: TableSchema
    revision: int
    layout_revision: int
    origins: Mapping[int, ChainPlace] = field(hash=False)
    layouts: Mapping[int, int] = field(hash=False)
    """The lowest revision with the layout of each revision."""
    indexes: tuple[IndexDescriptor, ...]
    constraints: tuple[ConstraintDescriptor, ...] = ()
    logs_changes: bool = False
    """Whether changes of its records are kept in the change log."""
    current: CurrentRevisions = field(default=CurrentRevisions(0), hash=False)
    """The revisions whose records have the present layout: they are not stale."""
    reapplied: Mapping[int, ChainPlace] = field(default_factory=dict, hash=False)
    """The revisions with which a migration was active again that was kept, and its place: records
    of before got values then that no conversion makes."""
    kept_at: ChainPlace | None = None
    """Of a table that is not active any more, and kept for processes that use it: the place whose
    schema it has."""

    def __repr__(self) -> str:
        indexes = "".join(f", index {one.index.name} {one.state}" for one in self.indexes)
        return f"<table {self.schema.name!r}: revision {self.revision}{indexes}>"

    def is_reapplied_between(self, revision: int, later: int | None = None) -> bool:
        """Whether values that no conversion makes came back behind a revision, up to another."""
        return any(revision < at and (later is None or at <= later) for at in self.reapplied)

    def has_layout_of(self, revision: int) -> bool:
        """Whether records of a revision are known to have the present layout."""
        return revision == self.revision or self.layouts.get(revision) == self.current.first

    @property
    def unvalidated(self) -> tuple[ConstraintDescriptor, ...]:
        return tuple(c for c in self.constraints if not c.is_validated)


@dataclass(frozen=True, slots=True)
class TenantCatalog:
    tenant: int
    created_at: int
    """When the tenant was made: another one may have its number where a backup was restored."""
    version: int
    """An identity (`storage.identities`), so that an equal version means the same catalog."""
    position: int
    migration: int
    """The id of the migration at the position, 0 if there is none."""
    chain_state: ChainState
    stored: StoredMigrations = field(hash=False)
    """Those on the chain."""
    stored_chain: Chain = field(hash=False)
    """The chain: all stored migrations that are not rolled back."""
    chain: Chain = field(hash=False)
    """The chain; of a tenant whose migration was rolled back, which is still active for it, the
    line that leads to that one. Its migrations are active up to `position`."""
    lines: StoredLines = field(hash=False)
    tables: dict[str, TableDescriptor] = field(hash=False)
    kept_tables: dict[int, TableDescriptor] = field(hash=False)
    """Those that are not active, and that processes with other files go on with, by number: they
    have no entry of a drop in the schema history yet."""
    all_tables: Sequence[TableDescriptor] = field(hash=False, repr=False)
    """The active ones, and those that are kept."""
    zones: Zones
    """The numbers that stand for time zones in this database's records."""

    def __repr__(self) -> str:
        tables = ", ".join(self.tables) or "no tables"
        return f"<tenant {self.tenant} at position {self.position}: {tables}>"

    @property
    def is_due(self) -> bool:
        """Whether the migration that is active was rolled back: the tenant has to follow."""
        return self.chain is not self.stored_chain

    @property
    def place(self) -> ChainPlace:
        return ChainPlace(self.position, self.migration)

    def find_parting(self, chain: Chain) -> int:
        """The position from which the tenant would go forward on a chain: its own, or where that
        chain leaves the line of a migration that was rolled back."""
        if chain is self.chain:
            return self.position
        return find_parting(self.chain.up_to(self.position), chain)

    def line_to(self, place: ChainPlace) -> Chain:
        """Return the chain that ends at a place, whether it is rolled back or not."""
        if self.is_on_chain(place):
            return self.chain.up_to(place.position)
        return self.lines.find(place, self.chain)

    def list_kept_places(self) -> list[ChainPlace]:
        """The places of migrations that were rolled back and are kept."""
        return [ChainPlace(*one) for one in self.chain_state.kept]

    def list_places_beside(self) -> list[ChainPlace]:
        """Those of them that do not lead to where the tenant is, and those that were applied again,
        which it has yet to come to: the values that they made are archived."""
        reapplied = (ChainPlace(*one) for one in self.chain_state.reapplied)
        return [p for p in (*self.list_kept_places(), *reapplied) if not self.is_behind(p)]

    def _list_forgotten_places(self) -> list[ChainPlace]:
        return [ChainPlace(*one) for one in self.chain_state.forgotten]

    def is_behind(self, place: ChainPlace) -> bool:
        """Whether a place leads to where the tenant is."""
        return place.position <= self.position and self.is_on_chain(place)

    def find_kept_behind(self, chain: Chain, digest: str) -> Chain | None:
        """The line of the migration with a digest that was stored behind the end of a chain, rolled
        back, and is kept; of several the newest."""
        for place in reversed(self.list_kept_places()):
            if place.position == chain.end + 1:
                line = self.line_to(place)
                is_behind = find_parting(line, chain) == chain.end
                if is_behind and line.at(place.position).digest == digest:
                    return line
        return None

    def has_been_at(self, place: ChainPlace) -> bool:
        """Whether a table of the tenant got a revision at a place."""
        return any(place in one.origins.values() for one in self.all_tables)

    def kept_fields(self, table: int) -> dict[int, Field]:
        """The fields whose values are archived because a migration made them that was rolled back
        and is kept, by cell."""
        found = dict[int, Field]()
        for place in self.list_places_beside():
            line = self.line_to(place)
            found |= line.at(line.end).list_made(table)
        return found

    def reapplied_fields(self, table: int) -> dict[int, Field]:
        """The fields, by cell, that migrations made which were rolled back and are active again: of
        records that are not converted yet, their values may be archived."""
        found = dict[int, Field]()
        for number, id in self.chain_state.reapplied:
            if self.is_behind(ChainPlace(number, id)):
                found |= self.chain.at(number).list_made(table)
        return found

    def find_kept_following(self, table: int, source: ChainPlace) -> dict[int, frozenset[int]]:
        """The cells of such fields that are made of each field of a table at a place, by the
        field's number."""
        kept = self.kept_fields(table)
        if not kept:
            return {}
        found, remade = dict[int, set[int]](), kept | self.reapplied_fields(table)
        own = self.table_at(source, table).cells
        for place in self.list_places_beside():
            schema = self.line_to(place).schema_at(place.position).table_numbered(table)
            made = (
                () if schema is None else [f for f in schema.fields if f.cell in kept.keys() - own]
            )
            if not made:
                continue
            plan = self.plan(table, source, place)
            for f in made:
                for number in inputs_made_of(plan.derivations[f.number], remade):
                    found.setdefault(number, set()).add(f.cell)
        return {number: frozenset(cells) for number, cells in found.items()}

    def schema_at(self, place: ChainPlace) -> Schema:
        """Return the schema of a place, whether it is rolled back or not."""
        if self.is_on_chain(place):
            return self.chain.schema_at(place.position)
        return self.line_to(place).schema_at(place.position)

    def table_at(self, place: ChainPlace, number: int) -> TableSchema:
        """Return a table that is active or archived at a place."""
        table = self.schema_at(place).table_active_or_archived(number)
        assert table is not None
        return table

    def plan(self, table: int, source: ChainPlace, target: ChainPlace) -> ConversionPlan:
        """How a table's fields at a place come from those at another one."""
        if self.is_on_chain(source) and self.is_on_chain(target):
            return self.chain.conversion_plan(table, source.position, target.position)
        return plan_between(self.line_to(source), self.line_to(target), table)

    def program(self, table: int, source: ChainPlace, target: ChainPlace) -> Conversion:
        """The compiled conversion of a table's records from one place to another."""
        if self.is_on_chain(source) and self.is_on_chain(target):
            return self.chain.program(table, source.position, target.position, self.zones)
        line, end = self.line_to(source), self.line_to(target)
        if target.position and not target.migration:  # of a file that is not stored
            return program_between(line, end, table, self.zones)[0]
        key = source.migration, target, table, self.zones
        return self.lines.programs.get(
            key, lambda: program_between(line, end, table, self.zones)[0]
        )

    def list_steps(
        self, table: int, source: ChainPlace
    ) -> Iterator[tuple[Migration, ConversionPlan]]:
        """Yield the migrations that change a table on the way from a place to where the tenant is,
        back first, each with how it makes the table's fields."""
        line, end = self.line_to(source), self.chain.up_to(self.position)
        same = find_parting(line, end)
        back = ((m, m.conversion_down) for m in reversed(line.after(same)))
        for migration, plan in (*back, *((m, m.conversion_up) for m in end.after(same))):
            before, after = (
                schema.table_active_or_archived(table)
                for schema in (migration.before, migration.after)
            )
            if before != after:
                yield migration, plan(table)

    def is_on_chain(self, place: ChainPlace) -> bool:
        return place == self.place or place == ChainPlace.on(self.chain, place.position)

    def archived_fields(self, table: int) -> Mapping[int, Field]:
        """Every field of a table whose values any migration archives, by cell: those of the chain,
        and of migrations that records may have the revisions of."""
        if not self.chain_state.has_branches:
            return self.chain.archived_fields(table)

        def find() -> dict[int, Field]:
            found = dict[int, Field]()
            known = (one for one in self.all_tables if one.schema.number == table)
            places = {place for one in known for place in one.origins.values()}
            for place in places.union(self.list_places_beside()):
                if not self.is_on_chain(place):
                    found |= self.line_to(place).archived_fields(table)
            for place in self._list_forgotten_places():
                found |= self.line_to(place).at(place.position).list_made(table)
            return found | {**self.chain.archived_fields(table)}

        return MadeWhenRead(find)

    def read_branches(self) -> None:
        """Read the migrations that were rolled back and that records may have the revisions of, if
        those of the chain are read: later, an open transaction would need a second connection."""
        if self.chain_state.has_branches and self.stored.is_read:
            for descriptor in self.all_tables:
                len(self.archived_fields(descriptor.schema.number))

    def read_kept(self, connection: Connection) -> None:
        """Read the lines of what is kept, by this connection: each write has to know them."""
        if not self.stored.is_read:
            self.stored.read(connection)
        for place in (*self.list_kept_places(), *self._list_forgotten_places()):
            self.lines.find(place, self.chain, connection)
        for table in self.kept_tables.values():
            self.lines.find(self.place_of(table), self.chain, connection)

    def is_as(self, version: object, state: ChainState | None) -> bool:
        """Return whether the catalog has this version and this chain. Nothing of it changes
        without another version."""
        return (self.version, self.chain_state) == (version, state)

    def read_whole(self) -> None:
        """Read the migrations and the schema history now: not while the gate is held, or after the
        database is closed."""
        len(self.chain.migrations)
        len(self.stored)
        for descriptor in self.all_tables:
            len(descriptor.origins)

    def table(self, name: str) -> TableDescriptor:
        found = self.tables.get(name)
        if found is None:
            raise UnknownName.of_table(name, self.tables)
        return found

    def place_of(self, descriptor: TableDescriptor) -> ChainPlace:
        """The place whose schema a table has: that of the tenant, if it is not a kept one."""
        return self.place if descriptor.kept_at is None else descriptor.kept_at

    def find_numbered(self, number: int) -> TableDescriptor | None:
        """Return the table with a number, active or kept."""
        for descriptor in self.tables.values():
            if descriptor.schema.number == number:
                return descriptor
        return self.kept_tables.get(number)

    def table_numbered(self, number: int, name: str) -> TableDescriptor:
        """Return the table with a number; raises `UnknownName`, with `name`, if it was dropped, and
        is not kept."""
        found = self.find_numbered(number)
        if found is None:
            raise UnknownName("the table was dropped", table=name)
        return found


def load_tenant_catalog(
    connection: Connection,
    tenant: int,
    known: TenantCatalog | None = None,
    cache: CatalogCache | None = None,
) -> TenantCatalog:
    """Load the tenant catalog, inside a transaction; parts of `known` that are still valid are
    kept.

    With a `cache`, the transaction must read one snapshot. The catalog's rows are not read if the
    cache has the rows of that snapshot.
    """
    with reading("zapdb_catalog"):
        catalog = _load_tenant_catalog(connection, tenant, known, cache)
        state = catalog.chain_state
        if state.kept or state.reapplied or state.forgotten or catalog.kept_tables:
            catalog.read_kept(connection)
        return catalog


def _load_tenant_catalog(
    connection: Connection, tenant: int, known: TenantCatalog | None, cache: CatalogCache | None
) -> TenantCatalog:
    version, found = _read_state(connection, tenant, cache)
    row = _find_tenant(found, version, tenant)
    position, chain_state = row.position, find_chain_state(found)
    if known is not None and known.tenant == tenant:
        if known.created_at != row.created_at:
            raise UnknownName("the tenant was removed", tenant=tenant)
        if known.is_as(version, chain_state):
            return known
    keeping = chain_state.value_keeping_ids
    stored, stored_chain = _open_chain(connection, chain_state, keeping, known)
    if _is_due(connection, row, chain_state):
        if not stored.is_read:
            stored.read(connection)  # the tenant follows from where the lines part
        chain = _open_own_line(connection, row, keeping, known)
        schema = chain.schema_at(position)
    else:
        chain = stored_chain
        schema = _load_schema(connection, row, stored_chain)
    if not isinstance(found, CatalogCache):
        found = SomeRows.read(connection, (IndexRow, ConstraintRow, SettingRow), ANY, tenant)
    tables, kept_tables = _load_tables(connection, tenant, schema, found, chain_state)
    zones = load_zones(connection) if known is None else known.zones
    lines = None
    if known is not None and known.lines.kept == keeping:
        lines = known.lines
    return TenantCatalog(
        tenant,
        row.created_at,
        as_number(version),
        position,
        row.migration,
        chain_state,
        stored,
        stored_chain,
        chain,
        StoredLines(connection.storage, keeping) if lines is None else lines,
        tables,
        kept_tables,
        [*tables.values(), *kept_tables.values()],
        zones,
    )


def _load_tables(
    connection: Connection, tenant: int, schema: Schema, found: LoadedRows, state: ChainState
) -> tuple[dict[str, TableDescriptor], dict[int, TableDescriptor]]:
    """The tables of the active schema, and those that are kept."""
    newest = read_newest(connection, tenant)
    others = read_other_layouts(connection, tenant, newest.values())
    indexes, constraints = dict[str, IndexRow](), dict[str, ConstraintRow]()
    for index in found.list(IndexRow, tenant):
        indexes[index.key] = index
    for constraint in found.list(ConstraintRow, tenant):
        constraints[constraint.key] = constraint
    recorded = read_history_settings(found, tenant)
    log = RevisionLog(connection.storage, tenant, newest)
    if state.has_branches:
        log.read(connection)

    def describe(table: TableSchema, last: RevisionEntry) -> TableDescriptor:
        number = table.number
        return TableDescriptor(
            table,
            last.revision,
            last.layout_revision,
            MadeWhenRead(partial(log.find_origins, number)),
            MadeWhenRead(partial(log.find_layouts, number)),
            _index_descriptors(tenant, table, indexes),
            _constraint_descriptors(tenant, table, constraints),
            recorded.records(number),
            CurrentRevisions(last.first_layout_revision, others.get(number, ())),
            MadeWhenRead(partial(log.find_reapplied, number)),
        )

    tables = dict[str, TableDescriptor]()
    for table in schema:
        entry = _require_entry(table, newest.pop(table.number, None))
        tables[table.name] = describe(table, entry)
    kept = dict[int, TableDescriptor]()
    for number, last in newest.items():
        if last.event != "drop":
            kept[number] = replace(describe(last.schema, last), kept_at=last.place)
    return tables, kept


def is_catalog_unchanged(connection: Connection, known: TenantCatalog) -> bool:
    """Return whether a tenant's catalog is as `known`, by one statement; raises
    `IncompatibleVersion` if this release is too old for the database."""
    with reading("zapdb_catalog"):
        version, texts = rows.read_tenant_state(connection, known.tenant)
        found = SomeRows(texts)
        require_supported(found.get(LevelRow))
        row, state = found.get(Tenant, known.tenant), found.get(ChainState)
    return row is not None and not row.removing and known.is_as(version, state)


def _read_state(
    connection: Connection, tenant: int, cache: CatalogCache | None
) -> tuple[Any, LoadedRows]:
    """Return a tenant's stored catalog version, and the rows that tell its state: those of the
    cache, if one statement shows that it is current."""
    if cache is not None and cache.seq == read_seq(connection):
        active = connection.fetch_one(catalog_version_sql(tenant))
        return None if active is None else as_number(active[0]), cache
    version, texts = rows.read_tenant_state(connection, tenant)
    return version, SomeRows(texts)


def _find_tenant(found: LoadedRows, version: Any, tenant: int) -> Tenant:
    row = found.get(Tenant, tenant)
    if (row is None and version is None) or (row is not None and row.removing):
        raise UnknownName("the tenant was removed", tenant=tenant)
    if row is None or version is None:
        raise CorruptCatalog(
            "the tenant's row is missing",
            tenant=tenant,
            table="zapdb_catalog" if row is None else "zapdb_catalog_versions",
            hint="restore it from a backup",
        )
    return row


def _open_chain(
    connection: Connection,
    state: ChainState,
    keeping: frozenset[int],
    known: TenantCatalog | None,
) -> tuple[StoredMigrations, StoredChain]:
    """Return the stored migrations and their chain, which are read when they are needed; migrations
    in `known` are not read again."""
    if known is None or not isinstance(known.stored_chain, StoredChain):
        stored = StoredMigrations(connection.storage, state)
        return stored, StoredChain(stored, state.stored_end, None, keeping)
    if known.chain_state.newest_id == state.newest_id:
        if known.chain_state.reapplied == state.reapplied:
            return known.stored, known.stored_chain
        stored = known.stored
    else:
        stored = StoredMigrations(connection.storage, state, known.stored)
    return stored, StoredChain(stored, state.stored_end, known.stored_chain, keeping)


def _is_due(connection: Connection, row: Tenant, state: ChainState) -> bool:
    """Whether the migration that is active for a tenant was rolled back; raises `CorruptCatalog` if
    it is nowhere."""
    if (row.migration, row.position) in ((0, 0), (state.newest_id, state.stored_end)):
        return False
    if is_rolled_back(connection, row.migration):
        return True
    if row.position > state.stored_end:
        raise CorruptCatalog(
            "the tenant's position is beyond the stored migrations",
            position=row.position,
            stored=state.stored_end,
        )
    return False


def _open_own_line(
    connection: Connection, row: Tenant, keeping: frozenset[int], known: TenantCatalog | None
) -> StoredChain:
    if known is not None and known.migration == row.migration and known.is_due:
        assert isinstance(known.chain, StoredChain)
        if known.lines.kept == keeping:
            return known.chain
    return open_line(connection, ChainPlace(row.position, row.migration), keeping)


def _load_schema(connection: Connection, row: Tenant, chain: StoredChain) -> Schema:
    if row.position and not chain.knows(row.position):
        chain.note_schema(row.position, load_schema(connection, row.migration))
    return chain.schema_at(row.position) if row.position else Schema()


class RevisionLog:
    """The schema history of a tenant up to its newest entries, read when something asks for an
    earlier revision than these."""

    def __init__(self, storage: Storage, tenant: int, newest: dict[int, RevisionEntry]) -> None:
        self._storage, self._tenant = storage, tenant
        self._newest = {number: entry.revision for number, entry in newest.items()}

    def find_origins(self, table: int) -> dict[int, ChainPlace]:
        return {entry.revision: entry.place for entry in self._entries.get(table, [])}

    def find_reapplied(self, table: int) -> dict[int, ChainPlace]:
        entries = self._entries.get(table, [])
        return {entry.revision: entry.place for entry in entries if entry.event == "reapply"}

    def find_layouts(self, table: int) -> dict[int, int]:
        return {e.revision: e.first_layout_revision for e in self._entries.get(table, [])}

    def read(self, connection: Connection) -> None:
        """Read it now, by this connection."""
        self._entries = self._by_table(self._read(connection))

    @cached_property
    def _entries(self) -> dict[int, list[RevisionEntry]]:
        return self._by_table(self._storage.read_now(self._read))

    def _by_table(self, entries: Iterable[RevisionEntry]) -> dict[int, list[RevisionEntry]]:
        found: dict[int, list[RevisionEntry]] = {}
        for entry in entries:
            require_known("record", entry.record_format, revision=entry.revision)
            if entry.revision <= self._newest.get(entry.table_number, 0):
                found.setdefault(entry.table_number, []).append(entry)
        return found

    def _read(self, connection: Connection) -> list[RevisionEntry]:
        return list(read_entries(connection, self._tenant))


def _index_descriptors(
    tenant: int, table: TableSchema, indexes: dict[str, IndexRow]
) -> tuple[IndexDescriptor, ...]:
    states = []
    for index in table.indexes:
        row = indexes.get(row_key(tenant, index.number))
        if row is None:
            raise CorruptCatalog("an index has no state", table=table.name, index=index.name)
        require_known("key", row.key_format, table=table.name, index=index.name)
        states.append(IndexDescriptor.from_row(table, index, row))
    return tuple(states)


def _constraint_descriptors(
    tenant: int, table: TableSchema, found: dict[str, ConstraintRow]
) -> tuple[ConstraintDescriptor, ...]:
    states = []
    for kind, number, name in constraints_of(table):
        row = found.get(row_key(tenant, kind, number))
        if row is None:
            raise CorruptCatalog(
                "a constraint has no state", table=table.name, constraint=f"{kind} {name}"
            )
        states.append(ConstraintDescriptor(kind, number, name, row.state))
    return tuple(states)


def _require_entry(table: TableSchema, newest: RevisionEntry | None) -> RevisionEntry:
    """Return the newest entry; raise `CorruptCatalog` if a table's schema history does not end with
    the active schema."""
    if newest is None:
        raise MissingSchemaHistory(
            "an active table has no schema history",
            table=table.name,
            hint="open the database or run `zapdb catalog revisions`; both begin one",
        )
    if newest.schema_bytes != canonical_bytes(table):
        raise CorruptCatalog(
            "the schema history of a table does not end at its active schema",
            table=table.name,
            revision=newest.revision,
            hint="somebody wrote to the database beside zapdb: run `zapdb verify --repair`, which "
            "makes the active schema anew from the stored migrations; if that does not help, "
            "restore zapdb_migrations and zapdb_schema_history from a backup",
        )
    require_known("record", newest.record_format, table=table.name, revision=newest.revision)
    return newest
