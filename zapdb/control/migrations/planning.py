"""What applying the pending migrations will do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from zapdb.activation import TenantCatalog
from zapdb.activation.sent_files import GivenFiles, read_given
from zapdb.control.bounds import Between
from zapdb.control.target import Target
from zapdb.jobs.migration_plan import (
    MigrationPlan,
    ProcessPlan,
    TableAction,
    TablePlan,
    make_migration_plan,
)
from zapdb.limits import PLAN_SAMPLE_RECORDS_MAX
from zapdb.migrations import Chain, GivenDirectory, Migration

SAMPLE_RECORDS = 500
"""Records on which a plan measures how long a conversion takes."""


@dataclass(frozen=True, slots=True)
class PlannedMigration:
    """A pending migration; `waits_for_nodes` is true for one that is activated only when all live
    processes have its file. `changes` and `rollback` are YAML."""

    number: int
    label: str
    summary: str
    waits_for_nodes: bool
    changes: str
    rollback: str


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """What a table is in for; see `zapdb.jobs.migration_plan.TablePlan`.

    `declared` and `dropped_writes` are fields that processes with older code lose.
    """

    table: str
    action: TableAction
    records: int
    converted: int
    indexes: tuple[str, ...]
    seconds: float | None
    includes_writing: bool
    declared: tuple[str, ...]
    dropped_writes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What applying the pending migrations does; `processes` are those that are then served an
    older schema, or that a migration waits for."""

    position: int
    migrations: tuple[PlannedMigration, ...]
    tables: tuple[PlannedTable, ...]
    processes: tuple[ProcessPlan, ...]


def plan(
    target: Target,
    directory: GivenDirectory,
    sample: Annotated[int, Between(0, PLAN_SAMPLE_RECORDS_MAX)] = SAMPLE_RECORDS,
) -> Plan:
    """What applying the pending migrations will do; nothing is changed.

    The time of a conversion is measured on `sample` records; 0 means `SAMPLE_RECORDS`.
    """
    catalog = target.catalog_if_any()
    return plan_files(target, catalog, read_given(directory, catalog), sample or SAMPLE_RECORDS)


def plan_files(
    target: Target, catalog: TenantCatalog | None, read: GivenFiles, sample: int
) -> Plan:
    """The plan to apply files that were read."""
    if catalog is None:
        migrations = read.chain.migrations
        made = MigrationPlan(migrations, _all_created(read.chain), ())
    else:
        made = make_migration_plan(target.storage, catalog, read.chain, sample)
    return Plan(
        0 if catalog is None else catalog.position,
        tuple(_describe_migration(migration, read) for migration in made.migrations),
        tuple(map(_describe_table, made.tables)),
        made.older,
    )


def _all_created(chain: Chain) -> tuple[TablePlan, ...]:
    tables = chain.schema_at(chain.end)
    return tuple(TablePlan(table.name, "created", 0, 0, (), None) for table in tables)


def _describe_migration(migration: Migration, read: GivenFiles) -> PlannedMigration:
    return PlannedMigration(
        migration.number,
        migration.label,
        migration.summary,
        migration.waits_for_nodes,
        *read.describe(migration),
    )


def _describe_table(table: TablePlan) -> PlannedTable:
    return PlannedTable(
        table.table,
        table.action,
        table.records,
        table.converted,
        table.indexes,
        None if table.seconds is None else round(table.seconds, 3),
        table.includes_writing,
        table.loss.declared,
        table.loss.dropped_writes,
    )
