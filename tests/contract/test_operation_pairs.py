"""Two operations on one object in one migration, on filled tables: applied, built, rolled back.

test_operations.py looks at every operation alone. Here the second one meets what the first one
left: an index with another name and other entries, a field that was renamed and is required now.
"""

from __future__ import annotations

import zlib
from string import Template
from typing import Final

import pytest

from tests import forms
from tests.contract.model import Model
from tests.contract.test_operations import COUNT, check, insert, update, write
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.errors import InvalidMigration
from zapdb.storage import connect

FIRST: Final = """\
- create_type: {type: membership, enum: [guest, member]}
- create_table:
    table: towns
    key: [id]
    fields: [{name: id, type: integer}, {name: name, type: string}]
- create_table:
    table: people
    key: [id]
    fields:
      - {name: id, type: integer}
      - {name: name, type: string}
      - {name: joined, type: date, optional: true}
      - {name: fax, type: string, default: ""}
      - {name: balance, type: decimal, scale: 2, default: "0.00"}
      - {name: status, type: membership}
      - {name: town, type: reference, to: towns, optional: true}
- create_index: {table: people, index: by_joined, fields: [{field: joined}]}
- create_index: {table: people, index: by_fax, fields: [{field: fax}]}
- create_index: {table: people, index: by_balance, fields: [{field: balance, descending: true}]}
- create_index: {table: people, index: by_status, fields: [{field: status}, {field: id}]}
- create_index: {table: people, index: by_town, fields: [{field: town}]}"""

DROP_INDEX: Final = "- drop_index: {table: $people, index: $index}"

ITEMS: Final = {
    "alter_type": "- alter_type: {type: membership, rename: {member: regular}, "
    "add: [{name: honorary, back: guest}]}",
    "rename_table": "- rename_table: {table: $people, to: persons}",
    "add_field": "- add_field: {table: $people, field: {name: added, $type}, "
    "fill: {expression: $field}}",
    "drop_field": f"""\
{DROP_INDEX}
- drop_field: {{table: $people, field: $field,
    restore: {{archive: true, otherwise: {{value: $value}}}}}}""",
    "rename_field": "- rename_field: {table: $people, field: $field, to: renamed}",
    "reorder_field": "- reorder_field: {table: $people, field: $field, position: 1}",
    "change_type": "- change_type: {table: $people, field: $field, $retyped}",
    "change_default": "- change_default: {table: $people, field: $field, default: $value}",
    "make_required": "- make_required: {table: $people, field: $field, fill: {value: $value}}",
    "make_optional": "- make_optional: {table: $people, field: $field, fill: {value: $value}}",
    "transform": f"""\
{DROP_INDEX}
- transform: {{table: $people, from: {{$field: {{$type}}}}, into: {{made: {{$type}}}},
    up: {{made: $field}}, down: {{$field: made}}}}
- create_index: {{table: $people, index: by_made, fields: [{{field: made}}]}}""",
    "create_index": "- create_index: {table: $people, index: second, "
    "fields: [{field: $field}, {field: id}]}",
    "drop_index": DROP_INDEX,
    "rename_index": "- rename_index: {table: $people, index: $index, to: renamed_index}",
    "add_check": "- add_check: {table: $people, check: holds, expression: $holds}",
    "add_reference": "- add_reference: {table: $people, field: $field, on_delete: restrict}",
}
"""What can be done to a field, its index, its table or its type, as items of `changes`, with `$`
before what differs between fields, and before the names that an operation in front of it may have
changed."""

RENAMED: Final = {
    "rename_table": {"people": "persons"},
    "rename_field": {"field": "renamed"},
    "rename_index": {"index": "renamed_index"},
    "transform": {"field": "made", "index": "by_made"},
}

