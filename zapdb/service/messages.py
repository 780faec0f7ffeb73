"""Values of the control plane as messages, and back.

A dataclass and its message have the same fields, by name, and a parameter of a method is a field
of its request. A conversion follows the types, so no field is named a third time. What becomes
what:

| type | field of a message |
|---|---|
| `str`, `Literal`, `int`, `float`, `bool`, `bytes` | the scalar of that kind |
| `datetime` | `int64`, microseconds since 1970-01-01 UTC |
| a dataclass, or a struct of msgspec | a message |
| a union of dataclasses | a message with a `oneof` of the classes' names in snake case |
| `tuple`, `list`, `Sequence` | `repeated` |
| `Mapping`, `dict` with keys of text or numbers | `map<string, …>`, `map<uint64, …>` |
| `Json` | `string`: a text of JSON |
| `GivenDirectory` | the message of `SentDirectory` |
| a class of errors | the message `Error` |
| any of these, or None | the same, `optional` |
"""

from __future__ import annotations

import functools
import json
import keyword
import operator
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from zapdb.answers import public_name
from zapdb.control import Json
from zapdb.errors import ZapdbError
from zapdb.migrations import GivenDirectory, SentDirectory
from zapdb.service.status import from_message, to_message
from zapdb.values.generated_source import Namespace, compile_function

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
SCALARS: Final[Mapping[Any, frozenset[int]]] = {
    str: frozenset({FieldDescriptor.TYPE_STRING}),
    bool: frozenset({FieldDescriptor.TYPE_BOOL}),
    int: frozenset(
        {
            *(FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64),
            *(FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32),
            *(FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_FIXED64),
        }
    ),
    float: frozenset({FieldDescriptor.TYPE_DOUBLE}),
    bytes: frozenset({FieldDescriptor.TYPE_BYTES}),
    datetime: frozenset({FieldDescriptor.TYPE_INT64}),
    Json: frozenset({FieldDescriptor.TYPE_STRING}),
}
"""Which kinds of fields each type without parts may have."""

Descriptor = Any
"""Of a message. The library has two classes for it, in C and in Python, without a common base."""
Change = Callable[[Any], Any]

_encode_json: Final = msgspec.json.Encoder().encode
_decode_json: Final = msgspec.json.Decoder().decode


class Mismatch(TypeError):
    """A type and a message that do not have the same fields."""


@dataclass(frozen=True, slots=True)
class MessageConversion:
    """How values of a type become what a field of a message holds, and back."""

    write: Change
    read: Change


def message_conversion(cls: type[Any], message: type[Message]) -> MessageConversion:
    """The conversion of a dataclass, or of a union of dataclasses; raises `Mismatch`."""
    return _conversion(cls, message.DESCRIPTOR)


def parameter_conversion(
    hints: Mapping[str, Any], message: type[Message], extra: frozenset[str]
) -> MessageConversion:
    """The conversion of the named arguments of a call; the message has the fields `extra`, too.

    Raises `Mismatch`.
    """
    return _of_fields(hints, dict, "value[{!r}]", message.DESCRIPTOR, extra)


def _conversion(hint: Any, descriptor: Descriptor) -> MessageConversion:
    if is_dataclass(hint):
        names = [field.name for field in fields(hint)]
    elif isinstance(hint, type) and issubclass(hint, Struct):
        names = list(hint.__struct_fields__)
    else:
        return _of_union(get_args(hint), descriptor)
    hints = typing.get_type_hints(hint, include_extras=True)
    known = {name: hints[name] for name in names}
    return _of_fields(known, typing.cast(Any, hint), "value.{}", descriptor)


def _of_fields(
    hints: Mapping[str, Any],
    make: Callable[..., Any],
    held: str,
    descriptor: Descriptor,
    extra: frozenset[str] = frozenset(),
) -> MessageConversion:
    """Two functions that are compiled for the type: looking up fields one by one took longer than
    many a method does. `held` is the expression for a field of a value, by its name."""
    described = descriptor.fields_by_name
    _require_same({*map(public_name, hints), *extra}, set(described), descriptor)
    names, written, read = Namespace(), list[str](), list[str]()
    message_class = names.bind(_class_of(descriptor), "message_class")
    made = names.bind(make, "make")
    for name, hint in hints.items():
        public = public_name(name)
        conversion, may_lack = _of_field(hint, described[public])
        is_word = keyword.iskeyword(public)
        found = held.format(name)
        sent = f"getattr(message, {public!r})" if is_word else f"message.{public}"
        if conversion.write is not _same:
            write = names.bind(conversion.write, f"write_{public}")
            found = f"None if (one := {found}) is None else {write}(one)"  # None is not sent
        if conversion.read is not _same:
            sent = f"{names.bind(conversion.read, f'read_{public}')}({sent})"
        if may_lack:
            sent = f"{sent} if message.HasField({public!r}) else None"
        written.append(f"**{{{public!r}: {found}}}" if is_word else f"{public}={found}")
        read.append(f"{name}={sent}")
    return MessageConversion(
        _compile("write", "value", f"{message_class}({', '.join(written)})", names, descriptor),
        _compile("read", "message", f"{made}({', '.join(read)})", names, descriptor),
    )


