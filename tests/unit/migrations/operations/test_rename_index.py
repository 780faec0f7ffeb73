from tests.documents import people_of, resolve_after_people, violations_of
from zapdb.migrations.operations.rename import RenameIndex

INDEX = "create_index: {table: people, index: by_age, fields: [{field: age}], unique: true}"


def rename(old: str, new: str) -> str:
    return f"rename_index: {{table: people, index: {old}, to: {new}}}"


def test_a_renamed_index_is_the_same_index() -> None:
    migration = resolve_after_people(INDEX, rename("by_age", "by_years"))
    (index,) = people_of(migration.after).indexes
    assert (index.number, index.name, index.unique) == (1, "by_years", True)
    assert migration.rollback[0] == RenameIndex("people", "by_years", "by_age")
    assert migration.conversion_up(1).is_identity


def test_two_indexes_can_swap_their_names() -> None:
    other = INDEX.replace("by_age", "other")
    steps = rename("by_age", "x"), rename("other", "by_age"), rename("x", "other")
    migration = resolve_after_people(INDEX, other, *steps)
    assert {i.name: i.number for i in people_of(migration.after).indexes} == {
        "other": 1,
        "by_age": 2,
    }


def test_what_a_rename_refuses() -> None:
    expected = {
        rename("by_fax", "x"): "there is no index 'by_fax' on 'people'",
        rename("by_age", "by_age"): "there is an index 'by_age' on 'people' already",
        rename("by_age", "x").replace("people", "nobody"): "there is no table 'nobody' here",
    }
    for operation, violation in expected.items():
        assert violations_of(INDEX, operation) == [f"0002_test.yaml:6:5: {violation}"]
