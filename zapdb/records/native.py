"""Plans of the accelerator: how it reads and writes the records of a layout (see `accelerator`).

A function with a plan does what a generated function does, and calls that one with the same
arguments for all that the accelerator does not know. Types are distinguished here; a type
without a kind of its own is read and written by its own methods, field by field.
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
from zapdb.records.record import Record
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
ESCAPED: dict[type[ValueType], str] = {String: "ESCAPED_STRING", Binary: "ESCAPED_BINARY"}
_ESCAPED_END_SIZE = 2
"""The bytes that an escaped text ends with."""
_ESCAPED_KEY_MAX = RECORD_KEY_SIZE_BYTES_MAX - _ESCAPED_END_SIZE

Decode = Callable[[bytes, int], tuple[Any, int]]
Encode = Callable[[Any], bytes]
Build = Callable[[Record], bytes]
Iterate = Callable[..., Iterator[tuple[bytes, Record]]]
"""(rows, prefix, attachments, otherwise) → keys and records: see native/plan.c."""
DECODE, READ_ROW, SKIP, ENCODE, ENCODE_KEY, KEY_OF = range(6)
"""What a function with a plan does, as native/plan.c numbers it."""


class AcceleratorPlan(NamedTuple):
    """What native/plan.c keeps of what is read or written."""

    made: type
    fields: tuple[Any, ...]
    optional: int = 0
    """How many fields have a bit of presence."""
    key: Any = None
    """A function with the plan of a record's key, if any field of it is read."""
    is_whole: bool = True
    """Nothing follows these fields."""


class TypeDescription(NamedTuple):
    """How the accelerator reads and writes the values of a type: the end of what describes a field
    in native/plan.c."""

    kind: int
    number: int
    decode: Decode | None
    encode: Encode | None
    first: Any = None
    second: Any = None
    parts: Any = None


def plan_decode(
    table: TableSchema,
    record: type[Record],
    decode: Callable[..., Any],
    selected: frozenset[int] | None = None,
) -> Any:
    """Return what reads records, or the selected fields of them. The table's types are bound."""
    wanted = {f.number for f in table.fields if selected is None or f.number in selected}
    has_key = not wanted.isdisjoint(table.key)
    key = plan_key(DECODE, table, record, decode, wanted) if has_key else None
    fields = _describe_body(table, record, wanted)
    reach = len(fields)
    while reach and selected is not None and table.value_fields[reach - 1].number not in wanted:
        reach -= 1
    is_whole = reach == len(fields)
    plan = AcceleratorPlan(record, tuple(fields[:reach]), _count_bits(table), key, is_whole)
    return _make(DECODE, decode, plan)


def plan_skip(table: TableSchema, record: type[Record], skip: Callable[..., Any]) -> Any:
    """Return what steps over a record."""
    fields = _describe_body(table, record, set())
    return _make(
        SKIP, skip, AcceleratorPlan(record, tuple(fields), _count_bits(table), is_whole=False)
    )


def plan_encode(table: TableSchema, record: type[Record], encode: Callable[..., Any]) -> Any:
    """Return what writes records."""
    named = _describe("NAMED", 0, None, None)
    key = [_field(f.name, -1, -1, None, named) for f in table.key_fields]
    body = _describe_body(table, record, {f.number for f in table.fields})
    return _make(ENCODE, encode, AcceleratorPlan(record, (*key, *body), _count_bits(table)))


def plan_key(
    method: int,
    table: TableSchema,
    record: type[Record],
    python: Callable[..., Any],
    wanted: set[int] | None = None,
) -> Any:
    """Return what writes, or reads into a record, keys of records."""
    fields = [
        _describe_field(f, record, wanted is None or f.number in wanted, -1, describe_key(f.type))
        for f in table.key_fields
    ]
    return _make(method, python, AcceleratorPlan(record, tuple(fields)))


def _describe_body(
    table: TableSchema, record: type[Record], wanted: set[int]
) -> list[tuple[Any, ...]]:
    bits = {f.number: at for at, f in enumerate(f for f in table.value_fields if f.optional)}
    fields = []
    for f in table.value_fields:
        is_wanted = f.number in wanted
        kind = describe_held(f.type) if is_wanted else describe_unwanted(f.type)
        fields.append(_describe_field(f, record, is_wanted, bits.get(f.number, -1), kind))
    return fields


def _count_bits(table: TableSchema) -> int:
    return sum(f.optional for f in table.value_fields)


