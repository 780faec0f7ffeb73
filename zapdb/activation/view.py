"""What is in force for a tenant: an immutable view, loaded whole and replaced when it changes.

Tables, fields and types are derived from the chain and the tenant's position; the revisions come
from the fingerprint history, the states of indexes and constraints from the catalog's rows. The
view carries the activation number that it was loaded under; a statement that sees another one
reloads it (rule 8).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from zapdb.catalog import rows
from zapdb.catalog.history import Entry, read_entries
from zapdb.catalog.stored import (
    ChainState,
    StoredMigration,
    list_stored,
    read_chain,
    read_chain_state,
)
from zapdb.catalog.stored_settings import read_history_settings
from zapdb.catalog.zones import load_zones
from zapdb.datasets import Dataset, Dependency, dataset_of
from zapdb.errors import CorruptCatalog, MissingHistory, UnknownName
from zapdb.limits import FORMER_DATASETS_MAX
from zapdb.migrations import Chain
from zapdb.schema import Index, Table, snapshot
from zapdb.storage import Connection
from zapdb.storage.cells import as_number, reading
from zapdb.storage.physical import activation_sql
from zapdb.values import Zones

IndexPhase = Literal["write-only", "readable"]
ConstraintKind = Literal["check", "reference"]
ConstraintPhase = Literal["unvalidated", "validated"]
IndexCondition = Literal["write-only", "readable", "rewritten", "disabled"]

FORMER: Final = "was:"
"""Before the names of the datasets that entries of an index that is being rewritten may be of."""

NOBODYS: Final = ""
"""In the place of the fingerprints of an index that is disabled: nobody's data give it."""