def _compile(
    name: str, parameter: str, expression: str, names: Namespace, descriptor: Descriptor
) -> Change:
    lines = [f"def {name}({parameter}):", f"    return {expression}"]
    return compile_function(name, lines, names, f"{name} {descriptor.full_name}")[0]


def _of_union(members: Sequence[Any], descriptor: Descriptor) -> MessageConversion:
    names = {member: snake_case(member.__name__) for member in members}
    described = descriptor.fields_by_name
    _require_same(set(names.values()), set(described), descriptor)
    by_name = {
        name: _conversion(member, described[name].message_type) for member, name in names.items()
    }
    (chosen,) = (one.name for one in descriptor.oneofs)
    message_class = _class_of(descriptor)

    def write(value: Any) -> Message:
        name = names[type(value)]
        return message_class(**{name: by_name[name].write(value)})

    def read(message: Any) -> Any:
        name = message.WhichOneof(chosen)
        return None if name is None else by_name[name].read(getattr(message, name))

    return MessageConversion(write, read)


def _of_field(hint: Any, field: FieldDescriptor) -> tuple[MessageConversion, bool]:
    """The conversion of a field, and whether the field may be without a value."""
    members = [member for member in _members(hint) if member is not types.NoneType]
    may_lack = len(members) < len(_members(hint))
    if may_lack and not field.has_presence:
        raise Mismatch(f"{field.full_name} is not optional, and the value may be None")
    if may_lack:
        hint = functools.reduce(operator.or_, members)
    return _of_value(hint, field), may_lack


def _of_value(hint: Any, field: FieldDescriptor) -> MessageConversion:
    hint = _without_bounds(hint)
    origin = get_origin(hint)
    if origin in (tuple, list, Sequence):
        if not field.is_repeated:
            raise Mismatch(f"{field.full_name} is not repeated")
        part = _of_part(get_args(hint)[0], field)
        if part.write is _same:
            return MessageConversion(_same, tuple)
        return MessageConversion(
            lambda value: list(map(part.write, value)),
            lambda found: tuple(map(part.read, found)),
        )
    if origin in (dict, Mapping):
        if field.message_type is None or not field.message_type.GetOptions().map_entry:
            raise Mismatch(f"{field.full_name} is not a map")
        held = _of_part(get_args(hint)[1], field.message_type.fields_by_name["value"])
        return MessageConversion(
            lambda value: {key: held.write(one) for key, one in value.items()} or None,
            # It has no order. Of an empty one, which most are, nothing is asked but its size.
            lambda found: {key: held.read(found[key]) for key in sorted(found)} if found else {},
        )
    if field.is_repeated:
        raise Mismatch(f"{field.full_name} is repeated, and {hint} is one value")
    return _of_part(hint, field)


def _of_part(hint: Any, field: FieldDescriptor) -> MessageConversion:
    if hint == GivenDirectory:
        hint = SentDirectory  # a service gets no other
    hint = _without_bounds(hint)
    if get_origin(hint) is Literal:
        hint = type(get_args(hint)[0])
    if isinstance(hint, type) and issubclass(hint, ZapdbError):
        return MessageConversion(to_message, from_message)
    if hint in SCALARS:
        if field.type not in SCALARS[hint]:
            raise Mismatch(f"{field.full_name} has no kind for {hint}")
        return _of_scalar(hint)
    if field.message_type is None:
        raise Mismatch(f"{field.full_name} is not a message, as {hint} would need")
    return _conversion(hint, field.message_type)


def _without_bounds(hint: Any) -> Any:
    """The type of which it is said within which bounds values are, and not what they are."""
    is_bounded = get_origin(hint) is Annotated and hint not in SCALARS
    return get_args(hint)[0] if is_bounded else hint


def _of_scalar(hint: Any) -> MessageConversion:
    if hint == Json:
        return MessageConversion(_write_json, _read_json)
    if hint is datetime:
        return MessageConversion(
            lambda value: (value - EPOCH) // MICROSECOND,
            lambda found: EPOCH + found * MICROSECOND,
        )
    return MessageConversion(_same, _same)


def _same(value: Any) -> Any:
    return value


def _write_json(value: Any) -> str:
    return _encode_json(value).decode()


def _read_json(text: str) -> Any:
    try:
        return _decode_json(text)
    except ValueError:
        return json.loads(text)  # another implementation may write numbers that are too large


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _require_same(known: set[str], described: set[str], descriptor: Descriptor) -> None:
    if known != described:
        raise Mismatch(
            f"{descriptor.full_name}: not in the message: {sorted(known - described)}, only in the "
            f"message: {sorted(described - known)}"
        )


def _class_of(descriptor: Descriptor) -> type[Message]:

    return GetMessageClass(descriptor)


def snake_case(name: str) -> str:
    """`TableSummary` as `table_summary`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def walk_messages(descriptor: Descriptor) -> Iterator[Descriptor]:
    """A message and all that are in it, each once."""
    found, left = set[str](), [descriptor]
    while left:
        one = left.pop()
        if one.full_name not in found:
            found.add(one.full_name)
            yield one
            left += [field.message_type for field in one.fields if field.message_type is not None]
