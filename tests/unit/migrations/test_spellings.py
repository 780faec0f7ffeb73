"""Rule 5, systematically: spellings of one meaning have one structure, meanings have their own.

`PAIRS` has for every optional key of every operation two spellings that mean the same, or says in
`NO_SECOND_SPELLING` why there is none; a key that is new must be put into either. The third text of
a pair means something else.
"""

from __future__ import annotations

import dataclasses

import cbor2
import pytest

from tests.documents import PEOPLE, document, resolve_documents
from zapdb.migrations import OPERATIONS, Migration, read_stored
from zapdb.migrations.document_structure import keys_of
from zapdb.migrations.operations.alter_type import AddedMember, RemovedMember
from zapdb.migrations.operations.declared_type import MemberDefinition
from zapdb.migrations.operations.definitions import FieldDefinition, FieldType, TypeDefinition
from zapdb.migrations.operations.field import Restore
from zapdb.migrations.operations.index import CollationDefinition, IndexField
from zapdb.migrations.operations.operation import Fill

FIRST = [
    "create_type: {type: state, enum: [open, done]}",
    "create_type: {type: place, struct: [{name: street, type: string},"
    " {name: zip, type: string, optional: true}]}",
    PEOPLE,
    "create_table: {table: things, key: [id], fields: [{name: id, type: integer},"
    " {name: state, type: state}, {name: place, type: place, optional: true},"
    " {name: count, type: integer, default: 3},"
    " {name: note, type: string, optional: true, default: none},"
    " {name: weight, type: integer, optional: true, default: 3},"
    " {name: extra, type: json, optional: true},"
    " {name: owner, type: reference, to: people, optional: true}]}",
    "create_table: {table: old, key: [id], fields: [{name: id, type: integer}]}",
]
"""Fields of people: id, name, age (optional), balance (default), token (generated), extra."""
SECOND = [
    "drop_field: {table: things, field: note, restore: {archive: true}}",
    "drop_table: {table: old, records: archive}",
]


def migrate(*operations: str, rollback: str = "inferred") -> Migration:
    """Migration 3, after some that leave a field and a table in the archive."""
    texts = document(*FIRST), document(*SECOND), document(*operations, rollback=rollback)
    return resolve_documents(*texts).migrations[-1]


ADD = "add_field: {table: people, field: {name: f, %s}%s}"
PHOTO = "add_field: {table: people, field: {name: f, type: string, optional: true}}"
DROP = "drop_field: {table: people, field: %s, restore: {%s}%s}"
ARCHIVED = "restore_field: {table: things, field: note, archived_by: 2%s}"
TABLE = "create_table: {table: t, key: [id], fields: [{name: id, type: integer}, {name: f, %s}]}"
INDEX = "create_index: {table: people, index: i, fields: [{field: name%s}]%s}"
TYPE = (
    "change_type: {table: people, field: balance, type: %s, up: 'text(balance)', "
    "down: 'decimal(balance, 2, else=0)', default: ''%s}"
)
SPLIT = (
    "transform: {table: people, from: {name: %s}, into: {a: %s, b: string}, "
    "up: {a: name, b: name}, down: {name: a}%s}"
)
PLACE = "alter_type: {type: place, add: [{name: m, %s}]}"
STATE = "alter_type: {type: state, add: [{name: m, back: open%s}]%s}"
OPTIONAL = "make_optional: {table: %s, field: %s%s}"
REQUIRED = "make_required: {table: things, field: weight%s}"

