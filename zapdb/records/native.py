"""Plans of the accelerator: how it reads and writes the records of a layout (see `accelerator`).

A plan's methods do what the generated functions do, and call them with the same arguments for
whatever the accelerator does not know. Here, types are told from one another; a type without a kind
of its own is read and written by its own methods, field by field.
"""

from __future__ import annotations

import decimal
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, tzinfo
from functools import partial
from types import MemberDescriptorType
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
from zapdb.values.blob import decode_inline_or_blob
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
}
"""The kinds of types without parameters, whose key encoding is the value encoding."""
TEXTS: dict[type[ValueType], str] = {String: "STRING", Binary: "BINARY"}
SIZES: dict[type[ValueType], int] = {Boolean: 1, Float: 8, Timestamp: 8, Uuid: 16}
ESCAPED: dict[type[ValueType], str] = {String: "ESCAPED_STRING", Binary: "ESCAPED_BINARY"}

Decode = Callable[[bytes, int], tuple[Any, int]]
Encode = Callable[[Any], bytes]
Build = Callable[[Record], bytes]
Iterate = Callable[..., Iterator[tuple[bytes, Record]]]
"""(rows, prefix, attachments, otherwise) → keys and records: see native/plan.c."""


class TypeDescription(NamedTuple):
    """How the accelerator reads and writes the values of a type: the end of what describes a field
    in native/plan.c."""

    kind: int
    number: int
    decode: Decode
    encode: Encode | None
    first: Any = None
    second: Any = None
    parts: Any = None


class Functions(NamedTuple):
    """The generated functions of a layout, in the order of native/native.h. A partial decoder has
    the first alone, an index the one of its keys."""

    decode: Callable[..., Any] | None = None
    encode: Callable[..., Any] | None = None
    skip: Callable[..., Any] | None = None
    encode_key: Callable[..., Any] | None = None
    key_of: Callable[..., Any] | None = None
    defer: Callable[..., Any] = defer_large_values


def plan_layout(
    table: TableSchema,
    record: type[Record],
    functions: Functions,
    selected: frozenset[int] | None = None,
) -> Any:
    """Return the plan of a table whose types are bound, for records with the selected fields; with
    none, it only skips."""
    wanted = {f.number for f in table.fields if selected is None or f.number in selected}
    bits = {f.number: at for at, f in enumerate(f for f in table.value_fields if f.optional)}
    key, body = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    for f in table.key_fields if wanted & {*table.key} else ():
        key.append(_describe_field(f, record, f.number in wanted, -1, describe_key(f.type)))
    for f in table.value_fields:
        is_wanted = f.number in wanted
        kind = describe_held(f.type) if is_wanted else describe_unwanted(f.type)
        body.append(_describe_field(f, record, is_wanted, bits.get(f.number, -1), kind))
    reach = len(body)
    while reach and table.value_fields[reach - 1].number not in wanted and selected is not None:
        reach -= 1
    return _plan(record, (*key, *body), len(key), len(key) + reach, len(bits), functions)


def _plan(
    made: type | None,
    fields: Sequence[tuple[Any, ...]],
    keys: int = 0,
    reach: int = 0,
    optional: int = 0,
    functions: tuple[Any, ...] = (),
) -> Any:
    assert accelerator is not None, "the caller has looked"
    return accelerator.Plan(made, tuple(fields), keys, reach, optional, tuple(functions))


def _plan_uuid() -> Any:
    """Return the plan of the two slots of a UUID; None if this Python makes it otherwise."""
    slots = vars(uuid.UUID)
    if not all(isinstance(slots.get(n), MemberDescriptorType) for n in ("int", "is_safe")):
        return None
    number = _describe("INTEGER", 0, Integer().decode, None)
    fields = ("int", ...), ("is_safe", uuid.SafeUUID.unknown)
    return _plan(uuid.UUID, [_field(n, slots[n], -1, default, number) for n, default in fields])


def accelerate_build(components: Sequence[tuple[Field, bool]], build: Build) -> Build:
    """Return what builds the keys of an index on these fields, each descending or not, as `build`
    does."""
    if accelerator is None:
        return build
    fields = [
        _field(
            f.name,
            None,
            0 if f.optional else -1,
            ...,
            describe_index_key(f.type),
            order=-1 if is_descending else 1,
        )
        for f, is_descending in components
    ]
    functions = Functions(encode_key=build)
    fast: Build = _plan(Record, fields, keys=len(fields), functions=functions).encode_key
    return fast


def iterate_of(decode: Callable[..., Any]) -> Iterate | None:
    """Return what reads a page as this function reads a record; None if it is not of a plan."""
    plan = getattr(decode, "__self__", None)
    if accelerator is None or plan is None or type(plan) is not accelerator.Plan:
        return None

    def iterate(rows: Any, *given: Any) -> Iterator[tuple[bytes, Record]]:
        return map(partial(plan.read_row, *given), rows)

    return iterate


def _describe_field(
    f: Field, record: type[Record], is_wanted: bool, bit: int, kind: TypeDescription
) -> tuple[Any, ...]:
    slot = vars(record)[f.name] if is_wanted else None
    default = f.default if f.has_constant else None if f.optional else ...
    return _field(f.name, slot, bit, default, kind)


def _field(
    name: str, slot: Any, bit: int, default: Any, kind: TypeDescription, order: int = 0
) -> tuple[Any, ...]:
    return sys.intern(name), slot, bit, default, order, *kind


