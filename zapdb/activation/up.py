"""Applying migrations: storing new files, and migrating tenants to the stored end.

A migration is stored, activated for one tenant and logged in one transaction; other tenants follow
when they are opened, in one jump (rule 6). One that waits for running processes is stored first and
activated when they all know it (rule 12). The chain's lease keeps other processes from storing
meanwhile, and each tenant's lease from activating. They wait, read the catalog again, and find the
work done. The time of a migration does not depend on the number of records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec import structs

from zapdb.activation.activate import switch, warm_dataset_fingerprints
from zapdb.activation.file_comparison import compare_files
from zapdb.activation.tenant_catalog import TenantCatalog, is_catalog_unchanged, load_tenant_catalog
from zapdb.catalog import rows
from zapdb.catalog.cluster import leases, nodes
from zapdb.catalog.cluster.leases import Lease, Owner
from zapdb.catalog.cluster.level import check_level, level_of, require_level, try_upgrade_storage
from zapdb.catalog.cluster.nodes import BlockedActivation, find_reachable_position
from zapdb.catalog.retired_tables import sweep_retired
from zapdb.catalog.row_kinds import Tenant
from zapdb.catalog.stored_migrations import (
    ChainPlace,
    CounterAllocator,
    list_rolled_back,
    move_end_forward,
    read_chain_state,
    rolled_back_digests,
    store,
)
from zapdb.catalog.stored_settings import require_schema_changes_allowed
from zapdb.catalog.tenants import list_tenants
from zapdb.catalog.zone_numbers import append_zones
from zapdb.errors import (
    ActivationPending,
    LeaseHeld,
    PendingMigrations,
    ZapdbError,
)
from zapdb.limits import ACTIVATION, CATALOG, CHAIN_LEASE_SECONDS, TENANT_WORKERS
from zapdb.logs import log_event
from zapdb.migrations import (
    Chain,
    Migration,
    MigrationFile,
    NumberAllocator,
    ParsedMigration,
    list_files,
    resolve,
    resolve_all,
)
from zapdb.migrations.prove import require_proven
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.retries import retry
from zapdb.storage.statements import raise_catalog_version

logger = logging.getLogger("zapdb.migrations")

CHAIN_LEASE = "catalog/chain"
NO_MIGRATION = "(none)"


def tenant_lease(tenant: int) -> str:
    return f"catalog/tenant/{tenant}"


@dataclass(frozen=True, slots=True)
class AppliedMigration:
    """The migrations activated in one transaction, and the time that it took.

    `number` and `label` identify the newest of them, since a tenant that is behind reaches the
    stored end in one jump. `active` is false if the migration was only stored.
    """

    number: int
    label: str
    tables: tuple[str, ...]
    seconds: float
    active: bool = True
    is_rollback: bool = False
    """Whether the tenant has followed a rollback, before that or in place of it."""


OnApplied = Callable[[AppliedMigration], None]


@dataclass(frozen=True, slots=True)
class MigrationChoice:
    """Which of the pending migrations are applied: those up to number `to`, or all.

    With `again`, migrations that were rolled back are applied like any other; without, they are
    refused with `PendingMigrations`. One that is kept is put back on the chain as it was stored.
    """

    to: int | None = None
    again: bool = False

    def includes(self, number: int) -> bool:
        """Return whether a migration's number is at most `to`."""
        return self.to is None or number <= self.to


def migrate_up(
    storage: Storage,
    tenant: int,
    directory: Path,
    choice: MigrationChoice | None = None,
    *,
    on_applied: OnApplied = lambda applied: None,
    wait_seconds: float = 0.0,
) -> list[AppliedMigration]:
    """Apply migrations of a directory, as `apply_files` does; call `on_applied` after each."""
    done: list[AppliedMigration] = []
    for applied in apply_files(storage, tenant, list_files(directory), choice, wait_seconds):
        done.append(applied)
        on_applied(applied)
    return done