@dataclass(frozen=True, slots=True)
class IndexState:
    """An index of a tenant: where its entries are, and what they were built with (rule 23).

    `physical` is the table that holds them, `build` the number of this building of the index: it
    never repeats. `datasets` maps the name of each dataset to the fingerprint that its keys are
    made with, `versions` to its version, for people. `former` has the fingerprints that it was
    built with before, oldest first: which of two are the newer data nobody can tell, since versions
    lie, but a process with former ones must not take the place of those that came after.

    An index whose entries are *rewritten* one by one is write-only, and has the entries of before
    in its table; those datasets are named, too, behind `FORMER`. One that is *disabled* is
    write-only, has no entries, and nobody makes any (rule 26): its fingerprints are `NOBODYS`.
    Both are said without a member of their own, in the format that the rows are frozen in: a
    release that does not know of it finds an index that is not its own, and neither reads nor
    publishes it.
    """

    index: Index
    dependencies: tuple[Dependency, ...]
    phase: IndexPhase
    physical: int
    build: int
    key_format: int
    datasets: dict[str, str] = field(hash=False)
    versions: dict[str, str] = field(hash=False)
    former: dict[str, tuple[str, ...]] = field(hash=False, default_factory=dict)

    @property
    def is_disabled(self) -> bool:
        """Whether nobody keeps it, and it has no entries."""
        return NOBODYS in self.datasets.values()

    @property
    def is_rewritten(self) -> bool:
        """Whether its entries are being brought to other data one by one."""
        return any(name.startswith(FORMER) for name in self.datasets)

    @property
    def condition(self) -> IndexCondition:
        """Its state, for people."""
        if self.is_disabled:
            return "disabled"
        return "rewritten" if self.is_rewritten else self.phase

    @property
    def is_outdated(self) -> bool:
        """Whether this process would build other keys: its datasets are not the index's.

        Never of a disabled one, whose keys nobody makes.
        """
        return not self.is_disabled and bool(self._differing())

    def _differing(self) -> list[Dataset]:
        """This process's datasets that are not the index's."""
        here = map(dataset_of, self.dependencies)
        return [found for found in here if self.datasets.get(found.name) != found.fingerprint]

    @property
    def is_ahead(self) -> bool:
        """Whether it is outdated, and was built with data of this process before."""
        return not self.is_disabled and any(
            found.fingerprint in self.former.get(found.name, ()) for found in self._differing()
        )

    @property
    def is_rebuilt(self) -> bool:
        """Whether it is being built again, since its data changed to those of this process."""
        return self.condition == "write-only" and bool(self.former) and not self.is_outdated

    def find_former(self) -> dict[str, tuple[str, ...]]:
        """The former fingerprints of the same index when this process's data take their place."""
        found = {}
        for dependency in self.dependencies:
            here = dataset_of(dependency)
            known = (*self.former.get(here.name, ()), self.datasets.get(here.name, NOBODYS))
            kept = dict.fromkeys(f for f in known if f not in (NOBODYS, here.fingerprint))
            found[here.name] = tuple(kept)[-FORMER_DATASETS_MAX:]
        return {name: kept for name, kept in found.items() if kept}

    def describe_difference(self) -> tuple[str, str]:
        """The versions of the datasets that differ: those built with, and those here."""
        differing = self._differing()
        built_with = (self.versions.get(found.name, "unknown") for found in differing)
        return "; ".join(built_with), "; ".join(found.version for found in differing)

    def describe_rewriting(self) -> tuple[str, str]:
        """The versions of the data that the entries of a rewritten index were of, and will be."""
        names = [name.removeprefix(FORMER) for name in self.datasets if name.startswith(FORMER)]
        before = (self.versions.get(FORMER + name, "unknown") for name in names)
        return "; ".join(before), "; ".join(self.versions.get(name, "unknown") for name in names)

    def disabled(self, build: int) -> IndexState:
        """The same index when nobody keeps it any more; no job works towards `build`."""
        versions = {name: self.versions.get(name, "unknown") for name in self._current}
        return replace(
            self,
            phase="write-only",
            build=build,
            datasets=dict.fromkeys(versions, NOBODYS),
            versions=versions,
            former=self.find_former(),
        )

    def rewritten(self, build: int) -> IndexState:
        """The same index when its entries begin to be brought to this process's data."""
        differing = {found.name: found for found in self._differing()}
        datasets, versions = {}, {}
        for name in self._current:
            found = differing.get(name)
            version = self.versions.get(name, "unknown")
            datasets[name] = self.datasets[name] if found is None else found.fingerprint
            versions[name] = version if found is None else found.version
            if found is not None:
                datasets[FORMER + name] = self.datasets[name]
                versions[FORMER + name] = version
        return replace(
            self,
            phase="write-only",
            build=build,
            datasets=datasets,
            versions=versions,
            former=self.find_former(),
        )

    def readable(self) -> IndexState:
        """The same index when it holds what it must."""
        current = self._current
        return replace(
            self,
            phase="readable",
            datasets={name: self.datasets[name] for name in current},
            versions={name: self.versions[name] for name in current if name in self.versions},
        )

    @property
    def _current(self) -> list[str]:
        return [name for name in self.datasets if not name.startswith(FORMER)]

    def to_row(self, table: int) -> dict[str, Any]:
        return {
            "table": table,
            "phase": self.phase,
            "physical": self.physical,
            "build": self.build,
            "key_format": self.key_format,
            "datasets": self.datasets,
            "versions": self.versions,
            "former": {name: list(found) for name, found in self.former.items()},
        }

    @classmethod
    def from_row(cls, table: Table, index: Index, row: dict[str, Any]) -> IndexState:
        return cls(
            index,
            table.datasets_of(index),
            row["phase"],
            row["physical"],
            row["build"],
            row["key_format"],
            row["datasets"],
            row["versions"],
            {name: tuple(found) for name, found in row["former"].items()},
        )


@dataclass(frozen=True, slots=True)
class ConstraintState:
    """A check, or the reference that a field is: it binds every write, whatever its phase.

    `number` is the check's or the field's, `name` as well. Validated means that all records were
    looked at since it took force, and none violated it.
    """

    kind: ConstraintKind
    number: int
    name: str
    phase: ConstraintPhase

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def is_validated(self) -> bool:
        return self.phase == "validated"


