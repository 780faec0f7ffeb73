"""Names that other tools use, or that are misspelt, get the name that is right."""

from __future__ import annotations

import pytest

from tests.documents import document, resolve_documents
from zapdb.errors import InvalidMigration
from zapdb.migrations import OPERATIONS
from zapdb.migrations.did_you_mean_key import (
    KEY_EXAMPLES,
    KEY_HABITS,
    OPERATION_HABITS,
    TYPE_HABITS,
    TYPE_NOTES,
)
from zapdb.migrations.document_structure import keys_of
from zapdb.migrations.operations.definitions import DECLARED
from zapdb.migrations.parsed_migration import KEYS
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
    assert {one for meant in KEY_HABITS.values() for one in meant.split("|")} <= keys
    assert KEY_EXAMPLES.keys() <= keys


FIELD = "create_table: {table: t, key: [id], fields: [{name: id, %s}]}"
TABLE = "create_table: {table: t, key: [id], fields: [{name: id, type: %s}]}"


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ("add_fild: {}", "no operation 'add_fild'", "did you mean 'add_field'? available: cr"),
        ("add_column: {}", "no operation 'add_column'", "did you mean 'add_field'?"),
        ("xyzzy: {}", "no operation 'xyzzy'", "available: create_type, "),
        (
            TABLE % "int",
            "there is no type 'int'",
            "did you mean 'integer'? available: integer, ",
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
            "did you mean 'integer' with generated: sequence?",
        ),
        (TABLE % "integr", "there is no type 'integr'", "did you mean 'integer'?"),
        (
            "create_table: {table: t, key: [id], feilds: [{name: id, type: uuid}]}",
            "unknown key 'feilds'",
            "did you mean 'fields'? available: table, key, fields",
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
        (FIELD % "type: uuid, auto: true", "unknown key 'auto'", "generated: sequence numbers"),
        (FIELD % "type: uuid, not_null: true", "unknown key 'not_null'", "a field is required un"),
        (FIELD % "type: uuid, primary_key: true", "unknown key 'primary_key'", "key: [id], besid"),
        (FIELD % "type: string, unique: true", "unknown key 'unique'", "has unique: true;"),
        (FIELD % "type: string, max_length: 5", "unknown key 'max_length'", "strings have no max"),
        (FIELD % "type: decimal, decimal_places: 2", "unknown key 'decimal_places'", "an 'scale'?"),
        (
            FIELD % "type: decimal",
            "these are not the parameters of type 'decimal'",
            "write {type: d",
        ),
        (
            FIELD % "type: uuid, scale: 2",
            "these are not the parameters of type 'uuid'",
            "leave out 'scale'",
        ),
        (
            FIELD % "type: integer, generated: true",
            "type integer can't be generated",
            "write generated: sequence",
        ),
        (FIELD % "type: reference, table: t", "unknown key 'table'", "did you mean 'to'?"),
        (FIELD % "type: varchar(50)", "'varchar(50)' is not a name", "parameters are keys"),
        (
            FIELD % "type: timestamp, default: now()",
            "'now()' is no default of 'id', a timestamp",
            "write default: now",
        ),
        (
            FIELD % 'type: boolean, default: "no"',
            "a value of 'id' must be True or False; this is str of 2 characters",
            "write true or false, without quotes",
        ),
        (TABLE.replace("[id]", "id") % "uuid", "a list is needed here", "write [id], even for one"),
        ("drop_table: {table: t}", "the key 'records' is missing", "records: archive or records:"),
        ("create_table: {table: My-T}", "'My-T' is not a name", "did you mean 'my_t'?"),
        ("add_field: {table: t, name: x}", "unknown key 'name'", "did you mean 'field'?"),
        ("create_index: {table: t, name: x}", "unknown key 'name'", "did you mean 'index'?"),
        ("add_field: {table: t, type: x}", "unknown key 'type'", "it is a part of the field"),
        (
            "drop_index:\n    table: t\n    index: i",
            "an operation is a mapping with one key",
            "indent the lines below `drop_index:` by two more blanks",
        ),
        (
            "{drop_type: {type: a}, drop_table: {table: t, records: archive}}",
            "an operation is a mapping with one key",
            "begin each operation with a dash",
        ),
    ],
)
def test_what_was_meant_is_said(change: str, message: str, hint: str) -> None:
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(document(change))
    found = {violation.message: violation.hint for violation in caught.value.violations}
    (said,) = [hint for given, hint in found.items() if given.startswith(message)]
    assert hint in said


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (FIELD % "type: uuid, null: true", "may be null says optional: true; quote null"),
        (FIELD % "type: uuid, default: yes", 'write true, or "yes" for text'),
        (FIELD % "type: uuid, default: 1.50", 'write "1.50" for text; decimals, floats, dates'),
        (FIELD % "type: uuid, default: 0001", 'write 1 for the number, or "0001" for text'),
    ],
)
def test_values_that_yaml_reads_otherwise(text: str, hint: str) -> None:
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(document(text))
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("zapdb: 1\nsummary: x\nchanges:\n  # - a\nrollback: inferred\n", "take the # from one of"),
        ("zapdb: 1\nsummary: x\nchanges: []\nrollback: inferred\n", "write one operation or more"),
        ("zapdb: 1\nsummary: x\nchanges:\n\t- a\n", "indent with blanks"),
        ("zapdb: 1\nsummary: a: b\n", "quote a text that has a colon"),
        ("zapdb: 1\nsummary: x\nupgrade: []\n", "did you mean 'changes'?"),
        ("zapdb: 1\nsummary: x\ndepends_on: a\n", "the numbers of the files are the order"),
    ],
)
def test_what_is_no_migration_says_what_to_write(text: str, hint: str) -> None:
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(text)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "hint"),
    [
        ("a => 3", "at least is written >="),
        ("a = 3", "equal is written =="),
        ("a <> 3", "not equal is written !="),
        ("a like 'x'", "there are starts_with(text, prefix)"),
        ("a is null", "compares with None alone"),
        ("len(a) > 3", "did you mean 'length'?"),
    ],
)
def test_expressions_of_other_languages(expression: str, hint: str) -> None:
    table = "create_table: {table: t, key: [a], fields: [{name: a, type: string}]}"
    check = f'add_check: {{table: t, check: c, expression: "{expression}"}}'
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(document(table, check))
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("type: people", "write type: reference, to: people"),
        ("type: reference, to: poeple", "did you mean 'people'?"),
    ],
)
def test_a_table_in_the_place_of_a_type(kind: str, hint: str) -> None:
    people = "create_table: {table: people, key: [id], fields: [{name: id, type: uuid}]}"
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(document(people, FIELD % kind))
    assert hint in str(caught.value)
