"""Resolved migrations: digests, numbers, and what the database stored read again."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import cbor2
import pytest

from tests.documents import (
    PEOPLE,
    document,
    people_of,
    resolve_after_people,
    resolve_documents,
)
from zapdb.errors import CorruptCatalog
from zapdb.migrations import Migration, NumberAllocator, digest_of, label, read_stored
from zapdb.records import Layout
from zapdb.schema import fingerprint

TEXT = """\
zapdb: 1
summary: Split the name
changes:
  - transform:
      table: people
      from: {name: string}
      into: {first: string, last: {type: string}}
      up: {first: "before(name, ' ')", last: "after(name, ' ')"}
      down: {name: "join(' ', first, last)"}
      reversibility: lossy
      because: a name of one word gains a blank
  - add_field:
      table: people
      field: {name: fax, type: string, default: "555"}
  - create_index:
      table: people
      index: by_fax
      fields: [{field: fax, collation: {locale: und}}]
rollback: inferred
"""


def migrate(text: str | bytes) -> Migration:
    return resolve_documents(document(PEOPLE), text).migrations[-1]


BASE = migrate(TEXT)

SAME: dict[str, str | bytes] = {
    "comments": TEXT.replace("\n", " # why\n"),
    "blank lines": TEXT.replace("\n  -", "\n\n\n  -"),
    "windows line ends": TEXT.replace("\n", "\r\n"),
    "old mac line ends": TEXT.replace("\n", "\r"),
    "byte order mark": "\ufeff" + TEXT,
    "document markers": "---\n" + TEXT + "...\n",
    "summary": TEXT.replace("Split the name", "Something else"),
    "because": TEXT.replace("a name of one word gains a blank", "so it is"),
    "no because": re.sub("      because: .*\n", "", TEXT),
    "quotes": TEXT.replace("people", '"people"').replace("lossy", "'lossy'"),
    "quoted keys": TEXT.replace("table:", '"table":').replace("changes", "'changes'"),
    "other quotes": TEXT.replace('"555"', "'555'"),
    "order of the top keys": re.sub(r"(?s)(zapdb.*?)(changes.*?)(rollback.*)", r"\3\2\1", TEXT),
    "order of an operation's keys": TEXT.replace(
        "      index: by_fax\n      fields: [{field: fax, collation: {locale: und}}]\n",
        "      fields: [{collation: {locale: und}, field: fax}]\n      index: by_fax\n",
    ),
    "order of into and up": TEXT.replace(
        "{first: string, last: {type: string}}", "{last: string, first: string}"
    ).replace(
        """{first: "before(name, ' ')", last: "after(name, ' ')"}""",
        """{last: "after(name, ' ')", first: "before(name, ' ')"}""",
    ),
    "blanks in an expression": TEXT.replace("join(' ', first, last)", " join( ' ',first,last ) "),
    "quotes in an expression": TEXT.replace("\"before(name, ' ')\"", "'before(name, \" \")'"),
    "parentheses in an expression": TEXT.replace("before(name, ' ')", "(before((name), ' '))"),
    "defaults written out": TEXT.replace("locale: und", "locale: und, strength: tertiary")
    .replace("field: fax,", "field: fax, descending: false,")
    .replace('default: "555"', 'default: "555", optional: false, generated: false'),
    "block style": TEXT.replace(
        "[{field: fax, collation: {locale: und}}]",
        "\n      - field: fax\n        collation:\n          locale: und",
    ),
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_rule_05_the_digest_does_not_cover_how_a_file_is_written(text: str | bytes) -> None:
    assert text != TEXT
    other = migrate(text)
    assert other.structure == BASE.structure
    assert other.digest == BASE.digest
    assert other.after == BASE.after


DIFFERENT = {
    "table": TEXT.replace("people", "persons"),
    "name of a new field": TEXT.replace("fax", "facsimile"),
    "type": TEXT.replace('string, default: "555"', "binary, default: aa").replace(
        "collation: {locale: und}", "descending: false"
    ),
    "default": TEXT.replace('"555"', '"556"'),
    "null default": TEXT.replace('default: "555"', "optional: true, default: null"),
    "optional": TEXT.replace('"555"', '"555", optional: true'),
    "fill": TEXT.replace('default: "555"}', 'default: "555"}\n      fill: {value: ""}'),
    "position": TEXT.replace('default: "555"}', 'default: "555"}\n      position: 0'),
    "expression up": TEXT.replace("before(name, ' ')", "before(name, ',')"),
    "expression down": TEXT.replace("join(' ', first", "join(',', first"),
    "blank in a text of an expression": TEXT.replace("join(' '", "join('  '"),
    "reversibility": TEXT.replace("lossy", "exact"),
    "collation": TEXT.replace("locale: und", "locale: de"),
    "strength": TEXT.replace("locale: und", "locale: und, strength: primary"),
    "direction": TEXT.replace("field: fax,", "field: fax, descending: true,"),
    "name of an index": TEXT.replace("by_fax", "by_number"),
    "an operation less": re.sub(r"(?s)  - create_index.*rollback", "rollback", TEXT),
    "an operation more": TEXT.replace(
        "rollback: inf", "  - rename_field: {table: people, field: fax, to: phone}\nrollback: inf"
    ),
    "order of operations": re.sub(
        r"(?s)(  - transform.*?)(  - add_field.*?)(  - create)", r"\2\1\3", TEXT
    ),
    "rollback": TEXT.replace(
        "rollback: inferred",
        """rollback:
  - drop_index: {table: people, index: by_fax}
  - drop_field: {table: people, field: fax}
  - transform:
      table: people
      from: {first: string, last: string}
      into: {name: string}
      up: {name: "join(' ', first, last)"}""",
    ),
}


@pytest.mark.parametrize("text", DIFFERENT.values(), ids=DIFFERENT.keys())
def test_rule_05_the_digest_covers_everything_else(text: str) -> None:
    assert text != TEXT
    base = document(PEOPLE)
    if "persons" in text:
        base = base.replace("people", "persons")
    assert resolve_documents(base, text).migrations[-1].digest != BASE.digest


def test_rule_05_the_digest_covers_the_index_and_not_the_name() -> None:
    content = cbor2.loads(BASE.structure)
    assert content["number"] == 2
    assert set(content) == {"zapdb", "number", "changes", "rollback"}
    third = resolve_documents(document(PEOPLE), document("rename_table: {table: people, to: a}"))
    also = resolve_documents(
        document(PEOPLE),
        document("create_index: {table: people, index: x, fields: [{field: age}]}"),
        document("rename_table: {table: people, to: a}"),
    )
    assert third.migrations[1].changes == also.migrations[2].changes
    assert third.migrations[1].digest != also.migrations[2].digest
    assert "test" not in repr(content)


def test_rule_05_the_resolved_rollback_is_digested_however_it_was_declared() -> None:
    change = "rename_field: {table: people, field: name, to: title}"
    back = "[{rename_field: {table: people, field: title, to: name}}]"
    inferred, explicit = resolve_after_people(change), resolve_after_people(change, rollback=back)
    assert explicit.digest == inferred.digest
    assert explicit.rollback == inferred.rollback


def test_rule_05_a_digest_says_its_algorithm_and_stays_what_it_is() -> None:
    migration = resolve_after_people("rename_field: {table: people, field: name, to: title}")
    assert re.fullmatch("z1:[0-9a-f]{64}", migration.digest)
    assert migration.digest == digest_of(migration.structure)
    assert migration.structure == cbor2.dumps(
        {
            "zapdb": 1,
            "number": 2,
            "changes": [{"rename_field": {"table": "people", "field": "name", "to": "title"}}],
            "rollback": [{"rename_field": {"table": "people", "field": "title", "to": "name"}}],
        },
        canonical=True,
    )
    assert migration.digest == (
        "z1:9d5aa93b9c10a3a7b0c8bc7bcab6e9d6ab3626e9aa3bc208a0163cdcfa9a0dcf"
    )


def test_rule_03_numbers_are_beside_the_structure_and_outside_the_digest() -> None:
    later = NumberAllocator({"table": 40, "field": 70, "index": 9})
    chain = resolve_documents(document(PEOPLE), TEXT, numbers=later)
    assert chain.migrations[1].digest == BASE.digest
    assert chain.migrations[1].drawn == {"field": [76, 77, 78], "index": [9]}
    assert BASE.drawn == {"field": [7, 8, 9], "index": [1]}
    assert people_of(chain.schema_at(2)).number == 40
    assert later.following == {"table": 41, "field": 79, "index": 10}


def test_rule_04_the_rollback_brings_the_old_fingerprint_back() -> None:
    again = resolve_documents(
        document(PEOPLE),
        document("rename_field: {table: people, field: name, to: title}"),
        document("rename_field: {table: people, field: title, to: name}"),
    )
    prints = [fingerprint(people_of(again.schema_at(p))) for p in (1, 2, 3)]
    assert prints[0] == prints[2] != prints[1]


def test_a_label_is_the_name_of_the_file() -> None:
    assert BASE.label == "0002_test"
    assert label(12345, "x") == "12345_x"


def stored(migration: Migration, **changes: Any) -> Migration:
    kept = {
        "structure": migration.structure,
        "name": migration.name,
        "summary": migration.summary,
        "drawn": migration.drawn,
        "before": migration.before,
    }
    return read_stored(**kept | changes)


def test_rule_06_what_was_stored_is_what_was_resolved() -> None:
    read = stored(BASE)
    assert read == BASE
    assert read.structure == BASE.structure
    assert Layout.of(people_of(read.after)) == Layout.of(people_of(BASE.after))
    for plan in ("conversion_up", "conversion_down"):
        made, given = getattr(read, plan)(1), getattr(BASE, plan)(1)
        assert made.derivations.keys() == given.derivations.keys()
        assert made.archives.keys() == given.archives.keys()


def content(**changes: Any) -> bytes:
    return cbor2.dumps(cbor2.loads(BASE.structure) | changes)


BROKEN: dict[str, Any] = {
    "nothing": {"structure": b""},
    "half": {"structure": BASE.structure[:-9]},
    "no mapping": {"structure": b"\x80"},
    "no changes": {"structure": cbor2.dumps({"zapdb": 1, "number": 2, "rollback": []})},
    "changes that are none": {"structure": content(changes=5)},
    "an unknown operation": {"structure": content(changes=[{"explode": {}}])},
    "an operation without keys": {"structure": content(changes=[{"drop_index": {}}])},
    "a table that is not there": {
        "structure": content(changes=[{"rename_table": {"table": "nobody", "to": "x"}}])
    },
    "a field that is not there": {
        "structure": content(
            changes=[{"rename_field": {"table": "people", "field": "fax", "to": "x"}}]
        )
    },
    "a type that is none": {
        "structure": content(
            changes=[
                {"add_field": {"table": "people", "field": {"name": "x", "type": "y"}}},
            ]
        )
    },
    "an unknown key": {
        "structure": content(
            changes=[{"rename_field": {"table": "people", "field": "age", "to": "x", "too": "y"}}]
        )
    },
    "a name that is a number": {
        "structure": content(
            changes=[{"rename_field": {"table": "people", "field": "age", "to": 5}}]
        )
    },
    "a choice that is none": {
        "structure": content(changes=[{"drop_table": {"table": "people", "records": "burn"}}])
    },
    "a list that is none": {
        "structure": content(changes=[{"create_type": {"type": "x", "enum": "abc"}}])
    },
    "a rollback that is none": {"structure": content(rollback=5)},
    "keys that are no text": {"structure": content(changes=[{5: 6}])},
    "no numbers": {"drawn": {}},
    "too few numbers": {"drawn": {"field": [7], "index": [1]}},
    "numbers that are none": {"drawn": {"field": 5, "index": [1]}},
    "a schema without its table": {"before": resolve_documents(document(PEOPLE)).schema_at(0)},
}


@pytest.mark.parametrize("changes", BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_have_been_stored_is_a_corrupt_catalog(changes: dict[str, Any]) -> None:
    with pytest.raises(CorruptCatalog, match="a stored migration cannot be read"):
        stored(BASE, **changes)


@pytest.mark.parametrize(
    "rollback",
    [[5], [{"explode": {}}], [{"rename_field": {"table": "people"}}], [{"rename_field": 5}]],
)
def test_a_rollback_that_cannot_have_been_stored_is_found_when_it_is_looked_at(
    rollback: list[Any],
) -> None:
    read = stored(BASE, structure=content(rollback=rollback))
    with pytest.raises(CorruptCatalog, match="a stored migration cannot be read"):
        assert read.rollback
    with pytest.raises(AttributeError, match="no_such_name"):
        assert read.no_such_name


def test_a_stored_migration_pickles_with_and_without_its_rollback() -> None:
    read = stored(BASE)
    assert pickle.loads(pickle.dumps(read)) == BASE
    assert read.rollback
    assert copy.copy(read) == BASE
    assert {op.place.file for op in (*read.changes, *read.rollback)} == {"<stored migration test>"}


def test_a_stored_table_with_too_few_numbers_is_a_corrupt_catalog() -> None:
    (first,) = resolve_documents(document(PEOPLE)).migrations
    with pytest.raises(CorruptCatalog):
        stored(first, drawn={"table": [1], "field": [1]})


def test_a_flipped_bit_is_another_digest_or_unreadable() -> None:
    structure = BASE.structure
    for at in range(0, len(structure), 3):
        flipped = bytearray(structure)
        flipped[at] ^= 4
        assert digest_of(bytes(flipped)) != BASE.digest
        try:
            stored(BASE, structure=bytes(flipped))
        except CorruptCatalog:
            continue


THERE = (
    "change_type: {table: people, field: name, type: integer, up: length(name), down: text(name)}"
)
BACK = "change_type: {table: people, field: name, type: string, up: text(name), down: length(name)}"


def test_rule_02_changes_there_and_back_in_one_migration_leave_another_cell() -> None:
    """The table is what it was, and its records are not: their cells tell them apart."""
    made = resolve_after_people(THERE, BACK)
    (before,), (after,) = made.before, made.after
    assert fingerprint(before) == fingerprint(after)
    assert before != after
    assert before.cells != after.cells
    again = "rename_field: {table: people, field: name, to: title}"
    back = "rename_field: {table: people, field: title, to: name}"
    renamed = resolve_after_people(again, back)
    assert renamed.conversion_up(1).is_identity
    assert renamed.before == renamed.after
    chain = resolve_documents(document(PEOPLE), document(THERE), document(BACK))
    assert not chain.conversion_plan(1, 1, 3).is_identity
