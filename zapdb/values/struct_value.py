"""Records and structs: values with named parts, as objects of generated classes with slots.

The attributes are the parts, in declared order. Names of parts never begin with an underscore, so
no name here can collide with one.

The values are immutable: setting or deleting a part raises `ImmutableRecord`. Lists and objects in
a part are Python's own and can be changed, which changes no stored record.

A value is pickled as the names and values of its parts, so a process can unpickle it without its
database.
"""

from __future__ import annotations

import base64
import copy
import datetime
import hashlib
import re
from collections.abc import Callable, Sequence
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, Self, TypeVar
from weakref import WeakValueDictionary

from zapdb.errors import ImmutableRecord, UnknownField
from zapdb.values.generated_source import Namespace, compile_function, indent
from zapdb.values.immutable import no_item, no_part, open_class, set_attribute
from zapdb.values.to_json import (
    Parts,
    core_schema_of,
    json_schema_of,
    serializer_of,
    to_json,
)

_SHOWN_CHARS_MAX: Final = 200
"""The most characters of one part in the `repr` of a value."""
ETAG_SIZE_BYTES: Final = 16
ETAG: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
"""The form of an etag."""


class StructValue(Parts):
    """Base of the generated classes; values are equal if their names and all parts are equal."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    _open: ClassVar[type[StructValue]]
    """A class with the same parts, which can be set; used while an object is made."""

    # The attributes that frameworks read, so that endpoints can return records: FastAPI uses `vars`
    # of an unknown object, pydantic the others. No part can have one of these names.

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # computed: there are slots
        found: dict[str, Any] = to_json(self)
        return found

    def __dir__(self) -> list[str]:
        return dir(type(self))  # the default reads `__dict__`, which loads large values

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        return core_schema_of(cls)

    @property
    def __pydantic_serializer__(self) -> Any:
        # For values that are declared as `Any`.
        return serializer_of(type(self))  # type: ignore[arg-type]  # its objects are unhashable

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        return json_schema_of(cls)

    if not TYPE_CHECKING:  # a type checker finds these mistakes itself

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(f"{self._name} has no attribute {name!r}", name=name, obj=self)
            raise no_part(self._name, name, self._fields)

        def __getitem__(self, name: object) -> NoReturn:
            raise no_item(self._name, name, self._fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StructValue):
            return NotImplemented
        return (
            self._name == other._name
            and self._fields == other._fields
            and all(is_equal(getattr(self, name), getattr(other, name)) for name in self._fields)
        )

    __hash__ = None  # type: ignore[assignment]  # parts may be lists and objects

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self._show(name)}" for name in self._fields)
        return f"{self._name}({shown})"

    def _show(self, name: str) -> str:
        """Return a part for `repr`: all of it, or its beginning and its size."""
        value = getattr(self, name)
        if isinstance(value, str | bytes) and len(value) > _SHOWN_CHARS_MAX:
            unit = "characters" if isinstance(value, str) else "bytes"
            return f"{value[: _SHOWN_CHARS_MAX // 4]!r}… ({len(value):,} {unit})"
        shown = repr(value)
        return shown if len(shown) <= _SHOWN_CHARS_MAX else f"{shown[:_SHOWN_CHARS_MAX]}…"

    def __reduce__(self) -> tuple[Any, ...]:
        (base,) = type(self).__bases__
        values = tuple(getattr(self, name) for name in self._fields)
        return _rebuild, (base, self._name, self._fields, values)

    def __copy__(self) -> Self:
        return self._with(lambda value: value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._with(lambda value: copy.deepcopy(value, memo))

    def __replace__(self, /, **changes: Any) -> Self:
        """Implement `replace`, and Python's own `copy.replace` (3.13)."""
        made = copy.copy(self)
        for name, value in changes.items():
            if name not in self._fields:
                raise UnknownField.named(self._name, name, self._fields)
            set_attribute(made, name, value)
        return made

    def _with(self, change: Callable[[Any], Any]) -> Self:
        """Return a copy with `change` applied to each part."""
        return type(self)(*(change(getattr(self, name)) for name in self._fields))


def is_equal(left: Any, right: Any) -> bool:
    """Compare as Python compares the items of lists, so that a NaN object is equal to itself."""
    return left is right or bool(left == right)


P = TypeVar("P", bound=StructValue)


def replace(instance: P, /, **changes: Any) -> P:
    """Return a copy of a record or struct with other values of some fields, as
    `dataclasses.replace` does; stores nothing.

    Raises `UnknownField` with the closest name. A table checks the types when the record is
    written to it.
    """
    return instance.__replace__(**changes)


