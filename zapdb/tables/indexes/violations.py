"""Violations of a constraint, described as writers' errors and as lines of a job's findings.

Keys and short values are shown, because people need them to find the record; of large values only
the beginning is shown. Names are the active ones. If a writer's files end before the migration that
added the constraint, the error names that migration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from zapdb.activation.served_schema import sees_active
from zapdb.errors import CheckViolation, ReferenceViolation, UniqueViolation
from zapdb.migrations.chain import find_parting
from zapdb.records import Record
from zapdb.schema import Schema, TableSchema
from zapdb.tables.indexes.bound_table import BoundTable
from zapdb.tables.indexes.checks import CompiledCheck
from zapdb.tables.indexes.maintenance import Collision
from zapdb.tables.indexes.references import IncomingReference, ReferenceCheck

_SHOWN_CHARS_MAX: Final = 80
"""Of one value."""


def show_value(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARS_MAX else f"{shown[: _SHOWN_CHARS_MAX - 1]}…"


def show_key(bound: BoundTable, key: bytes) -> str:
    return ", ".join(map(show_value, bound.codec.decode_key(key)))


def show_fields(record: Record, names: Iterable[str]) -> str:
    return ", ".join(f"{name}={show_value(getattr(record, name))}" for name in names)


def show_target(reference: ReferenceCheck, record: Record) -> str:
    return show_value(getattr(record, reference.field.name))


def describe_origin(bound: BoundTable, has_it: Callable[[Schema], bool]) -> dict[str, Any]:
    """The migration that brought a constraint, as context of an error: for a process with other
    files only."""
    catalog, served = bound.catalog, bound.served
    if served is None or sees_active(catalog, served) or has_it(catalog.schema_at(served)):
        return {}
    line = catalog.line_to(bound.place)
    newer = line.after(find_parting(catalog.line_to(served), line))
    added = [m for m in newer if not has_it(m.before) and has_it(m.after)]
    return {"added_by": added[-1].label} if added else {}


def _in_table(number: int, has_it: Callable[[TableSchema], bool]) -> Callable[[Schema], bool]:
    def is_there(schema: Schema) -> bool:
        table = schema.table_numbered(number)
        return table is not None and has_it(table)

    return is_there


def _with_reference(number: int, field: int) -> Callable[[Schema], bool]:
    return _in_table(number, lambda table: table.foreign_key_on(field) is not None)


def collision(
    bound: BoundTable, found: Collision, record: Record, hint: str = ""
) -> UniqueViolation:
    names, number = found.index.field_names, found.index.descriptor.index.number
    origin = _in_table(bound.schema.number, lambda t: any(i.number == number for i in t.indexes))
    return UniqueViolation(
        "another record has the same values in a unique index",
        table=bound.schema.name,
        index=found.index.name,
        fields=", ".join(names),
        values=show_fields(record, names),
        key=show_key(bound, found.record_key),
        in_the_way=show_key(bound, found.owner),
        **describe_origin(bound, origin),
        hint=hint or "use other values, or change or delete the record that is in the way",
    )


def describe_collision(bound: BoundTable, found: Collision, record: Record) -> str:
    values = show_fields(record, found.index.field_names)
    mine, others = show_key(bound, found.record_key), show_key(bound, found.owner)
    return f"{mine} has the values of {others}: {values}"


def check_violation(
    bound: BoundTable, check: CompiledCheck, key: bytes, record: Record, hint: str = ""
) -> CheckViolation:
    number = check.check.number
    origin = _in_table(bound.schema.number, lambda t: any(c.number == number for c in t.checks))
    return CheckViolation(
        "the record violates a check",
        table=bound.schema.name,
        check=check.check.name,
        expression=check.check.expression,
        values=show_fields(record, check.fields),
        key=show_key(bound, key),
        **describe_origin(bound, origin),
        hint=hint or "give values for which it is true, or drop the check in a migration",
    )


def describe_check_violation(
    bound: BoundTable, check: CompiledCheck, key: bytes, record: Record
) -> str:
    return f"{show_key(bound, key)} has {show_fields(record, check.fields) or 'no way to be true'}"


def missing_target(
    bound: BoundTable, reference: ReferenceCheck, key: bytes, record: Record, hint: str = ""
) -> ReferenceViolation:
    return ReferenceViolation(
        "a record refers to a record that does not exist",
        table=bound.schema.name,
        field=reference.field.name,
        value=show_target(reference, record),
        target=reference.target,
        key=show_key(bound, key),
        **describe_origin(bound, _with_reference(bound.schema.number, reference.field.number)),
        hint=hint or f"insert the record of {reference.target!r} first",
    )


def describe_missing_target(
    bound: BoundTable, reference: ReferenceCheck, key: bytes, record: Record
) -> str:
    value = show_target(reference, record)
    return f"{show_key(bound, key)} refers to {value}, which is not in {reference.target}"


def still_referenced(
    bound: BoundTable,
    key: bytes,
    other: BoundTable,
    incoming: IncomingReference,
    found: list[bytes],
    most: int,
) -> ReferenceViolation:
    count = f"{most:,} or more" if len(found) >= most else f"{len(found):,}"
    field = other.schema.field_numbered(incoming.key.field).name
    return ReferenceViolation(
        "the record cannot be deleted because other records refer to it",
        table=bound.schema.name,
        key=show_key(bound, key),
        referring=f"{other.schema.name}.{field}",
        records=count,
        example=show_key(other, found[0]),
        **describe_origin(bound, _with_reference(other.schema.number, incoming.key.field)),
        hint=f"delete these records of {other.schema.name!r} first, or make them refer to "
        "other records",
    )