Given = str | tuple[str, ...]
PAIRS: dict[str, tuple[Given, Given, Given]] = {
    # what it is about: one spelling, another one, and another meaning
    "add_field.fill: null": (
        ADD % ("type: string, optional: true", ""),
        ADD % ("type: string, optional: true", ", fill: {value: null}"),
        ADD % ("type: string, optional: true", ", fill: {value: ''}"),
    ),
    "add_field.fill: null of JSON": (
        ADD % ("type: json, optional: true", ""),
        ADD % ("type: json, optional: true", ", fill: {value: null}"),
        ADD % ("type: json, optional: true", ", fill: {value: 0}"),
    ),
    "add_field.fill: the default": (
        ADD % ("type: decimal, scale: 2, default: 1", ""),
        ADD % ("type: decimal, scale: 2, default: '1.00'", ", fill: {value: '1.0'}"),
        ADD % ("type: decimal, scale: 2, default: 1", ", fill: {value: '1.01'}"),
    ),
    "add_field.fill: not null though it is the default's place": (
        ADD % ("type: string, optional: true, default: x", ", fill: {value: null}"),
        ADD % ("type: string, optional: true, default: x", ", fill: {value: }"),
        ADD % ("type: string, optional: true, default: x", ""),
    ),
    "add_field.position": (
        ADD % ("type: string, default: x", ""),
        ADD % ("type: string, default: x", ", position: 6"),
        ADD % ("type: string, default: x", ", position: 5"),
    ),
    "FieldDefinition.default: null": (
        ADD % ("type: string, optional: true", ""),
        ADD % ("type: string, optional: true, default: null", ""),
        ADD % ("type: string, optional: true, default: ''", ""),
    ),
    "FieldDefinition.default: null of JSON": (
        ADD % ("type: json, optional: true", ""),
        ADD % ("type: json, optional: true, default: null", ""),
        ADD % ("type: json, default: null", ""),
    ),
    "FieldDefinition.optional": (
        ADD % ("type: string, default: x", ""),
        ADD % ("type: string, default: x, optional: false", ""),
        ADD % ("type: string, default: x, optional: true", ""),
    ),
    "FieldDefinition.generated": (
        TABLE % "type: uuid",
        TABLE % "type: uuid, generated: false",
        TABLE % "type: uuid, generated: true",
    ),
    "FieldDefinition.default in a table": (
        TABLE % "type: state, optional: true",
        TABLE % "type: state, optional: true, default: null",
        TABLE % "type: state, optional: true, default: done",
    ),
    "FieldDefinition.default: a decimal": (
        TABLE % "type: decimal, scale: 2, default: '1'",
        TABLE % "type: decimal, scale: 2, default: '1.00'",
        TABLE % "type: decimal, scale: 2, default: '-1'",
    ),
    "FieldDefinition.default: an integer for a decimal": (
        TABLE % "type: decimal, scale: 2, default: 1",
        TABLE % "type: decimal, scale: 2, default: '1.0'",
        TABLE % "type: decimal, scale: 3, default: 1",
    ),
    "FieldDefinition.default: a uuid": (
        TABLE % "type: uuid, default: 00000000-0000-0000-0000-00000000000A",
        TABLE % "type: uuid, default: 00000000-0000-0000-0000-00000000000a",
        TABLE % "type: uuid, default: 00000000-0000-0000-0000-00000000000b",
    ),
    "FieldDefinition.default: a float": (
        TABLE % "type: float, default: '1'",
        TABLE % "type: float, default: '1.0e0'",
        TABLE % "type: float, default: '1.5'",
    ),
    "FieldDefinition.default: an instant": (
        TABLE % "type: timestamp, default: '2024-01-01T00:00:00Z'",
        TABLE % "type: timestamp, default: '2024-01-01T00:00:00.000Z'",
        TABLE % "type: timestamp, default: '2024-01-01T00:00:00.001Z'",
    ),
    "FieldDefinition.default: a struct": (
        TABLE % "type: place, default: {street: x}",
        TABLE % "type: place, default: {zip: null, street: x}",
        TABLE % "type: place, default: {zip: '', street: x}",
    ),
    "FieldDefinition.default: JSON": (
        TABLE % "type: json, default: {a: 1, b: null}",
        TABLE % "type: json, default: {b: null, a: 1}",
        TABLE % "type: json, default: {a: true, b: null}",
    ),
    "TypeDefinition.type": (
        TABLE % "type: list, of: string",
        TABLE % "type: list, of: {type: string}",
        TABLE % "type: list, of: {type: list, of: string}",
    ),
    "drop_field.restore: a value": (
        DROP % ("balance", "value: '1.0'", ""),
        DROP % ("balance", "value: 1", ""),
        DROP % ("balance", "value: 2", ""),
    ),
    "drop_field.restore: null": (
        DROP % ("age", "value: null", ""),
        DROP % ("age", "value: null, archive: false", ""),
        DROP % ("age", "value: 0", ""),
    ),
    "drop_field.restore: the default": (
        DROP % ("balance", "value: 0", ""),
        DROP % ("balance", "value: '0.0'", ""),
        DROP % ("balance", "archive: true, otherwise: {value: 0}", ""),
    ),
    "drop_field.otherwise": (
        DROP % ("age", "archive: true", ""),
        DROP % ("age", "archive: true, otherwise: {value: null}", ""),
        DROP % ("age", "archive: true, otherwise: {value: 0}", ""),
    ),
    "drop_field.otherwise: as its type writes it": (
        DROP % ("balance", "archive: true, otherwise: {value: 1}", ""),
        DROP % ("balance", "archive: true, otherwise: {value: '1.00'}", ""),
        DROP % ("balance", "archive: true, otherwise: {value: 2}", ""),
    ),
    "drop_field.archived_by": (
        DROP % ("age", "archive: true", ""),
        DROP % ("age", "archive: true", ", archived_by: 3"),
        DROP % ("age", "archive: true", ", archived_by: 1"),
    ),
    "drop_table.archived_by": (
        "drop_table: {table: things, records: archive}",
        "drop_table: {table: things, records: archive, archived_by: 3}",
        "drop_table: {table: things, records: archive, archived_by: 1}",
    ),
    "restore_table.position": (
        "restore_table: {table: old, archived_by: 2}",
        "restore_table: {table: old, archived_by: 2, position: 2}",
        "restore_table: {table: old, archived_by: 2, position: 1}",
    ),
    "restore_field.position": (
        ARCHIVED % "",
        ARCHIVED % ", position: 7",
        ARCHIVED % ", position: 4",
    ),
    "restore_field.otherwise": (
        ARCHIVED % "",
        ARCHIVED % ", otherwise: {value: null}",
        ARCHIVED % ", otherwise: {value: x}",
    ),
    "change_type.reversibility": (
        TYPE % ("string", ""),
        TYPE % ("string", ", reversibility: exact"),
        TYPE % ("string", ", reversibility: lossy"),
    ),
    "change_type.because": (
        TYPE % ("string", ", reversibility: lossy"),
        TYPE % ("string", ", reversibility: lossy, because: so it is"),
        TYPE % ("string", ", because: so it is"),
    ),
    "change_type.default": (
        "change_type: {table: things, field: count, type: decimal, scale: 1, "
        "up: 'decimal(count, 1, else=0)', down: 'integer(count, else=0)', default: 3}",
        "change_type: {table: things, field: count, type: decimal, scale: 1, "
        "up: 'decimal(count, 1, else=0)', down: 'integer(count, else=0)', default: '3.0'}",
        "change_type: {table: things, field: count, type: decimal, scale: 1, "
        "up: 'decimal(count, 1, else=0)', down: 'integer(count, else=0)', default: 4}",
    ),
    "change_default.default: null": (
        "change_default: {table: things, field: count, default: 4}",
        "change_default: {table: things, field: count, default: 4, remove: false}",
        "change_default: {table: things, field: count, default: 5}",
    ),
    "change_default.remove": (
        (PHOTO.replace("true}", "true, default: x}"),
         "change_default: {table: people, field: f, default: null}"),
        (PHOTO.replace("true}", "true, default: x}"),
         "change_default: {table: people, field: f, remove: true}"),
        (PHOTO.replace("true}", "true, default: x}"),
         "change_default: {table: people, field: f, default: z}"),
    ),
    "change_default.default": (
        "change_default: {table: people, field: balance, default: 1}",
        "change_default: {table: people, field: balance, default: '1.0'}",
        "change_default: {table: people, field: balance, default: '1.1'}",
    ),
    "make_required.fill": (
        REQUIRED % "",
        REQUIRED % ", fill: {value: 3}",
        REQUIRED % ", fill: {value: 4}",
    ),
    "make_optional.fill": (
        OPTIONAL % ("people", "balance", ""),
        OPTIONAL % ("people", "balance", ", fill: {value: 0}"),
        OPTIONAL % ("people", "balance", ", fill: {value: 1}"),
    ),
    "transform.positions": (
        SPLIT % ("string", "string", ""),
        SPLIT % ("string", "string", ", positions: [1, 2]"),
        SPLIT % ("string", "string", ", positions: [2, 1]"),
    ),
    "transform.from": (
        SPLIT % ("string", "string", ""),
        SPLIT % ("{type: string, optional: false, generated: false}", "string", ""),
        SPLIT % ("string", "{type: string, default: x}", ""),
    ),
    "transform.reversibility": (
        SPLIT % ("string", "string", ""),
        SPLIT % ("string", "string", ", reversibility: exact"),
        SPLIT % ("string", "string", ", reversibility: lossy"),
    ),
    "transform.because": (
        SPLIT % ("string", "string", ", reversibility: lossy, because: a"),
        SPLIT % ("string", "string", ", reversibility: lossy, because: b"),
        SPLIT % ("string", "string", ", because: a"),
    ),
    "create_index.unique": (
        INDEX % ("", ""),
        INDEX % ("", ", unique: false"),
        INDEX % ("", ", unique: true"),
    ),
    "IndexField.descending": (
        INDEX % ("", ""),
        INDEX % (", descending: false", ""),
        INDEX % (", descending: true", ""),
    ),
    "CollationDefinition.strength": (
        INDEX % (", collation: {locale: und}", ""),
        INDEX % (", collation: {locale: und, strength: tertiary}", ""),
        INDEX % (", collation: {locale: und, strength: primary}", ""),
    ),
    "CollationDefinition.numeric": (
        INDEX % (", collation: {locale: und}", ""),
        INDEX % (", collation: {locale: und, numeric: false}", ""),
        INDEX % (", collation: {locale: und, numeric: true}", ""),
    ),
    "CollationDefinition.locale": (
        INDEX % (", collation: {locale: und}", ""),
        INDEX % (", collation: {locale: root}", ""),
        INDEX % (", collation: {locale: de}", ""),
    ),
    "CollationDefinition.locale with keywords": (
        INDEX % (", collation: {locale: 'de@collation=phonebook;colCaseFirst=upper'}", ""),
        INDEX % (", collation: {locale: 'de@COLCASEFIRST=Upper; Collation = Phonebook'}", ""),
        INDEX % (", collation: {locale: 'de@collation=phonebook;colCaseFirst=lower'}", ""),
    ),
    "MemberDefinition.optional": (
        "create_type: {type: t, struct: [{name: a, type: string}]}",
        "create_type: {type: t, struct: [{name: a, type: string, optional: false}]}",
        "create_type: {type: t, struct: [{name: a, type: string, optional: true}]}",
    ),
    "alter_type.rename": (
        STATE % ("", ""),
        STATE % ("", ", rename: {}"),
        STATE % ("", ", rename: {open: new}"),
    ),
    "alter_type.remove": (
        STATE % ("", ""),
        STATE % ("", ", remove: {}"),
        STATE % ("", ", remove: {done: {to: open}}"),
    ),
    "alter_type.add": (
        "alter_type: {type: state, rename: {open: new}}",
        "alter_type: {type: state, rename: {open: new}, add: []}",
        "alter_type: {type: state, rename: {open: new}, add: [{name: m, back: done}]}",
    ),
    "AddedMember.position": (
        STATE % ("", ""),
        STATE % (", position: 2", ""),
        STATE % (", position: 1", ""),
    ),
    "AddedMember.position of two at the end": (
        "alter_type: {type: state, add: [{name: a, back: open}, {name: b, back: open}]}",
        "alter_type: {type: state, add: [{name: b, back: open}, {name: a, back: open, "
        "position: 2}]}",
        "alter_type: {type: state, add: [{name: b, back: open}, {name: a, back: open}]}",
    ),
    "AddedMember.position of several apart": (
        "alter_type: {type: state, add: [{name: a, back: open, position: 0}, "
        "{name: b, back: open}]}",
        "alter_type: {type: state, add: [{name: b, back: open, position: 3}, "
        "{name: a, back: open, position: 0}]}",
        "alter_type: {type: state, add: [{name: b, back: open, position: 2}, "
        "{name: a, back: open, position: 0}]}",
    ),
    "AddedMember.optional": (
        PLACE % "type: string, fill: x",
        PLACE % "type: string, fill: x, optional: false",
        PLACE % "type: string, fill: x, optional: true",
    ),
    "AddedMember.fill: null": (
        PLACE % "type: string, optional: true",
        PLACE % "type: string, optional: true, fill: null",
        PLACE % "type: string, optional: true, fill: ''",
    ),
    "AddedMember.fill": (
        PLACE % "type: decimal, scale: 1, fill: 1",
        PLACE % "type: decimal, scale: 1, fill: '1.0'",
        PLACE % "type: decimal, scale: 1, fill: 2",
    ),
    "RemovedMember.restore": (
        "alter_type: {type: place, remove: {zip: {}}}",
        "alter_type: {type: place, remove: {zip: {restore: null}}}",
        "alter_type: {type: place, remove: {zip: {restore: ''}}}",
    ),
    "expressions": (
        "add_check: {table: people, check: c, expression: 'id>1'}",
        "add_check: {table: people, check: c, expression: ' (id) > 1 '}",
        "add_check: {table: people, check: c, expression: 'id >= 1'}",
    ),
}  # fmt: skip

