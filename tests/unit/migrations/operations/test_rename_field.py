import pytest

from tests.documents import people_of, resolve_after_people, violations_of
from zapdb.migrations.operations.rename import RenameField
from zapdb.records import SourceField


@pytest.mark.parametrize("field", ["name", "id", "balance", "token"])
def test_rule_21_any_field_may_be_renamed_and_stays_itself(field: str) -> None:
    migration = resolve_after_people(f"rename_field: {{table: people, field: {field}, to: new}}")
    before, after = people_of(migration.before), people_of(migration.after)
    old, new = before.field_named(field), after.field_named("new")
    assert old is not None
    assert new is not None
    assert (new.number, new.type, new.default) == (old.number, old.type, old.default)
    assert [f.number for f in after.fields] == [f.number for f in before.fields]
    assert after.key == before.key
    assert migration.rollback == (RenameField("people", "new", field),)
    assert migration.conversion_up(1).derivations == {
        f.number: SourceField(f.number) for f in before.fields
    }


def test_two_fields_can_swap_their_names() -> None:
    migration = resolve_after_people(
        "rename_field: {table: people, field: name, to: x}",
        "rename_field: {table: people, field: extra, to: name}",
        "rename_field: {table: people, field: x, to: extra}",
    )
    names = {f.number: f.name for f in people_of(migration.after).fields}
    assert (names[2], names[6]) == ("extra", "name")
    assert migration.conversion_down(1).derivations == {n: SourceField(n) for n in range(1, 7)}


def test_what_a_rename_refuses() -> None:
    for operation, violation in {
        "{table: nobody, field: name, to: x}": "there is no table 'nobody' here",
        "{table: people, field: fax, to: x}": "there is no field 'fax' in 'people' here",
        "{table: people, field: name, to: age}": "there is a field 'age' in 'people' already",
        "{table: people, field: name, to: name}": "there is a field 'name' in 'people' already",
    }.items():
        assert violations_of(f"rename_field: {operation}") == [f"0002_test.yaml:5:5: {violation}"]
