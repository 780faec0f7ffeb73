"""Canonical bytes of a table's schema, which the schema history keeps.

They are deterministic CBOR of nested arrays and decode to exactly the table that they were made of,
numbers included:

    [format, number, name, key, fields, indexes, checks, foreign keys, archived]
    field  [number, cell, name, type, flags, default?]     flags: 1 optional, 2 a generated UUID,
                                                            4 has a default, 8 a sequence
    type   name; [decimal, scale]; [list, type]; [reference, table's number, table, [type…]];
           [enum, number, name, [[id, member]…]];
           [struct, number, name, [[id, member, type, flags]…]]
    index  [number, name, flags, components]          flags: 1 unique
    component  [field, flags, locale?, strength?]     flags: 1 descending, 2 collated, 4 numeric
    check  [number, name, expression]
    foreign key  [field, what happens on delete]
    archived  [field, number of the migration that dropped it]

A whole schema is its outline and the bytes of its tables, active or archived:

    outline  [format, [number of a table…], [type…], [[number of an archived table, number of the
             migration that dropped it]…]]

Numbers differ between databases, so the fingerprint is taken over the same arrays with fields named
and numbers left out (rule 4). What is archived is no part of it either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, get_args

import cbor2

from zapdb.datasets import Collation
from zapdb.datasets.collation import STRENGTHS
from zapdb.errors import CorruptCatalog
from zapdb.formats import LEVELS, require_known, require_word
from zapdb.schema.model import (
    NO_DEFAULT,
    ArchivedField,
    ArchivedTable,
    Check,
    Field,
    ForeignKey,
    Generator,
    Index,
    IndexComponent,
    OnDelete,
    Schema,
    TableSchema,
    find_now,
)
from zapdb.values import (
    VALUE_TYPES,
    Decimal,
    Enum,
    List,
    Member,
    Reference,
    Struct,
    ValueType,
)
from zapdb.values.json import dumps

SCHEMA_FORMAT: Final = max(LEVELS["schema"])
_GENERATORS: Final[dict[Generator | None, int]] = {None: 0, "uuid": 2, "sequence": 8}
_GENERATED: Final = {flag: generator for generator, flag in _GENERATORS.items()}


def canonical_bytes(table: TableSchema) -> bytes:
    """The table as bytes; `read_canonical_bytes` gives back an equal table."""
    if table.packed is None:
        object.__setattr__(table, "packed", _pack(table))
    assert table.packed is not None
    return table.packed


def _pack(table: TableSchema) -> bytes:
    return dumps(
        [
            SCHEMA_FORMAT,
            table.number,
            table.name,
            list(table.key),
            [_describe_numbered(f) for f in table.fields],
            [
                [
                    i.number,
                    i.name,
                    i.unique * 1,
                    [[c.field, *_describe_component(c)] for c in i.components],
                ]
                for i in table.indexes
            ],
            [[c.number, c.name, c.expression] for c in table.checks],
            [[k.field, k.on_delete] for k in table.foreign_keys],
            [[_describe_numbered(a.field), a.archived_by] for a in table.archived],
        ]
    )


def fingerprint(table: TableSchema) -> int:
    """Unsigned 64 bits over names, types, defaults, key, indexes, checks and foreign keys; never
    over numbers."""
    return int.from_bytes(hashlib.sha256(bytes_without_numbers(table)).digest()[:8], "big")


def bytes_without_numbers(table: TableSchema) -> bytes:
    """Bytes that are equal for tables that differ in nothing but numbers."""
    names = {f.number: f.name for f in table.fields}
    described = [
        SCHEMA_FORMAT,
        table.name,
        [names[number] for number in table.key],
        [_describe_field(f, with_numbers=False) for f in table.fields],
        sorted(
            [
                i.name,
                i.unique * 1,
                [[names[c.field], *_describe_component(c)] for c in i.components],
            ]
            for i in table.indexes
        ),
        sorted([c.name, c.expression] for c in table.checks),
        sorted([names[k.field], k.on_delete] for k in table.foreign_keys),
    ]
    return dumps(described)


def read_canonical_bytes(data: bytes) -> TableSchema:
    """Raises `CorruptCatalog` on bytes that `canonical_bytes` did not write, and
    `IncompatibleVersion` on those of a later release."""
    with _reading("the bytes of a table schema can't be read"):
        table = _read_table(data)
        if canonical_bytes(table) != data:
            raise ValueError("not in the canonical form")
        return table


def _read_table(data: bytes) -> TableSchema:
    version, number, name, key, fields, indexes, checks, foreign_keys, archived = cbor2.loads(data)
    require_known("schema", version)
    return TableSchema(
        number,
        name,
        tuple(key),
        tuple(_read_field(f) for f in fields),
        tuple(
            Index(n, named, tuple(map(_read_component, cs)), bool(flags & 1))
            for n, named, flags, cs in indexes
        ),
        tuple(Check(*described) for described in checks),
        tuple(map(_read_foreign_key, foreign_keys)),
        tuple(ArchivedField(_read_field(f), by) for f, by in archived),
    )


def outline_bytes(schema: Schema) -> bytes:
    """Everything of a schema but its tables, as bytes; `read_schema` gives back an equal one."""
    return dumps(
        [
            SCHEMA_FORMAT,
            [table.number for table in schema],
            [_describe_type(kind, with_numbers=True) for kind in schema.types],
            [[archived.table.number, archived.archived_by] for archived in schema.archived],
        ]
    )


def read_schema(outline: bytes, tables: Mapping[int, bytes]) -> Schema:
    """The schema of an outline; `tables` has the bytes of each table by its number, and may have
    others. Raises `CorruptCatalog`, and `IncompatibleVersion` for bytes of a later release.

    Tables are taken to be in the canonical form, which takes half of the time to look at: who reads
    them compares their bytes with others.
    """

    def read(number: int) -> TableSchema:
        table = _read_table(tables[number])
        if table.number != number:
            raise ValueError(f"table {table.number}")
        object.__setattr__(table, "packed", tables[number])
        return table

    with _reading("the bytes of a schema can't be read"):
        version, numbers, types, archived = cbor2.loads(outline)
        require_known("schema", version)
        schema = Schema(
            tuple(map(read, numbers)),
            tuple(kind for kind in map(_read_type, types) if isinstance(kind, Enum | Struct)),
            tuple(ArchivedTable(read(at), by) for at, by in archived),
        )
        if outline_bytes(schema) != outline:
            raise ValueError("not in the canonical form")
        return schema


@contextmanager
def _reading(message: str) -> Iterator[None]:
    """Raise `CorruptCatalog` for what bytes that were not written so lead to."""
    try:
        yield
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        AssertionError,
        RecursionError,
        cbor2.CBORError,
    ) as error:
        raise CorruptCatalog(message, cause=repr(error)) from error


def type_bytes_without_numbers(kind: Enum | Struct) -> bytes:
    """Bytes that are equal for declared types that differ in nothing but numbers."""
    return dumps(_describe_type(kind, with_numbers=False))


def _describe_type(kind: ValueType, *, with_numbers: bool) -> Any:
    def numbered(number: int) -> list[int]:
        return [number] if with_numbers else []

    match kind:
        case Decimal(scale):
            return [kind.name, scale]
        case List(items):
            return [kind.name, _describe_type(items, with_numbers=with_numbers)]
        case Reference(table, number, key):
            parts = [_describe_type(part, with_numbers=with_numbers) for part in key]
            return [kind.name, *numbered(number), table, parts]
        case Enum(declared_name, number, members):
            named = [[*numbered(at), name] for at, name in members]
            return [kind.name, *numbered(number), declared_name, named]
        case Struct(declared_name, number, members):
            described = [
                [
                    *numbered(m.number),
                    m.name,
                    _describe_type(m.type, with_numbers=with_numbers),
                    m.optional * 1,
                ]
                for m in members
            ]
            return [kind.name, *numbered(number), declared_name, described]
    return kind.name


def _read_type(described: Any) -> ValueType:
    rest: list[Any]
    name, *rest = (described,) if isinstance(described, str) else described
    _require_word("a type", name, VALUE_TYPES)
    kind = VALUE_TYPES[name]
    if kind is Decimal:
        return Decimal(*rest)
    if kind is List:
        (items,) = rest
        return List(_read_type(items))
    if kind is Reference:
        number, table, key = rest
        return Reference(table, number, tuple(map(_read_type, key)))
    if kind is Enum:
        number, declared_name, members = rest
        return Enum(declared_name, number, tuple((at, member) for at, member in members))
    if kind is Struct:
        number, declared_name, members = rest
        read = (Member(at, m, _read_type(t), bool(flags)) for at, m, t, flags in members)
        return Struct(declared_name, number, tuple(read))
    return kind(*rest)


def _describe_numbered(f: Field) -> list[Any]:
    return [f.number, f.cell, *_describe_field(f, with_numbers=True)]


def _describe_field(f: Field, *, with_numbers: bool) -> list[Any]:
    flags = f.optional * 1 + _GENERATORS[f.generated] + f.has_default * 4
    described = [f.name, _describe_type(f.type, with_numbers=with_numbers), flags]
    if f.has_default:
        described.append(f.plain_default)
    return described


def _read_field(described: list[Any]) -> Field:
    number, cell, name, kind_described, flags, *rest = described
    kind = _read_type(kind_described)
    default: Any = NO_DEFAULT
    if flags & 4:
        (plain,) = rest
        default = None
        if plain is not None:
            default = find_now(plain, kind) or kind.from_document(plain, name)
    generated = _GENERATED[flags & sum(_GENERATED)]
    return Field(number, name, kind, bool(flags & 1), default, generated, cell)


def _describe_component(c: IndexComponent) -> list[Any]:
    if c.collation is None:
        return [c.descending * 1]
    flags = c.descending * 1 + 2 + c.collation.numeric * 4
    return [flags, c.collation.locale, c.collation.strength]


def _read_foreign_key(described: list[Any]) -> ForeignKey:
    number, on_delete = described
    _require_word("on_delete", on_delete, get_args(OnDelete))
    return ForeignKey(number, on_delete)


def _require_word(what: str, word: Any, words: Collection[str]) -> None:
    if not isinstance(word, str):
        raise TypeError(type(word))
    require_word(word, words, schema=what)


def _read_component(described: list[Any]) -> IndexComponent:
    number, flags, *rest = described
    if flags & 2:
        _require_word("the strength of a collation", rest[1], STRENGTHS)
    collation = Collation(rest[0], rest[1], bool(flags & 4)) if flags & 2 else None
    return IndexComponent(number, collation, bool(flags & 1))
