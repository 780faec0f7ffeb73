"""Rolling back: the end of the chain moves, and the tenants follow (rule 13).

The end moves in one short transaction. From then on, nothing is refused: a tenant stays where it
is, entirely, until it is switched, which takes as long as an activation. Records of the migrations
that were rolled back are converted when they are read, or by a job. Everything works from the
stored structures: no file is needed.

Processes whose files have the migrations go on with the schema that these lead to. For them, and
for as long as a setting says, the migrations are kept: the values that they made stay archived.
Then they are forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec import structs

from zapdb.activation.activate import warm_dataset_fingerprints
from zapdb.activation.tenant_catalog import TenantCatalog
from zapdb.activation.up import CHAIN_LEASE, find_due, migrate_each_tenant
from zapdb.catalog import rows
from zapdb.catalog.cluster import leases, nodes
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.cluster.level import check_level
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.retired_tables import sweep_retired
from zapdb.catalog.row_kinds import ChainState, SettingRow, Tenant
from zapdb.catalog.settings import ROLLED_BACK_KEPT, Scope
from zapdb.catalog.stored_migrations import (
    KeptMigration,
    find_behind,
    list_kept,
    list_stored,
    move_end_back,
    read_chain,
    read_chain_state,
)
from zapdb.catalog.stored_settings import read_settings, require_schema_changes_allowed
from zapdb.errors import ConcurrencyError, SchemaChangesRefused, UsageError, ZapdbError
from zapdb.limits import CHAIN_LEASE_SECONDS, ROLLBACK_WAIT_SECONDS
from zapdb.logs import log_event
from zapdb.migrations import Chain, Migration
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.statements import raise_catalog_version

logger = logging.getLogger("zapdb.migrations")

_NOT_CONFIRMED: Final = "nothing was rolled back; see `zapdb migrate status`"


@dataclass(frozen=True, slots=True)
class RolledBack:
    """The migrations that were taken off the chain, the newest first, and how many tenants
    followed."""

    migrations: tuple[Migration, ...]
    tenants: int


def roll_back(
    storage: Storage,
    to: int | None = None,
    *,
    digests: Sequence[str] = (),
    evict: bool = False,
) -> RolledBack:
    """Roll back all migrations above number `to`, or the newest one, for every tenant.

    Where an earlier rollback was interrupted, before all tenants had followed, this is finished;
    and without `to`, nothing else is done then. A tenant that a setting keeps where it is stays
    there. With `digests`, the newest migration's first, nothing is rolled back that has others.
    Live processes go on with the schema of their files, unless they are to be evicted (`evict`).
    Raises `UsageError` for a squash, and `SchemaChangesRefused` if a migration is active for a
    tenant whose setting refuses changes. Where a tenant can't follow, the others do, and then its
    error is raised.
    """
    owner, wait = Owner.here(), ROLLBACK_WAIT_SECONDS
    with leases.hold_lease(storage, CHAIN_LEASE, owner, CHAIN_LEASE_SECONDS, wait) as lease:
        with storage.transaction(TransactionMode.READ) as connection:
            chain = read_chain(list_stored(connection, read_chain_state(connection)))
            is_unfinished = any(may_follow(connection, one) for one in find_due(connection))
        going = _choose(chain, chain.end if to is None and is_unfinished else to, digests)
        if going:
            warm_dataset_fingerprints(going[-1].before)
            with storage.transaction(TransactionMode.DDL) as connection:
                leases.check(connection, lease)
                take_off(connection, going, evict=evict)
        due = lead_due_tenants(storage)
    sweep_retired(storage)
    for migration in going:
        log_event(
            logger,
            "migration.rolled_back",
            "a migration was rolled back",
            migration=migration.label,
            tenants=due,
        )
    return RolledBack(going, due)


def lead_due_tenants(storage: Storage) -> int:
    """Let each tenant follow for which a migration is active that was rolled back; returns how many
    these are. Where one can't, the others do, and then its error is raised."""
    with storage.transaction(TransactionMode.READ) as connection:
        due = [one for one in find_due(connection) if may_follow(connection, one)]
    for result in list(migrate_each_tenant(storage, due)):
        if result.error is not None:
            raise result.error
    return len(due)


