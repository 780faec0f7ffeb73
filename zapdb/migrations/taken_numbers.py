"""Which numbers the text of a migration takes over from the one that it was edited from.

A field that is made the same way keeps its number, and so its cell: its values are the same ones
(`plan_between`). Everything else gets numbers of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from zapdb.migrations.migration import REMADE, Migration, RecordingAllocator, ReplayAllocator
from zapdb.migrations.operations import Operation
from zapdb.migrations.operations.operation import TableOperation
from zapdb.schema import Schema

TakenNumbers = Mapping[str, Sequence[int | None]]
"""By kind, in the order in which they are drawn; None where a new one is."""


class _Drawing(NamedTuple):
    """An operation on a table, by the table's number, and the numbers of fields that it drew; 0 for
    any other operation. A table that the migration makes has a number of its own each time."""

    table: int
    operation: Operation
    fields: list[int]


def find_taken_numbers(former: Migration, amended: Migration) -> TakenNumbers:
    """The numbers of fields and types that an amended migration takes over."""
    if _list_type_changes(former) != _list_type_changes(amended):
        return {}  # an equal operation may make other values
    left, found = [*_list_drawings(former)], list[int | None]()
    for drawing in _list_drawings(amended):
        same = next((one for one in left if drawing.table and one[:2] == drawing[:2]), None)
        if same is None:
            found += [None] * len(drawing.fields)
        else:
            left.remove(same)
            found += same.fields
    remade, cells = former.drawn.get(REMADE, []), former.drawn.get("field", [])
    last_cells = dict(zip(remade, cells[len(cells) - len(remade) :], strict=True))
    changed = {one.table for one in left}
    for number in amended.drawn.get(REMADE, []):
        table = _find_table(former.before, number)
        found.append(None if table in changed else last_cells.get(number))
    return {"field": found, "type": former.drawn.get("type", [])}


def _list_drawings(migration: Migration) -> Iterator[_Drawing]:
    numbers = RecordingAllocator(
        ReplayAllocator(migration.drawn, migration.number), migration.number
    )
    schema, drawn = migration.before, 0
    for operation in migration.changes:
        table = None
        if isinstance(operation, TableOperation):
            table = schema.table_named(operation.table)
        schema = operation.apply(schema, numbers)
        fields = numbers.drawn.get("field", [])
        yield _Drawing(0 if table is None else table.number, operation, fields[drawn:])
        drawn = len(fields)


def _list_type_changes(migration: Migration) -> Sequence[Operation]:
    return [one for one in migration.changes if not isinstance(one, TableOperation)]


def _find_table(schema: Schema, field: int) -> int:
    """The number of the table that has a field, active or archived; 0 if none has."""
    for table in schema:
        fields = [*table.fields, *(archived.field for archived in table.archived)]
        if any(one.number == field for one in fields):
            return table.number
    return 0