NO_SECOND_SPELLING = {
    "reorder_field.position": "required, and the place that it has is refused",
    **dict.fromkeys(
        ("add_field.fill.expression", "Fill.expression", "Restore.expression", "Fill.value",
         "Restore.value", "Restore.archive", "Restore.otherwise"),
        "looked at with the operations that have them",
    ),
    **dict.fromkeys(
        ("create_type.enum", "create_type.struct", "RemovedMember.to", "AddedMember.back",
         "AddedMember.type", "drop_field.restore", "transform.down", "change_type.down"),
        "left out, it means something else, or nothing",
    ),
    **dict.fromkeys(
        (f"{name}.{key}"
         for name in ("change_type", "TypeDefinition", "FieldType", "FieldDefinition",
                      "MemberDefinition", "AddedMember")
         for key in ("scale", "of", "to")),
        "a parameter of a type, which it needs or may not have",
    ),
    "IndexField.collation": "left out, strings sort by code point, which no collation does",
    **dict.fromkeys(
        ("FieldType.optional", "FieldType.default", "FieldType.generated"),
        "as in a FieldDefinition",
    ),
}  # fmt: skip


def given(operations: Given) -> tuple[str, ...]:
    return (operations,) if isinstance(operations, str) else operations


@pytest.mark.parametrize(("one", "other", "different"), PAIRS.values(), ids=PAIRS.keys())
def test_rule_05_a_meaning_has_one_structure(one: Given, other: Given, different: Given) -> None:
    first, second, third = (migrate(*given(text)) for text in (one, other, different))
    assert cbor2.loads(first.structure) == cbor2.loads(second.structure)
    assert first.digest == second.digest
    assert first == second
    assert first.after == second.after
    assert third.digest != first.digest


