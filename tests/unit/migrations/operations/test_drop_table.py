import pytest

from tests.documents import (
    PEOPLE,
    document,
    people_of,
    resolve_after_people,
    resolve_documents,
    violations_of,
)
from zapdb.migrations.operations.table import RestoreTable
from zapdb.schema import ArchivedTable, bytes_without_numbers

TOWNS = "create_table: {table: towns, key: [id], fields: [{name: id, type: integer}]}"


def drop(records: str = "archive", table: str = "people", rest: str = "") -> str:
    return f"drop_table: {{table: {table}, records: {records}{rest}}}"


def test_an_archived_table_is_kept_as_it_was_and_comes_back_to_its_place() -> None:
    migration = resolve_after_people(TOWNS, drop())
    assert [table.name for table in migration.after] == ["towns"]
    people = people_of(migration.before)
    assert migration.after.archived == (ArchivedTable(people, 2),)
    assert migration.after.table_active_or_archived(1) == people
    assert migration.rollback[0] == RestoreTable("people", 2, 0)
    (_, operation) = migration.changes
    assert operation.lossy_fields(people) == frozenset()
    assert migration.conversion_up(1).is_identity


def test_a_discarded_table_is_made_again_empty() -> None:
    migration = resolve_after_people(drop("discard"))
    assert (migration.after.tables, migration.after.archived) == ((), ())
    (made,) = migration.rollback
    assert made.keyword == "create_table"
    (operation,) = migration.changes
    assert operation.lossy_fields(people_of(migration.before)) == {1, 2, 3, 4, 5, 6}


def test_a_table_is_archived_as_the_changes_before_it_made_it() -> None:
    migration = resolve_after_people(
        "rename_field: {table: people, field: name, to: title}",
        "drop_field: {table: people, field: age, restore: {archive: true}}",
        "create_index: {table: people, index: by_title, fields: [{field: title}]}",
        drop(),
    )
    ((kept, by),) = ((a.table, a.archived_by) for a in migration.after.archived)
    assert by == 2
    assert [f.name for f in kept.fields] == ["id", "title", "balance", "token", "extra"]
    assert [a.field.name for a in kept.archived] == ["age"]
    assert [op.keyword for op in migration.rollback] == [
        "restore_table",
        "drop_index",
        "restore_field",
        "rename_field",
    ]
    assert set(migration.conversion_down(1).derivations) == {1, 2, 3, 4, 5, 6}


def test_a_name_is_free_again_and_several_of_one_name_come_back_in_turn() -> None:
    other = "create_table: {table: people, key: [id], fields: [{name: id, type: uuid}]}"
    migration = resolve_after_people(drop(), other, drop())
    assert [a.table.number for a in migration.after.archived] == [1, 2]
    restore = "restore_table: {table: people, archived_by: 2}"
    away = "rename_table: {table: people, to: others}"
    chain = resolve_documents(
        document(PEOPLE), document(drop(), other, drop()), document(restore, away, restore)
    )
    last = chain.migrations[-1].after
    assert [(table.name, table.number) for table in last] == [("others", 2), ("people", 1)]


def test_a_table_that_another_refers_to_goes_after_it_only() -> None:
    mayor = "{name: mayor, type: reference, to: people}"
    field = f"add_field: {{table: towns, field: {mayor}, fill: {{value: 5}}}}"
    assert violations_of(TOWNS, field, drop()) == [
        "0002_test.yaml:7:5: towns.mayor refers to 'people'"
    ]
    migration = resolve_after_people(TOWNS, field, drop(table="towns"), drop())
    assert migration.after.tables == ()
    assert [bytes_without_numbers(table) for table in migration.before]


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (drop("keep"), "5:42: one of archive, discard is needed here"),
        (drop(table="nobody"), "5:5: there is no table 'nobody' here"),
        (
            drop("discard", rest=", archived_by: 1"),
            "5:5: archived_by stands beside records: archive only",
        ),
        (
            drop(rest=", archived_by: 0"),
            "5:5: archived_by is the number of a migration, and none is numbered 0",
        ),
    ],
)
def test_this_drop_is_refused_here(operation: str, violation: str) -> None:
    assert violations_of(operation) == [f"0002_test.yaml:{violation}"]


def test_what_becomes_of_the_records_is_written_out() -> None:
    expected = {
        "[{drop_table: {table: towns}}]": "3:25: the key 'records' is missing",
        "[{drop_table: {table: cities, records: discard}}]": (
            "3:13: there is no table 'cities' here"
        ),
    }
    for rollback, violation in expected.items():
        assert violations_of(TOWNS, rollback=rollback) == [f"0002_test.yaml:{violation}"]
