"""Amending: the text of the newest migration takes the place of what was stored (rule 13).

The former text is rolled back and the new one stored, in one transaction; then the tenants follow.
A field that both make in the same way is the same one, so its values stay.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from zapdb.activation.activate import warm_dataset_fingerprints
from zapdb.activation.file_comparison import compare_files
from zapdb.activation.rollback import lead_due_tenants, require_no_squash, take_off
from zapdb.activation.tenant_catalog import TenantCatalog, load_tenant_catalog
from zapdb.activation.up import CHAIN_LEASE, reapply
from zapdb.catalog import rows
from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.cluster.level import check_level, level_of, require_level
from zapdb.catalog.retired_tables import sweep_retired
from zapdb.catalog.settings import PROFILE
from zapdb.catalog.stored_migrations import CounterAllocator, read_chain_state, store
from zapdb.catalog.stored_settings import read_settings
from zapdb.errors import ConcurrencyError, UsageError
from zapdb.limits import CHAIN_LEASE_SECONDS, ROLLBACK_WAIT_SECONDS
from zapdb.logs import log_event
from zapdb.migrations import (
    Migration,
    MigrationFile,
    NumberAllocator,
    ParsedMigration,
    find_file,
    resolve,
)
from zapdb.migrations.prove import require_proven
from zapdb.migrations.taken_numbers import find_taken_numbers
from zapdb.schema import TableSchema
from zapdb.storage import Connection, Storage, TransactionMode

logger = logging.getLogger("zapdb.migrations")


@dataclass(frozen=True, slots=True)
class Amendment:
    """What the newest stored migration is, and what its file says now."""

    former: Migration
    amended: Migration
    """Checked and proven; its numbers are provisional."""
    parsed: ParsedMigration

    def list_lost(self) -> list[tuple[TableSchema, tuple[str, ...]]]:
        """The tables with the names of their fields whose values only the former migration made:
        they are lost. A table without fields is made anew, and its records are lost."""
        former, taken = self.former, find_taken_numbers(self.former, self.amended)
        numbers = {number for numbers in taken.values() for number in numbers}
        lost = list[tuple[TableSchema, tuple[str, ...]]]()
        for table in former.after:
            if former.before.table_active_or_archived(table.number) is None:
                lost.append((table, ()))
                continue
            made = former.list_made(table.number)
            if names := tuple(f.name for cell, f in made.items() if cell not in numbers):
                lost.append((table, names))
        return lost


def find_amendment(catalog: TenantCatalog, files: Sequence[MigrationFile]) -> Amendment:
    """Compare the files with what is stored.

    Raises `UsageError` if there is nothing to amend, or the newest is a squash, `UnknownName` if
    there is no file of it, and what checking and proving a file raises.
    """
    chain = catalog.stored_chain
    if not chain.end:
        raise UsageError("no migration is stored, so there is nothing to amend")
    former = chain.at(chain.end)
    require_no_squash([former])
    file = find_file(list(files), chain.end)
    compare_files([one for one in files if one.number < chain.end], list(catalog.stored), chain)
    parsed = file.parse(file.read())
    amended = resolve(parsed, former.before, NumberAllocator.provisional())
    require_no_squash([amended])
    if amended.digest == former.digest:
        raise UsageError(
            "the file is what the database stores, so there is nothing to amend",
            migration=former.label,
        )
    require_proven([amended])
    return Amendment(former, amended, parsed)


def require_development(connection: Connection) -> None:
    """Raise `UsageError` in the profile `production`."""
    if read_settings(connection, 0).profile == "production":
        raise UsageError(
            "migrations are amended in development only",
            profile="production",
            hint="write the change as a new migration (`zapdb migrate new`), or roll back "
            f"(`zapdb migrate rollback`); `zapdb settings get {PROFILE}` says what this is",
        )


def amend(storage: Storage, tenant: int, amendment: Amendment) -> Migration:
    """Put an amended migration in the place of the newest one; returns it.

    Processes that have the former text's file go on with its schema. Raises as `roll_back` does,
    and `ConcurrencyError` if another migration is the newest one by now.
    """
    former, amended = amendment.former, amendment.amended
    owner, wait = Owner.here(), ROLLBACK_WAIT_SECONDS
    with leases.hold_lease(storage, CHAIN_LEASE, owner, CHAIN_LEASE_SECONDS, wait) as lease:
        require_development(storage.connection())
        require_level(storage, level_of([amended]))
        with storage.transaction(TransactionMode.READ) as connection:
            check_level(connection)
            catalog = load_tenant_catalog(connection, tenant)
        chain = catalog.stored_chain
        if chain.end != former.number or chain.at(chain.end).id != former.id:
            raise ConcurrencyError(
                "another migration is the newest one by now",
                found=chain.at(chain.end).label if chain.end else "(none)",
                hint="see `zapdb migrate status`, and run the command again",
            )
        warm_dataset_fingerprints(amended.after)
        before = chain.up_to(chain.end - 1)
        kept = catalog.find_kept_behind(before, amended.digest)
        with storage.transaction(TransactionMode.DDL) as connection:
            leases.check(connection, lease)
            take_off(connection, [former])
            if kept is not None:  # the text is that of before an earlier amendment
                made = kept.at(kept.end)
                reapply(connection, made)
            else:
                was_reapplied = former.id in catalog.chain_state.value_keeping_ids
                made = _store(connection, amendment, was_reapplied=was_reapplied)
        lead_due_tenants(storage)
    sweep_retired(storage)
    log_event(
        logger,
        "migration.amended",
        "a migration was amended",
        migration=made.label,
        former=former.label,
    )
    return made


def _store(connection: Connection, amendment: Amendment, *, was_reapplied: bool) -> Migration:
    former, amended, parsed = amendment.former, amendment.amended, amendment.parsed
    taken = find_taken_numbers(former, amended)
    numbers = CounterAllocator(connection, amended.drawn, taken)
    made = store(connection, resolve(parsed, former.before, numbers), parsed.source.raw)
    if was_reapplied:  # values of fields that both make may be archived
        state = read_chain_state(connection)
        reapplied = (*state.reapplied, (made.number, made.id))
        rows.put(connection, structs.replace(state, reapplied=reapplied))
    return made
