"""Structural differences: paths, both values, and a bound on how many are shown."""

from tests.documents import resolve_after_people
from zapdb.limits import VIOLATIONS_SHOWN_MAX
from zapdb.migrations.structure_diff import diff_structures
from zapdb.values.json import dumps

FAX = 'add_field: {table: people, field: {name: fax, type: string, default: ""}}'
VISITS = (
    "create_table: {table: visits, key: [id], fields: [{name: id, type: uuid, generated: true}, "
    "{name: day, type: date}, {name: price, type: decimal, scale: 2}]}"
)


def diff(stored: str, given: str) -> list[str]:
    return diff_structures(
        resolve_after_people(stored).structure, resolve_after_people(given).structure
    )


def test_equal_structures_have_no_difference() -> None:
    assert diff_structures(dumps({"a": [1, {"b": None}]}), dumps({"a": [1, {"b": None}]})) == []


def test_a_difference_is_shown_where_it_is() -> None:
    assert diff(FAX, FAX.replace("fax", "phone")) == [
        "people.fax: name 'fax' stored, 'phone' in the file",
        "rollback of people.fax: field 'fax' stored, 'phone' in the file",
    ]
    assert diff(FAX, FAX.replace('""', '"none"')) == [
        "people.fax: default '' stored, 'none' in the file"
    ]


def test_fields_of_a_table_are_compared_by_name() -> None:
    assert diff(VISITS, VISITS.replace("scale: 2", "scale: 3")) == [
        "visits.price: scale 2 stored, 3 in the file"
    ]
    assert diff(VISITS, VISITS.replace("{name: day, type: date}, ", "")) == [
        "visits: fields 'day' stored, (absent) in the file"
    ]
    swapped = VISITS.replace("name: day", "name: x").replace("name: id,", "name: day,")
    assert diff(VISITS, swapped.replace("name: x", "name: id").replace("[id]", "[day]")) == [
        "visits.id: generated True stored, False in the file",
        "visits.id: type 'uuid' stored, 'date' in the file",
        "visits.day: generated False stored, True in the file",
        "visits.day: type 'date' stored, 'uuid' in the file",
        "visits: fields ['id', 'day', 'price'] stored, ['day', 'id', 'price'] in the file",
        "visits: key[0] 'id' stored, 'day' in the file",
    ]


def test_other_operations_are_named() -> None:
    assert diff(FAX, 'drop_field: {table: people, field: name, restore: {value: ""}}') == [
        "changes[0]: add_field of people.fax stored, drop_field of people.name in the file",
        "rollback[0]: drop_field of people.fax stored, add_field of people.name in the file",
    ]


def test_what_is_on_one_side_only_is_absent_on_the_other() -> None:
    stored, given = dumps({"a": 1, "c": [1]}), dumps({"b": 2, "c": [1, 2]})
    assert diff_structures(stored, given) == [
        "a: 1 stored, (absent) in the file",
        "b: (absent) stored, 2 in the file",
        "c[1]: (absent) stored, 2 in the file",
    ]


def test_values_that_python_calls_equal_are_different() -> None:
    assert diff_structures(dumps({"a": True}), dumps({"a": 1})) == ["a: True stored, 1 in the file"]
    assert diff_structures(dumps({"a": []}), dumps({"a": {}})) == ["a: [] stored, {} in the file"]


def test_long_values_and_long_lists_are_cut() -> None:
    (line,) = diff_structures(dumps({"a": "x" * 1000}), dumps({"a": 1}))
    assert len(line) < 120
    lines = diff_structures(dumps({"a": list(range(100))}), dumps({"a": [-1] * 100}))
    assert len(lines) == VIOLATIONS_SHOWN_MAX + 1
    assert lines[-1] == f"… and {100 - VIOLATIONS_SHOWN_MAX} more"
