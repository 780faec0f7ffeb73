import pytest

from tests.documents import document, resolve_documents, show
from zapdb.errors import InvalidMigration
from zapdb.migrations import Migration
from zapdb.migrations.operations.check_and_reference import AddReference, DropReference
from zapdb.schema import ForeignKey, TableSchema

TABLES = (
    "create_table: {table: towns, key: [id], fields: [{name: id, type: integer}]}",
    """create_table: {table: people, key: [home, place], fields: [
      {name: home, type: reference, to: towns},
      {name: place, type: reference, to: towns},
      {name: born, type: reference, to: towns, optional: true},
      {name: boss, type: reference, to: people},
      {name: name, type: string}]}""",
)


def index(*fields: str, name: str = "by_it") -> str:
    described = ", ".join(f"{{field: {field}}}" for field in fields)
    return f"create_index: {{table: people, index: {name}, fields: [{described}]}}"


def add(field: str, way: str = "restrict") -> str:
    return f"add_reference: {{table: people, field: {field}, on_delete: {way}}}"


def drop(field: str) -> str:
    return f"drop_reference: {{table: people, field: {field}}}"


DROP_INDEX = "drop_index: {table: people, index: by_it}"


def changed(*operations: str) -> Migration:
    return resolve_documents(document(*TABLES), document(*operations)).migrations[-1]


def people(migration: Migration) -> TableSchema:
    found = migration.after.table_named("people")
    assert found is not None
    return found


def refused(*operations: str) -> list[str]:
    with pytest.raises(InvalidMigration) as caught:
        changed(*operations)
    assert type(caught.value) is InvalidMigration
    return [show(v).removeprefix("0002_test.yaml:") for v in caught.value.violations]


@pytest.mark.parametrize(
    ("field", "way", "number"),
    [
        ("born", "set_null", 4),
        ("born", "cascade", 4),
        ("home", "restrict", 2),
        ("boss", "cascade", 5),
    ],
)
def test_a_reference_holds_its_field_by_number(field: str, way: str, number: int) -> None:
    migration = changed(index(field, "name"), add(field, way))
    assert people(migration).foreign_keys == (ForeignKey(number, way),)
    assert migration.rollback[0] == DropReference("people", field)
    assert migration.conversion_up(2).is_identity


@pytest.mark.parametrize("way", ["restrict", "cascade"])
def test_a_key_that_begins_with_the_field_is_index_enough(way: str) -> None:
    migration = changed(add("home", way))
    assert people(migration).foreign_keys == (ForeignKey(2, way),)
    assert migration.rollback == (DropReference("people", "home"),)
    assert changed(index("home"), add("home", way), DROP_INDEX).rollback


def test_the_rollback_of_a_drop_adds_it_again() -> None:
    steps = document(*TABLES, index("born"), add("born", "set_null")), document(drop("born"))
    last = resolve_documents(*steps).migrations[-1]
    assert people(last).foreign_keys == ()
    assert last.rollback == (AddReference("people", "born", "set_null"),)


@pytest.mark.parametrize(
    ("operation", "violation"),
    [
        (add("fax"), "there is no field 'fax' in 'people' here"),
        (add("name"), "'name' is string, and refers to nothing"),
        (add("boss"), "neither the key nor an index of 'people' begins with 'boss'"),
        (add("place"), "neither the key nor an index of 'people' begins with 'place'"),
        (add("boss", "set_null"), "'boss' is required, and can't be set to null"),
        (add("home", "set_null"), "'home' is part of the key: a record keeps its key"),
        (drop("born"), "what 'born' of 'people' refers to need not exist as it is"),
        (drop("fax"), "there is no field 'fax' in 'people' here"),
    ],
)
def test_this_reference_is_refused_here(operation: str, violation: str) -> None:
    assert f"6:5: {violation}" in refused(index("name", "born", "home"), operation)


def test_a_field_has_one_reference() -> None:
    assert refused(index("born"), add("born"), add("born", "cascade")) == [
        "7:5: what 'born' refers to must exist already"
    ]


def test_an_index_that_a_reference_needs_stays() -> None:
    assert refused(index("born"), add("born"), DROP_INDEX) == [
        "7:5: the reference of 'born' needs the index 'by_it'"
    ]
    other = index("born", "name", name="other")
    assert changed(index("born"), add("born"), other, DROP_INDEX).rollback
    assert changed(index("born"), add("born"), drop("born"), DROP_INDEX).rollback
    renamed = "rename_index: {table: people, index: by_it, to: other}"
    assert changed(index("born"), add("born"), renamed).rollback


@pytest.mark.parametrize(
    "operation",
    [
        "drop_field: {table: people, field: born, restore: {value: null}}",
        "make_required: {table: people, field: born, fill: {value: 5}}",
        "change_type: {table: people, field: born, type: integer, up: '5', down: born}",
    ],
)
def test_a_field_with_a_reference_stays_as_it_is(operation: str) -> None:
    assert "7:5: what 'born' refers to must exist" in refused(index("born"), add("born"), operation)


def test_renames_leave_it_alone() -> None:
    migration = changed(
        index("born"),
        add("born"),
        "rename_field: {table: people, field: born, to: birthplace}",
        "rename_table: {table: towns, to: places}",
    )
    assert people(migration).foreign_keys == (ForeignKey(4, "restrict"),)
    assert str(people(migration).fields[2].type) == "reference(places)"


def test_a_table_comes_back_with_all_that_rests_on_it() -> None:
    made = (
        *TABLES,
        index("born"),
        add("born", "set_null"),
        "add_check: {table: people, check: named, expression: \"name != ''\"}",
        "create_index: {table: people, index: once, fields: [{field: name}], unique: true}",
    )
    for records in ("archive", "discard"):
        drop_table = f"drop_table: {{table: people, records: {records}}}"
        last = resolve_documents(document(*made), document(drop_table)).migrations[-1]
        assert [table.name for table in last.after] == ["towns"]
        assert len(last.rollback) == (1 if records == "archive" else 5)
