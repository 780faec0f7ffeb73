import datetime

import pytest

from tests.documents import (
    document,
    people_of,
    resolve_after_people,
    resolve_documents,
    violations_of,
)
from zapdb.migrations.operations.field_change import ChangeDefault
from zapdb.schema import NO_DEFAULT, Now


def change(field: str, rest: str) -> str:
    return f"change_default: {{table: people, field: {field}, {rest}}}"


@pytest.mark.parametrize(
    ("field", "rest", "default", "back"),
    [
        ("balance", 'default: "5"', "5.00", {"default": "0.00"}),
        ("balance", "remove: true", NO_DEFAULT, {"default": "0.00"}),
        ("name", "default: none", "none", {"remove": True}),
        ("extra", "default: {a: [null]}", {"a": [None]}, {"remove": True}),
        ("extra", "default: null", None, {"remove": True}),
        ("id", "default: 7", 7, {"remove": True}),
    ],
)
def test_rule_21_any_field_gets_another_default_and_no_record_changes(
    field: str, rest: str, default: object, back: dict[str, object]
) -> None:
    migration = resolve_after_people(change(field, rest))
    changed = people_of(migration.after).field_named(field)
    assert changed is not None
    assert changed.default is default or str(changed.default) == str(default)
    assert migration.rollback == (ChangeDefault("people", field, **back),)
    assert migration.conversion_up(1).is_identity
    assert migration.conversion_down(1).is_identity


def test_null_is_no_default_where_the_field_may_be_null() -> None:
    given = change("age", "default: 5")
    migration = resolve_after_people(given, change("age", "default: null"))
    age = people_of(migration.after).field_named("age")
    assert age is not None
    assert not age.has_default
    assert migration.changes[1] == ChangeDefault("people", "age", remove=True)


def test_rule_05_remove_false_is_no_other_spelling() -> None:
    digests = {
        resolve_after_people(change("age", f"default: 5{rest}")).digest
        for rest in ("", ", remove: false")
    }
    assert len(digests) == 1


@pytest.mark.parametrize(
    ("field", "rest", "violation"),
    [
        ("fax", "default: 5", "there is no field 'fax' in 'people' here"),
        ("age", "remove: true", "'age' has no default to remove"),
        ("age", "default: null", "'age' has no default to remove"),
        ("age", "remove: false", "exactly one of default and remove: true is needed here"),
        ("age", "default: 1, remove: true",
         "exactly one of default and remove: true is needed here"),
        ("name", "default: null", "'name' is required and can't be null"),
        ("token", "default: 00000000-0000-0000-0000-00000000000a",
         "a generated field has no default"),
        ("age", "default: x",
         "a value of 'age' must be an integer of at most 63 bytes; this is str of 1 characters"),
    ],
)  # fmt: skip
def test_this_default_is_refused_here(field: str, rest: str, violation: str) -> None:
    assert violations_of(change(field, rest)) == [f"0002_test.yaml:5:5: {violation}"]


def test_an_explicit_rollback_must_lead_back() -> None:
    text = change("balance", "remove: true")
    back = change("balance", "default: 0")
    assert resolve_after_people(text, rollback=f"[{{{back}}}]").rollback
    assert violations_of(text, rollback=f"[{{{back.replace('0', '1')}}}]") == [
        "0002_test.yaml:1:1: the rollback does not bring back the table 'people' as it was before"
    ]


def test_the_moment_of_the_insert_comes_and_goes_as_other_defaults_do() -> None:
    made = "create_table: {table: t, key: [id], fields: [{name: id, type: integer}, %s]}"
    chain = resolve_documents(
        document(made % "{name: at, type: timestamp}"),
        document("change_default: {table: t, field: at, default: now}"),
        document("change_default: {table: t, field: at, default: '2020-01-01T00:00:00+00:00'}"),
        document("change_default: {table: t, field: at, remove: true}"),
    )
    found = [chain.schema_at(n).table_named("t").fields[1].default for n in (1, 2, 3, 4)]
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    assert found == [NO_DEFAULT, Now(), moment, NO_DEFAULT]
    assert [m.rollback for m in chain.migrations[1:]] == [
        (ChangeDefault("t", "at", remove=True),),
        (ChangeDefault("t", "at", "now"),),
        (ChangeDefault("t", "at", "2020-01-01T00:00:00+00:00"),),
    ]