def apply_files(
    storage: Storage,
    tenant: int,
    files: list[MigrationFile],
    choice: MigrationChoice | None = None,
    wait_seconds: float = 0.0,
) -> Iterator[AppliedMigration]:
    """Store the chosen pending migrations, and activate them for a tenant; yields each when it is
    applied. What ends the iteration ends it between two of them.

    Raises `NotProven` before anything is stored. Migrations that wait for running processes are
    stored; `ActivationPending` is raised if those do not all know them within `wait_seconds`.
    Raises `SchemaChangesRefused` where a setting refuses changes.
    """
    choice = choice or MigrationChoice()
    owner = Owner.here()
    wait = CHAIN_LEASE_SECONDS * 2
    try_upgrade_storage(storage)
    append_zones(storage)  # the zones of defaults, too, which other processes may have to encode
    is_any = is_left = False
    blocked: BlockedActivation | None = None
    look = _ends_when_done(storage, tenant, files, choice)
    chain_lease = leases.hold_lease(storage, CHAIN_LEASE, owner, CHAIN_LEASE_SECONDS, wait, look)
    with suppress(_AllDone), chain_lease as lease:
        catalog, parsed, added = _check_wanted(storage, tenant, files, choice)
        chain, last = catalog.stored_chain, added[-1].number if added else None
        name = tenant_lease(tenant)
        hold_tenant = partial(leases.hold_lease, storage, name, owner, CHAIN_LEASE_SECONDS, wait)
        line = _find_kept_line(catalog, added) if catalog.chain_state.kept else chain
        if line is not chain:  # before a tenant that is due follows the rollback of these
            with hold_tenant() as mine:
                again = _apply_again(storage, tenant, (lease, mine), line, catalog)
            yield from again
            parsed, added = parsed[len(again) :], added[len(again) :]
            is_any, is_left = True, not again[-1].active
            chain = line
            with storage.transaction(TransactionMode.READ) as connection:
                catalog = load_tenant_catalog(connection, tenant, catalog)
        target = chain.end if choice.to is None else min(choice.to, chain.end)
        if (catalog.is_due or catalog.position < target) and not is_left:
            done, blocked = catch_up(storage, tenant, to=target)
            yield from done
            is_any = is_any or bool(done)
        with hold_tenant() as mine:
            for one, provisional in zip(parsed, added, strict=True):
                task = _Application(one, provisional.drawn, (lease, mine), catalog)
                applied, catalog = _apply(storage, tenant, task)
                is_any, is_left = True, is_left or not applied.active
                yield applied
    if blocked is not None or is_left:
        target = target if last is None else last
        late: list[AppliedMigration] = []
        try:
            await_activation(storage, tenant, target, wait_seconds, on_applied=late.append)
        except ZapdbError:
            yield from late
            raise
        yield from late
        is_any = is_any or bool(late)
    if is_any:
        sweep_retired(storage)


def _check_wanted(
    storage: Storage, tenant: int, files: list[MigrationFile], choice: MigrationChoice
) -> tuple[TenantCatalog, list[ParsedMigration], tuple[Migration, ...]]:
    """Return the tenant catalog, and the chosen pending migrations, as they are written and as they
    are resolved. All are validated before the first is applied, and before the gate is taken."""
    with storage.transaction(TransactionMode.READ) as connection:
        check_level(connection)
        catalog = load_tenant_catalog(connection, tenant)
        rolled_back = rolled_back_digests(connection)
    chain, parsed = catalog.stored_chain, list[ParsedMigration]()
    for file in compare_files(files, catalog.stored, chain).pending:
        if choice.includes(file.number):
            parsed.append(file.parse(file.read()))
    if parsed:
        require_schema_changes_allowed(storage.connection(), tenant, also_of_chain=True)
    checked = resolve_all(parsed, chain, NumberAllocator.provisional())
    added = checked.after(chain.end)
    require_none_rolled_back(added, set() if choice.again else rolled_back)
    require_proven(added)
    require_level(storage, level_of(added))
    for migration in checked.migrations:
        warm_dataset_fingerprints(migration.after)
    return catalog, parsed, added


class _AllDone(Exception):
    """The owner of the awaited lease has done the requested work."""


