"""Notes on each operation, in addition to its keys, and one runnable example of each.

The reference page, the file that `migrate new` writes and the tests take it from here. An example
is a migration of one operation. It follows `FIRST`, and the examples that it needs, each of them a
migration of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

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
- create_index:
    table: people
    index: by_town
    fields: [{field: town}]"""
"""The changes of migration 1, which every example follows."""


@dataclass(frozen=True, slots=True)
class OperationExample:
    """`text` is one item of `changes`; `needs` are the operations whose examples come before.

    The rest says of the operation itself, in words: what of it a key field allows, which records
    are converted, which indexes are built, and when its rollback is inferred.
    """

    text: str
    key: str = "—"
    records: str = "none"
    indexes: str = "none"
    rollback: str = "always"
    needs: tuple[str, ...] = ()


ALLOWED: Final = "allowed"
EXAMPLES_REFUSED: Final = "refused"
ALL: Final = "all of the table"

EXAMPLES: Final[dict[str, OperationExample]] = {
    "create_type": OperationExample("- create_type: {type: color, enum: [red, green]}"),
    "alter_type": OperationExample(
        """\
- alter_type:
    type: membership
    add: [{name: honorary, back: member}]
    rename: {guest: visitor}""",
        key="members may be renamed, nothing else",
        records="all with a field of the type; none where members of an enum are added, "
        "or members are renamed",
        indexes="those of fields of the type, unless members are renamed",
        rollback="with `back` for what is added to an enum, and `restore` for a required member "
        "that is removed from a struct",
    ),
    "drop_type": OperationExample("- drop_type: {type: color}", needs=("create_type",)),
    "create_table": OperationExample(
        """\
- create_table:
    table: visits
    key: [id]
    fields:
      - {name: id, type: uuid, generated: true}
      - {name: day, type: date}
      - {name: notes, type: string, optional: true}""",
    ),
    "drop_table": OperationExample(
        "- drop_table: {table: visits, records: archive}", needs=("create_table",)
    ),
    "restore_table": OperationExample(
        "- restore_table: {table: visits, archived_by: 3}",
        records="those that were not converted before it was dropped, and all where members of "
        "their types were removed and added again meanwhile",
        indexes="all of the table",
        needs=("create_table", "drop_table"),
    ),
    "rename_table": OperationExample("- rename_table: {table: people, to: persons}"),
    "add_field": OperationExample(
        """\
- add_field:
    table: people
    field: {name: initial, type: string}
    fill: {expression: "before(name, ' ')"}""",
        records=ALL,
    ),
    "drop_field": OperationExample(
        """\
- drop_field:
    table: people
    field: fax
    restore: {archive: true, otherwise: {value: ""}}""",
        key=EXAMPLES_REFUSED,
        records=ALL,
        rollback="with `restore`; of an archived field that is required, with `otherwise`",
    ),
    "restore_field": OperationExample(
        """\
- restore_field:
    table: people
    field: fax
    archived_by: 2
    otherwise: {value: ""}""",
        records=ALL,
        needs=("drop_field",),
    ),
    "rename_field": OperationExample(
        "- rename_field: {table: people, field: joined, to: member_since}", key=ALLOWED
    ),
    "reorder_field": OperationExample(
        "- reorder_field: {table: people, field: town, position: 2}", key=ALLOWED
    ),
    "change_type": OperationExample(
        """\
- change_type:
    table: people
    field: balance
    type: string
    up: text(balance)
    down: decimal(balance, 2, else=0)
    default: "0.00\"""",
        key=EXAMPLES_REFUSED,
        records=ALL,
        indexes="those of the field",
        rollback="with `down`",
    ),
    "change_default": OperationExample(
        '- change_default: {table: people, field: fax, default: "none"}', key=ALLOWED
    ),
    "make_required": OperationExample(
        '- make_required: {table: people, field: joined, fill: {value: "2020-01-01"}}',
        key="always required",
        records=ALL,
        indexes="those of the field",
    ),
    "make_optional": OperationExample(
        '- make_optional: {table: people, field: name, fill: {value: "nobody"}}',
        key=EXAMPLES_REFUSED,
        records=ALL,
        rollback="with `fill`, or where the field has a default",
    ),
    "transform": OperationExample(
        """\
- transform:
    table: people
    from: {name: string}
    into: {first: string, last: string}
    up: {first: "before(name, ' ')", last: "after(name, ' ')"}
    down: {name: "join(' ', first, last)"}
    reversibility: lossy
    because: a name of one word gains a blank""",
        key=EXAMPLES_REFUSED,
        records=ALL,
        rollback="with `down`",
    ),
    "create_index": OperationExample(
        """\
- create_index:
    table: people
    index: by_name
    fields: [{field: name, collation: {locale: und}}, {field: joined}]""",
        key=ALLOWED,
        indexes="the new one",
    ),
    "drop_index": OperationExample("- drop_index: {table: people, index: by_town}", key=ALLOWED),
    "rename_index": OperationExample(
        "- rename_index: {table: people, index: by_town, to: by_home}"
    ),
    "add_check": OperationExample(
        """\
- add_check:
    table: people
    check: not_in_debt
    expression: balance >= 0""",
        key=ALLOWED,
    ),
    "drop_check": OperationExample(
        "- drop_check: {table: people, check: not_in_debt}", key=ALLOWED, needs=("add_check",)
    ),
    "add_reference": OperationExample(
        "- add_reference: {table: people, field: town, on_delete: set_null}",
        key="allowed, but for `set_null`",
    ),
    "drop_reference": OperationExample(
        "- drop_reference: {table: people, field: town}", key=ALLOWED, needs=("add_reference",)
    ),
}
"""By the operation's keyword, in the order of the registry."""