def etag(instance: StructValue, /) -> str:
    """Return a short text that stands for all parts: equal, in any process, if all parts are equal.

    It has 22 characters of printable ASCII without spaces: 128 bits of a hash, which reveal nothing
    of the record. A record that is read at one schema has one etag for all its stored revisions.
    Large values are loaded for it."""
    mark = hashlib.sha256(repr(_mark(instance)).encode()).digest()[:ETAG_SIZE_BYTES]
    return base64.urlsafe_b64encode(mark).decode().rstrip("=")


def _mark(value: Any) -> Any:
    """Return plain numbers and short texts that are equal if and only if the values are."""
    match value:
        case StructValue():
            parts = ((name, _mark(getattr(value, name))) for name in value._fields)
            return value._name, *parts
        case list() | tuple():
            return [_mark(item) for item in value]
        case dict():
            return {key: _mark(value[key]) for key in sorted(value)}
        case str() | bytes():
            raw = value.encode() if isinstance(value, str) else value
            return type(value).__name__, hashlib.sha256(raw).hexdigest()
        case datetime.datetime():
            zone = getattr(value.tzinfo, "key", "")  # empty for an instant, which is in UTC
            return "time", value.replace(tzinfo=None).isoformat(), value.fold, zone
        case None | bool() | float():
            return value
        case int():
            return "int", f"{value:x}"  # Python refuses to write many decimal digits
    return type(value).__name__, str(value)


def make_struct_class(base: type[P], name: str, fields: tuple[str, ...]) -> type[P]:
    """Return a subclass of `base` with a slot and an argument for each part, of the part's name.

    A part whose name is a keyword of Python can only be given by position.
    """
    parameters = [f"_{at}" if iskeyword(part) else part for at, part in enumerate(fields)]
    names = Namespace()
    assign = names.bind(set_attribute, "set_attribute")
    pairs = zip(fields, parameters, strict=True)
    sets = [f"{assign}(_self, {part!r}, {parameter})" for part, parameter in pairs]
    lines = [f"def __init__({', '.join(['_self', *parameters])}):", *indent(sets or ["pass"])]
    initialize, _ = compile_function("__init__", lines, names, f"{base.__name__} {name}")
    body = {
        "__slots__": fields,
        "__match_args__": fields,
        "__init__": initialize,
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "_name": name,
        "_fields": fields,
    }
    made: type[P] = type(name, (base,), body)
    made._open = open_class(made)
    return made


def _refuse_to_set(instance: StructValue, name: str, value: object) -> NoReturn:
    raise ImmutableRecord.named(instance._name, name, instance._fields)


def _refuse_to_delete(instance: StructValue, name: str) -> NoReturn:
    raise ImmutableRecord.named(instance._name, name, instance._fields)


def make_source(
    target: str, made: type[StructValue], values: Sequence[str], names: Namespace
) -> list[str]:
    """Return statements that set `target` to an object with these values, in declared order.

    They do what the constructor does; without its call, an object is made in half the time.
    """
    return [
        f"{target} = {names.bind(made._open, 'Open')}()",
        *_set_source(target, made._fields, values),
        f"{target}.__class__ = {names.bind(made, 'StructValue')}",
    ]


def part_source(instance: str, name: str) -> str:
    """Return an expression for a part of the value in a variable."""
    return f"getattr({instance}, {name!r})" if iskeyword(name) else f"{instance}.{name}"


def _set_source(target: str, fields: Sequence[str], values: Sequence[str]) -> list[str]:
    # A field may be called `class`, which source text can't set as an attribute.
    return [
        f"setattr({target}, {name!r}, {value})" if iskeyword(name) else f"{target}.{name} = {value}"
        for name, value in zip(fields, values, strict=True)
    ]


_classes = WeakValueDictionary[tuple[type[StructValue], str, tuple[str, ...]], type[StructValue]]()
"""The classes in use by a codec or a value; others are dropped, since a process may see many."""


def struct_class(base: type[P], name: str, fields: tuple[str, ...]) -> type[P]:
    """Return the process's one class with these parts."""
    wanted = (base, name, fields)
    known = _classes.get(wanted)
    if known is None:
        known = _classes.setdefault(wanted, make_struct_class(base, name, fields))
    return known  # type: ignore[return-value]  # what is filed under a base is a subclass of it


def _rebuild(
    base: type[StructValue], name: str, fields: tuple[str, ...], values: tuple[Any, ...]
) -> StructValue:
    return struct_class(base, name, fields)(*values)