def _ends_when_done(
    storage: Storage, tenant: int, files: list[MigrationFile], choice: MigrationChoice
) -> Callable[[int], None]:
    """Return a function for the time of waiting for a lease; it raises `_AllDone` if the lease is
    no longer needed.

    If many processes start at once, one of them has work to do. If each of the others took the
    lease to find that out, the last one would wait too long.
    """
    known: TenantCatalog | None = None

    def look(_: int) -> None:
        nonlocal known
        with storage.transaction(TransactionMode.READ) as connection:
            check_level(connection)
            catalog = load_tenant_catalog(connection, tenant, known)
        if catalog is known:
            return
        known, chain = catalog, catalog.stored_chain
        pending = compare_files(files, catalog.stored, chain).pending
        is_left = catalog.is_due or any(choice.includes(file.number) for file in pending)
        target = chain.end if choice.to is None else min(choice.to, chain.end)
        if not is_left and catalog.position >= target:
            raise _AllDone

    return look


def require_none_rolled_back(
    migrations: Sequence[Migration], rolled_back: set[tuple[int, str]]
) -> None:
    """Raise `PendingMigrations` if one of the migrations was rolled back before."""
    for migration in migrations:
        if (migration.number, migration.digest) in rolled_back:
            raise PendingMigrations(
                "a migration of the files was rolled back, and is not applied again automatically",
                migration=migration.label,
                hint="remove the file, or run `zapdb migrate up --again` to apply it again",
            )


@dataclass(frozen=True, slots=True)
class _Application:
    """A migration to apply, the numbers that it drew when it was checked, the leases that it needs,
    and a catalog that was loaded before."""

    parsed: ParsedMigration
    provisional: Mapping[str, Sequence[int]]
    leases: tuple[Lease, ...]
    known: TenantCatalog


def _apply(
    storage: Storage, tenant: int, task: _Application
) -> tuple[AppliedMigration, TenantCatalog]:
    """Store, activate and log one migration, in one transaction; returns also the catalog before
    it, of which the next one reads what is new."""
    catalog = task.known
    if not is_catalog_unchanged(storage.connection(), catalog):  # else it is loaded under the gate
        with storage.transaction(TransactionMode.READ) as connection:
            catalog = load_tenant_catalog(connection, tenant, catalog)
    catalog.read_whole()
    started = time.perf_counter()
    with storage.transaction(TransactionMode.DDL) as connection:
        leases.check(connection, *task.leases)
        require_schema_changes_allowed(connection, tenant, also_of_chain=True)
        catalog = load_tenant_catalog(connection, tenant, catalog)
        before = catalog.stored_chain.schema_at(catalog.stored_chain.end)
        numbers = CounterAllocator(connection, task.provisional)
        resolved = resolve(task.parsed, before, numbers)
        migration = store(connection, resolved, task.parsed.source.raw)
        chain = catalog.stored_chain.with_migration(migration)
        reachable, _ = find_reachable_position(
            connection, chain, catalog.find_parting(chain), migration.number
        )
        active = reachable == migration.number
        tables = switch(connection, catalog, chain, migration.number) if active else []
    seconds = time.perf_counter() - started
    applied = AppliedMigration(migration.number, migration.label, tuple(tables), seconds, active)
    if active:
        _log(tenant, applied)
    return applied, catalog


def _find_kept_line(catalog: TenantCatalog, added: Sequence[Migration]) -> Chain:
    """The chain with the migrations behind its end with which those that are to be added begin, and
    that were rolled back and are kept."""
    line = catalog.stored_chain
    for migration in added:
        kept = catalog.find_kept_behind(line, migration.digest)
        if kept is None:
            break
        line = kept
    return line


def _apply_again(
    storage: Storage, tenant: int, held: tuple[Lease, ...], line: Chain, known: TenantCatalog
) -> list[AppliedMigration]:
    """Move the end of the chain to that of a line of kept migrations, and the tenant as far as
    possible; in one transaction. A tenant that has yet to follow their rollback stays there."""
    sweep_retired(storage)  # discarded records are deleted before their table comes back
    known.read_whole()
    started = time.perf_counter()
    with storage.transaction(TransactionMode.DDL) as connection:
        leases.check(connection, *held)
        require_schema_changes_allowed(connection, tenant, also_of_chain=True)
        catalog = load_tenant_catalog(connection, tenant, known)
        going = line.after(catalog.stored_chain.end)
        check_level(connection, lock=True)  # a process that opens meanwhile waits
        for migration in going:
            reapply(connection, migration)
        start = catalog.find_parting(line)
        reachable, _ = find_reachable_position(connection, line, start, line.end)
        tables = list[str]()
        if catalog.place != ChainPlace.on(line, reachable):
            tables = switch(connection, catalog, line, reachable)
        raise_catalog_version(connection, tenant)
    seconds = time.perf_counter() - started
    done = [
        AppliedMigration(
            one.number,
            one.label,
            tuple(tables) if one.number == reachable else (),
            seconds / len(going),
            one.number <= reachable,
        )
        for one in going
    ]
    for applied in done:
        if applied.active:
            _log(tenant, applied)
    return done


