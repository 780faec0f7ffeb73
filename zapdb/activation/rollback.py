"""Rolling back: the end of the chain moves, and the tenants follow (rule 13).

The end moves in one short transaction. From then on, nothing is refused: a tenant stays where it
is, entirely, until it is switched, which takes as long as an activation. Records of the migrations
that were rolled back are converted when they are read, or by a job. Everything works from the
stored structures: no file is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final

from zapdb.activation.activate import warm_dataset_fingerprints
from zapdb.activation.tenant_catalog import TenantCatalog
from zapdb.activation.up import CHAIN_LEASE, find_due, migrate_each_tenant
from zapdb.catalog import rows
from zapdb.catalog.cluster import leases, nodes
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.retired_tables import sweep_retired
from zapdb.catalog.row_kinds import SettingRow, Tenant
from zapdb.catalog.settings import Scope
from zapdb.catalog.stored_migrations import (
    list_stored,
    move_end_back,
    read_chain,
    read_chain_state,
)
from zapdb.catalog.stored_settings import require_schema_changes_allowed
from zapdb.errors import ConcurrencyError, SchemaChangesRefused, UsageError, ZapdbError
from zapdb.limits import CHAIN_LEASE_SECONDS, ROLLBACK_WAIT_SECONDS
from zapdb.logs import log_event
from zapdb.migrations import Chain, Migration
from zapdb.storage import Connection, Storage, TransactionMode

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
    Raises `UsageError` while live processes use a migration, unless `evict`, and
    `SchemaChangesRefused` if one is active for a tenant whose setting refuses changes. Where a
    tenant can't follow, the others do, and then its error is raised.
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
                end = going[-1].number - 1
                _require_unused(connection, going[-1], evict=evict)
                _require_allowed(connection, {migration.id for migration in going})
                move_end_back(connection, end)
        with storage.transaction(TransactionMode.READ) as connection:
            due = [one for one in find_due(connection) if may_follow(connection, one)]
        results = list(migrate_each_tenant(storage, due))
        for result in results:
            if result.error is not None:
                raise result.error
    sweep_retired(storage)
    for migration in going:
        log_event(
            logger,
            "migration.rolled_back",
            "a migration was rolled back",
            migration=migration.label,
            tenants=len(due),
        )
    return RolledBack(going, len(due))


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
    _require_no_squash(going)
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
    checks: tuple[Callable[[], None], ...] = (
        partial(_require_no_squash, going),
        partial(_require_allowed, connection, {migration.id for migration in going}),
        partial(_refuse_users, list_users(connection, going[-1].number), going[-1]),
    )
    for check in checks:
        try:
            check()
        except ZapdbError as error:
            yield error


def _require_no_squash(going: Sequence[Migration]) -> None:
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


def list_users(connection: Connection, number: int) -> list[Node]:
    """The live processes whose files contain the migration with this number."""
    found = nodes.list_nodes(connection)
    return [node for node, alive in found if alive and node.row.files_end >= number]


def _require_unused(connection: Connection, migration: Migration, *, evict: bool) -> None:
    users = []
    for node, alive in nodes.list_nodes(connection):
        if node.row.files_end < migration.number:
            continue
        # A process that is suspended may wake up: one whose lease is over is evicted for good.
        if evict or not alive:
            nodes.evict(connection, node)
        else:
            users.append(node)
    _refuse_users(users, migration)


def _refuse_users(users: Sequence[Node], migration: Migration) -> None:
    if users:
        raise UsageError(
            "running processes use the migration",
            migration=migration.label,
            nodes="; ".join(map(str, users)),
            hint="stop them, or run `zapdb migrate rollback --evict`, which refuses their writes",
        )
