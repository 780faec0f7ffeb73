"""Queries pinned to an index, for the values of its leading fields as the index compares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zapdb import schema
from zapdb.database import Query, Table
from zapdb.errors import UsageError
from zapdb.tables.indexes.predicates import And, Not, Or, Predicate
from zapdb.tables.queries.fields import FieldExpression

NOTHING = Or(())


def find(items: Table, index: str, *values: Any) -> Query:
    """Records whose leading fields are the values, to the last character."""
    table, fields = _fields_of(items, index)
    return items.using(index).where(equal_to(table, fields, values))


def between(
    items: Table,
    index: str,
    lower: Any = None,
    upper: Any = None,
    *,
    include_upper: bool = False,
    descending: bool = False,
    limit: int | None = None,
) -> Query:
    """Records from `lower`, inclusive, to `upper`: values of leading fields, or None for no bound;
    in the order of the index, or from its end."""
    table, fields = _fields_of(items, index)
    query = items.using(index)
    if lower is not None:
        query = query.where(behind(table, fields, _as_tuple(lower), included=True))
    if upper is not None:
        query = query.where(before(table, fields, _as_tuple(upper), included=include_upper))
    query = query.reverse() if descending else query
    return query if limit is None else query.limit(limit)


def starts_with(items: Table, index: str, *values: Any) -> Query:
    """Records whose leading fields are all values but the last, which the next one begins with."""
    table, fields = _fields_of(items, index)
    *leading, prefix = values
    field = table.field_numbered(fields[len(leading)].field)
    begins = _field(table, field).startswith(prefix)
    return items.using(index).where(equal_to(table, fields, leading), begins)


def _field(table: schema.TableSchema, field: schema.Field) -> FieldExpression:
    return FieldExpression(table.name, field.name, (table, field))


Components = Sequence[schema.IndexComponent]


def _fields_of(items: Table, index: str) -> tuple[schema.TableSchema, Components]:
    items.using(index)  # it may be new
    bound = items._current()
    found = bound.adapter.index(index)
    assert found is not None
    return bound.adapter.schema, found.descriptor.index.components


def _as_tuple(bound: Any) -> tuple[Any, ...]:
    return bound if isinstance(bound, tuple) else (bound,)


def equal_to(table: schema.TableSchema, components: Components, values: Sequence[Any]) -> Predicate:
    if len(values) > len(components):
        raise UsageError("there are more values than fields of the index")
    fields = (table.field_numbered(c.field) for c in components)
    return And(tuple(_field(table, f) == v for f, v in zip(fields, values, strict=False)))


def behind(
    table: schema.TableSchema, components: Components, values: Sequence[Any], *, included: bool
) -> Predicate:
    """Records behind those with the values, as the index compares them and in its order."""
    return _beyond(table, components, values, is_behind=True, included=included)


def before(
    table: schema.TableSchema, components: Components, values: Sequence[Any], *, included: bool
) -> Predicate:
    return _beyond(table, components, values, is_behind=False, included=included)


def _beyond(
    table: schema.TableSchema,
    components: Components,
    values: Sequence[Any],
    *,
    is_behind: bool,
    included: bool,
) -> Predicate:
    """Behind in the first field, or equal in it and behind in the second, and so on."""
    if len(values) > len(components):
        raise UsageError("there are more values than fields of the index")
    same = list[Predicate]()
    ways = list[Predicate]()
    for component, value in zip(components, values, strict=False):
        kind = table.field_numbered(component.field)
        field = FieldExpression(table.name, kind.name, (table, kind), component.collation)
        is_larger = is_behind != component.descending
        ways.append(And((*same, _larger(field, value) if is_larger else _smaller(field, value))))
        is_told = kind.type.index_key_is_exact or component.collation is not None
        same.append(field == value if is_told or value is None else field.between(value, value))
    return Or((*ways, And(tuple(same)))) if included else Or(tuple(ways))


def _larger(field: FieldExpression, value: Any) -> Predicate:
    return Not(field.is_null()) if value is None else field > value


def _smaller(field: FieldExpression, value: Any) -> Predicate:
    return NOTHING if value is None else field.is_null() | (field < value)
