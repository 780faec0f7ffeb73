import pytest

from tests.documents import PEOPLE, document, people_of, resolve_documents, show
from zapdb.errors import InvalidMigration, NotExhaustive
from zapdb.migrations import Chain
from zapdb.migrations.operations.field import DropField, Restore, RestoreField
from zapdb.migrations.operations.operation import Fill
from zapdb.records import Constant, Recast, Restored, SourceField
from zapdb.schema import ArchivedField

STATE = "create_type: {type: state, enum: [open, done, dropped]}"


def drop(field: str, rest: str = "", by: str = "") -> str:
    return f"drop_field: {{table: people, field: {field}, restore: {{archive: true{rest}}}{by}}}"


def restore(field: str, rest: str = "", by: int = 2) -> str:
    return f"restore_field: {{table: people, field: {field}, archived_by: {by}{rest}}}"


FILLED = ", otherwise: {value: x}"


def chain_of(*migrations: tuple[str, ...]) -> Chain:
    """After migration 1, which makes people."""
    return resolve_documents(document(PEOPLE, STATE), *(document(*m) for m in migrations))


def refused(
    *migrations: tuple[str, ...], kind: type[InvalidMigration] = InvalidMigration
) -> list[str]:
    with pytest.raises(InvalidMigration) as caught:
        chain_of(*migrations)
    assert type(caught.value) is kind
    return [show(v) for v in caught.value.violations]


def test_an_archived_field_is_kept_beside_the_table() -> None:
    chain = chain_of((drop("name", FILLED),))
    before, after = people_of(chain.schema_at(1)), people_of(chain.schema_at(2))
    assert after.archived == (ArchivedField(before.fields[1], 2),)
    (last,) = chain.migrations[1:]
    assert last.rollback == (RestoreField("people", "name", 2, Fill("x"), 1),)
    assert last.changes[0].lossy_fields(before) == frozenset()
    plan = last.conversion_up(1)
    assert {slot.number: d for slot, d in plan.archives.items()} == {2: SourceField(2)}
    restored = last.conversion_down(1).derivations[2]
    assert isinstance(restored, Restored)
    assert isinstance(restored.otherwise, Constant)
    assert (restored.slot.number, restored.otherwise.value) == (2, "x")
    assert chain.conversion_plan(1, 1, 1).is_identity


def test_a_field_comes_back_with_its_number_and_its_values() -> None:
    chain = chain_of((drop("name", FILLED),), (restore("name", f"{FILLED}, position: 1"),))
    assert people_of(chain.schema_at(3)) == people_of(chain.schema_at(1))
    restored = Restore(archive=True, otherwise=Fill("x"))
    assert chain.migrations[-1].rollback == (DropField("people", "name", restored, 2),)
    assert chain.conversion_plan(1, 1, 3).is_identity
    assert chain.conversion_plan(1, 3, 1).is_identity
    assert [slot.number for slot in chain.conversion_plan(1, 3, 2).archives] == [2]


def test_null_is_for_records_of_an_optional_field_that_have_none() -> None:
    chain = chain_of((drop("age"),), (restore("age"),))
    restored = chain.conversion_plan(1, 2, 3).derivations[3]
    assert isinstance(restored, Restored)
    assert isinstance(restored.otherwise, Constant)
    assert restored.otherwise.value is None
    assert people_of(chain.schema_at(3)).fields[-1].name == "age"


def test_a_required_field_says_what_records_get_that_have_none() -> None:
    expected = "'name' is required: what do records get whose value is not archived?"
    assert refused((drop("name"),), kind=NotExhaustive) == [f"0002_test.yaml:5:55: {expected}"]
    assert refused((drop("name", FILLED),), (restore("name"),)) == [
        f"0003_test.yaml:5:5: {expected}"
    ]
    back = f"[{{{restore('name', FILLED + ', position: 1')}}}]"
    chain = resolve_documents(document(PEOPLE), document(drop("name"), rollback=back))
    assert chain.end == 2


def test_another_field_may_have_the_name_meanwhile() -> None:
    add = "add_field: {table: people, field: {name: age, type: string, default: ''}}"
    away = "rename_field: {table: people, field: age, to: years}"
    assert refused((drop("age"), add), (restore("age"),)) == [
        "0003_test.yaml:5:5: there is a field 'age' in 'people' already"
    ]
    chain = chain_of((drop("age"), add), (away, restore("age")))
    assert {f.name: f.number for f in people_of(chain.schema_at(3)).fields}["age"] == 3


def test_several_of_one_name_come_back_in_turn() -> None:
    """The last one first: so the rollback gives each its own values."""
    add = "add_field: {table: people, field: {name: age, type: integer, optional: true}}"
    chain = chain_of((drop("age"), add, drop("age")))
    assert [a.field.number for a in people_of(chain.schema_at(2)).archived] == [3, 7]
    restored = chain.migrations[-1].conversion_down(1).derivations[3]
    assert isinstance(restored, Restored)
    assert restored.slot.number == 3
    assert {slot.number for slot in chain.migrations[-1].conversion_up(1).archives} == {3, 7}