def describe_held(kind: ValueType) -> TypeDescription:
    """Describe the type of a record's field, whose values may be blobs."""
    if not isinstance(kind, String | Binary):
        return describe_nested(kind)
    decode = partial(decode_inline_or_blob, kind)
    return _describe(TEXTS[type(kind)], INLINE_SIZE_BYTES_MAX, decode, None)


def describe_unwanted(kind: ValueType) -> TypeDescription:
    """Describe the type of a record's field that is stepped over: by its size, where it tells that
    without looking at the value."""
    described = describe_held(kind)._replace(encode=kind.encode)
    if type(kind) in SIZES:
        return described._replace(kind=_number("FIXED"), number=SIZES[type(kind)])
    if isinstance(kind, Decimal | Date | Enum):
        return described._replace(kind=_number("INTEGER"))
    if isinstance(kind, String | Binary | Json | List | Struct):
        return described._replace(kind=_number("EXTENT"))
    return described


def describe_nested(kind: ValueType, *, is_normal: bool = False) -> TypeDescription:
    """Describe a type whose values are never blobs, in its value encoding. If they are in their
    normal form, as those of indexes are, Python's encoder, which takes other forms, is left out."""
    if isinstance(kind, ZonedTimestamp):
        described = _describe_zoned(kind)
    elif isinstance(kind, Reference):
        described = _describe_reference(kind, is_normal)
    else:
        described = _describe_other(kind, is_normal)
    return described._replace(encode=None) if is_normal else described


def _describe_reference(kind: Reference, is_normal: bool) -> TypeDescription:
    match kind.key:
        case (single,) if single.key_is_value:
            return describe_key(single, is_normal=is_normal)
        case (String() | Binary() as single,):
            return _describe_checked(kind, ESCAPED[type(single)], RECORD_KEY_SIZE_BYTES_MAX)
    parts = _plan(None, [_part(describe_key(part, is_normal=is_normal)) for part in kind.key])
    return _describe_checked(kind, "KEY", parts=parts)


def _describe_other(kind: ValueType, is_normal: bool) -> TypeDescription:
    match kind:
        case String() | Binary():
            return _describe_checked(kind, TEXTS[type(kind)])
        case Decimal(scale):
            unit = decimal.Decimal((0, (1,), -scale))
            return _describe_checked(kind, "DECIMAL", scale, first=MULTIPLY, second=unit)
        case Enum(members=members):
            ids = {name: encode_varint(number) for number, name in members}
            return _describe_checked(kind, "ENUM", first=dict(members), second=ids)
        case List(items):
            item = _part(describe_nested(items, is_normal=is_normal))
            return _describe_checked(kind, "LIST", parts=_plan(None, [item]))
        case Struct():
            return _describe_checked(kind, "STRUCT", parts=_plan_members(kind, is_normal))
        case Uuid() if (slots := _plan_uuid()) is not None:
            return _describe_checked(kind, "UUID", parts=slots)
    return _describe_checked(kind, KINDS.get(type(kind), "PYTHON"))


def _describe_checked(
    kind: ValueType, name: str, number: int = VALUE_SIZE_BYTES_MAX, **more: Any
) -> TypeDescription:
    def encode(value: Any) -> bytes:
        return kind.encode(kind.check(value, kind.name))

    return _describe(name, number, kind.decode, encode, **more)


def _describe_zoned(kind: ZonedTimestamp) -> TypeDescription:
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

    return _describe("ZONED", 0, decode, encode, first=by_number, second=numbers)


def _plan_members(kind: Struct, is_normal: bool) -> Any:
    members = sorted(kind.members, key=lambda member: member.number)
    bits = [member.number for member in members if member.optional]
    made = kind.value_class
    fields = []
    for member in members:
        bit, default = (bits.index(member.number), None) if member.optional else (-1, ...)
        slot = vars(made)[member.name]
        described = describe_nested(member.type, is_normal=is_normal)
        fields.append(_field(member.name, slot, bit, default, described))
    return _plan(made, fields, optional=len(bits))


def describe_key(kind: ValueType, *, is_normal: bool = False) -> TypeDescription:
    """Describe a type in its key encoding."""
    if kind.key_is_value:
        return describe_nested(kind, is_normal=is_normal)

    def encode(value: Any) -> bytes:
        return kind.encode_key(kind.check(value, kind.name))

    name = ESCAPED.get(type(kind), "PYTHON")
    most = RECORD_KEY_SIZE_BYTES_MAX
    return _describe(name, most, kind.decode_key, None if is_normal else encode)


def _part(kind: TypeDescription) -> tuple[Any, ...]:
    """A part without a name: an item of a list, or a part of a key."""
    return _field("", None, -1, ..., kind)


def describe_index_key(kind: ValueType) -> TypeDescription:
    """Describe a type in its index encoding, of the normal form of values: others are left to the
    generated function."""
    if isinstance(kind, Enum):
        ids = {name: kind.encode_index_key(name) for _, name in kind.members}
        return _describe("ENUM", 0, kind.decode, None, first={}, second=ids)
    if type(kind).encode_index_key is not ValueType.encode_index_key:
        return _describe("PYTHON", 0, kind.decode, kind.encode_index_key)
    if isinstance(kind, String | Binary):
        name = ESCAPED[type(kind)]
        return _describe(name, VALUE_SIZE_BYTES_MAX, kind.decode_key, None)
    return describe_key(kind, is_normal=True)


def _describe(
    name: str, number: int, decode: Decode, encode: Encode | None, **more: Any
) -> TypeDescription:
    return TypeDescription(_number(name), number, decode, encode, **more)


def _number(name: str) -> int:
    number: int = getattr(accelerator, name)
    return number
