"""What files say beside what the database stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime

from zapdb.activation import TenantCatalog
from zapdb.activation.inspection import MigrationPhase, MigrationState
from zapdb.activation.sent_files import check_all_files, list_states
from zapdb.activation.up import read_all_tenants
from zapdb.answers import hidden
from zapdb.catalog.cluster import nodes
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.stored_migrations import KeptMigration, list_kept, read_chain_state
from zapdb.control.target import Target
from zapdb.errors import MigrationConflict, ZapdbError
from zapdb.migrations import GivenDirectory
from zapdb.migrations.check import CheckedMigrations
from zapdb.storage import Connection
from zapdb.storage.cells import as_time


def check(target: Target, directory: GivenDirectory, with_lock: bool = True) -> CheckedMigrations:
    """Check files; `with_lock` also that `zapdb.lock` has the digest of each. What the database
    stores counts if the directory begins after it."""
    return check_all_files(directory, target.catalog_if_any(), with_lock=with_lock)


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """One migration in its file and in the database; `conflict` is how they differ, if they do."""

    number: int
    name: str
    state: MigrationPhase
    conflict: ZapdbError | None = hidden()


@dataclass(frozen=True, slots=True)
class TenantPosition:
    """How far a tenant is."""

    tenant: str
    position: int


@dataclass(frozen=True, slots=True)
class TenantPositions:
    """How many tenants there are, how many at each position, and which are behind."""

    tenants: int
    positions: Mapping[int, int]
    behind: tuple[TenantPosition, ...]
    end: int = hidden()


@dataclass(frozen=True, slots=True)
class KeptStatus:
    """A migration that was rolled back and is kept, when and by whom it was rolled back, and the
    live processes that are served the schema to which it leads."""

    number: int
    label: str
    digest: str
    rolled_back_at: datetime
    rolled_back_by: str
    processes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Status:
    """The files beside what the database stores.

    `pending` is a count. A tenant that `is_due` still has to follow a rollback. `kept` are the
    migrations that were rolled back and whose schemas processes may be served, the newest first.
    """

    position: int
    pending: int
    is_due: bool
    migrations: tuple[MigrationStatus, ...]
    kept: tuple[KeptStatus, ...]
    all_tenants: TenantPositions | None


def status(target: Target, directory: GivenDirectory, all_tenants: bool = False) -> Status:
    """Compare files with what the database stores; an empty or missing one stores nothing."""
    catalog = target.catalog_if_any()
    states = list_states(directory, catalog)
    with nullcontext() if catalog is None else target.reading() as connection:
        kept = () if connection is None else list_kept_migrations(connection)
    return Status(
        position=0 if catalog is None else catalog.position,
        pending=sum(state.phase == "pending" for state in states),
        is_due=catalog is not None and catalog.is_due,
        migrations=tuple(
            MigrationStatus(one.number, one.name, one.phase, one.conflict) for one in states
        ),
        kept=kept,
        all_tenants=_find_positions(target) if all_tenants and catalog is not None else None,
    )


def list_kept_migrations(connection: Connection) -> tuple[KeptStatus, ...]:
    """What is kept, the newest first, in a READ transaction."""
    kept = list_kept(connection, read_chain_state(connection))
    users = nodes.list_served(connection, {one.id for one in kept})
    return tuple(_describe(one, users) for one in reversed(kept))


def _describe(kept: KeptMigration, served: Sequence[Node]) -> KeptStatus:
    users = tuple(str(node) for node in served if node.row.served_migration == kept.id)
    at = as_time(kept.rolled_back_at)
    return KeptStatus(kept.number, kept.label, kept.digest, at, kept.rolled_back_by, users)


def _find_positions(target: Target) -> TenantPositions:
    found = read_all_tenants(target.storage)
    behind = tuple(TenantPosition(tenant.name, tenant.position) for tenant in found.behind)
    return TenantPositions(found.tenants, found.positions, behind, found.end)


@dataclass(frozen=True, slots=True)
class FileDifference:
    """How a file differs from the stored migration.

    `stored` and `file` are digests; `error` is the text of an error that is no difference of
    fields.
    """

    number: int
    name: str
    stored: str | None
    file: str | None
    lines: tuple[str, ...]
    error: str | None


@dataclass(frozen=True, slots=True)
class Differences:
    """The files that differ, and how many migrations are in the database or in files alone."""

    differences: tuple[FileDifference, ...]
    not_stored: int
    without_file: int
    same: int = hidden()


def diff(target: Target, directory: GivenDirectory) -> Differences:
    """How files differ from the stored migrations, field by field."""
    catalog = target.catalog_if_any()
    states = list_states(directory, catalog)
    different = [one for one in states if one.phase == "conflict"]
    end = 0 if catalog is None else catalog.stored_chain.end
    not_stored = sum(state.phase == "pending" and state.number > end for state in states)
    without_file = sum(state.phase == "stored-only" for state in states)
    return Differences(
        tuple(_describe_difference(one, catalog) for one in different),
        not_stored,
        without_file,
        same=len(states) - not_stored - without_file - len(different),
    )


def _describe_difference(state: MigrationState, catalog: TenantCatalog | None) -> FileDifference:
    rows = () if catalog is None else catalog.stored
    stored = next((row.digest for row in rows if row.number == state.number), None)
    conflict = state.conflict
    if not isinstance(conflict, MigrationConflict) or "difference" not in conflict.context:
        return FileDifference(state.number, state.name, stored, None, (), str(conflict))
    lines = (line.strip() for line in str(conflict.context["difference"]).splitlines())
    digest = str(conflict.context["file"]).rpartition(" ")[2]
    shown = tuple(line for line in lines if line)
    return FileDifference(state.number, state.name, stored, digest, shown, None)
