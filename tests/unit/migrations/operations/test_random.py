"""Operations with random parameters of the right kinds: refused with reasons, or fully sound."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import forms
from tests.documents import PEOPLE, document, resolve_documents
from tests.strategies import check_cells, document_of, extend
from zapdb.errors import InvalidMigration
from zapdb.migrations import OPERATIONS, Chain, NumberAllocator
from zapdb.migrations.document_structure import Name, Plain, keys_of
from zapdb.records import Layout
from zapdb.records.derivation import subderivations
from zapdb.schema import Schema, canonical_bytes, fingerprint, read_canonical_bytes, types_in
from zapdb.values import Enum, Reference, Struct

BASE = resolve_documents(
    document(
        "create_type: {type: state, enum: [open, done, dropped]}",
        "create_type: {type: spare, enum: [open]}",
        """create_type: {type: place, struct: [
      {name: street, type: string, optional: true}, {name: states, type: list, of: state}]}""",
        PEOPLE,
        """create_table: {table: towns, key: [state, id], fields: [
      {name: state, type: state}, {name: id, type: integer},
      {name: place, type: place, optional: true},
      {name: mayor, type: reference, to: people, optional: true},
      {name: rival, type: reference, to: people, optional: true},
      {name: near, type: list, of: {type: reference, to: towns}},
      {name: fax, type: state, default: open}, {name: class, type: string, default: x},
      {name: title, type: string, optional: true}]}""",
        "create_table: {table: logs, key: [id], fields: [{name: id, type: state}]}",
        "create_index: {table: towns, index: by_it, fields: [{field: mayor}, {field: fax}]}",
        "create_index: {table: towns, index: by_rival, fields: [{field: rival}]}",
        "create_index: {table: people, index: by_age, fields: [{field: age}]}",
        "add_reference: {table: towns, field: mayor, on_delete: set_null}",
        "add_check: {table: people, check: c, expression: \"name != '' or age is None\"}",
    ),
    document(
        "drop_table: {table: logs, records: archive}",
        "drop_field: {table: towns, field: place, restore: {archive: true}}",
        "drop_field: {table: people, field: extra, "
        "restore: {archive: true, otherwise: {value: 1}}}",
    ),
)
NAMES = [
    *("people", "towns", "logs", "id", "name", "age", "balance", "extra", "state", "place", "fax"),
    *("mayor", "near", "class", "open", "done", "dropped", "street", "by_it", "c", "new", "other"),
]
TYPES = ["integer", "string", "decimal", "uuid", "json", "list", "reference", "state", "place"]
EXPRESSIONS = [
    "name",
    "age",
    "id",
    "5",
    "''",
    "length(name)",
    "fax",
    "id > 0",
    "None",
    "(",
    "state",
]
PLAIN: list[Any] = [None, 5, "open", "x", "0.00", True, [], ["open"], {}, {"states": ["done"]}]


@st.composite
def values(draw: st.DrawFn, kind: Any, key: str) -> Any:
    """What a document may hold for an annotation, whatever it means."""
    arguments = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Literal:
            return draw(st.sampled_from(arguments))
        case origin if origin is tuple:
            return draw(st.lists(values(arguments[0], key), max_size=3))
        case origin if origin is dict:
            return draw(st.dictionaries(names(key), values(arguments[1], key), max_size=2))
        case types.UnionType:
            return draw(values(arguments[0], key))
    if kind is Name:
        return draw(names(key))
    if kind is Plain:
        return draw(st.sampled_from(PLAIN))
    if kind is str:
        return draw(st.sampled_from(EXPRESSIONS if key != "locale" else ["und", "de", "xx"]))
    if key == "archived_by":
        return draw(st.integers(1, 2))
    if kind is int:
        return draw(st.integers(-1, 3))
    if kind is bool:
        return draw(st.booleans())
    assert dataclasses.is_dataclass(kind)
    return draw(bodies(kind))


def names(key: str) -> st.SearchStrategy[str]:
    known = {
        "table": ["people", "towns", "people", "towns", "logs"],
        "type": [*TYPES, *TYPES, "new"],
        "field": [
            "name",
            "age",
            "balance",
            "token",
            "mayor",
            "near",
            "fax",
            "class",
            "id",
            "place",
        ],
        "index": ["by_it", "new"],
        "check": ["c", "new"],
    }
    return st.sampled_from(known.get(key, NAMES))


@st.composite
def bodies(draw: st.DrawFn, kind: Any) -> dict[str, Any]:
    return {
        name: draw(values(key.kind, name))
        for name, key in keys_of(kind).items()
        if key.is_required or draw(st.integers(0, 2)) == 2
    }


VALID: dict[str, str] = {
    "create_type": "{type: new, enum: [a, b]}",
    "alter_type": "{type: spare, add: [{name: late, back: open}]}",
    "drop_type": "{type: spare}",
    "create_table": "{table: new, key: [id], fields: [{name: id, type: integer}]}",
    "drop_table": "{table: towns, records: archive}",
    "restore_table": "{table: logs, archived_by: 2}",
    "rename_table": "{table: towns, to: other}",
    "add_field": "{table: people, field: {name: new, type: integer}, fill: {expression: id + 1}}",
    "drop_field": "{table: towns, field: title, restore: {archive: true, otherwise: {value: x}}}",
    "restore_field": "{table: towns, field: place, archived_by: 2}",
    "rename_field": "{table: people, field: name, to: other}",
    "reorder_field": "{table: people, field: name, position: 0}",
    "change_type": "{table: people, field: balance, type: string, default: '', up: text(balance), "
    "down: 'decimal(balance, 2, else=0)'}",
    "change_default": "{table: towns, field: class, default: y}",
    "make_required": "{table: towns, field: title, fill: {value: x}}",
    "make_optional": "{table: people, field: balance, fill: {value: '0.00'}}",
    "transform": "{table: people, from: {balance: {type: decimal, scale: 2}}, "
    "into: {new: {type: decimal, scale: 2}}, up: {new: balance}, down: {balance: new}}",
    "create_index": "{table: people, index: new, fields: [{field: age}]}",
    "drop_index": "{table: people, index: by_age}",
    "rename_index": "{table: towns, index: by_it, to: other}",
    "add_check": "{table: people, check: new, expression: id > 0}",
    "drop_check": "{table: people, check: c}",
    "add_reference": "{table: towns, field: rival, on_delete: restrict}",
    "drop_reference": "{table: towns, field: mayor}",
}
"""Of each operation one that `BASE` accepts."""


def test_each_operation_has_one_that_is_accepted() -> None:
    assert VALID.keys() == OPERATIONS.keys()
    for keyword, text in VALID.items():
        check_sound([{keyword: yaml.safe_load(text)}])


@st.composite
def operations(draw: st.DrawFn, keyword: str) -> dict[str, Any]:
    """The valid one with some of its keys drawn anew, or one of nothing but drawn keys."""
    drawn = draw(bodies(OPERATIONS[keyword]))
    valid = yaml.safe_load(VALID[keyword])
    kept = draw(st.sets(st.sampled_from(sorted(valid))))
    return {keyword: drawn | {key: valid[key] for key in kept}}


def check_schema(schema: Schema) -> None:
    """Names, numbers, types and references agree throughout."""
    for names_there in ([t.name for t in schema], [t.declared_name for t in schema.types]):
        assert len(set(names_there)) == len(names_there)
    for table in schema:
        assert read_canonical_bytes(canonical_bytes(table)) == table
        assert fingerprint(table) >= 0
        Layout.of(table)
        assert set(table.key) <= {f.number for f in table.fields}
        assert len({f.name for f in table.fields}) == len(table.fields)
        for index in table.indexes:
            assert all(table.field_numbered(c.field).type.indexable for c in index.components)
        for key in table.foreign_keys:
            assert isinstance(table.field_numbered(key.field).type, Reference)
            assert any(i.components[0].field == key.field for i in table.indexes)
        for field in table.fields:
            if field.has_constant and field.default is not None:
                plain = field.type.to_document(field.default)
                assert field.type.from_document(plain, "p") == field.default
            for part in types_in(field.type):
                if isinstance(part, Enum | Struct):
                    assert part == schema.type_named(part.declared_name)
                if isinstance(part, Reference):
                    target = schema.table_numbered(part.number)
                    assert target is not None
                    assert part.table == target.name
                    assert part.key == tuple(f.type for f in target.key_fields)


EXAMPLES = 15_000 if forms.is_long else 1_500


@pytest.mark.parametrize("keyword", OPERATIONS)
def test_operations_with_random_parameters_are_refused_or_sound(keyword: str) -> None:
    """Nothing but violations comes out; what is accepted leaves a whole schema, and leads back."""

    @settings(
        deadline=None,
        max_examples=EXAMPLES // len(OPERATIONS),
        suppress_health_check=list(HealthCheck),
    )
    @given(operations(keyword), st.sampled_from(list(OPERATIONS)).flatmap(operations) | st.none())
    def try_them(first: dict[str, Any], second: dict[str, Any] | None) -> None:
        try:
            check_sound([first] if second is None else [first, second])
        except InvalidMigration:
            return

    try_them()


KINDS = ("table", "field", "index", "type", "check")


def check_sound(drawn: list[dict[str, Any]]) -> None:
    """Apply a migration of these operations; raises `InvalidMigration` where it is refused."""
    chain = extend(BASE, document_of(drawn), NumberAllocator(dict.fromkeys(KINDS, 1_000)))
    migration = chain.migrations[-1]
    check_schema(migration.after)
    reached = Chain((*BASE.migrations, migration))
    for table in migration.before:
        if migration.after.table_active_or_archived(table.number) is None:
            continue
        for source, target in ((2, 3), (3, 2)):
            plan = reached.conversion_plan(table.number, source, target)
            assert all(subderivations(d) for d in plan.derivations.values())
    check_cells(reached)
    schema, numbers = migration.after, NumberAllocator(step=-1, migration=3)
    for operation in migration.rollback:
        schema = operation.apply(schema, numbers)
    check_schema(schema)
