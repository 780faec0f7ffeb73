"""Plans of the accelerator: how it reads and writes the records of a layout (see `accelerator`).

A plan's methods do what the generated functions do, and call them with the same arguments for
whatever the accelerator does not know. Here, types are told from one another; a type without a kind
of its own is read and written by its own methods, field by field.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, tzinfo
from functools import partial
from typing import Any, NamedTuple

from zapdb.accelerator import load_accelerator
from zapdb.datasets import Zone
from zapdb.limits import INLINE_SIZE_BYTES_MAX, RECORD_KEY_SIZE_BYTES_MAX, VALUE_SIZE_BYTES_MAX
from zapdb.records.record import Record, defer_large_values
from zapdb.schema import Field, TableSchema
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    List,
    Reference,
    String,
    Struct,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)
from zapdb.values.blob import decode_inline_or_blob, skip_inline_or_blob
from zapdb.values.decimal import MULTIPLY
from zapdb.values.varint import encode_varint

accelerator = load_accelerator()

KINDS: dict[type[ValueType], str] = {
    Boolean: "BOOLEAN",
    Date: "DATE",
    Float: "FLOAT",
    Integer: "INTEGER",
    Json: "JSON",
    Timestamp: "TIMESTAMP",
    Uuid: "UUID",
}
"""The kinds of types without parameters, whose key encoding is the value encoding."""
TEXTS: dict[type[ValueType], str] = {String: "STRING", Binary: "BINARY"}
ESCAPED: dict[type[ValueType], str] = {String: "ESCAPED_STRING", Binary: "ESCAPED_BINARY"}

Description = tuple[Any, ...]
"""What the accelerator reads: see native/layout.c."""
Decode = Callable[[bytes, int], tuple[Any, int]]
Skip = Callable[[bytes, int], int]
Encode = Callable[[Any], bytes]
Build = Callable[[Record], bytes]
Iterate = Callable[..., Iterator[tuple[bytes, Record]]]
"""See native/rows.c."""


class Functions(NamedTuple):
    """The generated functions of a layout, in the order of native/native.h. A partial decoder has
    the first alone, an index the one that builds its keys."""

    decode: Callable[..., Any] | None = None
    encode: Callable[..., Any] | None = None
    skip: Callable[..., Any] | None = None
    encode_key: Callable[..., Any] | None = None
    key_of: Callable[..., Any] | None = None
    decode_key: Callable[..., Any] | None = None
    build: Callable[..., Any] | None = None
    defer: Callable[..., Any] = defer_large_values


def plan_layout(
    table: TableSchema,
    record: type[Record],
    functions: Functions,
    selected: frozenset[int] | None = None,
) -> Any:
    """Return the plan of a table whose types are bound, for records with the selected fields."""
    assert accelerator is not None, "the caller has looked"
    wanted = {f.number for f in table.fields if selected is None or f.number in selected}
    bits = {f.number: at for at, f in enumerate(f for f in table.value_fields if f.optional)}
    key = [_describe_field(f, record, wanted, -1, describe_key(f.type)) for f in table.key_fields]
    body = [
        _describe_field(f, record, wanted, bits.get(f.number, -1), describe_held(f.type))
        for f in table.value_fields
    ]
    reach = len(body)
    while reach and table.value_fields[reach - 1].number not in wanted and selected is not None:
        reach -= 1
    return accelerator.Plan(
        record,
        tuple(key) if selected is None or wanted & {*table.key} else (),
        tuple(body),
        len(bits),
        reach,
        tuple(functions),
    )


def accelerate_build(components: Sequence[tuple[Field, bool]], build: Build) -> Build:
    """Return what builds the keys of an index on these fields, each descending or not, as `build`
    does."""
    if accelerator is None:
        return build
    fields = tuple(
        (f.name, None, 0 if f.optional else -1, ..., is_descending, describe_index_key(f.type))
        for f, is_descending in components
    )
    functions = tuple(Functions(build=build))
    fast: Build = accelerator.Plan(Record, (), fields, 1, 0, functions).build
    return fast


def iterate_of(decode: Callable[..., Any]) -> Iterate | None:
    """Return what reads a page as this function reads a record; None if it is not of a plan."""
    plan = getattr(decode, "__self__", None)
    if accelerator is None or plan is None or type(plan) is not accelerator.Plan:
        return None
    iterate: Iterate = plan.iterate
    return iterate


def _describe_field(
    f: Field, record: type[Record], wanted: set[int], bit: int, kind: Description
) -> Description:
    slot = vars(record)[f.name] if f.number in wanted else None
    default = f.default if f.has_constant else None if f.optional else ...
    return f.name, slot, bit, default, False, kind


def describe_held(kind: ValueType) -> Description:
    """Describe the type of a record's field, whose values may be blobs."""
    if not isinstance(kind, String | Binary):
        return describe_nested(kind)
    decode = partial(decode_inline_or_blob, kind)
    return _describe(TEXTS[type(kind)], INLINE_SIZE_BYTES_MAX, decode, skip_inline_or_blob, None)


