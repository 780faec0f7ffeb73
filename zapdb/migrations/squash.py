"""Squashing: one migration that makes what a whole beginning of the chain makes.

It keeps the number of the last one that it stands for, and lists the digests of all of them. A
database that stores those goes on as it is; a new one begins with the squash. What only mattered to
records on their way, such as renames and transforms, is gone.
"""

from __future__ import annotations

import yaml

from zapdb.errors import Location, UsageError
from zapdb.migrations.chain import Chain
from zapdb.migrations.document import Source
from zapdb.migrations.migration import DOCUMENT_VERSION, Draft, Migration, resolve
from zapdb.migrations.operations import Numbers, Operation
from zapdb.migrations.operations.create_type import CreateType
from zapdb.migrations.operations.restore_field import RestoreField
from zapdb.migrations.operations.restore_table import RestoreTable, rebuild_table
from zapdb.migrations.undo import to_yaml
from zapdb.schema import Schema, Table, shape, shape_of, types_in
from zapdb.values import Enum, Reference, Struct

NAME = "squashed"


def squash(chain: Chain, to: int) -> Migration:
    """The migration that stands for all of the chain up to number `to`.

    Raises `UsageError` where a later migration restores what one of them archived, or where tables
    refer to each other in a circle.
    """
    _refuse_restored(chain, to)
    schema = chain.schema_at(to)
    changes: tuple[Operation, ...] = tuple(CreateType.describe(kind) for kind in _in_order(schema))
    rebuilt = [rebuild_table(table) for table in _sort_tables(schema)]
    changes += tuple(made for made, *_ in rebuilt)
    changes += tuple(operation for _, *rest in rebuilt for operation in rest)
    if not changes:
        raise UsageError("there is nothing to squash: no table is left", to=to)
    replaced = tuple(
        digest for m in chain.up_to(to).migrations for digest in m.replaces or (m.digest,)
    )
    source = Source(f"the squash of {to}", b"")
    draft = Draft(
        to,
        NAME,
        f"Everything up to {chain.at(to).label}",
        changes,
        None,
        source,
        Location(source.name),
        replaces=replaced,
    )
    made = resolve(draft, Schema(), Numbers())
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


def _refuse_restored(chain: Chain, to: int) -> None:
    for migration in chain.after(to):
        for operation in migration.changes:
            if isinstance(operation, RestoreField | RestoreTable) and operation.archived_by <= to:
                raise UsageError(
                    "a later migration restores what one of these archived",
                    migration=migration.label,
                    archived_by=chain.at(operation.archived_by).label,
                    hint=f"squash up to {operation.archived_by - 1:04d}, "
                    f"or from {migration.number:04d} on",
                )


def _in_order(schema: Schema) -> list[Enum | Struct]:
    """Types after those that are parts of them."""
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


def _sort_tables(schema: Schema) -> list[Table]:
    """Tables after those that they refer to."""
    ordered: list[Table] = []
    waiting = list(schema.tables)
    while waiting:
        left = {table.number for table in waiting}
        ready = next((t for t in waiting if not (_referred(t) - {t.number}) & left), None)
        if ready is None:
            raise UsageError(
                "tables refer to each other in a circle, which no order of creation can make",
                tables=", ".join(table.name for table in waiting),
                hint="squash up to a migration before the circle was closed",
            )
        ordered.append(ready)
        waiting.remove(ready)
    return ordered


def _referred(table: Table) -> set[int]:
    kinds = (kind for field in table.fields for kind in types_in(field.type))
    return {kind.number for kind in kinds if isinstance(kind, Reference)}


def _check_same(wanted: Schema, made: Schema) -> None:
    """What a squash makes is what those make that it stands for: else it would be a lie."""
    assert {t.name: shape(t) for t in wanted} == {t.name: shape(t) for t in made}
    assert {shape_of(kind) for kind in wanted.types} == {shape_of(kind) for kind in made.types}
