"""The fields that a list of operations claims to restore, and the fields that it declares as
lost."""

from __future__ import annotations

from zapdb.migrations.operations import Operation
from zapdb.migrations.steps import Step, conversion_of
from zapdb.records import ConversionPlan, SourceField
from zapdb.records.derivation import inputs_of
from zapdb.schema import TableSchema


class RollbackClaims:
    """The fields at the start of some steps that the rollback loses, and the operations that change
    them."""

    def __init__(self, table: TableSchema, steps: list[Step]) -> None:
        plan = ConversionPlan({f.number: SourceField(f.number) for f in table.fields})
        self.lost: dict[int, Operation] = {}
        self.touched: dict[int, list[Operation]] = {}
        self.operations: list[Operation] = []
        self.loses_anything = False
        for operation, before, after in steps:
            old, new = (
                before.table_active_or_archived(table.number),
                after.table_active_or_archived(table.number),
            )
            if old is None or new is None or old is new:
                continue
            self.operations.append(operation)
            step = conversion_of(operation, old, new)
            lost = operation.lossy_fields(old)
            self.loses_anything |= bool(lost)
            kept = {n for n, d in step.derivations.items() if d == SourceField(n)}
            for number in (f.number for f in old.fields):
                origins = inputs_of(plan.derivations[number])
                if number in lost:
                    self.lost.update({o: operation for o in origins if o not in self.lost})
                if number not in kept:
                    for origin in origins:
                        self.touched.setdefault(origin, []).append(operation)
            plan = plan.then(step)

    def culprit(self, number: int | None) -> Operation | None:
        """The operation that is most likely to blame for a field."""
        candidates = self.touched.get(number, []) if number is not None else []
        candidates = candidates or [
            operation for operations in self.touched.values() for operation in operations
        ]
        telling = [o for o in candidates if hasattr(o, "reversibility")]
        return next(iter(telling or candidates or self.operations), None)
