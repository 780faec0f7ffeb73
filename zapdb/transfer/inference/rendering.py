"""The changes of a migration for what was inferred, with notes as comments.

The file is read as `zapdb migrate` would read it before anybody gets it. What it refuses is left
out, with its words as a note, and the rest is read again, until nothing is refused.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from zapdb.errors import InvalidMigration, Violation
from zapdb.migrations import ParsedMigration, resolve_all
from zapdb.migrations.document import DocumentText, read_document
from zapdb.migrations.document_structure import ABSENT, Name
from zapdb.migrations.operations.check_and_reference import AddCheck, AddReference
from zapdb.migrations.operations.declared_type import CreateType
from zapdb.migrations.operations.field import AddField
from zapdb.migrations.operations.index import CreateIndex, IndexField
from zapdb.migrations.operations.operation import Operation
from zapdb.migrations.operations.table import CreateTable
from zapdb.migrations.parsed_migration import parse_document
from zapdb.migrations.undo import to_yaml
from zapdb.printing import one_line
from zapdb.transfer.inference.inferred import (
    Inference,
    InferredCheck,
    InferredEnum,
    InferredField,
    InferredIndex,
    InferredTable,
    Note,
)

NOTE_CHARS_MAX: Final = 4_000
COMMENT_WIDTH: Final = 96
FIELDS: Final = "    fields:"
ITEM: Final = "    - "
"""How the fields of a table begin, and each of them."""

LeaveOut = Callable[[int, str], object]
"""Leaves something out of what was inferred: called with the place of the field that is refused,
-1 where it is none, and why."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One operation with the notes above it, and what leaves it out."""

    operation: Operation
    leave_out: LeaveOut
    notes: tuple[Note, ...] = ()


def render_changes(found: Inference, before: Sequence[ParsedMigration]) -> str:
    """The YAML of the operations of the migration after those that are there; what would be
    refused is left out, and noted in `found`.

    Empty if no table is left. Raises `InvalidMigration` for what is wrong with no operation in
    particular, such as the size of the file.
    """
    while found.tables:
        comments = _comments(found.notes)
        parts = list(_parts(found))
        texts = [_comments(part.notes) for part in parts]
        bodies = [to_yaml((part.operation,)) for part in parts]
        whole = comments + "".join(map("".join, zip(texts, bodies, strict=True)))
        try:
            _read(whole, before)
            return whole
        except InvalidMigration as refused:
            line, places = comments.count("\n"), list[range]()
            for text, body in zip(texts, bodies, strict=True):
                first = line + text.count("\n")
                line = first + body.count("\n")
                places.append(range(first, line))
            if not _leave_out(parts, places, bodies, refused.violations):
                raise
    return ""


def _read(changes: str, before: Sequence[ParsedMigration]) -> None:
    """Read changes as the next migration; raises `InvalidMigration`."""
    lines = "".join(f"  {line}\n" for line in changes.splitlines())
    text = f"zapdb: 1\nsummary: x\nchanges:\n{lines}rollback: inferred\n"
    source = DocumentText("the inferred migration", text.encode())
    number = before[-1].number + 1 if before else 1
    parsed = parse_document(read_document(source), source, number, "inferred")
    resolve_all([*before, parsed])


_LINES_BEFORE: Final = 3
"""Of the file, before its changes."""


def _leave_out(
    parts: Sequence[_Part],
    places: Sequence[range],
    bodies: Sequence[str],
    violations: Iterable[Violation],
) -> bool:
    """Leave out the first thing that is refused of each operation; whether there is one."""
    by_line = {v.location.line - 1 - _LINES_BEFORE: v for v in reversed([*violations])}
    is_any = False
    for part, place, body in zip(parts, places, bodies, strict=True):
        line = next((line for line in place if line in by_line), None)
        if line is None:
            continue
        part.leave_out(_find_field(body, line - place.start), by_line[line].message)
        is_any = True
        if isinstance(part.operation, CreateTable | CreateType):
            break  # what is behind it may be another thing without it
    return is_any


def _find_field(body: str, line: int) -> int:
    """The place of the field of a table that is defined at a line of its operation, -1 for none."""
    lines = body.splitlines()
    if FIELDS not in lines:
        return -1
    begun = lines[lines.index(FIELDS) + 1 : line + 1]
    return sum(one.startswith(ITEM) for one in begun) - 1


