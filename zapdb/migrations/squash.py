"""Squashing: one migration that makes what a whole beginning of the chain makes.

It keeps the number of the last migration that it replaces, and lists the digests of all of them. A
database that stores these stays as it is; a new one begins with the squash. Operations that only
matter for converting records, such as renames and transforms, are left out.
"""

from __future__ import annotations

import yaml

from zapdb.errors import Location, UsageError
from zapdb.migrations.boundary_values import neutral
from zapdb.migrations.canonical_migration import DOCUMENT_VERSION
from zapdb.migrations.chain import Chain
from zapdb.migrations.document import DocumentText
from zapdb.migrations.document_structure import ABSENT, Name, Plain
from zapdb.migrations.migration import Migration
from zapdb.migrations.operations import NumberAllocator, Operation
from zapdb.migrations.operations.declared_type import CreateType
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.operations.field import AddField, RestoreField
from zapdb.migrations.operations.operation import Fill
from zapdb.migrations.operations.table import RestoreTable, rebuild_table
from zapdb.migrations.parsed_migration import ParsedMigration
from zapdb.migrations.resolution import resolve
from zapdb.migrations.undo import to_yaml
from zapdb.schema import (
    Field,
    Schema,
    TableSchema,
    bytes_without_numbers,
    type_bytes_without_numbers,
    types_in,
)
from zapdb.values import Enum, Reference, Struct

_NAME = "squashed"


def squash(chain: Chain, to: int) -> Migration:
    """Return the migration that replaces the whole chain up to number `to`.

    Raises `UsageError` where a later migration restores what one of them archived.
    """
    _require_nothing_restored(chain, to)
    schema = chain.schema_at(to)
    changes: tuple[Operation, ...] = tuple(CreateType.describe(kind) for kind in _in_order(schema))
    planned = _plan_tables(schema)
    changes += tuple(rebuild_table(_without(table, later))[0] for table, later in planned)
    changes += tuple(_add(table, field) for table, later in planned for field in later)
    rebuilt = (rebuild_table(table) for table, _ in planned)
    changes += tuple(operation for _, *rest in rebuilt for operation in rest)
    if not changes:
        raise UsageError("there is nothing to squash: no table is active", to=to)
    replaced = tuple(
        digest for m in chain.up_to(to).migrations for digest in m.replaces or (m.digest,)
    )
    source = DocumentText(f"the squash of {to}", b"")
    parsed = ParsedMigration(
        to,
        _NAME,
        f"Everything up to {chain.at(to).label}",
        changes,
        None,
        source,
        Location(source.name),
        replaces=replaced,
    )
    made = resolve(parsed, Schema(), NumberAllocator())
    _check_same(schema, made.after)
    return made


def to_document(migration: Migration) -> str:
    """The text of a squash as a file."""
    items = "".join(f"  {line}\n" for line in to_yaml(migration.changes).splitlines())
    digests = "".join(f"  - {digest}\n" for digest in migration.replaces)
    summary = yaml.safe_dump({"summary": migration.summary}, allow_unicode=True, width=1_000)
    return (
        f"zapdb: {DOCUMENT_VERSION}\n{summary}replaces:\n{digests}changes:\n{items}"
        "rollback: inferred\n"
    )


def _require_nothing_restored(chain: Chain, to: int) -> None:
    for migration in chain.after(to):
        for operation in migration.changes:
            if isinstance(operation, RestoreField | RestoreTable) and operation.archived_by <= to:
                raise UsageError(
                    "a later migration restores values that one of these archived",
                    migration=migration.label,
                    archived_by=chain.at(operation.archived_by).label,
                    hint=f"squash up to {operation.archived_by - 1:04d}, "
                    f"or from {migration.number:04d} on",
                )


def _in_order(schema: Schema) -> list[Enum | Struct]:
    """Return the types so that each one comes after its parts."""
    ordered: list[Enum | Struct] = []
    waiting = list(schema.types)
    while waiting:
        for kind in waiting:
            names = {getattr(part, "declared_name", None) for part in list(types_in(kind))[1:]}
            if not names & {other.declared_name for other in waiting if other is not kind}:
                ordered.append(kind)
                waiting.remove(kind)
                break
    return ordered


def _plan_tables(schema: Schema) -> list[tuple[TableSchema, tuple[Field, ...]]]:
    """Return the tables so that each one comes after the tables that it refers to, with the fields
    that can only be added later: in a cycle of references, those that refer to a later table."""
    ordered: list[tuple[TableSchema, tuple[Field, ...]]] = []
    waiting = list(schema.tables)
    while waiting:
        left = {table.number for table in waiting}
        ready = next((t for t in waiting if not _fields_to(t, left, t.fields)), None)
        if ready is None:
            ready = next((t for t in waiting if not _fields_to(t, left, t.key_fields)), None)
        assert ready is not None, "keys are never changed: those of tables are made one by one"
        ordered.append((ready, _fields_to(ready, left, ready.fields)))
        waiting.remove(ready)
    return ordered


def _fields_to(
    table: TableSchema, targets: set[int], fields: tuple[Field, ...]
) -> tuple[Field, ...]:
    """Those of a table's fields that refer to other tables, of those with these numbers."""
    others = targets - {table.number}
    return tuple(f for f in fields if _referred(f) & others)


def _referred(field: Field) -> set[int]:
    return {kind.number for kind in types_in(field.type) if isinstance(kind, Reference)}


def _without(table: TableSchema, fields: tuple[Field, ...]) -> TableSchema:
    """The table as it is created: what rests on its fields comes behind them."""
    rest = tuple(f for f in table.fields if f not in fields)
    return TableSchema(table.number, table.name, table.key, rest)


def _add(table: TableSchema, field: Field) -> AddField:
    """The operation that adds a field at its place. There is no record yet that its fill is for."""
    fill: Fill = ABSENT
    if not (field.has_constant or field.optional):
        fill = Fill(Plain(field.type.to_document(neutral(field))))
    position = table.fields.index(field)
    return AddField(Name(table.name), FieldDefinition.of(field), fill, position)


def _check_same(wanted: Schema, made: Schema) -> None:
    """A squash must make the same schema as the migrations that it replaces."""
    assert {t.name: bytes_without_numbers(t) for t in wanted} == {
        t.name: bytes_without_numbers(t) for t in made
    }
    assert {type_bytes_without_numbers(kind) for kind in wanted.types} == {
        type_bytes_without_numbers(kind) for kind in made.types
    }
