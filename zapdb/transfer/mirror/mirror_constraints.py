"""Constraints of a mirror's tables: NOT NULL, and foreign keys where the rows of all tables agree.

A table is made with NOT NULL for the columns of required fields. What else there must be is added
when the mirror has come to the end of the change log, each constraint in a transaction of its own:
then the tables are as of one moment, whatever they were made from. Foreign keys are taken away
again for as long as tables do not agree; no change ever waits for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.transfer.mirror.source_rows import list_mirrored
from zapdb.transfer.mirror.state import MirroredTable, MirrorState
from zapdb.transfer.mirror.target import (
    KEY_PREFIX,
    Constraint,
    ConstraintChange,
    NotNullConstraint,
    PlainForeignKey,
    TargetSession,
)
from zapdb.transfer.plain_tables import PlainTable, list_references, plan_plain_table


@dataclass(frozen=True, slots=True)
class Lacking:
    """What a target lacks, and the foreign keys that it has and must not have."""

    constraints: tuple[Constraint, ...] = ()
    unwanted: tuple[PlainForeignKey, ...] = ()


def find_lacking(session: TargetSession, state: MirrorState, catalog: TenantCatalog) -> Lacking:
    """Compare the target's constraints with those of the tables that are kept."""
    described = list_mirrored(catalog)
    kept = {
        number: table
        for number, table in state.tables.items()
        if _is_settled(table, described.get(number))
    }
    plans = {
        number: plan_plain_table(described[number].schema, session.engine, table.long)
        for number, table in kept.items()
    }
    lacking = list[Constraint]()
    for number, plan in plans.items():
        name = kept[number].name
        there = session.required_columns(name)
        required = [c.name for c in plan.columns if not c.optional and c.name not in there]
        if required:
            lacking.append(NotNullConstraint(name, tuple(required)))
    if not session.has_foreign_keys:
        return Lacking(tuple(lacking))
    ours = kept.values() if session.only_declares_keys else state.tables.values()
    found = set(session.read_foreign_keys([table.name for table in ours if table.columns]))
    wanted = set(_wanted(described, plans, session)) if state.foreign_keys else set()
    keys = sorted(wanted - found, key=lambda key: key.name)
    return Lacking((*lacking, *keys), tuple(found - wanted))


def _is_settled(table: MirroredTable, descriptor: TableDescriptor | None) -> bool:
    is_current = descriptor is not None and descriptor.revision == table.revision
    is_named = descriptor is not None and descriptor.schema.name == table.name
    return is_current and is_named and table.is_kept and table.filling is None


def _wanted(
    described: dict[int, TableDescriptor], plans: dict[int, PlainTable], session: TargetSession
) -> Iterator[PlainForeignKey]:
    """The references that all records satisfy, between tables that are kept."""
    tables = {described[number].schema.name: plan for number, plan in plans.items()}
    for number, plan in plans.items():
        for one in list_references(described[number], plan, tables):
            columns, keys = one.columns, one.target.key_columns
            types = [[c.sql_type(session.engine) for c in part] for part in (columns, keys)]
            if one.is_validated and types[0] == types[1]:  # else one of them has long numbers
                yield PlainForeignKey(
                    plan.name,
                    tuple(column.name for column in columns),
                    one.target.name,
                    tuple(column.name for column in keys),
                    f"{KEY_PREFIX}{number}_{one.field}",
                )


def drop_foreign_keys(session: TargetSession, state: MirrorState, *names: str) -> int:
    """Take away the foreign keys of tables and those to them, of all without names, where they
    could be in the way of rows; return how many."""
    if not session.has_foreign_keys or session.only_declares_keys:
        return 0
    found = [
        key
        for key in session.read_foreign_keys([t.name for t in state.tables.values() if t.columns])
        if not names or key.table in names or key.target in names
    ]
    drop_keys(session, found)
    return len(found)


def drop_keys(session: TargetSession, keys: Iterable[PlainForeignKey]) -> None:
    """Take away foreign keys, with one change of each table."""
    by_table: dict[str, list[PlainForeignKey]] = {}
    for key in keys:
        by_table.setdefault(key.table, []).append(key)
    for name, dropped in by_table.items():
        session.constrain(name, ConstraintChange(dropped=tuple(dropped)))
