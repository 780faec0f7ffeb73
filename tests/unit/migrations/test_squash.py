"""Squashes of tables that refer to each other: what can't be created at once is added later."""

from __future__ import annotations

import pytest

from tests.documents import document, resolve_documents
from zapdb.migrations import NumberAllocator, resolve
from zapdb.migrations.document import DocumentText, read_document
from zapdb.migrations.parsed_migration import parse_document
from zapdb.migrations.squash import squash, to_document
from zapdb.schema import Schema, bytes_without_numbers

TABLE = "create_table: {table: %s, key: [id], fields: [{name: id, type: integer}%s]}"


def refer(table: str, to: str, rest: str = "") -> str:
    """A field `to_…` in front of the table."""
    field = f"{{name: to_{to}, type: reference, to: {to}{rest}}}"
    fill = "" if rest else ", fill: {value: 0}"
    return f"add_field: {{table: {table}, field: {field}, position: 0{fill}}}"


def index(table: str, field: str) -> str:
    return f"create_index: {{table: {table}, index: by_{field}, fields: [{{field: {field}}}]}}"


@pytest.mark.parametrize("rest", ["", ", optional: true", ", default: 5"])
def test_tables_in_a_circle_are_created_and_then_referred_to(rest: str) -> None:
    chain = resolve_documents(
        document(*(TABLE % (name, "") for name in ("a", "b", "c"))),
        document(refer("a", "b", rest), refer("b", "c", rest), refer("c", "a", rest)),
        document(refer("a", "c", rest), refer("a", "a", rest), index("a", "to_b")),
        document("add_reference: {table: a, field: to_b, on_delete: restrict}"),
    )
    made = squash(chain, 4)
    assert {t.name: bytes_without_numbers(t) for t in made.after} == {
        t.name: bytes_without_numbers(t) for t in chain.schema_at(4)
    }
    assert [op.keyword for op in made.changes[:3]] == ["create_table"] * 3
    added = [op.field.name for op in made.changes if op.keyword == "add_field"]
    assert len(added) < 5, "what can be created at once, is"
    source = DocumentText("0004_squashed.yaml", to_document(made).encode())
    read = resolve(
        parse_document(read_document(source), source, 4, "x"), Schema(), NumberAllocator()
    )
    assert read.digest == made.digest


def test_tables_without_a_circle_are_created_whole() -> None:
    chain = resolve_documents(
        document(TABLE % ("a", ""), TABLE % ("b", ""), refer("a", "b", ", optional: true"))
    )
    made = squash(chain, 1)
    assert [(op.keyword, op.table) for op in made.changes] == [
        ("create_table", "b"),
        ("create_table", "a"),
    ]


def test_a_key_refers_to_what_is_there_though_all_else_goes_in_a_circle() -> None:
    key = "create_table: {table: %s, key: [k], fields: [{name: k, type: reference, to: %s}]}"
    chain = resolve_documents(
        document(TABLE % ("a", ""), key % ("b", "a"), refer("a", "b", ", optional: true")),
        document("rename_table: {table: a, to: z}"),
    )
    made = squash(chain, 2)
    assert [op.keyword for op in made.changes] == ["create_table", "create_table", "add_field"]
    assert [table.name for table in made.after] == ["z", "b"]
