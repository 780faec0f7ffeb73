import pytest

from tests.documents import PEOPLE, document, people_of, resolve_documents, show
from zapdb.errors import InvalidMigration
from zapdb.migrations import Chain
from zapdb.migrations.operations.table import DropTable
from zapdb.records import Recast, SourceField
from zapdb.schema import TableSchema

STATE = "create_type: {type: state, enum: [open, done, dropped]}"
ITEMS = """create_table: {table: items, key: [id], fields: [
      {name: id, type: integer},
      {name: state, type: state},
      {name: owner, type: reference, to: people},
      {name: parent, type: reference, to: items, optional: true}]}"""
KEYED = "create_table: {table: items, key: [state], fields: [{name: state, type: state}]}"
DROP = "drop_table: {table: items, records: archive}"
RESTORE = "restore_table: {table: items, archived_by: 2}"


def chain_of(*migrations: tuple[str, ...], items: str = ITEMS) -> Chain:
    """Migration 1 makes the tables; those that are given follow it."""
    return resolve_documents(document(PEOPLE, STATE, items), *(document(*m) for m in migrations))


def refused(*migrations: tuple[str, ...], items: str = ITEMS) -> list[str]:
    with pytest.raises(InvalidMigration) as caught:
        chain_of(*migrations, items=items)
    return [show(v) for v in caught.value.violations]


def items_of(chain: Chain) -> TableSchema:
    found = chain.schema_at(chain.end).table_named("items")
    assert found is not None
    return found


def test_a_table_comes_back_with_its_numbers() -> None:
    chain = chain_of((DROP,), (RESTORE,))
    before = chain.schema_at(1).table_named("items")
    assert items_of(chain) == before
    assert chain.schema_at(3).archived == ()
    assert chain.migrations[-1].rollback == (DropTable("items", "archive", 2),)
    assert chain.conversion_plan(2, 1, 3).is_identity
    assert chain.conversion_plan(2, 3, 2).is_identity


@pytest.mark.parametrize(
    ("position", "order"), [(", position: 0", "items people"), ("", "people items")]
)
def test_a_table_comes_last_or_to_its_place(position: str, order: str) -> None:
    chain = chain_of((DROP,), (RESTORE.replace("}", f"{position}}}"),))
    assert " ".join(table.name for table in chain.schema_at(3)) == order


def test_what_it_refers_to_may_have_another_name_meanwhile() -> None:
    rename = "rename_table: {table: people, to: persons}"
    chain = chain_of((DROP,), (rename,), (RESTORE,))
    assert [str(f.type) for f in items_of(chain).fields[2:]] == [
        "reference(persons)",
        "reference(items)",
    ]


def test_a_table_comes_back_and_goes_again_in_one_migration() -> None:
    chain = chain_of((DROP, RESTORE, DROP))
    assert [a.archived_by for a in chain.schema_at(2).archived] == [2]
    assert len(chain.migrations[-1].rollback) == 3


@pytest.mark.parametrize(
    ("between", "restore", "violation"),
    [
        ((), RESTORE.replace("by: 2", "by: 1"), "no table 'items' was archived by migration 1"),
        ((), RESTORE.replace("items", "boxes"), "no table 'boxes' was archived by migration 2"),
        ((KEYED,), RESTORE, "there is a table 'items' already"),
        ((), RESTORE.replace("}", ", position: 2}"), "the position must be 0 to 1"),
        ((), RESTORE.replace("}", ", position: -1}"), "the position must be 0 to 1"),
        (
            ("alter_type: {type: state, rename: {open: new}}",),
            RESTORE,
            "the type state of 'state' has changed since it was archived",
        ),
        (("drop_type: {type: state}",), RESTORE, "the type state of 'state' is gone"),
        (
            ("drop_table: {table: people, records: archive}",),
            RESTORE,
            "the table 'people' that 'owner' refers to is gone",
        ),
        (
            ("drop_table: {table: people, records: discard}", PEOPLE),
            RESTORE,
            "the table 'people' that 'owner' refers to is gone",
        ),
    ],
)
def test_this_restore_is_refused_here(
    between: tuple[str, ...], restore: str, violation: str
) -> None:
    steps = [(DROP,), *([between] if between else []), (restore,)]
    number = len(steps) + 1
    assert refused(*steps) == [f"{number:04d}_test.yaml:5:5: {violation}"]


AWAY = "alter_type: {type: state, remove: {done: {to: open}}}"
BACK = "alter_type: {type: state, add: [{name: done, back: open, position: 1}]}"


def test_members_that_went_and_came_back_are_numbered_anew() -> None:
    """The names are what they were, and the records are converted."""
    chain = chain_of((DROP,), (AWAY,), (BACK,), (RESTORE,))
    state = items_of(chain).fields[1].type
    assert state == chain.schema_at(5).type_named("state")
    assert state.members == ((1, "open"), (4, "done"), (3, "dropped"))
    derived = chain.conversion_plan(2, 4, 5).derivations[8]
    assert isinstance(derived, Recast)
    assert (derived.value, derived.keeps_bytes) == (SourceField(8), False)
    assert derived.recast("done") == "done"


def test_rule_21_a_key_with_members_that_were_numbered_anew_is_refused() -> None:
    (violation,) = refused((DROP,), (AWAY,), (BACK,), (RESTORE,), items=KEYED)
    assert violation.startswith("0005_test.yaml:5:5: 'state' is part of the key, and members of")


def test_what_goes_in_one_migration_comes_back_in_its_rollback() -> None:
    """The rollback makes the type and the table anew, under provisional numbers."""
    gone = "drop_type: {type: state}"
    people = "drop_table: {table: people, records: archive}"
    for rest in ((AWAY,), (gone,), (people,), (people.replace("archive", "discard"), gone)):
        last = chain_of((DROP, *rest)).migrations[-1]
        assert last.rollback[-1].keyword == "restore_table"
        assert set(last.conversion_down(2).derivations) == {7, 8, 9, 10}


def test_a_table_with_archived_fields_keeps_them() -> None:
    drop = "drop_field: {table: people, field: age, restore: {archive: true}}"
    away = "drop_table: {table: people, records: archive}"
    back = "restore_table: {table: people, archived_by: 3}"
    age = "restore_field: {table: people, field: age, archived_by: 2, position: 2}"
    chain = resolve_documents(*(document(op) for op in (PEOPLE, drop, away, back, age)))
    assert people_of(chain.schema_at(5)) == people_of(chain.schema_at(1))
    assert chain.conversion_plan(1, 1, 5).is_identity