def _comments(notes: Iterable[Note]) -> str:
    lines = list[str]()
    for note in notes:
        lines += textwrap.wrap(one_line(str(note), NOTE_CHARS_MAX), COMMENT_WIDTH)
    return "".join(f"# {line}\n" for line in lines)


def _parts(found: Inference) -> Iterator[_Part]:
    for enum in found.enums:
        members = tuple(Name(member) for member in enum.members)
        yield _Part(CreateType(Name(enum.name), enum=members), partial(_drop_enum, found, enum))
    for table in found.tables:
        created = [field for field in table.fields if not field.is_added]
        operation = CreateTable(
            Name(table.name),
            tuple(Name(name) for name in table.key),
            tuple(field.definition for field in created),
        )
        notes = tuple(table.notes)
        yield _Part(operation, partial(_drop_from_table, found, table, created), notes)
    for table in found.tables:
        yield from _parts_after(found, table)


def _parts_after(found: Inference, table: InferredTable) -> Iterator[_Part]:
    """What is declared when all tables are there."""
    for at, field in enumerate(table.fields):
        if field.is_added:
            added = AddField(Name(table.name), field.definition, position=at)
            yield _Part(added, partial(_drop_from_field, found, table, field))
    for index in table.indexes:
        fields = tuple(IndexField(Name(n), descending=desc) for n, desc in index.fields)
        operation = CreateIndex(Name(table.name), Name(index.name), fields, index.unique)
        yield _Part(operation, partial(_drop_index, table, index))
    for field in table.fields:
        if field.on_delete is not None:
            reference = AddReference(Name(table.name), Name(field.name), field.on_delete)
            yield _Part(reference, partial(_drop_reference, table, field))
    for check in table.checks:
        added_check = AddCheck(Name(table.name), Name(check.name), check.expression)
        yield _Part(added_check, partial(_drop_check, table, check))


# What leaves them out


def _drop_enum(found: Inference, enum: InferredEnum, _: int, why: str) -> None:
    """Fields of the enum are texts."""
    found.enums.remove(enum)
    text = Name("string")
    for table in found.tables:
        for at, field in enumerate(table.fields):
            definition = field.definition
            if definition.type == enum.name:
                table.fields[at] = replace(field, definition=replace(definition, type=text))
            elif definition.items is not ABSENT and definition.items.type == enum.name:
                items = replace(definition.items, type=text)
                table.fields[at] = replace(field, definition=replace(definition, items=items))
            else:
                continue
            table.change(", ".join(field.columns), f"an enum that is text here: {why}")


def _drop_from_table(
    found: Inference, table: InferredTable, fields: list[InferredField], line: int, why: str
) -> None:
    if 0 <= line < len(fields):
        _drop_from_field(found, table, fields[line], line, why)
    else:
        found.leave_table_out(table, why)


def _drop_from_field(
    found: Inference, table: InferredTable, field: InferredField, _: int, why: str
) -> None:
    """The default, if it has one; else the reference, else the field."""
    definition = field.definition
    place = ", ".join(field.columns)
    if definition.default is not ABSENT or definition.generated is not False:
        bare = replace(definition, default=ABSENT, generated=False)
        table.fields[table.fields.index(field)] = replace(field, definition=bare)
        table.leave_out(place, f"the default: {why}")
    elif field.plain:
        table.cut_reference(field, why)
    elif field.name in table.key:
        found.leave_table_out(table, f"{field.name}, which is of its key: {why}")
    else:
        table.drop_field(field, why)


def _drop_index(table: InferredTable, index: InferredIndex, _: int, why: str) -> None:
    table.indexes.remove(index)
    table.leave_out(index.name, f"an index: {why}")


def _drop_reference(table: InferredTable, field: InferredField, _: int, why: str) -> None:
    table.fields[table.fields.index(field)] = replace(field, on_delete=None)
    table.leave_out(", ".join(field.columns), f"what it refers to need not exist here: {why}")


def _drop_check(table: InferredTable, check: InferredCheck, _: int, why: str) -> None:
    table.checks.remove(check)
    table.leave_out(check.name, f"a check without equivalent: {check.given} ({why})")
