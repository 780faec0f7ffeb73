"""Views of the catalog for people: the state of each migration, and a table's schema history by its
name.

No decision depends on this module. It also shows inactive objects: migrations that were rolled
back, and tables that were dropped or had another name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import sqlalchemy as sa

from zapdb.activation.file_comparison import StoredPosition, compare_files, require_followed
from zapdb.activation.tenant_catalog import load_tenant_catalog
from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.catalog.stored_migrations import StoredMigration
from zapdb.errors import MigrationError, UnknownName
from zapdb.migrations import MigrationFile, label
from zapdb.storage import Connection
from zapdb.storage.fixed_tables import MIGRATIONS

MigrationPhase = Literal["applied", "pending", "stored-only", "conflict"]


@dataclass(frozen=True, slots=True)
class MigrationState:
    """One migration in its file and in the database; `conflict` is the difference, if any."""

    number: int
    name: str
    phase: MigrationPhase
    conflict: MigrationError | None = None


def list_migration_states(
    files: Sequence[MigrationFile], catalog: StoredPosition | None
) -> list[MigrationState]:
    """Return the state of every migration, by number; without a tenant catalog nothing is
    stored. Where the files begin after another migration, their first one is in conflict."""
    states = [
        MigrationState(file.number, file.name, *_compare_file(file, catalog)) for file in files
    ]
    if catalog is not None:
        known = {file.number for file in files}
        states += [
            MigrationState(row.number, row.name, _phase_without_file(row, files, catalog))
            for row in catalog.stored
            if row.number not in known
        ]
    return sorted(states, key=lambda state: state.number)


def _phase_without_file(
    row: StoredMigration, files: Sequence[MigrationFile], catalog: StoredPosition
) -> MigrationPhase:
    """Those that the files begin after are as they should be."""
    if not files or files[0].follows is None or row.number >= files[0].number:
        return "stored-only"
    return "applied" if row.number <= catalog.position else "pending"


def _compare_file(
    file: MigrationFile, catalog: StoredPosition | None
) -> tuple[MigrationPhase, MigrationError | None]:
    try:
        require_followed(file, () if catalog is None else catalog.stored)
        if catalog is None or file.number > catalog.stored_chain.end:
            return "pending", None
        rows = {row.number: row for row in catalog.stored}
        file, row = replace(file, before=()), rows.get(file.number)
        if row is None or file.is_squash() != bool(row.replaces):
            compare_files([file], catalog.stored, catalog.stored_chain)
        else:
            compare_files([file], [row], catalog.stored_chain)
    except MigrationError as conflict:
        return "conflict", conflict
    return ("applied" if file.number <= catalog.position else "pending"), None


def read_labels(connection: Connection) -> dict[int, str]:
    """Return the labels of all migrations ever stored, by id."""
    query = sa.select(MIGRATIONS.c.id, MIGRATIONS.c.number, MIGRATIONS.c.name)
    return {id: label(number, name) for id, number, name in connection.core_execute(query)}


def read_log(connection: Connection, tenant: int, name: str) -> list[RevisionEntry]:
    """Return the schema history of the active table of this name, else of the last table that had
    it. Raises `UnknownName`.

    Only the schema history is read: it outlives the table, and contains the table's names.
    """
    logs = _read_logs(connection, tenant)
    found = [log for log in logs.values() if any(entry.is_named(name) for entry in log)]
    if not found:
        names = {entry.table_name for log in logs.values() for entry in log}
        raise UnknownName(
            "no table has or ever had this name",
            table=name,
            tables=", ".join(sorted(names)) or "(none)",
        )

    found.sort(key=lambda log: (_find_end(log, name), log[-1].table_number))
    if len(found) > 1 and _find_end(found[-2], name) == math.inf:  # one of them is a kept table
        active = load_tenant_catalog(connection, tenant).tables.get(name)
        number = 0 if active is None else active.schema.number
        return next((log for log in found if log[-1].table_number == number), found[-1])
    return found[-1]


def _find_end(log: Sequence[RevisionEntry], name: str) -> float:
    """Return the microsecond until which the table had the name; infinity if it still has it."""
    ends = [entry.migrated_at for entry in log[1:]] + [math.inf]
    spans = zip(log, ends, strict=True)
    return max(
        entry.migrated_at if entry.event == "drop" else end
        for entry, end in spans
        if entry.is_named(name)
    )


def read_log_numbered(connection: Connection, tenant: int, number: int) -> list[RevisionEntry]:
    """Return the schema history of the table with this number, which distinguishes tables of one
    name."""
    log = list(read_entries(connection, tenant, number))
    if not log:
        logs = _read_logs(connection, tenant).items()
        tables = [f"{at} ({entries[-1].schema.name})" for at, entries in logs]
        raise UnknownName(
            "no table has or ever had this number",
            number=number,
            tables=", ".join(tables) or "(none)",
        )
    return log


def _read_logs(connection: Connection, tenant: int) -> dict[int, list[RevisionEntry]]:
    logs: dict[int, list[RevisionEntry]] = {}
    for entry in read_entries(connection, tenant):
        logs.setdefault(entry.table_number, []).append(entry)
    return logs


def find_entry(log: Sequence[RevisionEntry], revision: int) -> RevisionEntry:
    """Raises `UnknownName`, which names the existing revisions."""
    found = next((entry for entry in log if entry.revision == revision), None)
    if found is None:
        raise UnknownName(
            "the table's schema history has no such revision",
            table=log[-1].schema.name,
            revision=revision,
            revisions=", ".join(str(entry.revision) for entry in log),
        )
    return found