@pytest.mark.parametrize("one", [pair[0] for pair in PAIRS.values()], ids=PAIRS.keys())
def test_rule_05_a_structure_that_is_read_again_stays_what_it_is(one: Given) -> None:
    migration = migrate(*given(one))
    read = read_stored(
        migration.structure, "test", migration.summary, migration.drawn, migration.before
    )
    assert read == migration


def test_every_optional_key_is_looked_at() -> None:
    kinds = {kind.keyword: kind for kind in OPERATIONS.values()} | {
        kind.__name__: kind
        for kind in (
            Fill, Restore, TypeDefinition, FieldType, FieldDefinition, MemberDefinition,
            CollationDefinition, IndexField, AddedMember, RemovedMember,
        )
    }  # fmt: skip
    for kind in kinds.values():
        assert dataclasses.is_dataclass(kind)
    optional = {
        f"{name}.{key.name}"
        for name, kind in kinds.items()
        for key in keys_of(kind).values()
        if not key.is_required
    }
    looked_at = {pair.partition(":")[0].partition(" ")[0] for pair in PAIRS}
    assert optional - looked_at - NO_SECOND_SPELLING.keys() == set()


# --- rollbacks -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "silent", "rollback"),
    [
        (
            DROP % ("age", "value: 0", ""),
            "drop_field: {table: people, field: age}",
            "add_field: {table: people, field: {name: age, type: integer, optional: true},"
            " fill: {value: 0}, position: 2}",
        ),
        (
            DROP % ("extra", "value: null", ""),
            "drop_field: {table: people, field: extra}",
            "add_field: {table: people, field: {name: extra, type: json}, fill: {value: null}}",
        ),
        (
            DROP % ("age", "archive: true, otherwise: {value: 7}", ""),
            DROP % ("age", "archive: true", ""),
            "restore_field: {table: people, field: age, archived_by: 3, position: 2,"
            " otherwise: {value: 7}}",
        ),
        (
            OPTIONAL % ("people", "name", ", fill: {value: x}"),
            OPTIONAL % ("people", "name", ""),
            "make_required: {table: people, field: name, fill: {value: x}}",
        ),
        (
            "change_type: {table: people, field: name, type: integer, up: length(name),"
            " down: text(name)}",
            "change_type: {table: people, field: name, type: integer, up: length(name)}",
            "change_type: {table: people, field: name, type: string, up: text(name),"
            " down: length(name)}",
        ),
        (
            SPLIT % ("string", "string", ""),
            (SPLIT % ("string", "string", "")).replace(", down: {name: a}", ""),
            "transform: {table: people, from: {a: string, b: string}, into: {name: string},"
            " up: {name: a}, down: {a: name, b: name}}",
        ),
        (
            STATE % ("", ""),
            "alter_type: {type: state, add: [{name: m}]}",
            "alter_type: {type: state, remove: {m: {to: open}}}",
        ),
        (
            "alter_type: {type: place, remove: {street: {restore: x}}}",
            "alter_type: {type: place, remove: {street: {}}}",
            "alter_type: {type: place, add: [{name: street, type: string, fill: x, position: 0}]}",
        ),
    ],
)
def test_rule_05_what_a_change_says_for_its_rollback_stands_in_the_rollback(
    change: str, silent: str, rollback: str
) -> None:
    inferred = migrate(change)
    explicit = migrate(silent, rollback=f"[{{{rollback}}}]")
    assert cbor2.loads(inferred.structure) == cbor2.loads(explicit.structure)
    assert (
        inferred.digest == explicit.digest == migrate(change, rollback=f"[{{{rollback}}}]").digest
    )


def test_rule_05_a_rollback_is_normalized_like_a_change() -> None:
    change = DROP % ("extra", "archive: true, otherwise: {value: {a: 1}}", "")
    spelled = "restore_field: {table: people, field: extra, archived_by: 3, %s}"
    one, other = (
        migrate(change, rollback=f"[{{{spelled % rest}}}]")
        for rest in ("otherwise: {value: {a: 1}}", "otherwise: {value: {a: 1}}, position: 5")
    )
    assert one.digest == other.digest == migrate(change).digest
