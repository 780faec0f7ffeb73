from tests.documents import people_of, resolve_after_people, violations_of
from zapdb.migrations.operations.index import CollationDefinition, CreateIndex, IndexField
from zapdb.schema import fingerprint

MAKE = (
    "create_index: {table: people, index: by_name, fields: ["
    "{field: name, descending: true, collation: {locale: cs, strength: primary, numeric: true}}, "
    "{field: age}]}"
)
DROP = "drop_index: {table: people, index: by_name}"


def test_the_inferred_rollback_makes_the_index_again() -> None:
    migration = resolve_after_people(MAKE, DROP)
    assert people_of(migration.after).indexes == ()
    made, _ = migration.rollback
    assert made == CreateIndex(
        "people",
        "by_name",
        (IndexField("name", CollationDefinition("cs", "primary", True), True), IndexField("age")),
    )


def test_rule_20_an_index_that_is_made_again_is_a_new_one() -> None:
    migration = resolve_after_people(MAKE, DROP, MAKE)
    (index,) = people_of(migration.after).indexes
    assert index.number == 2
    once = resolve_after_people(MAKE)
    assert fingerprint(people_of(once.after)) == fingerprint(people_of(migration.after))


def test_a_rollback_that_makes_another_index_is_refused() -> None:
    make = "{create_index: {table: people, index: by_age, fields: [{field: age}]}}"
    rollback = f"[{{{DROP}}}, {make}]"
    assert violations_of(MAKE, rollback=rollback) == [
        "0002_test.yaml:1:1: the rollback does not bring back the table 'people' as it was before"
    ]


def test_what_a_drop_refuses() -> None:
    assert violations_of(DROP) == ["0002_test.yaml:5:5: there is no index 'by_name' on 'people'"]
    assert violations_of(DROP.replace("people", "nobody")) == [
        "0002_test.yaml:5:5: there is no table 'nobody' here"
    ]