@dataclass(frozen=True, slots=True)
class TableState:
    """A table of a tenant: its shape, its revisions, its indexes, its checks and references.

    `origins` gives, for each revision that a record may have, the position on the chain whose
    layout the record has: what it is converted from. A revision whose layout came with a migration
    that was forgotten has none, and no records (rule 1).
    """

    table: Table
    revision: int
    layout_revision: int
    origins: dict[int, int] = field(hash=False)
    layouts: dict[int, int] = field(hash=False)
    """The layout revision of each revision, those of forgotten migrations too."""
    indexes: tuple[IndexState, ...]
    constraints: tuple[ConstraintState, ...] = ()
    has_history: bool = False
    """Whether changes of its records are kept in the change log."""

    @property
    def unvalidated(self) -> tuple[ConstraintState, ...]:
        return tuple(c for c in self.constraints if not c.is_validated)


@dataclass(frozen=True, slots=True)
class Forgetting:
    """A forget under way that has not come to this tenant's end: the migration's number, and the
    revisions that the tables go back to.

    Nothing else may append to a table's history meanwhile, so the next number is theirs.
    """

    number: int
    revisions: dict[int, int] = field(hash=False)
    """By table number; published when the forget ends."""


@dataclass(frozen=True, slots=True)
class View:
    tenant: int
    activation: int
    position: int
    forgetting: Forgetting | None
    chain_state: ChainState
    stored: tuple[StoredMigration, ...]
    chain: Chain
    """All stored migrations; `position` says how many of them are in force."""
    tables: dict[str, TableState] = field(hash=False)
    zones: Zones
    """The numbers that stand for time zones in this database's records."""

    def table(self, name: str) -> TableState:
        found = self.tables.get(name)
        if found is None:
            raise UnknownName.of_table(name, self.tables)
        return found

    def table_numbered(self, number: int, name: str) -> TableState:
        """The table that was known by a name; raises `UnknownName` if it is in force no more."""
        for state in self.tables.values():
            if state.table.number == number:
                return state
        raise UnknownName("the table was dropped", table=name)


def index_key(tenant: int, index: int) -> str:
    return f"{tenant}/{index}"


def constraint_key(tenant: int, kind: ConstraintKind, number: int) -> str:
    return f"{tenant}/{kind}/{number}"


def constraints_of(table: Table) -> Iterator[tuple[ConstraintKind, int, str]]:
    """Kind, number and name of each check and each reference."""
    for check in table.checks:
        yield "check", check.number, check.name
    for key in table.foreign_keys:
        yield "reference", key.field, table.field_numbered(key.field).name


def load_view(connection: Connection, tenant: int, known: View | None = None) -> View:
    """Load what is in force, inside a transaction; parts of `known` that still hold are kept."""
    with reading("zapdb_catalog"):
        return _load_view(connection, tenant, known)


def _load_view(connection: Connection, tenant: int, known: View | None) -> View:
    active = connection.fetch_one(activation_sql(tenant))
    row = rows.get(connection, "tenant", str(tenant))
    if (row is None and active is None) or (row is not None and row["removing"]):
        raise UnknownName("the tenant was removed", tenant=tenant)
    if row is None or active is None:
        raise CorruptCatalog(
            "the tenant's row is missing",
            tenant=tenant,
            table="zapdb_catalog" if row is None else "zapdb_activations",
            hint="restore it from a backup",
        )
    chain_state = read_chain_state(connection)
    if known is not None and (known.tenant, known.activation, known.chain_state) == (
        tenant,
        active[0],
        chain_state,
    ):
        return known  # nothing of it changes without another activation number
    stored, chain = _load_chain(connection, chain_state, known)
    position = row["position"]
    if position > chain.end:
        raise CorruptCatalog(
            "the tenant's position lies beyond the stored migrations",
            position=position,
            stored=chain.end,
        )
    entries: dict[int, list[Entry]] = {}
    for entry in read_entries(connection, tenant):
        entries.setdefault(entry.table_number, []).append(entry)
    indexes = rows.list_rows(connection, "index", f"{tenant}/")
    constraints = rows.list_rows(connection, "constraint", f"{tenant}/")
    recorded = read_history_settings(connection, tenant)
    forgetting = _find_forgetting(chain_state, chain, position, entries)
    tables = {
        table.name: _table_state(
            table,
            entries.get(table.number, []),
            chain,
            forgetting,
            _index_states(tenant, table, indexes),
            _constraint_states(tenant, table, constraints),
            recorded.records(table.number),
        )
        for table in chain.schema_at(position)
    }
    zones = load_zones(connection) if known is None else known.zones
    return View(
        tenant,
        as_number(active[0]),
        position,
        forgetting,
        chain_state,
        stored,
        chain,
        tables,
        zones,
    )


