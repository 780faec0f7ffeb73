"""Migration documents for tests: text in, resolved chains or violations out."""

from __future__ import annotations

import pytest

from zapdb.errors import InvalidMigration, Violation
from zapdb.migrations import Chain, Migration, NumberAllocator, resolve
from zapdb.migrations.document import DocumentText, read_document
from zapdb.migrations.parsed_migration import parse_document
from zapdb.schema import Schema, TableSchema

PEOPLE = """\
create_table: {table: people, key: [id], fields: [
      {name: id, type: integer},
      {name: name, type: string},
      {name: age, type: integer, optional: true},
      {name: balance, type: decimal, scale: 2, default: "0.00"},
      {name: token, type: uuid, generated: true},
      {name: extra, type: json}]}"""
"""A table with one field of each interesting kind, as one operation."""


def document(*operations: str, rollback: str = "inferred", summary: str = "Test") -> str:
    """A document whose changes begin at line 5, column 5."""
    changes = "".join(f"  - {operation}\n" for operation in operations)
    return f"zapdb: 1\nsummary: {summary}\nrollback: {rollback}\nchanges:\n{changes}"


def resolve_documents(*texts: str | bytes, numbers: NumberAllocator | None = None) -> Chain:
    """The chain of these documents, numbered from 1 and called NNNN_test.yaml."""
    chain, numbers = Chain(), numbers or NumberAllocator()
    for number, text in enumerate(texts, 1):
        raw = text if isinstance(text, bytes) else text.encode()
        source = DocumentText(f"{number:04d}_test.yaml", raw)
        parsed = parse_document(read_document(source), source, number, "test")
        before = chain.migrations[-1].after if chain.migrations else Schema()
        chain = chain.with_migration(resolve(parsed, before, numbers))
    return chain


def resolve_after_people(*operations: str, rollback: str = "inferred") -> Migration:
    """Migration 2 with these operations, on the table `people`."""
    texts = document(PEOPLE), document(*operations, rollback=rollback)
    return resolve_documents(*texts).migrations[-1]


MARK = "§"
"""Stands in an operation before the place of a violation, and is taken out before it is read."""


def violations_of(
    *operations: str, rollback: str = "inferred", kind: type[InvalidMigration] = InvalidMigration
) -> list[str]:
    """Place and message of each violation of a migration 2 with these operations."""
    with pytest.raises(InvalidMigration) as caught:
        resolve_after_people(*(o.replace(MARK, "") for o in operations), rollback=rollback)
    assert type(caught.value) is kind
    return [show(violation) for violation in caught.value.violations]


def marked_place(*operations: str) -> str:
    """Where the mark stands in migration 2, or where its first operation does."""
    before, mark, _ = document(*operations).partition(MARK)
    lines = before.split("\n")
    return f"0002_test.yaml:{len(lines)}:{len(lines[-1]) + 1}" if mark else "0002_test.yaml:5:5"


def show(violation: Violation) -> str:
    return f"{violation.location}: {violation.message}"


def people_of(schema: Schema) -> TableSchema:
    table = schema.table_named("people")
    assert table is not None
    return table
