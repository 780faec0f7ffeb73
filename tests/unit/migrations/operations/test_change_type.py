from decimal import Decimal as D

import pytest

from tests.documents import marked_place, people_of, resolve_after_people, violations_of
from zapdb.errors import NotExhaustive
from zapdb.expressions import parse_expression
from zapdb.migrations.operations.change_type import ChangeType
from zapdb.records import Computed
from zapdb.schema import NO_DEFAULT
from zapdb.values import Decimal, Integer, String


def change(field: str, rest: str) -> str:
    return f"change_type: {{table: people, field: {field}, {rest}}}"


TO_NUMBER = change("name", 'type: integer, up: "integer(name, else=0)", down: text(name)')


def test_the_field_keeps_its_number_and_gets_its_type() -> None:
    migration = resolve_after_people(TO_NUMBER)
    changed = people_of(migration.after).field_named("name")
    assert changed is not None
    assert (changed.number, changed.type, changed.default) == (2, Integer(), NO_DEFAULT)
    derived = migration.conversion_up(1).derivations[2]
    assert isinstance(derived, Computed)
    assert derived.expression == parse_expression("integer(name, else=0)")


def test_the_inferred_rollback_goes_the_other_way() -> None:
    (back,) = resolve_after_people(TO_NUMBER).rollback
    assert back == ChangeType(
        "people", "name", "string", "text(name)", down="integer(name, else=0)"
    )


def test_null_stays_null_and_the_expression_sees_values_only() -> None:
    migration = resolve_after_people(
        change("age", "type: string, up: text(age), down: length(age)")
    )
    for derivations, function in (
        (migration.conversion_up(1).derivations, "text"),
        (migration.conversion_down(1).derivations, "length"),
    ):
        derived = derivations[3]
        assert isinstance(derived, Computed)
        assert derived.expression == parse_expression(f"None if age is None else {function}(age)")
    changed = people_of(migration.after).field_named("age")
    assert changed is not None
    assert changed.optional


def test_a_default_has_to_be_said_again_and_comes_back() -> None:
    rest = (
        'type: decimal, scale: 3, up: "decimal(balance, 3, else=0)", '
        'down: "decimal(balance, 2, else=0)"'
    )
    assert violations_of(change("balance", rest)) == [
        "0002_test.yaml:5:5: 'balance' has a default of the old type"
    ]
    migration = resolve_after_people(change("balance", rest + ', default: "1.5"'))
    changed = people_of(migration.after).field_named("balance")
    assert changed is not None
    assert (changed.type, str(changed.default)) == (Decimal(3), "1.500")
    (back,) = migration.rollback
    assert isinstance(back, ChangeType)
    assert (back.scale, back.default) == (2, "0.00")


def test_null_is_no_default_of_the_new_type_either() -> None:
    nick = "{name: nick, type: string, optional: true, default: x}"
    add = f"add_field: {{table: people, field: {nick}}}"
    rest = "type: integer, up: length(nick), down: text(nick)"
    assert violations_of(add, change("nick", rest + ", default: null")) == [
        "0002_test.yaml:6:5: null is no default of 'nick', which may be null"
    ]
    assert violations_of(add, change("nick", rest)) == [
        "0002_test.yaml:6:5: 'nick' has a default of the old type"
    ]


def test_a_default_that_no_rollback_could_take_away_is_refused() -> None:
    text = change("age", "type: string, up: text(age), down: length(age), default: ''")
    assert violations_of(text) == [
        "0002_test.yaml:5:5: 'age' has no default, and no rollback could take this one away"
    ]


def test_without_down_no_rollback_can_be_inferred() -> None:
    expected = "no rollback can be inferred for the type of people.name"
    text = change("name", "type: integer, up: length(name)")
    assert violations_of(text, kind=NotExhaustive) == [f"0002_test.yaml:5:5: {expected}"]


