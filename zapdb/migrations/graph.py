"""What depends on what: migrations on tables and types, tables on each other and on types.

A migration depends on the migrations that last changed what it changes or needs; indirect
dependencies are left out. Two migrations that share nothing could change places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from zapdb.migrations.chain import Chain
from zapdb.migrations.migration import Migration
from zapdb.schema import Schema, TableSchema, types_in
from zapdb.values import Enum, Reference, Struct, ValueType

Verb = Literal["creates", "changes", "drops", "restores"]
ObjectId = tuple[Literal["table", "type"], int]
"""A table or a type, by its number."""


@dataclass(frozen=True, slots=True)
class ChangedObject:
    """What a migration does to a table or type, by the name that this has after it, or had."""

    verb: Verb
    object_id: ObjectId
    name: str


@dataclass(frozen=True, slots=True)
class MigrationNode:
    """`after` are the numbers of the migrations that must come before this one, the last ones."""

    number: int
    label: str
    changes: tuple[ChangedObject, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ObjectNode:
    """A table or type at the end of the chain.

    `references` are fields or members, with the tables that they refer to; `types` the named types
    that they are of.
    """

    object_id: ObjectId
    name: str
    references: tuple[tuple[str, str], ...]
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    migrations: tuple[MigrationNode, ...]
    objects: tuple[ObjectNode, ...]


def build_graph(chain: Chain) -> Graph:
    """The dependencies of a chain, and of what it makes."""
    last: dict[ObjectId, int] = {}
    ancestors: dict[int, int] = {}  # by number, the numbers as bits
    nodes = []
    for migration in chain.migrations:
        changes = tuple(_changes_of(migration))
        read = {change.object_id for change in changes} | set(_needs_of(migration, changes))
        after = {last[object_id] for object_id in read if object_id in last}
        implied = 0
        for number in after:
            implied |= ancestors[number]
        ancestors[migration.number] = implied | sum(1 << number for number in after)
        after = {number for number in after if not implied >> number & 1}
        nodes.append(
            MigrationNode(migration.number, migration.label, changes, tuple(sorted(after)))
        )
        last |= {change.object_id: migration.number for change in changes}
    return Graph(tuple(nodes), tuple(_objects_of(chain.schema_at(chain.end))))


def _changes_of(migration: Migration) -> Iterator[ChangedObject]:
    yield from _changed_types(migration.before, migration.after)
    yield from _changed_tables(migration.before, migration.after)


def _changed_types(before: Schema, after: Schema) -> Iterator[ChangedObject]:
    types = {kind.number: kind for kind in before.types}
    for kind in after.types:
        if types.get(kind.number) != kind:
            verb: Verb = "changes" if kind.number in types else "creates"
            yield ChangedObject(verb, ("type", kind.number), kind.declared_name)
    left = {kind.number for kind in after.types}
    for kind in before.types:
        if kind.number not in left:
            yield ChangedObject("drops", ("type", kind.number), kind.declared_name)


def _changed_tables(before: Schema, after: Schema) -> Iterator[ChangedObject]:
    for table in after:
        old = before.table_numbered(table.number)
        if old is None:
            kept = before.table_active_or_archived(table.number)
            verb: Verb = "creates" if kept is None else "restores"
            yield ChangedObject(verb, ("table", table.number), table.name)
        elif old != table:
            yield ChangedObject("changes", ("table", table.number), table.name)
    for table in before:
        if after.table_numbered(table.number) is None:
            yield ChangedObject("drops", ("table", table.number), table.name)


def _needs_of(migration: Migration, changes: tuple[ChangedObject, ...]) -> Iterator[ObjectId]:
    """What the tables and types that a migration changes refer to, once it is done."""
    changed = {change.object_id for change in changes}
    for table in migration.after:
        if ("table", table.number) in changed:
            yield from (object_id for f in table.fields for object_id in _parts_of(f.type))
    for kind in migration.after.types:
        if ("type", kind.number) in changed:
            yield from _parts_of(kind)


def _parts_of(kind: ValueType) -> Iterator[ObjectId]:
    for part in types_in(kind):
        match part:
            case Reference(number=number):
                yield "table", number
            case Enum() | Struct():
                yield "type", part.number


def _objects_of(schema: Schema) -> Iterator[ObjectNode]:
    for kind in schema.types:
        members = kind.members if isinstance(kind, Struct) else ()
        parts = [(m.name, part) for m in members for part in types_in(m.type)]
        yield _node_of(("type", kind.number), kind.declared_name, parts)
    for table in schema:
        yield _node_of(("table", table.number), table.name, _parts_of_table(table))


def _parts_of_table(table: TableSchema) -> list[tuple[str, ValueType]]:
    return [(f.name, part) for f in table.fields for part in types_in(f.type)]


def _node_of(object_id: ObjectId, name: str, parts: list[tuple[str, ValueType]]) -> ObjectNode:
    references = [(field, part.table) for field, part in parts if isinstance(part, Reference)]
    types = [part.declared_name for _, part in parts if isinstance(part, Enum | Struct)]
    return ObjectNode(object_id, name, tuple(references), tuple(dict.fromkeys(types)))


def to_mermaid(graph: Graph) -> str:
    """The graph as a Mermaid flowchart; all names are of a to z, 0 to 9 and _."""
    lines = ["flowchart LR"]
    nodes: dict[ObjectId, str] = {change.object_id: change.name for m in graph.migrations
                               for change in m.changes}  # fmt: skip
    nodes |= {node.object_id: node.name for node in graph.objects}
    lines += (f'    m{m.number}["{m.label}"]' for m in graph.migrations)
    lines += (
        f"    {_id_of(object_id)}{_shape_of(object_id, name)}" for object_id, name in nodes.items()
    )
    for m in graph.migrations:
        lines += (f"    m{number} --> m{m.number}" for number in m.after)
        lines += (f"    m{m.number} -. {c.verb} .-> {_id_of(c.object_id)}" for c in m.changes)
    ids = {(node.object_id[0], node.name): _id_of(node.object_id) for node in graph.objects}
    for node in graph.objects:
        own = _id_of(node.object_id)
        lines += (f"    {own} == {f} ==> {ids['table', table]}" for f, table in node.references)
        lines += (f"    {own} --- {ids['type', kind]}" for kind in node.types)
    return "\n".join(lines) + "\n"


def _id_of(object_id: ObjectId) -> str:
    kind, number = object_id
    return f"{'t' if kind == 'table' else 'y'}{number}"


def _shape_of(object_id: ObjectId, name: str) -> str:
    return f'[("{name}")]' if object_id[0] == "table" else f'{{{{"{name}"}}}}'