def describe_nested(kind: ValueType) -> Description:
    """Describe a type whose values are never blobs, in its value encoding."""
    return _describe_zoned(kind) if isinstance(kind, ZonedTimestamp) else _describe_unzoned(kind)


def _describe_unzoned(kind: ValueType) -> Description:
    def encode(value: Any) -> bytes:
        return kind.encode(kind.check(value, kind.name))

    def describe(name: str, number: int = 0, **more: Any) -> Description:
        return _describe(name, number, kind.decode, kind.skip, encode, **more)

    match kind:
        case String() | Binary():
            return describe(TEXTS[type(kind)], VALUE_SIZE_BYTES_MAX)
        case Decimal(scale):
            unit = decimal.Decimal((0, (1,), -scale))
            return describe("DECIMAL", scale, first=MULTIPLY, second=unit)
        case Enum(members=members):
            ids = {name: encode_varint(number) for number, name in members}
            return describe("ENUM", first=dict(members), second=ids)
        case Reference(key=(single,)) if single.key_is_value:
            return describe_key(single)
        case Reference(key=parts):
            return describe("KEY", fields=tuple(_part(describe_key(part)) for part in parts))
        case List(items):
            return describe("LIST", fields=(_part(describe_nested(items)),))
        case Struct():
            return describe("STRUCT", **_describe_members(kind))
    return describe(KINDS.get(type(kind), "PYTHON"))


def _describe_zoned(kind: ZonedTimestamp) -> Description:
    """Zones are numbered in Python. What it has met is kept here for the accelerator: a zone is one
    object, and keeps its number for ever."""
    by_number, numbers = dict[int, tzinfo](), dict[tzinfo, bytes]()

    def learn(value: datetime) -> None:
        assert kind.zones is not None, "it was written or read just now"
        assert isinstance(value.tzinfo, Zone), "it has its normal form"
        number = kind.zones.number_of(value.tzinfo.key)
        by_number[number], numbers[value.tzinfo] = value.tzinfo, encode_varint(number)

    def decode(data: bytes, position: int) -> tuple[datetime, int]:
        value, after = kind.decode(data, position)
        learn(value)
        return value, after

    def encode(value: Any) -> bytes:
        checked = kind.check(value, kind.name)
        encoded = kind.encode(checked)
        learn(checked)
        return encoded

    return _describe("ZONED", 0, decode, kind.skip, encode, first=by_number, second=numbers)


def _describe_members(kind: Struct) -> dict[str, Any]:
    members = sorted(kind.members, key=lambda member: member.number)
    bits = [member.number for member in members if member.optional]
    made = kind.value_class
    fields = []
    for member in members:
        bit, default = (bits.index(member.number), None) if member.optional else (-1, ...)
        slot = vars(made)[member.name]
        fields.append((member.name, slot, bit, default, False, describe_nested(member.type)))
    return {"made": made, "fields": tuple(fields), "optional": len(bits)}


def describe_key(kind: ValueType) -> Description:
    """Describe a type in its key encoding."""
    if kind.key_is_value:
        return describe_nested(kind)

    def skip(data: bytes, position: int) -> int:
        return kind.decode_key(data, position)[1]

    def encode(value: Any) -> bytes:
        return kind.encode_key(kind.check(value, kind.name))

    name = ESCAPED.get(type(kind), "PYTHON")
    return _describe(name, RECORD_KEY_SIZE_BYTES_MAX, kind.decode_key, skip, encode)


def _part(kind: Description) -> Description:
    """A part without a name: an item of a list, or a part of a key."""
    return "", None, -1, ..., False, kind


def describe_index_key(kind: ValueType) -> Description:
    """Describe a type in its index encoding, of the normal form of values: others are left to the
    generated function."""
    if isinstance(kind, Enum):
        ids = {name: kind.encode_index_key(name) for _, name in kind.members}
        return _describe("ENUM", 0, kind.decode, kind.skip, None, first={}, second=ids)
    if type(kind).encode_index_key is not ValueType.encode_index_key:
        return _describe("PYTHON", 0, kind.decode, kind.skip, kind.encode_index_key)
    if isinstance(kind, String | Binary):
        name = ESCAPED[type(kind)]
        return _describe(name, VALUE_SIZE_BYTES_MAX, kind.decode_key, kind.skip, None)
    return _of_normal_form(describe_key(kind))


def _of_normal_form(kind: Description) -> Description:
    """The same without Python's encoder, which takes values in other forms, too."""
    name, number, decode, skip, _, first, second, made, parts, optional = kind
    parts = tuple((*part[:-1], _of_normal_form(part[-1])) for part in parts)
    return name, number, decode, skip, None, first, second, made, parts, optional


def _describe(
    name: str,
    number: int,
    decode: Decode,
    skip: Skip,
    encode: Encode | None,
    **more: Any,
) -> Description:
    of_kind = (more.get("first"), more.get("second"))
    parts = (more.get("made"), more.get("fields", ()), more.get("optional", 0))
    return getattr(accelerator, name), number, decode, skip, encode, *of_kind, *parts
