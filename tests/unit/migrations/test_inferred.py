"""Errors of rollbacks that nobody wrote: they name the operation, and the change it is from."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.documents import PEOPLE, document, resolve_documents, violations_of
from zapdb.errors import InvalidMigration, Location
from zapdb.migrations import NumberAllocator, resolve
from zapdb.migrations.document import DocumentText
from zapdb.migrations.document_structure import Name, ViolationCollector, locate
from zapdb.migrations.operations import Operation
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.operations.field import AddField
from zapdb.migrations.operations.operation import Fill
from zapdb.migrations.operations.rename import RenameTable
from zapdb.migrations.parsed_migration import ParsedMigration
from zapdb.schema import Schema

ARCHIVE = "drop_field: {table: people, field: age, restore: {archive: true}}"
PLACE = Location("0002_test.yaml", 5, 5)


def test_an_archive_that_is_discarded_at_once_is_refused_with_the_ways_out() -> None:
    discard = "drop_table: {table: people, records: discard}"
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(document(PEOPLE), document(ARCHIVE, discard))
    (violation,) = caught.value.violations
    assert str(violation.location) == "0002_test.yaml:6:5"
    assert violation.message == (
        "drop_table discards what this migration archives of people.age: no rollback can restore it"
    )
    assert "leave out the drop_field" in violation.hint
    kept = document("drop_table: {table: people, records: archive}")
    assert resolve_documents(document(PEOPLE), document(ARCHIVE), kept)
    assert resolve_documents(document(PEOPLE), document(ARCHIVE), document(discard))
    assert violations_of(ARCHIVE, discard)


@dataclass(frozen=True)
class Misled(RenameTable):
    """An operation whose rollback can't be: a mistake of zapdb's own."""

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        definition = FieldDefinition.of(before.tables[0].fields[0])
        return (AddField(self.to, definition, Fill(None)),)


def test_a_violation_says_which_change_the_rollback_was_inferred_from() -> None:
    source = DocumentText("0002_test.yaml", document("rename_table: {}").encode())
    change = Misled(Name("people"), Name("persons"), PLACE)
    parsed = ParsedMigration(2, "test", "", (change,), None, source, Location(source.name, 1, 1))
    before = resolve_documents(document(PEOPLE)).schema_at(1)
    with pytest.raises(InvalidMigration) as caught:
        resolve(parsed, before, NumberAllocator({"field": 100}))
    assert [(v.location, v.message) for v in caught.value.violations] == [
        (
            PLACE,
            "in the inferred rollback, add_field of persons.id: "
            "there is a field 'id' in 'persons' already",
        ),
        (
            PLACE,
            "in the inferred rollback, add_field of persons.id: 'id' is required and can't be null",
        ),
    ]
    for violation in caught.value.violations:
        assert violation.hint.endswith(
            "put the change into a migration of its own, or write the rollback out"
        )
        assert "rename_table" in violation.excerpt


def test_what_is_inferred_stands_where_its_change_does() -> None:
    change = (
        "transform: {table: people, from: {name: string}, into: {a: string}, "
        "up: {a: name}, down: {name: a}}"
    )
    for operation in (ARCHIVE, change):
        migration = resolve_documents(document(PEOPLE), document(operation)).migrations[-1]
        assert [op.place for op in migration.rollback] == [PLACE]


def test_every_part_is_placed() -> None:
    placed = locate(
        (AddField(Name("t"), FieldDefinition("string", name=Name("f")), Fill(1)),), PLACE
    )
    assert placed[0].place == placed[0].field.location == placed[0].fill.location == PLACE
