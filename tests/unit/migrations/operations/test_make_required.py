import pytest

from tests.documents import marked_place, people_of, resolve_after_people, violations_of
from zapdb.expressions import parse_expression
from zapdb.migrations.operations.field_change import MakeOptional
from zapdb.migrations.operations.operation import Fill
from zapdb.records import Computed, Constant, SourceField


def make(field: str = "age", rest: str = "") -> str:
    return f"make_required: {{table: people, field: {field}{rest}}}"


def test_a_field_becomes_required_and_null_is_filled() -> None:
    migration = resolve_after_people(make(rest=", fill: {value: 7}"))
    field = people_of(migration.after).field_named("age")
    assert field is not None
    assert (field.number, field.optional) == (3, False)
    derived = migration.conversion_up(1).derivations[3]
    assert isinstance(derived, Computed)
    assert derived.expression == parse_expression("coalesce(value, fill)")
    fill = derived.inputs["fill"]
    assert isinstance(fill, Constant)
    assert (derived.inputs["value"], fill.value) == (SourceField(3), 7)
    assert not derived.type.optional
    assert migration.rollback == (MakeOptional("people", "age", Fill(7)),)
    assert migration.conversion_down(1).is_identity
    (operation,) = migration.changes
    assert operation.lossy_fields(people_of(migration.before)) == {3}


def test_the_fill_may_be_an_expression_over_the_other_fields() -> None:
    migration = resolve_after_people(make(rest=", fill: {expression: length(name)}"))
    derived = migration.conversion_up(1).derivations[3]
    assert isinstance(derived, Computed)
    fill = derived.inputs["fill"]
    assert isinstance(fill, Computed)
    assert fill.inputs == {"name": SourceField(2)}


def test_without_fill_null_becomes_the_default() -> None:
    default = "change_default: {table: people, field: age, default: 5}"
    migration = resolve_after_people(default, make())
    derived = migration.conversion_up(1).derivations[3]
    assert isinstance(derived, Computed)
    fill = derived.inputs["fill"]
    assert isinstance(fill, Constant)
    assert fill.value == 5
    assert migration.rollback[0] == MakeOptional("people", "age")


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (make("fax"), "there is no field 'fax' in 'people' here"),
        (make("name"), "'name' is required already"),
        (make("id"), "'id' is required already"),
        (make(), "what do records get whose 'age' is null?"),
        (make(rest=", fill: §{value: null}"), "'age' is required and can't be null"),
        (
            make(rest=", fill: §{expression: age}"),
            "in the expression 'age', column 1: there is no field 'age' here",
        ),
    ],
)
def test_this_change_is_refused_here(operation: str, violation: str) -> None:
    assert violations_of(operation) == [f"{marked_place(operation)}: {violation}"]


def test_a_check_that_reads_the_field_is_dropped_first() -> None:
    check = "add_check: {table: people, check: aged, expression: age is not None}"
    assert violations_of(check, make(rest=", fill: {value: 5}")) == [
        "0002_test.yaml:6:5: the check 'aged' reads 'age'"
    ]


def test_an_explicit_rollback_must_lead_back() -> None:
    text = make(rest=", fill: {value: 7}")
    back = "[{make_optional: {table: people, field: age}}]"
    assert resolve_after_people(text, rollback=back).conversion_down(1).is_identity
    assert violations_of(text, rollback="[]") == [
        "0002_test.yaml:1:1: the rollback does not bring back the table 'people' as it was before"
    ]
