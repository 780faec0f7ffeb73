"""Examples: records before a migration and after it, written into the document by its author.

    examples:
      - table: people
        before: {name: Ada Lovelace}
        after: {first: Ada, last: Lovelace}

They are no part of the structure, and so of no digest. What `before` leaves out is made up: the
field's default, or null where it is optional, or else a neutral value of its type (see
`boundaries.neutral`). Of `after`, only the fields that it names are compared.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any

from zapdb.errors import Location
from zapdb.migrations.document import Mapping, Node, Sequence
from zapdb.migrations.document_structure import (
    Name,
    Plain,
    ViolationCollector,
    located,
    parse_value,
)
from zapdb.migrations.operations.definitions import check_plain
from zapdb.schema import Field, Schema, TableSchema


@dataclass(frozen=True)
class RecordExample:
    """A record before the migration and after it; `table` is the table's name before."""

    table: Name
    before: dict[Name, Plain]
    after: dict[Name, Plain]
    location: Location = located()
    places: dict[tuple[str, str], Location] = dataclasses.field(
        default_factory=dict, compare=False, repr=False, metadata={"location": True}
    )
    """Where each of its values stands; set when a document is parsed."""

    def place(self, side: str, name: str) -> Location:
        """Where a field of `before` or `after` stands."""
        return self.places.get((side, name), self.location)


def parse_examples(node: Node, collector: ViolationCollector) -> tuple[RecordExample, ...]:
    """The examples of a document; raises `ParsingStopped` after reporting why not."""
    parsed: tuple[RecordExample, ...] = parse_value(tuple[RecordExample, ...], node, collector)
    assert isinstance(node, Sequence)
    placed = []
    for example, item in zip(parsed, node.items, strict=True):
        assert isinstance(item, Mapping)
        places = {(side, name): at for side in SIDES for name, at in _values_of(item, side)}
        placed.append(replace(example, places=places))
    return tuple(placed)


SIDES = ("before", "after")


def _values_of(item: Mapping, side: str) -> list[tuple[str, Location]]:
    node = item.entries[side]
    assert isinstance(node, Mapping)
    return [(name, value.location) for name, value in node.entries.items()]


def validate_examples(
    examples: tuple[RecordExample, ...],
    before: Schema,
    after: Schema,
    collector: ViolationCollector,
) -> None:
    """Report tables and fields that there are not, and values that don't fit."""
    for example in examples:
        tables = find_tables(example, before, after)
        if tables is None:
            kept = (table for table in before if after.table_numbered(table.number) is not None)
            there = ", ".join(table.name for table in kept) or "none"
            collector.report(
                example.location,
                f"no table {str(example.table)!r} is there before this migration and after it",
                f"available: {there}",
            )
            continue
        if not example.after:
            collector.report(example.location, "after names one field or more")
        for side, table, given in zip(SIDES, tables, (example.before, example.after), strict=True):
            for name, plain in given.items():
                _validate_value(example, side, table, name, plain, collector)


def _validate_value(
    example: RecordExample,
    side: str,
    table: TableSchema,
    name: str,
    plain: Any,
    collector: ViolationCollector,
) -> None:
    place = example.place(side, name)
    field = table.field_named(name)
    if field is None:
        there = ", ".join(f.name for f in table.fields)
        collector.report(
            place,
            f"no field {name!r} in {table.name!r} {side} this migration",
            f"available: {there}",
        )
        return
    check_plain(plain, field.type, field.optional, name, place, collector)


def find_tables(
    example: RecordExample, before: Schema, after: Schema
) -> tuple[TableSchema, TableSchema] | None:
    """The table of an example before the migration and after it."""
    old = before.table_named(example.table)
    new = None if old is None else after.table_numbered(old.number)
    return None if old is None or new is None else (old, new)


def read_value(field: Field, plain: Any) -> Any:
    """The value that an example gives a field; it must be valid."""
    if plain is None and not field.type.holds_null:
        return None
    return field.type.from_document(plain, field.name)
