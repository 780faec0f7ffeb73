"""Applying migrations: each is stored, activated and logged in one transaction.

The lease of the chain keeps other processes out meanwhile; they wait, look again, and find nothing
left to do. The time that a migration takes does not depend on how many records there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zapdb.catalog import leases
from zapdb.catalog.activation import activate, warm_datasets
from zapdb.catalog.leases import Lease, Owner
from zapdb.catalog.nodes import check_level
from zapdb.catalog.retirement import sweep
from zapdb.catalog.stored import DrawnNumbers, forgotten_digests, provisional_numbers, store
from zapdb.catalog.verification import compare_files
from zapdb.catalog.view import View, load_view
from zapdb.catalog.zones import append_zones
from zapdb.errors import ForgetInProgress, PendingMigrations
from zapdb.limits import CHAIN_LEASE_SECONDS
from zapdb.migrations import (
    Migration,
    MigrationFile,
    list_files,
    resolve,
    resolve_files,
)
from zapdb.migrations.prove import require_proven
from zapdb.storage import Mode, Storage

CHAIN_LEASE = "catalog/chain"


@dataclass(frozen=True, slots=True)
class Applied:
    """One migration that was put in force, and how long its transaction took."""

    number: int
    label: str
    tables: tuple[str, ...]
    seconds: float


def migrate_up(
    storage: Storage,
    tenant: int,
    directory: Path,
    *,
    to: int | None = None,
    again: bool = False,
    on_applied: Callable[[Applied], None] = lambda applied: None,
) -> list[Applied]:
    """Store and activate what is pending, up to number `to`; raises `NotProven` before it does.

    With `again`, migrations that were forgotten are applied like any other; without, they are
    refused with `PendingMigrations`.
    """
    files = list_files(directory)
    owner = Owner.here()
    wait = CHAIN_LEASE_SECONDS * 2
    append_zones(storage)  # the zones of defaults, too, which other processes may have to encode
    with leases.held(storage, CHAIN_LEASE, owner, CHAIN_LEASE_SECONDS, wait) as lease:
        with storage.transaction(Mode.READ) as connection:
            check_level(connection)
            view = load_view(connection, tenant)
            forgotten = forgotten_digests(connection)
        refuse_while_forgetting(view)
        pending = compare_files(files, list(view.stored), view.chain).pending
        wanted = [file for file in pending if to is None or file.number <= to]
        # All are validated before the first is applied, and before the gate is taken.
        checked = resolve_files(wanted, view.chain, provisional_numbers())
        _refuse_forgotten(checked.after(view.chain.end), set() if again else forgotten)
        _prove(storage, lease, checked.after(view.chain.end))
        for migration in checked.migrations:
            warm_datasets(migration.after)
        done = []
        if view.position < view.chain.end:
            done.append(_catch_up(storage, tenant, lease))
            on_applied(done[-1])
        for file in wanted:
            done.append(_apply(storage, tenant, lease, file))
            on_applied(done[-1])
    if done:
        sweep(storage)
    return done


def refuse_while_forgetting(view: View) -> None:
    if view.forgetting is not None:
        raise ForgetInProgress(
            "a migration is being forgotten",
            migration=view.chain.at(view.forgetting.number).label,
            hint="wait until it is done; if it was interrupted, run `zapdb migrate forget` again",
        )


def _refuse_forgotten(migrations: tuple[Migration, ...], forgotten: set[tuple[int, str]]) -> None:
    for migration in migrations:
        if (migration.number, migration.digest) in forgotten:
            raise PendingMigrations(
                "a migration of the files was forgotten, and is not applied again by itself",
                migration=migration.label,
                hint="remove the file, or run `zapdb migrate up` to apply it again",
            )


def _prove(storage: Storage, lease: Lease, migrations: tuple[Migration, ...]) -> None:
    """Try all that are to be applied, before the first is; the lease is kept meanwhile."""
    renewed = time.monotonic()
    for migration in migrations:
        require_proven([migration])
        if time.monotonic() - renewed > CHAIN_LEASE_SECONDS / 3:
            with storage.transaction(Mode.CATALOG) as connection:
                leases.renew(connection, lease, CHAIN_LEASE_SECONDS)
            renewed = time.monotonic()


def _apply(storage: Storage, tenant: int, lease: Lease, file: MigrationFile) -> Applied:
    """Store, activate and log one migration, in one transaction."""
    source = file.read()
    draft = file.parse(source)
    with storage.transaction(Mode.READ) as connection:
        view = load_view(connection, tenant)
    started = time.perf_counter()
    with storage.transaction(Mode.CHANGE) as connection:
        leases.check(connection, lease)
        view = load_view(connection, tenant, view)
        before = view.chain.schema_at(view.chain.end)
        migration = resolve(draft, before, DrawnNumbers(connection))
        store(connection, migration, source.raw)
        chain = view.chain.with_migration(migration)
        tables = activate(connection, view, chain, migration.number)
        leases.renew(connection, lease, CHAIN_LEASE_SECONDS)
    seconds = time.perf_counter() - started
    return Applied(migration.number, migration.label, tuple(tables), seconds)


def _catch_up(storage: Storage, tenant: int, lease: Lease) -> Applied:
    """Bring a tenant that is behind to the stored end, in one jump."""
    with storage.transaction(Mode.READ) as connection:
        view = load_view(connection, tenant)
    warm_datasets(view.chain.schema_at(view.chain.end))
    started = time.perf_counter()
    with storage.transaction(Mode.CHANGE) as connection:
        leases.check(connection, lease)
        view = load_view(connection, tenant, view)
        tables = activate(connection, view, view.chain, view.chain.end)
    last = view.chain.migrations[-1]
    return Applied(last.number, last.label, tuple(tables), time.perf_counter() - started)