def test_what_is_dropped_and_restored_in_one_migration_never_leaves_the_record() -> None:
    chain = chain_of((drop("age"), restore("age", ", position: 2")))
    assert chain.migrations[-1].conversion_up(1).is_identity
    assert chain.migrations[-1].conversion_down(1).is_identity


def test_a_reference_that_comes_back_leads_to_the_table_under_its_name_of_today() -> None:
    towns = "create_table: {table: towns, key: [id], fields: [{name: id, type: integer}]}"
    home = "{name: home, type: reference, to: towns, optional: true}"
    add = f"add_field: {{table: people, field: {home}}}"
    rename = "rename_table: {table: towns, to: cities}"
    chain = chain_of((towns, add), (drop("home"),), (rename,), (restore("home", by=3),))
    field = people_of(chain.schema_at(5)).field_named("home")
    assert field is not None
    assert str(field.type) == "reference(cities)"
    assert chain.conversion_plan(1, 2, 5).is_identity
    gone = "drop_table: {table: towns, records: discard}"
    assert refused((towns, add), (drop("home"),), (gone,), (restore("home", by=3),)) == [
        "0005_test.yaml:5:5: the table 'towns' that 'home' refers to is gone"
    ]


ADD_STATE = "add_field: {table: people, field: {name: state, type: state, optional: true}}"
AWAY = "alter_type: {type: state, remove: {done: {to: open}}}"
BACK = "alter_type: {type: state, add: [{name: done, back: open, position: 1}]}"


def test_members_that_went_and_came_back_are_numbered_anew() -> None:
    chain = chain_of((ADD_STATE,), (drop("state"),), (AWAY, BACK), (restore("state", by=3),))
    field = people_of(chain.schema_at(5)).field_named("state")
    assert field is not None
    assert field.type == chain.schema_at(5).type_named("state")
    derived = chain.conversion_plan(1, 2, 5).derivations[7]
    assert isinstance(derived, Recast)
    assert (derived.value, derived.keeps_bytes) == (SourceField(7), False)
    assert refused((ADD_STATE,), (drop("state"),), (AWAY,), (restore("state", by=3),)) == [
        "0005_test.yaml:5:5: the type state of 'state' has changed since it was archived"
    ]


@pytest.mark.parametrize("rest", [AWAY, "drop_type: {type: state}"])
def test_a_type_that_goes_with_the_field_comes_back_with_it(rest: str) -> None:
    chain = chain_of((ADD_STATE,), (drop("state"), rest))
    restored = chain.migrations[-1].conversion_down(1).derivations[7]
    assert isinstance(restored, Recast)
    assert isinstance(restored.value, Restored)


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (restore("name"), "no field 'name' of 'people' was archived by migration 2"),
        (restore("age", by=1), "no field 'age' of 'people' was archived by migration 1"),
        (restore("age").replace("people", "nobody"), "there is no table 'nobody' here"),
        (restore("age", ", position: 6"), "the position must be 0 to 5"),
        (restore("age", ", position: -1"), "the position must be 0 to 5"),
    ],
)
def test_this_restore_is_refused_here(operation: str, violation: str) -> None:
    assert refused((drop("age"),), (operation,)) == [f"0003_test.yaml:5:5: {violation}"]


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (drop("age", ", value: 5"),
         "5:54: exactly one of value, expression and archive is needed here"),
        (drop("age", ", otherwise: {value: x}"),
         "5:81: a value of 'age' must be an integer of at most 63 bytes; "
         "this is str of 1 characters"),
        (drop("age", by=", archived_by: 0"),
         "5:5: archived_by is the number of a migration, and none is numbered 0"),
        (drop("age", by=", archived_by: 1").replace("archive: true", "value: 5"),
         "5:5: archived_by stands beside restore: {archive: true} only"),
        ("drop_field: {table: people, field: age, restore: {value: 5, otherwise: {value: 6}}}",
         "5:54: otherwise stands beside archive: true only"),
        (drop("id", ", otherwise: {value: 5}"),
         "5:5: 'id' is part of the key of 'people' and can't be dropped"),
    ],
)  # fmt: skip
def test_this_archive_is_refused_here(operation: str, violation: str) -> None:
    assert refused((operation,)) == [f"0002_test.yaml:{violation}"]


def test_rule_05_archive_false_is_no_other_spelling() -> None:
    digests = {
        chain_of((f"drop_field: {{table: people, field: age, restore: {{value: 5{rest}}}}}",))
        .migrations[-1]
        .digest
        for rest in ("", ", archive: false")
    }
    assert len(digests) == 1