FIELDS: Final = {
    "joined": {
        "type": "type: date, optional: true",
        "value": '"2020-01-01"',
        "retyped": "type: string, up: text($field), "
        "down: \"date($field, else=date('2020-01-01'))\"",
        "holds": "$field is None or id >= 0",
    },
    "fax": {
        "type": "type: string",
        "value": '"none"',
        "retyped": "type: integer, up: length($field), down: text($field), default: 0, "
        "reversibility: lossy, because: its characters go",
        "holds": "length($field) >= 0",
    },
    "balance": {
        "type": "type: decimal, scale: 2",
        "value": '"1.00"',
        "retyped": "type: string, up: text($field), down: 'decimal($field, 2, else=0)', "
        'default: "0.00"',
        "holds": "$field >= 0 or $field < 0",
    },
    "status": {
        "type": "type: membership",
        "value": "guest",
        "retyped": "type: string, up: text($field), down: \"member($field, else='guest')\"",
        "holds": "$field == 'guest' or id >= 0",
    },
    "town": {
        "type": "type: reference, to: towns, optional: true",
        "value": "1",
        "holds": "$field is None or id >= 0",
    },
}
"""What the items say of each field of `people`; the field's index has its name behind `by_`."""


def keywords_of(field: str) -> list[str]:
    """The operations that a field can have at all."""
    own = FIELDS[field]
    refused = {"make_optional" if "optional" in own["type"] else "make_required"}
    refused |= set() if "reference" in own["type"] else {"add_reference"}
    refused |= set() if "retyped" in own else {"change_type"}
    return [keyword for keyword in ITEMS if keyword not in refused]


def changes_of(field: str, *keywords: str) -> str:
    names = {"people": "people", "field": field, "index": f"by_{field}"}
    items = []
    for keyword in keywords:
        own = {key: Template(text).substitute(names) for key, text in FIELDS[field].items()}
        items.append(Template(ITEMS[keyword]).substitute(names | own))
        names |= RENAMED.get(keyword, {})
    return "\n".join(items)


def is_chosen(field: str, first: str, second: str) -> bool:
    """All pairs in the long form; in the short one those of an index that gets another name, and a
    few others."""
    is_renamed = field == "joined" and "rename_index" in (first, second)
    few = zlib.crc32(f"{field} {first} {second}".encode()) % 25 == 0
    return forms.is_long or is_renamed or few


CHOSEN: Final = [
    (field, first, seconds)
    for field in FIELDS
    for first in keywords_of(field)
    if (seconds := [s for s in keywords_of(field) if is_chosen(field, first, s)])
]
ACCEPTED_MIN: Final = 2
"""Of the pairs that begin with an operation, at least; behind most operations it is ten."""


@pytest.mark.parametrize(("field", "first", "seconds"), CHOSEN)
def test_pairs_of_operations_go_up_and_come_back(
    workspace: Workspace, field: str, first: str, seconds: list[str]
) -> None:
    """An operation, and in the same migration another one behind it, one pair after another."""
    model, accepted = Model(), 0
    write(workspace, 1, FIRST)
    with workspace.open() as db:
        model.migrate(db._catalog.chain)
        insert(db, model, 0)
    for at, second in enumerate(seconds, 1):
        write(workspace, 2, changes_of(field, first, second))
        try:
            db = workspace.open()
        except InvalidMigration:  # such as a field that the first operation dropped
            continue
        accepted += 1
        with db:
            chain = db._catalog.chain
            model.migrate(chain)
            check(db, model)
            insert(db, model, at * COUNT)
            update(db, model, 1)
            check(db, model)
            db.admin.run_jobs()
            model.convert(chain)
            check(db, model)
        storage = connect(workspace.address)
        try:
            assert roll_back(storage).migrations[0].number == 2
        finally:
            storage.close()
        model.forget(chain)
        (workspace.directory / "0002_example.yaml").unlink()
        with workspace.open() as db:
            db.admin.run_jobs()
            check(db, model)
    assert accepted >= ACCEPTED_MIN or not forms.is_long