def _load_chain(
    connection: Connection, state: ChainState, known: View | None
) -> tuple[tuple[StoredMigration, ...], Chain]:
    """The stored migrations and their chain; what `known` has read of them is not read again."""
    if known is not None and known.chain_state.newest == state.newest:
        return known.stored, known.chain
    stored = tuple(list_stored(connection, state))
    ids = [m.id for m in stored]
    if known is not None and [m.id for m in known.stored] == ids[: len(known.stored)]:
        return stored, read_chain(stored[len(known.stored) :], known.chain)
    return stored, read_chain(stored)


def _find_forgetting(
    state: ChainState, chain: Chain, position: int, entries: dict[int, list[Entry]]
) -> Forgetting | None:
    number = state.forgetting
    if number is None or position < number:
        return None
    before, after = chain.schema_at(number - 1), chain.schema_at(number)
    revisions = {
        table.number: entries[table.number][-1].generation + 1
        for table in after
        if before.table_kept(table.number) is not None and entries.get(table.number)
    }
    return Forgetting(number, revisions)


def _index_states(
    tenant: int, table: Table, indexes: dict[str, dict[str, Any]]
) -> tuple[IndexState, ...]:
    states = []
    for index in table.indexes:
        row = indexes.get(index_key(tenant, index.number))
        if row is None:
            raise CorruptCatalog("an index has no state", table=table.name, index=index.name)
        states.append(IndexState.from_row(table, index, row))
    return tuple(states)


def _constraint_states(
    tenant: int, table: Table, found: dict[str, dict[str, Any]]
) -> tuple[ConstraintState, ...]:
    states = []
    for kind, number, name in constraints_of(table):
        row = found.get(constraint_key(tenant, kind, number))
        if row is None:
            raise CorruptCatalog(
                "a constraint has no state", table=table.name, constraint=f"{kind} {name}"
            )
        states.append(ConstraintState(kind, number, name, row["phase"]))
    return tuple(states)


def _table_state(
    table: Table,
    entries: list[Entry],
    chain: Chain,
    forgetting: Forgetting | None,
    indexes: tuple[IndexState, ...],
    constraints: tuple[ConstraintState, ...],
    has_history: bool,
) -> TableState:
    if not entries:
        raise MissingHistory(
            "a table in force has no fingerprint history",
            table=table.name,
            hint="open the database, or run `zapdb catalog history`: both begin one",
        )
    if entries[-1].snapshot != snapshot(table):
        raise CorruptCatalog(
            "the fingerprint history of a table does not end at what is in force",
            table=table.name,
            entries=len(entries),
            hint="zapdb_migrations or zapdb_fingerprints was tampered with: restore both from a "
            "backup",
        )
    layouts = {entry.generation: entry.layout_revision for entry in entries}
    # Revisions with one layout have one origin, also those whose own migration was forgotten: it is
    # that of the first of them that is on the chain.
    positions: dict[int, int] = {}
    for entry in entries:
        is_on_chain = chain.start < entry.position <= chain.end
        if is_on_chain and chain.at(entry.position).digest == entry.digest:
            positions.setdefault(entry.layout_revision, entry.position)
    origins = {
        revision: positions[layout] for revision, layout in layouts.items() if layout in positions
    }
    if forgetting is not None and table.number in forgetting.revisions:
        origins[forgetting.revisions[table.number]] = forgetting.number - 1
    last = entries[-1]
    return TableState(
        table,
        last.generation,
        last.layout_revision,
        origins,
        layouts,
        indexes,
        constraints,
        has_history,
    )