def _make(method: int, python: Callable[..., Any] | None, plan: AcceleratorPlan) -> Any:
    assert accelerator is not None, "the caller has looked"
    return accelerator.make(method, python, *plan)


def _plan_parts(made: type, fields: Sequence[Any], optional: int = 0) -> Any:
    """The plan of what is a part of others, and never called."""
    return _make(DECODE, None, AcceleratorPlan(made, tuple(fields), optional))


def _plan_uuid() -> Any:
    """Return the plan of the two slots of a UUID; None if this Python makes it otherwise."""
    slots = vars(uuid.UUID)
    if not all(isinstance(slots.get(n), MemberDescriptorType) for n in ("int", "is_safe")):
        return None
    number, nothing = _describe("UNSIGNED", 0, None, None), _describe("NAMED", 0, None, None)
    return _plan_parts(
        uuid.UUID,
        (
            _field("int", slots["int"], -1, ..., number),
            _field("is_safe", slots["is_safe"], -1, uuid.SafeUUID.unknown, nothing),
        ),
    )


def accelerate_build(components: Sequence[tuple[Field, bool]], build: Build) -> Build:
    """Return what builds the keys of an index on these fields, each descending or not, as `build`
    does."""
    if accelerator is None:
        return build
    fields = [
        _field(
            f.name,
            -1,
            0 if f.optional else -1,
            ...,
            describe_index_key(f.type),
            order=-1 if is_descending else 1,
        )
        for f, is_descending in components
    ]
    fast: Build = _make(ENCODE_KEY, build, AcceleratorPlan(Record, tuple(fields)))
    return fast


def iterate_of(decode: Callable[..., Any]) -> Iterate | None:
    """Return what reads a page as this function reads a record; None if it has no plan."""
    own = getattr(decode, "__self__", None)
    if accelerator is None or type(own) is not tuple:
        return None
    _, (_, _, *plan) = own
    read_row = _make(READ_ROW, _read_row, AcceleratorPlan(*plan))

    def iterate(rows: Any, *given: Any) -> Iterator[tuple[bytes, Record]]:
        return map(partial(read_row, *given), rows)

    return iterate


def _read_row(
    _prefix: bytes, _attachments: Any, otherwise: Callable[[bytes, bytes], Record], row: Any
) -> tuple[bytes, Record]:
    """Read a row of another revision, or of a record that is declined."""
    _, key, data = row
    return key, otherwise(key, data)


def _describe_field(
    f: Field, record: type[Record], is_wanted: bool, bit: int, kind: TypeDescription
) -> tuple[Any, ...]:
    slot = vars(record)[f.name] if is_wanted else -1
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
    if kind.fixed_size_bytes is not None:
        return described._replace(kind=_number("FIXED"), number=kind.fixed_size_bytes)
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
            return _describe_checked(kind, ESCAPED[type(single)], _ESCAPED_KEY_MAX)
    key = [
        _field("", tuple.__basicsize__ + at * tuple.__itemsize__, -1, ..., described)
        for at, described in enumerate(describe_key(p, is_normal=is_normal) for p in kind.key)
    ]
    parts = _plan_parts(tuple, key)
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
            item = _field("", -1, -1, ..., describe_nested(items, is_normal=is_normal))
            return _describe_checked(kind, "LIST", parts=_plan_parts(list, [item]))
        case Struct():
            return _describe_checked(kind, "STRUCT", parts=_plan_members(kind, is_normal))
        case Uuid() if (slots := _plan_uuid()) is not None:
            return _describe_checked(kind, "KEY", parts=slots)
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
    return _plan_parts(made, fields, len(bits))


def describe_key(kind: ValueType, *, is_normal: bool = False) -> TypeDescription:
    """Describe a type in its key encoding."""
    if kind.key_is_value:
        return describe_nested(kind, is_normal=is_normal)

    def encode(value: Any) -> bytes:
        return kind.encode_key(kind.check(value, kind.name))

    name = ESCAPED.get(type(kind), "PYTHON")
    return _describe(name, _ESCAPED_KEY_MAX, kind.decode_key, None if is_normal else encode)


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
        return _describe(name, VALUE_SIZE_BYTES_MAX - _ESCAPED_END_SIZE, kind.decode_key, None)
    return describe_key(kind, is_normal=True)


def _describe(
    name: str, number: int, decode: Decode | None, encode: Encode | None, **more: Any
) -> TypeDescription:
    return TypeDescription(_number(name), number, decode, encode, **more)


def _number(name: str) -> int:
    number: int = getattr(accelerator, name)
    return number