def test_an_explicit_rollback_makes_it_exhaustive() -> None:
    text = change("name", "type: integer, up: length(name)")
    back = change("name", "type: string, up: text(name)")
    explicit = resolve_after_people(text, rollback=f"[{{{back}}}]")
    (operation,) = explicit.rollback
    assert isinstance(operation, ChangeType)
    assert violations_of(text, rollback=f"[{{{back.replace('string', 'binary')}}}]") == [
        "0002_test.yaml:3:13: in the expression 'text(name)', column 1: the result must "
        "be binary, not string"
    ]


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (change("fax", "type: integer, up: '1'"), "there is no field 'fax' in 'people' here"),
        (change("name", "type: intager, up: '1'"), "there is no type 'intager'"),
        (
            change("name", "type: decimal, up: '1'"),
            "these are not the parameters of type 'decimal'",
        ),
        (change("name", "type: string, up: name, down: name"), "'name' is of that type already"),
        (
            change("name", "type: integer, up: name, down: text(name)"),
            "in the expression 'name', column 1: the result must be integer, not string",
        ),
        (
            change("name", "type: integer, up: length(name), down: name"),
            "in the expression 'name', column 1: the result must be string, not integer",
        ),
        (
            change("name", "type: integer, up: age, down: text(name)"),
            "in the expression 'age', column 1: there is no field 'age' here",
        ),
        (
            change("name", "type: integer, up: integer(name), down: text(name)"),
            "in the expression 'integer(name)', column 1: integer() can fail",
        ),
        (
            change("name", "type: integer, default: x, up: length(name), down: text(name)"),
            "a value of 'name' must be an integer of at most 63 bytes; this is str of 1 characters",
        ),
        (
            change("name", "type: integer, default: null, up: length(name), down: text(name)"),
            "'name' is required and can't be null",
        ),
        (
            change(
                "name", "type: integer, up: length(name), down: text(name), reversibility: §maybe"
            ),
            "one of exact, lossy is needed here",
        ),
        (change("name", "type: integer").replace("{", "§{"), "the key 'up' is missing"),
        (
            change("token", "type: string, up: text(token)"),
            "'token' is generated: it can't be of another type",
        ),
    ],
)
def test_this_change_is_refused_here(operation: str, violation: str) -> None:
    assert f"{marked_place(operation)}: {violation}" in violations_of(operation)


def test_rule_21_a_field_of_the_key_keeps_its_type() -> None:
    expected = "'id' is part of the key of 'people' and can't be given another type"
    assert violations_of(change("id", "type: string, up: text(id), down: length(id)")) == [
        f"0002_test.yaml:5:5: {expected}"
    ]


@pytest.mark.parametrize(
    ("index", "kind", "allowed"),
    [
        ("{field: name, collation: {locale: und}}", "integer", False),
        ("{field: name}", "integer", True),
        ("{field: name}", "json", False),
        ("{field: age}", "string", True),
    ],
)
def test_rule_20_an_index_must_be_able_to_hold_the_new_type(
    index: str, kind: str, allowed: bool
) -> None:
    field = "age" if "age" in index else "name"
    make = f"create_index: {{table: people, index: by_it, fields: [{index}]}}"
    up, down = {
        "integer": (f"length({field})", f"text({field})"),
        "string": (f"text({field})", f"length({field})"),
        "json": (field, field),
    }[kind]
    operations = make, change(field, f"type: {kind}, up: {up}, down: {down}")
    if allowed:
        table = people_of(resolve_after_people(*operations).after)
        assert table.index_named("by_it") is not None
        return
    message = f"0002_test.yaml:6:5: the index 'by_it' can't hold values of type {kind} as it is"
    assert message in violations_of(*operations)


def test_a_changed_decimal_is_the_one_that_would_be_stored() -> None:
    migration = resolve_after_people(
        change("name", 'type: decimal, scale: 2, up: "decimal(name, 2, else=5)", down: text(name)')
    )
    changed = people_of(migration.after).field_named("name")
    assert changed is not None
    assert changed.type == Decimal(2)
    assert D(5) == changed.type.check(5, "p")
    assert people_of(migration.before).fields[1].type == String()
