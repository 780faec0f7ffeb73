"""Documents by dataclasses: all violations are found, placed, and in the order of the file."""

from __future__ import annotations

import pickle

import pytest

from tests.documents import document, resolve_documents, show, violations_of
from zapdb.errors import InvalidMigration, NotExhaustive
from zapdb.limits import NAME_LENGTH_MAX, VIOLATIONS_SHOWN_MAX


def violations(text: str) -> list[str]:
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(text)
    return [
        show(violation).removeprefix("0001_test.yaml:") for violation in caught.value.violations
    ]


def test_all_violations_are_found_in_the_order_of_the_file() -> None:
    text = """\
zapdb: 2
summary: 5
changes:
  - create_table:
      tabel: people
      key: id
      fields:
        - {name: Id, type: integer, optinal: true}
        - {name: 5, type: integer, optional: 1}
        - name
        - {name: x, type: decimal, scale: "2"}
  - frobnicate: {}
  - {rename_table: {table: a, to: b}, drop_index: {}}
  - add_field
extra: 1
rollback: never
"""
    assert violations(text) == [
        "1:8: this release reads documents of version 1",
        "2:10: a summary is text",
        "5:7: unknown key 'tabel'",
        "5:7: the key 'table' is missing",
        "6:12: a list is needed here",
        "8:18: 'Id' is not a name",
        "8:37: unknown key 'optinal'",
        "9:18: a name is needed here",
        "9:46: true or false is needed here",
        "10:11: a mapping is needed here",
        "11:43: an integer is needed here",
        "12:5: no operation 'frobnicate'",
        "13:5: an operation is a mapping with one key, its kind",
        "14:5: an operation is a mapping with one key, its kind",
        "15:1: unknown key 'extra'",
        "16:11: a rollback is `inferred` or a list of operations",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1", "1:1: unknown key 'a'"),
        ("[a]", "1:1: a migration is a mapping"),
        ("text", "1:1: a migration is a mapping"),
        (document().replace("changes:\n", "changes: []\n"), "4:10: a migration changes something"),
        (
            document().replace("changes:\n", "changes: 5\n"),
            "4:10: a list of operations is needed here",
        ),
        (document().replace("changes:\n", ""), "1:1: the key 'changes' is missing"),
        (
            document("drop_index: []").replace("zapdb: 1", "zapdb: true"),
            "1:8: this release reads documents of version 1",
        ),
        (
            document("drop_index: []").replace("zapdb: 1", 'zapdb: "1"'),
            "1:8: this release reads documents of version 1",
        ),
        (
            document("drop_index: {table: a, index: b}").replace("rollback: inferred\n", ""),
            "1:1: the key 'rollback' is missing",
        ),
        (
            document("drop_table: {table: a}"),
            "5:17: the key 'records' is missing",
        ),
        (document("drop_index: []"), "5:17: a mapping is needed here"),
        (document("drop_index: {table: a}"), "5:17: the key 'index' is missing"),
        (document("drop_index: {table: null, index: b}"), "5:25: a name is needed here"),
        (document("drop_index: {table: [a], index: b}"), "5:25: a name is needed here"),
    ],
)
def test_a_violation_stands_at_its_place(text: str, expected: str) -> None:
    assert expected in violations(text)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "aB",
        "1a",
        "_a",
        "a-b",
        "a.b",
        "ä",
        "a b",
        "a\\nb",
        "ａ",
        "x" * (NAME_LENGTH_MAX + 1),
    ],
)
def test_a_name_is_plain(name: str) -> None:
    (violation,) = violations_of(f'rename_table: {{table: people, to: "{name}"}}')
    assert violation.endswith("is not a name")
    assert violation.startswith("0002_test.yaml:5:39: ")


def test_names_that_begin_with_zapdb_are_reserved() -> None:
    (violation,) = violations_of("rename_table: {table: people, to: zapdb_x}")
    assert violation == "0002_test.yaml:5:39: 'zapdb_x': names that begin with zapdb are reserved"


def test_the_longest_name_is_one() -> None:
    name = "x" * NAME_LENGTH_MAX
    assert violations_of(
        f"rename_table: {{table: people, to: {name}}}", "drop_index: {table: people, index: x}"
    ) == ["0002_test.yaml:6:5: there is no table 'people' here"]


def test_violations_come_before_missing_rollbacks_and_with_them() -> None:
    change = "change_type: {table: people, field: name, type: integer, up: length(name)}"
    expected = "no rollback can be inferred for the type of people.name"
    assert violations_of(change, kind=NotExhaustive) == [f"0002_test.yaml:5:5: {expected}"]
    assert violations_of(change, "drop_index: {table: people, index: x}") == [
        f"0002_test.yaml:5:5: {expected}",
        "0002_test.yaml:6:5: there is no index 'x' on 'people'",
    ]


def test_thousands_of_violations_take_time_in_proportion() -> None:
    """And of as many as fit into a document, one report shows the first."""
    text = document("drop_index: []") + "".join(f"k{at}: 1\n" for at in range(5_000))
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(text)
    error = pickle.loads(pickle.dumps(caught.value))
    assert len(error.violations) == VIOLATIONS_SHOWN_MAX
    assert error.violations[0].location.line == 5
    assert "    k47: 1\n    ^" in str(error)
    assert str(error).endswith("\n… and 4,951 more")
    assert error.to_json()["violations_hidden"] == 4_951
