"""Names that other tools use, or that are misspelt, get the name that is right."""

from __future__ import annotations

import pytest

from tests.documents import document, resolve_documents
from zapdb.errors import InvalidMigration
from zapdb.migrations import OPERATIONS
from zapdb.migrations.habits import KEY_HABITS, OPERATION_HABITS, TYPE_HABITS, TYPE_NOTES
from zapdb.migrations.operations.definitions import DECLARED
from zapdb.migrations.parsed_migration import KEYS
from zapdb.migrations.structure import keys_of
from zapdb.values import VALUE_TYPES


def keys_of_all(kinds: list[type]) -> set[str]:
    """The keys of operations, and of what they are made of."""
    found, seen = set(), set(kinds)
    for kind in kinds:
        for key in keys_of(kind).values():
            found.add(key.name)
            for part in (key.kind, *getattr(key.kind, "__args__", ())):
                if hasattr(part, "__dataclass_fields__") and part not in seen:
                    seen.add(part)
                    kinds.append(part)
    return found


def test_habits_lead_to_names_that_there_are() -> None:
    assert set(OPERATION_HABITS.values()) <= set(OPERATIONS)
    assert not OPERATION_HABITS.keys() & OPERATIONS.keys()
    assert set(TYPE_HABITS.values()) <= VALUE_TYPES.keys() - set(DECLARED)
    assert not TYPE_HABITS.keys() & VALUE_TYPES.keys()
    assert TYPE_NOTES.keys() <= TYPE_HABITS.keys()
    keys = set(KEYS) | keys_of_all(list(OPERATIONS.values()))
    assert set(KEY_HABITS.values()) <= keys


TABLE = "create_table: {table: t, key: [id], fields: [{name: id, type: %s}]}"


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ("add_fild: {}", "no operation 'add_fild'", "did you mean 'add_field'? there are: cr"),
        ("add_column: {}", "no operation 'add_column'", "did you mean 'add_field'?"),
        ("xyzzy: {}", "no operation 'xyzzy'", "there are: create_type, "),
        (
            TABLE % "int",
            "there is no type 'int'",
            "did you mean 'integer'? there are: integer, ",
        ),
        (TABLE % "text", "there is no type 'text'", "did you mean 'string'?"),
        (
            TABLE % "datetime",
            "there is no type 'datetime'",
            "did you mean 'timestamp' for a moment, or",
        ),
        (
            TABLE % "serial",
            "there is no type 'serial'",
            "did you mean 'uuid' with generated: true; zapdb",
        ),
        (TABLE % "integr", "there is no type 'integr'", "did you mean 'integer'?"),
        (
            "create_table: {table: t, key: [id], feilds: [{name: id, type: uuid}]}",
            "unknown key 'feilds'",
            "did you mean 'fields'? there are: table, key, fields",
        ),
        (
            "create_table: {table: t, key: [id], fields: [{name: id, type: uuid, nullable: true}]}",
            "unknown key 'nullable'",
            "did you mean 'optional'?",
        ),
        (
            "create_table: {table: t, primary_key: [id], fields: [{name: id, type: uuid}]}",
            "unknown key 'primary_key'",
            "did you mean 'key'?",
        ),
    ],
)
def test_what_was_meant_is_said(change: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(document(change))
    found = {violation.message: violation.hint for violation in caught.value.violations}
    assert hint in found[message]
