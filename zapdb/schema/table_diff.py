"""The differences between two schemas of one table, part by part.

Parts are the same if they have the same number, whatever their names: a field that was renamed is
changed, one that was dropped and added again under its old name is removed and added. What is no
part of the fingerprint (numbers, what is archived) is compared, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from zapdb.schema.model import Field, IndexComponent, TableSchema

DifferencePart = Literal["table", "field", "index", "check", "reference", "archived field"]
DifferenceKind = Literal["added", "removed", "changed"]
Attributes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One part of a table that only one of two schemas has, or that differs.

    `name` is the newer name. `before` and `after` have the part's attributes by name: all
    attributes of a removed or added part, the differing ones of a changed part. A field's `type` is
    a `ValueType`, a default is written as in documents; everything else is plain data.
    """

    part: DifferencePart
    number: int
    name: str
    change: DifferenceKind
    before: Attributes = field(hash=False)
    after: Attributes = field(hash=False)


def compare_tables(old: TableSchema, new: TableSchema) -> tuple[Difference, ...]:
    """All differences: the table's own, then fields, indexes, checks, references, archived."""
    # Fields have their newer names on both sides: to be on a renamed field is no difference.
    names = {f.number: f.name for f in (*old.fields, *new.fields)}
    found: list[Difference] = []
    for part, describe in _PARTS.items():
        found += _compare(part, describe(old, new, names), describe(new, old, names))
    return tuple(found)


Described = dict[int, Attributes]
"""The attributes of the parts of one kind, by the part's number."""


def _compare(part: DifferencePart, old: Described, new: Described) -> Iterator[Difference]:
    for number in (*new, *(number for number in old if number not in new)):
        before, after = old.get(number), new.get(number)
        if before is None or after is None:
            whole = before or after or {}
            change: DifferenceKind = "added" if before is None else "removed"
            yield Difference(part, number, whole["name"], change, before or {}, after or {})
            continue
        differing = [name for name in {**after, **before} if not _is_same(name, before, after)]
        if differing:
            yield Difference(
                part,
                number,
                after["name"],
                "changed",
                {name: before[name] for name in differing if name in before},
                {name: after[name] for name in differing if name in after},
            )


def _is_same(name: str, before: Attributes, after: Attributes) -> bool:
    if name not in before or name not in after:
        return False
    left, right = before[name], after[name]
    # To Python's ==, 1 is True, and 1.0; as text they are three defaults.
    texts = [json.dumps(value, sort_keys=True, default=repr) for value in (left, right)]
    return bool(left == right and texts[0] == texts[1])


def _describe_table(table: TableSchema, other: TableSchema, names: dict[int, str]) -> Described:
    """Return the name, the key, and the order of the fields that both schemas have, if it
    differs."""
    described: Attributes = {"name": table.name, "key": [names[number] for number in table.key]}
    orders = [
        [f.number for f in one.fields if any(f.number == o.number for o in two.fields)]
        for one, two in ((table, other), (other, table))
    ]
    if orders[0] != orders[1]:
        described["order of fields"] = [names[number] for number in orders[0]]
    return {table.number: described}


def _describe_fields(table: TableSchema, *_: object) -> Described:
    return {f.number: _describe_field(f) for f in table.fields}


def _describe_field(f: Field) -> Attributes:
    described: Attributes = {
        "name": f.name,
        "type": f.type,
        "optional": f.optional,
        "generated": f.plain_generated,
    }
    if f.has_default:
        described["default"] = f.plain_default
    return described


def _describe_indexes(table: TableSchema, _: TableSchema, names: dict[int, str]) -> Described:
    return {
        index.number: {
            "name": index.name,
            "fields": [_describe_component(names, c) for c in index.components],
            "unique": index.unique,
        }
        for index in table.indexes
    }


def _describe_component(names: dict[int, str], component: IndexComponent) -> str:
    """As `name (de/primary) descending`."""
    collation = "" if component.collation is None else f" ({component.collation})"
    return names[component.field] + collation + " descending" * component.descending


def _describe_checks(table: TableSchema, *_: object) -> Described:
    return {c.number: {"name": c.name, "expression": c.expression} for c in table.checks}


def _describe_references(table: TableSchema, _: TableSchema, names: dict[int, str]) -> Described:
    return {
        key.field: {"name": names[key.field], "on_delete": key.on_delete}
        for key in table.foreign_keys
    }


def _describe_archived(table: TableSchema, *_: object) -> Described:
    return {a.field.number: {"name": a.field.name, "by": a.archived_by} for a in table.archived}


_PARTS: Final[
    dict[DifferencePart, Callable[[TableSchema, TableSchema, dict[int, str]], Described]]
] = {
    "table": _describe_table,
    "field": _describe_fields,
    "index": _describe_indexes,
    "check": _describe_checks,
    "reference": _describe_references,
    "archived field": _describe_archived,
}
