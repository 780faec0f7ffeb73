"""The changes of a migration for what was inferred, with notes as comments."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from zapdb.errors import InvalidMigration
from zapdb.inference.inferred import Inference, InferredCheck, InferredTable, Note
from zapdb.migrations import load_directory
from zapdb.migrations.operations.base import Operation
from zapdb.migrations.operations.check import AddCheck
from zapdb.migrations.operations.declared_type import CreateType
from zapdb.migrations.operations.field import AddField
from zapdb.migrations.operations.index import CreateIndex, IndexField
from zapdb.migrations.operations.reference import AddReference
from zapdb.migrations.operations.table import CreateTable
from zapdb.migrations.structure import Name
from zapdb.migrations.undo import to_yaml
from zapdb.printing import one_line

NOTE_CHARS_MAX = 300


def render_changes(found: Inference) -> str:
    """The YAML of the operations; a check that does not fit its table becomes a note."""
    for table in found.tables:
        _drop_unfit_checks(found, table)
    parts = [_comments(found.notes)]
    for enum in found.enums:
        members = tuple(Name(member) for member in enum.members)
        parts.append(to_yaml((CreateType(Name(enum.name), enum=members),)))
    for table in found.tables:
        parts += [_comments(table.notes), to_yaml((_create(table),))]
    parts += [to_yaml((operation,)) for operation in _operations_after(found)]
    return "".join(parts)


def _comments(notes: list[Note]) -> str:
    return "".join(f"# {one_line(str(note), NOTE_CHARS_MAX)}\n" for note in notes)


def _create(table: InferredTable) -> CreateTable:
    fields = tuple(field.definition for field in table.fields if not field.is_added)
    return CreateTable(Name(table.name), tuple(Name(name) for name in table.key), fields)


def _operations_after(found: Inference) -> Iterator[Operation]:
    """What is declared when all tables are there."""
    for table in found.tables:
        for field in table.fields:
            if field.is_added:
                yield AddField(Name(table.name), field.definition)
        for index in table.indexes:
            fields = tuple(IndexField(Name(n), descending=desc) for n, desc in index.fields)
            yield CreateIndex(Name(table.name), Name(index.name), fields, index.unique)
        for field in table.fields:
            if field.on_delete is not None:
                yield AddReference(Name(table.name), Name(field.name), field.on_delete)
        for check in table.checks:
            yield _add_check(table, check)


def _add_check(table: InferredTable, check: InferredCheck) -> AddCheck:
    return AddCheck(Name(table.name), Name(check.name), check.expression)


def _drop_unfit_checks(found: Inference, table: InferredTable) -> None:
    """Make notes of the checks that the expression language refuses, for their types as a rule."""
    for check in list(table.checks):
        if not _is_fit(found, table, check):
            table.checks.remove(check)
            place = f"{table.source.name}.{check.name}"
            table.notes.append(Note(place, f"a check without equivalent: {check.given}"))


def _is_fit(found: Inference, table: InferredTable, check: InferredCheck) -> bool:
    enums = [
        CreateType(Name(enum.name), enum=tuple(Name(member) for member in enum.members))
        for enum in found.enums
    ]
    plain = [
        field.definition
        for field in table.fields
        if field.target is None  # a check on a reference has no translation
    ]
    key = tuple(Name(name) for name in table.key)
    if {field.name for field in plain}.isdisjoint(key):
        key = (plain[0].name,) if plain else key
    key = tuple(name for name in key if name in {field.name for field in plain})
    alone = CreateTable(Name(table.name), key, tuple(plain))
    return is_valid(to_yaml((*enums, alone, _add_check(table, check))))


def is_valid(changes: str) -> bool:
    """Whether a first migration with these changes would be accepted."""
    lines = "".join(f"  {line}\n" for line in changes.splitlines())
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "0001_inferred.yaml"
        path.write_text(f"zapdb: 1\nsummary: x\nchanges:\n{lines}rollback: inferred\n")
        try:
            load_directory(Path(directory))
        except InvalidMigration:
            return False
    return True