def take_off(connection: Connection, going: Sequence[Migration], *, evict: bool = False) -> None:
    """Take the newest migrations off the chain, as far as nothing is in the way, in a DDL
    transaction; raises as `roll_back` does."""
    check_level(connection, lock=True)  # a process that opens meanwhile waits
    state, ids = read_chain_state(connection), {migration.id for migration in going}
    _require_allowed(connection, ids)
    behind, keeps = _find_kept(connection, state, ids, evict=evict)
    _part_from_files(connection, going, behind if evict or not keeps else frozenset())
    kept = [one for one in state.kept if keeps or one[1] not in behind]
    kept += [(one.number, one.id) for one in reversed(going) if keeps]
    move_end_back(connection, going[-1].number - 1, kept)


def will_keep(connection: Connection, going: Sequence[Migration], *, evict: bool) -> bool:
    """Whether migrations would be kept if they were rolled back now, in a READ transaction."""
    state, ids = read_chain_state(connection), {migration.id for migration in going}
    return bool(ids) and _find_kept(connection, state, ids, evict=evict)[1]


def _find_kept(
    connection: Connection, state: ChainState, ids: Set[int], *, evict: bool
) -> tuple[Set[int], bool]:
    """The ids of migrations that are rolled back, and of those that are kept behind them; and
    whether all of these are kept."""
    behind = find_behind(list_kept(connection, state), ids)
    is_needed = not evict and (behind != ids or nodes.list_served(connection, behind))
    was_kept = not ids.isdisjoint(id for _, id in state.reapplied)  # with values in the archive
    return behind, bool(is_needed or was_kept or _find_kept_seconds(connection))


def _find_kept_seconds(connection: Connection) -> int:
    return read_settings(connection, 0).number(ROLLED_BACK_KEPT) or 0


def _choose(chain: Chain, to: int | None, digests: Sequence[str]) -> tuple[Migration, ...]:
    """The migrations above `to`, or the newest one; the newest first."""
    if not chain.migrations:
        raise UsageError("no migration is stored, so there is nothing to roll back")
    going = tuple(reversed(chain.after(chain.end - 1 if to is None else to)))
    if digests:
        going = going[: len(digests)]
        if [one.digest for one in going] != [*digests]:
            raise ConcurrencyError(
                "a newer migration was stored in the meantime",
                found=chain.migrations[-1].label,
                hint=_NOT_CONFIRMED,
            )
    require_no_squash(going)
    return going


def choose_end(catalog: TenantCatalog, to: int | None) -> int:
    """Where the chain would end: at `to`, or before the newest migration; raises `UsageError` where
    there is nothing to roll back."""
    chain = catalog.stored_chain
    if not chain.end:
        raise UsageError("no migration is stored, so there is nothing to roll back")
    if to is not None and to > chain.end:
        raise UsageError(
            "no migration with this number is stored",
            number=to,
            newest=chain.migrations[-1].label,
        )
    return chain.end - 1 if to is None else to


def find_rollback_obstacles(
    connection: Connection, going: Sequence[Migration]
) -> Iterator[ZapdbError]:
    """The errors that rolling migrations back would end with now, in a READ transaction."""
    if not going:
        return
    ids = {migration.id for migration in going}
    checks: tuple[Callable[[], None], ...] = (
        partial(require_no_squash, going),
        partial(_require_allowed, connection, ids),
    )
    for check in checks:
        try:
            check()
        except ZapdbError as error:
            yield error


def require_no_squash(going: Sequence[Migration]) -> None:
    for one in going:
        if one.replaces:
            raise UsageError(
                "a squash cannot be rolled back: the database begins with it", migration=one.label
            )


def _require_allowed(connection: Connection, going: Set[int]) -> None:
    """Raise `SchemaChangesRefused` if one of these migrations, by their ids, is the newest one of a
    tenant that may not be changed."""
    require_schema_changes_allowed(connection)
    restricted = [row.key for row in rows.list_rows(connection, SettingRow)]
    for tenant in rows.list_rows(connection, Tenant):
        # A tenant that is being removed is not switched: its records are never read again.
        is_concerned = tenant.migration in going and not tenant.removing
        if is_concerned and Scope(tenant.number).key("schema_changes") in restricted:
            require_schema_changes_allowed(connection, tenant.number)