def reapply(connection: Connection, migration: Migration) -> None:
    """Put a migration that was rolled back on the chain again; processes whose files have it are
    not ahead any more. In a DDL transaction that holds the level."""
    move_end_forward(connection, migration)
    for node, _ in nodes.list_nodes(connection):
        pending = dict(node.row.pending_digests)
        if pending.get(migration.number) == migration.digest:
            del pending[migration.number]
            rows.put(connection, structs.replace(node.row, pending_digests=pending))


def _log(tenant: int, applied: AppliedMigration) -> None:
    if applied.is_rollback:
        event, told = "tenant.followed", "a tenant followed a rollback"
    else:
        event, told = "migration.applied", "a migration was put in force"
    log_event(
        logger,
        event,
        told,
        tenant=tenant,
        migration=applied.label,
        tables=list(applied.tables),
        seconds=round(applied.seconds, 3),
    )


def catch_up(
    storage: Storage,
    tenant: int,
    *,
    to: int | None = None,
    known: TenantCatalog | None = None,
    on_applied: OnApplied = lambda applied: None,
) -> tuple[list[AppliedMigration], BlockedActivation | None]:
    """Migrate a tenant that is behind to a stored migration, or to the stored end, in one jump.

    If a migration waits for running processes, the tenant is migrated up to the one before it, and
    the waiting one is returned. Raises `SchemaChangesRefused` if the tenant may not be changed.
    """
    owner, name = Owner.here(), tenant_lease(tenant)

    def await_lease(_: int) -> None:
        """Wait for a process that applies migrations one by one and holds the lease meanwhile."""
        with leases.hold_lease(storage, name, owner, CHAIN_LEASE_SECONDS, CHAIN_LEASE_SECONDS * 2):
            pass

    jump = partial(_jump, storage, tenant, owner, to, known)
    applied, blocked = retry(CATALOG, jump, on=LeaseHeld, before_again=await_lease)
    if applied is None:
        return [], blocked
    _log(tenant, applied)
    on_applied(applied)
    return [applied], blocked


def _jump(
    storage: Storage, tenant: int, owner: Owner, to: int | None, known: TenantCatalog | None
) -> tuple[AppliedMigration | None, BlockedActivation | None]:
    """Activate as many migrations as possible, in one transaction; raises `LeaseHeld`."""
    with storage.transaction(TransactionMode.READ) as connection:
        check_level(connection)
        catalog = load_tenant_catalog(connection, tenant, known)
        target, blocked = _find_target(connection, catalog, to)
        if target <= catalog.position and not catalog.is_due:
            return None, blocked
        require_schema_changes_allowed(connection, tenant)
    if catalog.is_due or catalog.chain_state.reapplied:
        sweep_retired(storage)  # discarded records are deleted before their table comes back
    catalog.read_whole()
    warm_dataset_fingerprints(catalog.stored_chain.schema_at(target))
    started, name = time.perf_counter(), tenant_lease(tenant)
    with storage.transaction(TransactionMode.DDL) as connection:
        # Taken and released in one transaction, so no other one sees it held.
        leases.take(connection, name, owner, CHAIN_LEASE_SECONDS)
        catalog = load_tenant_catalog(connection, tenant, catalog)
        target, blocked = _find_target(connection, catalog, to)
        tables, is_rollback = None, catalog.is_due
        if target > catalog.position or catalog.is_due:
            require_schema_changes_allowed(connection, tenant)
            tables = switch(connection, catalog, catalog.stored_chain, target)
        leases.return_lease(connection, name)
    if tables is None:  # another process was faster
        return None, blocked
    seconds, chain = time.perf_counter() - started, catalog.stored_chain
    label = chain.at(target).label if target > chain.start else NO_MIGRATION
    applied = AppliedMigration(target, label, tuple(tables), seconds, is_rollback=is_rollback)
    return applied, blocked


