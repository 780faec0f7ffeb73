"""Examples in documents: read, refused with their places, and no part of the digest."""

from __future__ import annotations

import pytest

from tests.documents import PEOPLE, document, resolve_documents, show
from zapdb.errors import InvalidMigration
from zapdb.migrations import Migration, read_stored
from zapdb.migrations.record_examples import RecordExample

SPLIT = """\
transform: {table: people, from: {name: string}, into: {first: string, last: string},
      up: {first: "before(name, ' ')", last: "after(name, ' ')"},
      down: {name: "join(' ', first, last)"}, reversibility: lossy}"""
EXAMPLES = """\
examples:
  - table: people
    before: {name: Ada Lovelace, balance: "1.50"}
    after: {first: Ada, last: Lovelace}
"""


def migrate(examples: str, *operations: str) -> Migration:
    text = document(*operations or (SPLIT,)) + examples
    return resolve_documents(document(PEOPLE), text).migrations[-1]


def refused(examples: str, *operations: str) -> list[str]:
    with pytest.raises(InvalidMigration) as caught:
        migrate(examples, *operations)
    return [
        show(violation).removeprefix("0002_test.yaml:") for violation in caught.value.violations
    ]


def test_examples_are_read_with_their_places() -> None:
    migration = migrate(EXAMPLES)
    (example,) = migration.examples
    assert example == RecordExample(
        "people",
        {"name": "Ada Lovelace", "balance": "1.50"},
        {"first": "Ada", "last": "Lovelace"},
    )
    assert str(example.location) == "0002_test.yaml:9:5"
    assert str(example.place("before", "balance")) == "0002_test.yaml:10:43"
    assert str(example.place("after", "last")) == "0002_test.yaml:11:31"


def test_rule_05_examples_are_no_part_of_the_digest() -> None:
    with_examples, without = migrate(EXAMPLES), migrate("")
    assert with_examples.digest == without.digest
    assert with_examples == without
    assert with_examples.examples
    assert not without.examples
    read = read_stored(
        with_examples.structure, "test", "Test", with_examples.drawn, with_examples.before
    )
    assert read == with_examples
    assert read.examples == ()


def test_none_are_needed() -> None:
    assert migrate("examples: []\n").examples == ()


@pytest.mark.parametrize(
    ("examples", "violation"),
    [
        ("examples: 1\n", "8:11: a list is needed here"),
        ("examples: [1]\n", "8:12: a mapping is needed here"),
        ("examples: [{table: people, before: {}}]\n", "8:12: the key 'after' is missing"),
        (
            "examples: [{table: people, before: {}, after: {}, why: x}]\n",
            "8:51: unknown key 'why'",
        ),
        ("examples: [{table: people, before: [], after: {}}]\n", "8:36: a mapping of names is need"
         "ed here"),
        ("examples: [{table: people, before: {}, after: {}}]\n", "8:12: after names one field or "
         "more"),
        (
            "examples: [{table: towns, before: {}, after: {first: x}}]\n",
            "8:12: no table 'towns' is there before this migration and after it",
        ),
        (
            "examples: [{table: people, before: {first: x}, after: {last: x}}]\n",
            "8:44: no field 'first' in 'people' before this migration",
        ),
        (
            "examples: [{table: people, before: {}, after: {name: x}}]\n",
            "8:54: no field 'name' in 'people' after this migration",
        ),
        (
            "examples: [{table: people, before: {name: 1}, after: {first: x}}]\n",
            "8:43: a value of 'name' must be a string of valid Unicode, at most 4194304 bytes of "
            "UTF-8; this is int of 1 bits",
        ),
        (
            "examples: [{table: people, before: {}, after: {last: null}}]\n",
            "8:54: 'last' is required and can't be null",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_its_place(examples: str, violation: str) -> None:
    assert refused(examples) == [violation]


def test_all_violations_are_found() -> None:
    found = refused("examples: [{table: people, before: {nobody: 1, age: x}, after: {first: 1}}]\n")
    assert [violation.partition(": ")[0] for violation in found] == ["8:45", "8:53", "8:72"]


def test_a_table_that_is_created_or_dropped_has_no_examples() -> None:
    assert refused(
        "examples: [{table: people, before: {}, after: {name: x}}]\n",
        "drop_table: {table: people, records: discard}",
    ) == ["6:12: no table 'people' is there before this migration and after it"]


def test_a_table_that_is_renamed_is_called_by_its_old_name() -> None:
    rename = "rename_table: {table: people, to: persons}"
    given = "examples: [{table: people, before: {name: x}, after: {name: x}}]\n"
    assert len(migrate(given, rename).examples) == 1
    assert refused(given.replace("people", "persons"), rename)
