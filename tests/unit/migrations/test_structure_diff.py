"""Structural differences: paths, both values, and a bound on how many are shown."""

from tests.documents import resolve_after_people
from zapdb.limits import VIOLATIONS_SHOWN_MAX
from zapdb.migrations.structure_diff import diff_structures
from zapdb.values.json import dumps

FAX = 'add_field: {table: people, field: {name: fax, type: string, default: ""}}'


def test_equal_structures_have_no_difference() -> None:
    assert diff_structures(dumps({"a": [1, {"b": None}]}), dumps({"a": [1, {"b": None}]})) == []


def test_a_difference_is_shown_where_it_is() -> None:
    stored = resolve_after_people(FAX)
    given = resolve_after_people(FAX.replace("fax", "phone"))
    assert diff_structures(stored.structure, given.structure) == [
        "changes[0].add_field.field.name: 'fax' stored, 'phone' in the file",
        "rollback[0].drop_field.field: 'fax' stored, 'phone' in the file",
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
    lines = diff_structures(dumps(list(range(100))), dumps([-1] * 100))
    assert len(lines) == VIOLATIONS_SHOWN_MAX + 1
    assert lines[-1] == f"… and {100 - VIOLATIONS_SHOWN_MAX} more"
