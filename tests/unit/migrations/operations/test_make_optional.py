import pytest

from tests.documents import marked_place, people_of, resolve_after_people, violations_of
from zapdb.errors import NotExhaustive
from zapdb.migrations.operations.field_change import MakeOptional, MakeRequired
from zapdb.records import Computed, SourceField


def make(field: str, rest: str = "") -> str:
    return f"make_optional: {{table: people, field: {field}{rest}}}"


def test_a_field_becomes_optional_and_no_value_changes() -> None:
    migration = resolve_after_people(make("name", ", fill: {value: nobody}"))
    field = people_of(migration.after).field_named("name")
    assert field is not None
    assert (field.number, field.optional) == (2, True)
    assert migration.conversion_up(1).is_identity
    (operation,) = migration.changes
    assert operation.lossy_fields(people_of(migration.before)) == frozenset()
    (back,) = migration.rollback
    assert isinstance(back, MakeRequired)
    down = migration.conversion_down(1).derivations[2]
    assert isinstance(down, Computed)
    assert down.inputs["value"] == SourceField(2)


def test_without_fill_the_default_takes_the_place_of_null_on_the_way_back() -> None:
    (back,) = resolve_after_people(make("balance")).rollback
    assert back == MakeRequired("people", "balance")
    json = "change_default: {table: people, field: extra, default: null}"
    assert resolve_after_people(json, make("extra")).rollback


def test_without_default_and_fill_no_rollback_can_be_inferred() -> None:
    expected = "no rollback can be inferred: people.name would be required again"
    assert violations_of(make("name"), kind=NotExhaustive) == [f"0002_test.yaml:5:5: {expected}"]
    rollback = "[{make_required: {table: people, field: name, fill: {expression: text(id)}}}]"
    migration = resolve_after_people(make("name"), rollback=rollback)
    assert migration.changes == (MakeOptional("people", "name"),)


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (make("fax"), "there is no field 'fax' in 'people' here"),
        (make("age"), "'age' is optional already"),
        (make("name", ", fill: §{value: null}"), "'name' is required and can't be null"),
        (make("name", ", fill: §{}"), "exactly one of value and expression is needed here"),
        (
            make("name", ", fill: §{expression: name}"),
            "in the expression 'name', column 1: there is no field 'name' here",
        ),
    ],
)
def test_this_change_is_refused_here(operation: str, violation: str) -> None:
    assert violations_of(operation) == [f"{marked_place(operation)}: {violation}"]


def test_rule_21_a_field_of_the_key_stays_required() -> None:
    expected = "'id' is part of the key of 'people' and can't be made optional"
    assert violations_of(make("id", ", fill: {value: 5}")) == [f"0002_test.yaml:5:5: {expected}"]


def test_a_check_that_reads_the_field_is_dropped_first() -> None:
    check = "add_check: {table: people, check: named, expression: name != ''}"
    assert violations_of(check, make("name", ", fill: {value: x}")) == [
        "0002_test.yaml:6:5: the check 'named' reads 'name'"
    ]
