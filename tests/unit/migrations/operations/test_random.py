"""Operations with random parameters of the right kinds: refused with reasons, or fully sound."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import forms
from tests.documents import PEOPLE, document, resolve_documents
from tests.strategies import document_of, extend
from zapdb.errors import InvalidMigration
from zapdb.migrations import OPERATIONS, Chain, NumberAllocator
from zapdb.migrations.structure import Name, Plain, keys_of
from zapdb.records import Layout
from zapdb.records.derivation import subderivations
from zapdb.schema import Schema, canonical_bytes, fingerprint, read_canonical_bytes, types_in
from zapdb.values import Enum, Reference, Struct

BASE = resolve_documents(
    document(
        "create_type: {type: state, enum: [open, done, dropped]}",
        """create_type: {type: place, struct: [
      {name: street, type: string, optional: true}, {name: states, type: list, of: state}]}""",
        PEOPLE,
        """create_table: {table: towns, key: [state, id], fields: [
      {name: state, type: state}, {name: id, type: integer},
      {name: place, type: place, optional: true},
      {name: mayor, type: reference, to: people, optional: true},
      {name: near, type: list, of: {type: reference, to: towns}},
      {name: fax, type: state, default: open}, {name: class, type: string, default: x}]}""",
        "create_table: {table: logs, key: [id], fields: [{name: id, type: state}]}",
        "create_index: {table: towns, index: by_it, fields: [{field: mayor}, {field: fax}]}",
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


@st.composite
def operations(draw: st.DrawFn) -> dict[str, Any]:
    keyword = draw(st.sampled_from(list(OPERATIONS)))
    return {keyword: draw(bodies(OPERATIONS[keyword]))}


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
"""With fewer, few are accepted."""


def test_operations_with_random_parameters_are_refused_or_sound() -> None:
    """Nothing but violations comes out; what is accepted leaves a whole schema, and leads back."""
    accepted: dict[str, int] = dict.fromkeys(OPERATIONS, 0)

    @settings(deadline=None, max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(st.lists(operations(), min_size=1, max_size=1) | st.lists(operations(), max_size=2))
    def try_them(drawn: list[dict[str, Any]]) -> None:
        try:
            chain = extend(BASE, document_of(drawn), NumberAllocator(dict.fromkeys(KINDS, 1_000)))
        except InvalidMigration:
            return
        migration = chain.migrations[-1]
        for operation in migration.changes:
            accepted[operation.keyword] += 1
        check_schema(migration.after)
        reached = Chain((*BASE.migrations, migration))
        for table in migration.before:
            if migration.after.table_active_or_archived(table.number) is None:
                continue
            for source, target in ((2, 3), (3, 2)):
                plan = reached.conversion_plan(table.number, source, target)
                assert all(subderivations(d) for d in plan.derivations.values())
        schema, numbers = migration.after, NumberAllocator(step=-1, migration=3)
        for operation in migration.rollback:
            schema = operation.apply(schema, numbers)
        check_schema(schema)

    try_them()
    assert sum(accepted.values()) >= 60  # else it would show nothing
    assert sum(1 for count in accepted.values() if count) >= 12, accepted


KINDS = ("table", "field", "index", "type", "check")
