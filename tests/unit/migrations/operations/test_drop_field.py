from decimal import Decimal as D

import pytest

from tests.documents import marked_place, people_of, resolve_after_people, violations_of
from zapdb.errors import NotExhaustive
from zapdb.migrations.operations.definitions import FieldDefinition
from zapdb.migrations.operations.field import AddField
from zapdb.records import Computed, Constant, SourceField

NOT_TEXT = (
    "must be a string of valid Unicode, at most 4194304 bytes of UTF-8; this is int of 3 bits"
)


def drop(field: str, rest: str = "") -> str:
    return f"drop_field: {{table: people, field: {field}{rest}}}"


def test_a_dropped_field_is_gone_and_its_rollback_adds_it_where_it_was() -> None:
    migration = resolve_after_people(drop("balance", ', restore: {value: "1.5"}'))
    assert people_of(migration.after).field_named("balance") is None
    (added,) = migration.rollback
    assert isinstance(added, AddField)
    before = people_of(migration.before).field_named("balance")
    assert before is not None
    assert added.field == FieldDefinition.of(before)
    assert added.position == 3
    derived = migration.conversion_down(1).derivations
    assert isinstance(derived[4], Constant)
    assert str(derived[4].value) == "1.50"
    assert migration.conversion_up(1).derivations == {n: SourceField(n) for n in (1, 2, 3, 5, 6)}


@pytest.mark.parametrize(
    ("field", "restore"),
    [
        ("age", "{value: null}"),
        ("age", "{value: 5}"),
        ("name", "{value: ''}"),
        ("extra", "{value: {a: [1]}}"),
    ],
)
def test_any_value_of_the_field_may_be_restored(field: str, restore: str) -> None:
    migration = resolve_after_people(drop(field, f", restore: {restore}"))
    assert migration.rollback


def test_an_expression_restores_from_the_fields_that_stay() -> None:
    migration = resolve_after_people(drop("age", ", restore: {expression: length(name)}"))
    derived = migration.conversion_down(1).derivations[3]
    assert isinstance(derived, Computed)
    assert derived.inputs == {"name": SourceField(2)}


def test_dropping_several_fields_brings_all_back_to_their_places() -> None:
    migration = resolve_after_people(
        *(
            drop(f, f", restore: {{value: {v}}}")
            for f, v in (("age", 5), ("name", "x"), ("extra", 1))
        )
    )
    assert [f.name for f in people_of(migration.after).fields] == ["id", "balance", "token"]
    derived = migration.conversion_down(1).derivations
    assert {n: d.value for n, d in derived.items() if isinstance(d, Constant)} == {
        3: 5,
        2: "x",
        6: 1,
    }


def test_a_generated_field_comes_back_generated() -> None:
    restore = ", restore: {value: 00000000-0000-0000-0000-00000000000a}"
    (added,) = resolve_after_people(drop("token", restore)).rollback
    assert isinstance(added, AddField)
    assert added.field.generated


def test_without_restore_no_rollback_can_be_inferred() -> None:
    expected = "no rollback can be inferred: what was in people.age is lost"
    assert violations_of(drop("age"), kind=NotExhaustive) == [f"0002_test.yaml:5:5: {expected}"]


def test_an_explicit_rollback_makes_it_exhaustive() -> None:
    rollback = (
        "[{add_field: {table: people, position: 2, "
        "field: {name: age, type: integer, optional: true}, fill: {value: 7}}}]"
    )
    explicit = resolve_after_people(drop("age"), rollback=rollback)
    derived = explicit.conversion_down(1).derivations[3]
    assert isinstance(derived, Constant)
    assert derived.value == 7
    elsewhere = rollback.replace("position: 2", "position: 3")
    assert violations_of(drop("age"), rollback=elsewhere) == [
        "0002_test.yaml:1:1: the rollback does not bring back the table 'people' as it was before"
    ]


INDEX = "create_index: {table: people, index: by_age, fields: [{field: age}]}"


def test_a_field_of_an_index_is_dropped_after_the_index_only() -> None:
    restore = ", restore: {value: null}"
    assert violations_of(INDEX, drop("age", restore)) == [
        "0002_test.yaml:6:5: the index 'by_age' uses 'age'"
    ]
    migration = resolve_after_people(
        INDEX, "drop_index: {table: people, index: by_age}", drop("age", restore)
    )
    assert people_of(migration.after).field_named("age") is None


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (drop("fax"), "there is no field 'fax' in 'people' here"),
        (drop("age").replace("people", "nobody"), "there is no table 'nobody' here"),
        (drop("name", ", restore: §{value: null}"), "'name' is required and can't be null"),
        (drop("name", ", restore: §{value: 5}"), f"a value of 'name' {NOT_TEXT}"),
        (
            drop("name", ", restore: §{expression: name}"),
            "in the expression 'name', column 1: there is no field 'name' here",
        ),
        (
            drop("name", ", restore: §{expression: age}"),
            "in the expression 'age', column 1: the result must be string, not optional integer",
        ),
        (
            drop("name", ", restore: §{}"),
            "exactly one of value, expression and archive is needed here",
        ),
        (drop("name", ", restore: §x"), "a mapping is needed here"),
    ],
)
def test_this_drop_is_refused_here(operation: str, violation: str) -> None:
    assert violations_of(operation) == [f"{marked_place(operation)}: {violation}"]


def test_rule_21_a_field_of_the_key_cannot_be_dropped() -> None:
    expected = "'id' is part of the key of 'people' and can't be dropped"
    assert violations_of(drop("id", ", restore: {value: 5}")) == [f"0002_test.yaml:5:5: {expected}"]


def test_a_restored_decimal_shows_its_scale() -> None:
    migration = resolve_after_people(drop("balance", ", restore: {value: 5}"))
    derived = migration.conversion_down(1).derivations[4]
    assert isinstance(derived, Constant)
    assert derived.value == D(5)
    assert str(derived.value) == "5.00"