def may_follow(connection: Connection, tenant: Tenant) -> bool:
    """Whether no setting keeps a tenant where it is."""
    try:
        require_schema_changes_allowed(connection, tenant.number)
    except SchemaChangesRefused:
        return False
    return True


def list_users_of(connection: Connection, going: Sequence[Migration]) -> list[Node]:
    """The live processes that are served a schema which one of these migrations is a part of."""
    kept = list_kept(connection, read_chain_state(connection))
    return nodes.list_served(connection, find_behind(kept, {migration.id for migration in going}))


def _part_from_files(connection: Connection, going: Sequence[Migration], evicted: Set[int]) -> None:
    """Note for each process that its files have these migrations, which are not stored from now on.
    Those that are served one of `evicted` can't go on: a process that is suspended may wake up, so
    one whose lease is over is put out, too."""
    for node, _ in nodes.list_nodes(connection):
        if node.row.served_migration in evicted:
            nodes.evict(connection, node)
        elif node.row.files_end >= going[-1].number:
            digests = {m.number: m.digest for m in going if m.number <= node.row.files_end}
            pending = digests | node.row.pending_digests  # it may have another one there
            rows.put(connection, structs.replace(node.row, pending_digests=pending))


def forget(
    storage: Storage, *, now: bool = False, evict: bool = False
) -> tuple[KeptMigration, ...]:
    """Forget migrations that were rolled back: nobody is served the schemas that they lead to from
    then on, and a sweep deletes the values that only they made. They stay stored, because records
    may have their revisions.

    Those are forgotten that no live process is served, and that were kept for as long as a setting
    says; all of them with `now`, which raises `UsageError` while processes are served them, unless
    these are to be evicted (`evict`).
    """
    with storage.transaction(TransactionMode.READ) as connection:
        if not _list_forgettable(connection, now=now, evict=evict):
            return ()
    with storage.transaction(TransactionMode.DDL) as connection:
        check_level(connection, lock=True)  # a process that opens meanwhile waits
        gone = _list_forgettable(connection, now=now, evict=evict)
        ids = {kept.id for kept in gone}
        for node, _ in nodes.list_nodes(connection):
            if node.row.served_migration in ids:
                nodes.evict(connection, node)
        state = read_chain_state(connection)
        left = tuple(one for one in state.kept if one[1] not in ids)
        forgotten = (*state.forgotten, *((one.number, one.id) for one in gone))
        rows.put(connection, structs.replace(state, kept=left, forgotten=forgotten))
        raise_catalog_version(connection)  # nobody archives such values from now on
    for kept in gone:
        log_event(
            logger,
            "migration.forgotten",
            "a rolled-back migration was forgotten",
            migration=kept.label,
        )
    return tuple(gone)


def _list_forgettable(connection: Connection, *, now: bool, evict: bool) -> list[KeptMigration]:
    """What `forget` forgets, each before the one that it is behind."""
    kept = list_kept(connection, read_chain_state(connection))
    if not kept:
        return []
    users = [] if evict else nodes.list_served(connection, {one.id for one in kept})
    served = {node.row.served_migration for node in users}
    seconds = 0 if now else _find_kept_seconds(connection)
    until_us = connection.storage.now_us(connection) - seconds * 1_000_000
    gone, needed = list[KeptMigration](), set[int]()
    due = {tenant.migration for tenant in find_due(connection)}
    for one in reversed(kept):
        is_served = one.id in served
        if is_served and now:
            raise _still_served(one, users)
        if one.id in due and now:
            raise UsageError(
                "tenants have yet to follow the rollback of the migration",
                migration=one.label,
                hint="`zapdb migrate status --all-tenants` names them: open them, or run "
                "`zapdb migrate rollback` again, and unset their `schema_changes`",
            )
        if is_served or one.id in due | needed or one.rolled_back_at > until_us:
            needed.add(one.parent)
        else:
            gone.append(one)
    return gone


def _still_served(kept: KeptMigration, users: Sequence[Node]) -> UsageError:
    return UsageError(
        "running processes are served the schema of the migration",
        migration=kept.label,
        nodes="; ".join(str(node) for node in users if node.row.served_migration == kept.id),
        hint="stop them, or run `zapdb migrate forget --evict`, which refuses their writes",
    )
