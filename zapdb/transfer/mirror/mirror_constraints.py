"""Constraints of a mirror's tables: NOT NULL, and foreign keys where the rows of all tables agree.

A table is made with NOT NULL for the columns of required fields. What else there must be is added
when the mirror has come to the end of the change log, each constraint in a transaction of its own:
then the tables are as of one moment, whatever they were made from. Foreign keys are taken away
again for as long as tables do not agree; no change ever waits for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.transfer.export.plain_tables import PlainTable, plan_plain_table
from zapdb.transfer.mirror.source_rows import list_mirrored
from zapdb.transfer.mirror.state import MirroredTable, MirrorState
from zapdb.values import Reference

if TYPE_CHECKING:
    from zapdb.transfer.mirror.target import TargetSession

KEY_PREFIX = "zapdb_reference_"
"""What the names of a mirror's foreign keys and of their indexes begin with."""


@dataclass(frozen=True, slots=True)
class PlainForeignKey:
    """Columns that refer to the key of a table."""

    table: str
    columns: tuple[str, ...]
    target: str
    target_columns: tuple[str, ...]
    name: str = field(compare=False)
    """Empty where the target keeps none."""

    @property
    def shown(self) -> str:
        return f"the foreign key {', '.join(self.columns)} → {self.target}"


@dataclass(frozen=True, slots=True)
class RequiredColumns:
    """Columns that are to be NOT NULL."""

    table: str
    columns: tuple[str, ...]

    @property
    def shown(self) -> str:
        return f"NOT NULL of {', '.join(self.columns)}"


Constraint = PlainForeignKey | RequiredColumns


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
            lacking.append(RequiredColumns(name, tuple(required)))
    if not session.has_foreign_keys:
        return Lacking(tuple(lacking))
    found = set(session.read_foreign_keys())
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
    numbers = {descriptor.schema.name: number for number, descriptor in described.items()}
    for number, plan in plans.items():
        schema = described[number].schema
        states = {
            c.number: c.is_validated for c in described[number].constraints if c.kind == "reference"
        }
        for key in schema.foreign_keys:
            declared = schema.field_numbered(key.field)
            assert isinstance(declared.type, Reference)
            target = plans.get(numbers.get(declared.type.table, 0))
            if target is None or not states.get(key.field, False):
                continue
            columns, keys = (
                plan.columns_of(declared.name),
                [target.columns[at] for at in target.key],
            )
            types = [[c.sql_type(session.engine) for c in part] for part in (columns, keys)]
            if types[0] == types[1]:  # else one of them has long numbers
                yield PlainForeignKey(
                    plan.name,
                    tuple(column.name for column in columns),
                    target.name,
                    tuple(column.name for column in keys),
                    f"{KEY_PREFIX}{number}_{key.field}",
                )


def drop_foreign_keys(session: TargetSession, *names: str) -> int:
    """Take away the foreign keys of tables and those to them, of all without names; return how
    many."""
    if not session.has_foreign_keys:
        return 0
    found = [
        key
        for key in session.read_foreign_keys()
        if not names or key.table in names or key.target in names
    ]
    for key in found:
        session.drop_foreign_key(key)
    return len(found)
