"""Which fields of a table are filled from which columns of the source, and in which order tables
are.

Tables come after those that they refer to. An optional reference that can't be followed at once, to
the table itself or in a circle, is set later.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from zapdb.database import Database
from zapdb.errors import UsageError
from zapdb.schema import TableSchema
from zapdb.transfer.inference.inferred import Inference, InferredField, InferredTable
from zapdb.values import Reference


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """The fields of a table that are filled at once, and those that are set `later`."""

    inferred: InferredTable
    schema: TableSchema
    fields: tuple[InferredField, ...]
    later: tuple[InferredField, ...]

    @property
    def name(self) -> str:
        return self.schema.name

    @property
    def key(self) -> tuple[str, ...]:
        return self.inferred.key

    def target_of(self, given: InferredField) -> str | None:
        """The table that a field refers to here."""
        field = self.schema.field_named(given.name)
        return field.type.table if field and isinstance(field.type, Reference) else None

    def is_optional(self, given: InferredField) -> bool:
        field = self.schema.field_named(given.name)
        return field is not None and field.optional

    @property
    def targets(self) -> set[str]:
        """The tables that the fields refer to which are filled at once."""
        return {target for f in self.fields if (target := self.target_of(f)) is not None}


def _plan(table: InferredTable, db: Database) -> CopyPlan:
    schema = db.table(table.name)._current().adapter.schema
    return CopyPlan(table, schema, tuple(table.fields), ())


def plan_tables(found: Inference, db: Database) -> list[CopyPlan]:
    """Raises `UsageError` for a circle of required references."""
    return _sort([_plan(table, db) for table in found.tables])


def _sort(plans: list[CopyPlan]) -> list[CopyPlan]:
    """The tables, each behind those that it refers to here, whatever the source declares.

    Optional references to the table itself, and those that break a circle, are set later. Raises
    `UsageError` for a circle of required references.
    """
    left, order = {plan.schema.name: _set_later(plan, {plan.schema.name}) for plan in plans}, []
    while left:
        free = [plan for plan in left.values() if not plan.targets & (left.keys() - {plan.name})]
        if not free:
            broken = [_set_later(plan, left.keys()) for plan in left.values()]
            free = [plan for plan in broken if not plan.targets & (left.keys() - {plan.name})][:1]
        if not free:
            raise UsageError(
                "required references of these tables make a circle",
                tables=", ".join(left),
                hint="make one of them optional; it can be required after the import",
            )
        for plan in free:
            del left[plan.name]
        order += free
    return order


def _set_later(plan: CopyPlan, targets: Collection[str]) -> CopyPlan:
    """The plan with its optional references to these tables among what is set later."""
    moved = tuple(f for f in plan.fields if plan.target_of(f) in targets and plan.is_optional(f))
    kept = tuple(f for f in plan.fields if f not in moved)
    return replace(plan, fields=kept, later=(*plan.later, *moved))