def _find_target(
    connection: Connection, catalog: TenantCatalog, to: int | None
) -> tuple[int, BlockedActivation | None]:
    chain = catalog.stored_chain
    start = catalog.find_parting(chain)
    end = chain.end if to is None else min(to, chain.end)
    return find_reachable_position(connection, chain, start, max(end, start))


def await_activation(
    storage: Storage,
    tenant: int,
    target: int,
    wait_seconds: float,
    *,
    on_applied: OnApplied = lambda applied: None,
) -> list[AppliedMigration]:
    """Activate migrations up to `target` as soon as the running processes allow it.

    Raises `ActivationPending` after `wait_seconds`; migrations that could be activated until then
    stay active.
    """
    done: list[AppliedMigration] = []

    def activate_more() -> None:
        applied, blocked = catch_up(storage, tenant, to=target, on_applied=on_applied)
        done.extend(applied)
        if blocked is not None:
            raise blocked.error(blocked.migration.number - 1)

    retry(ACTIVATION.within(wait_seconds), activate_more, on=ActivationPending)
    return done


@dataclass(frozen=True, slots=True)
class AllTenantsStatus:
    """The number of tenants at each position, and the tenants that are not at the stored `end`."""

    end: int
    tenants: int
    positions: dict[int, int]
    behind: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True)
class TenantResult:
    """The result of one tenant: its position now, or the error that stopped it."""

    tenant: Tenant
    position: int
    error: ZapdbError | None = None


def read_all_tenants(storage: Storage) -> AllTenantsStatus:
    with storage.transaction(TransactionMode.READ) as connection:
        state = read_chain_state(connection)
        tenants = [tenant for tenant in list_tenants(connection) if not tenant.removing]
    positions: dict[int, int] = {}
    for tenant in tenants:
        positions[tenant.position] = positions.get(tenant.position, 0) + 1
    behind = tuple(tenant for tenant in tenants if tenant.migration != state.newest_id)
    return AllTenantsStatus(state.stored_end, len(tenants), dict(sorted(positions.items())), behind)


def find_due(connection: Connection) -> list[Tenant]:
    """The tenants for which a migration is still active that was rolled back."""
    gone = list_rolled_back(connection)
    return [
        tenant
        for tenant in list_tenants(connection)
        if tenant.migration in gone and not tenant.removing
    ]


def migrate_all_tenants(
    storage: Storage, on_result: Callable[[TenantResult], None] = lambda result: None
) -> list[TenantResult]:
    """Migrate every tenant to the stored end, as `migrate_each_tenant` does."""
    results: list[TenantResult] = []
    for result in migrate_each_tenant(storage, read_all_tenants(storage).behind):
        results.append(result)
        on_result(result)
    return results


def migrate_each_tenant(storage: Storage, behind: Sequence[Tenant]) -> Iterator[TenantResult]:
    """Migrate tenants that are not at the stored end there, each in one jump; yields a result for
    each.

    A tenant that can't be migrated is reported, and the others continue. Safe to interrupt.
    """
    if not behind:
        return
    with storage.transaction(TransactionMode.READ) as connection:
        known = load_tenant_catalog(connection, behind[0].number)
    workers = 1 if storage.dialect.name == "sqlite" else min(TENANT_WORKERS, len(behind))
    if workers == 1:
        yield from (_migrate_tenant(storage, known, tenant) for tenant in behind)
        return
    with ThreadPoolExecutor(workers, thread_name_prefix="zapdb-tenants") as pool:

        def migrate(tenant: Tenant) -> TenantResult:
            try:
                return _migrate_tenant(storage, known, tenant)
            finally:
                storage.release_connection()

        try:
            yield from pool.map(migrate, behind)
        except BaseException:
            pool.shutdown(cancel_futures=True)  # Ctrl-C ends it with the tenants that it is at
            raise


def _migrate_tenant(storage: Storage, known: TenantCatalog, tenant: Tenant) -> TenantResult:
    try:
        applied, blocked = catch_up(storage, tenant.number, known=known)
    except ZapdbError as error:
        return TenantResult(tenant, tenant.position, error)
    position = applied[-1].number if applied else tenant.position
    return TenantResult(tenant, position, None if blocked is None else blocked.error(position))
