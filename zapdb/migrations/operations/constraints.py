"""What rests on a field: indexes, checks and foreign keys; and what an archived field rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from zapdb.errors import Location
from zapdb.expressions import ExpressionError, names_in, parse_expression, unparse
from zapdb.expressions.tree import Name
from zapdb.migrations.document_structure import ABSENT, ViolationCollector
from zapdb.schema import Check, Field, Index, Schema, TableSchema, type_bytes_without_numbers
from zapdb.schema.model import map_type
from zapdb.values import Enum, List, Reference, Struct, ValueType


def can_find_referrers(table: TableSchema, number: int, indexes: Iterable[Index]) -> bool:
    """Whether the key, or one of the indexes, begins with a field, and so finds by its values."""
    return table.key[0] == number or any(i.components[0].field == number for i in indexes)


def require_unused(
    table: TableSchema, field: Field, place: Location, collector: ViolationCollector
) -> None:
    """Report whatever would be left without the field."""
    for index in table.indexes_on(field.number):
        collector.report(
            place,
            f"the index {index.name!r} uses {field.name!r}",
            f"put a drop_index of {index.name!r} before this change",
        )
    require_unconstrained(table, field, place, collector)


def require_unconstrained(
    table: TableSchema, field: Field, place: Location, collector: ViolationCollector
) -> None:
    """Report the checks and the foreign key that the field has."""
    for check in checks_on(table, field.name):
        collector.report(
            place,
            f"the check {check.name!r} reads {field.name!r}",
            f"put a drop_check of {check.name!r} before this change",
        )
    if table.foreign_key_on(field.number) is not None:
        collector.report(
            place,
            f"what {field.name!r} refers to must exist",
            f"put a drop_reference of {field.name!r} before this change",
        )


def checks_on(table: TableSchema, name: str) -> Iterator[Check]:
    """The checks whose expression reads the field with this name."""
    return (check for check in table.checks if name in names_in(parse_expression(check.expression)))


def require_same_types(
    schema: Schema, table: int, archived: Field, place: Location, collector: ViolationCollector
) -> None:
    """Report types that an archived field's values are of and that are not what they were.

    `table` is the number of the field's own table, which may be on its way back itself. Numbers
    may be others: a type that went and came back, or members of it, have the same names.
    """
    for kind in nested_types(schema.with_current_names(archived.type)):
        if isinstance(kind, Enum | Struct):
            found = schema.type_named(kind.declared_name)
            if found is None:
                collector.report(
                    place,
                    f"the type {kind} of {archived.name!r} is gone",
                    "create it as it was, before this change",
                )
            elif type(found) is not type(kind) or type_bytes_without_numbers(
                found
            ) != type_bytes_without_numbers(kind):
                collector.report(
                    place,
                    f"the type {kind} of {archived.name!r} has changed since it was archived",
                    "make it what it was before this change, or add a new field or table instead",
                )
        elif (
            isinstance(kind, Reference) and kind.number != table and schema.target_of(kind) is None
        ):
            is_kept = schema.table_active_or_archived(kind.number) is not None
            collector.report(
                place,
                f"the table {kind.table!r} that {archived.name!r} refers to is gone",
                "restore it before this change"
                if is_kept
                else "add a new field or table instead: the records of that one were discarded",
            )


def nested_types(kind: ValueType) -> Iterator[ValueType]:
    """A type and those within it, the types of the keys that references hold among them."""
    yield kind
    inner: tuple[ValueType, ...] = ()
    match kind:
        case List(items):
            inner = (items,)
        case Struct():
            inner = tuple(member.type for member in kind.members)
        case Reference(key=key):
            inner = key
    for part in inner:
        yield from nested_types(part)


def has_same_bytes(old: ValueType, new: ValueType) -> bool:
    """Whether two types that have the same names throughout are numbered alike, too."""

    def forget_target(part: ValueType) -> ValueType:
        return Reference("", 0, part.key) if isinstance(part, Reference) else part

    return bool(map_type(old, forget_target) == map_type(new, forget_target))


def require_readable_types(
    table: TableSchema, old: str, new: str, place: Location, collector: ViolationCollector
) -> None:
    """Report the checks that can't read the field under its new name."""
    for check in checks_on(table, old):
        renamed = rename_in(check.expression, old, new)
        try:
            is_readable = unparse(parse_expression(renamed)) == renamed
        except ExpressionError:
            is_readable = False
        if not is_readable:
            collector.report(
                place,
                f"the check {check.name!r} can't read a field that is called {new!r}",
                f"use another name, or put a drop_check of {check.name!r} before this change",
            )


def with_field_renamed_in_checks(table: TableSchema, old: str, new: str) -> TableSchema:
    """The table with its checks reading the field under another name."""
    checks = tuple(
        replace(check, expression=rename_in(check.expression, old, new)) for check in table.checks
    )
    return replace(table, checks=checks)


def rename_in(text: str, old: str, new: str) -> str:
    """The canonical text of an expression with a field under another name."""

    def rename(part: Any) -> Any:
        if isinstance(part, Name):
            return replace(part, name=new) if part.name == old else part
        if isinstance(part, tuple):
            return tuple(map(rename, part))
        if is_dataclass(part) and not isinstance(part, type):
            return replace(part, **{f.name: rename(getattr(part, f.name)) for f in fields(part)})
        return part

    return unparse(rename(parse_expression(text)))


def require_migration_number(by: int, place: Location, collector: ViolationCollector) -> None:
    """Report an `archived_by` that no migration is numbered."""
    if by is not ABSENT and by < 1:
        collector.report(
            place,
            f"archived_by is the number of a migration, and none is numbered {by}",
            "leave it out to archive by this migration",
        )
