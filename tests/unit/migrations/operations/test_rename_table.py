from tests.documents import people_of, resolve_after_people, violations_of
from zapdb.migrations.operations.rename import RenameTable
from zapdb.records import SourceField


def test_a_renamed_table_is_the_same_table() -> None:
    migration = resolve_after_people("rename_table: {table: people, to: persons}")
    (before,), (after,) = migration.before, migration.after
    assert after.name == "persons"
    assert (after.number, after.fields, after.key) == (before.number, before.fields, before.key)
    assert migration.rollback == (RenameTable("persons", "people"),)
    assert migration.drawn == {}


def test_no_record_changes() -> None:
    migration = resolve_after_people("rename_table: {table: people, to: persons}")
    identity = {f.number: SourceField(f.number) for f in people_of(migration.before).fields}
    assert migration.conversion_up(1).derivations == identity
    assert migration.conversion_down(1).derivations == identity


def test_an_explicit_rollback_must_lead_back() -> None:
    change = "rename_table: {table: people, to: persons}"
    explicit = "[{rename_table: {table: persons, to: people}}]"
    inferred = resolve_after_people(change)
    assert resolve_after_people(change, rollback=explicit).digest == inferred.digest
    assert violations_of(change, rollback="[{rename_table: {table: persons, to: humans}}]") == [
        "0002_test.yaml:1:1: the rollback does not bring back the table 'humans' as it was before",
        "0002_test.yaml:1:1: the rollback does not bring back the table 'people' as it was before",
    ]


def test_what_a_rename_refuses() -> None:
    assert violations_of("rename_table: {table: nobody, to: persons}") == [
        "0002_test.yaml:5:5: there is no table 'nobody' here"
    ]
    assert violations_of("rename_table: {table: people, to: people}") == [
        "0002_test.yaml:5:5: there is a table 'people' already"
    ]
