"""Records and structs: values with named parts, as objects of generated classes with slots.

Attributes are the parts in declared order. Names of parts never
begin with an underscore, so nothing here can collide with one.

They are immutable: setting or deleting a part raises `ImmutableRecord`. Lists and objects in a
part are Python's own, and can be changed; that changes no stored record.

A value is pickled as the names and values of its parts, so it can be unpickled in a process that
knows nothing of the database that it came from.
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
from zapdb.values.immutable import open_class, set_attribute
from zapdb.values.source import Namespace, compile_function, indent
from zapdb.values.struct_habits import no_item, no_part
from zapdb.values.to_json import (
    Parts,
    core_schema_of,
    json_schema_of,
    serializer_of,
    to_json,
)

_SHOWN_CHARS_MAX: Final = 200
"""Of one part, in what a value looks like when it is printed."""
ETAG_SIZE_BYTES: Final = 16
ETAG: Final = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)
"""What an etag looks like."""


class StructValue(Parts):
    """Base of the generated classes; equal when of the same name and equal in every part."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    _open: ClassVar[type[StructValue]]
    """The class with the same parts, but with parts that can be set, for objects that are being
    made."""

    # What frameworks ask an object for, so that endpoints can return records: FastAPI takes `vars`
    # of what it does not know, and pydantic the others. None is a name that a part can have.

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # computed: there are slots
        found: dict[str, Any] = to_json(self)
        return found

    def __dir__(self) -> list[str]:
        return dir(type(self))  # else it asks for `__dict__`, which reads large values

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> Any:
        return core_schema_of(cls)

    @property
    def __pydantic_serializer__(self) -> Any:
        # For what is declared as `Any`, or is inside of it. mypy takes the class for unhashable,
        # since its objects are.
        return serializer_of(type(self))  # type: ignore[arg-type]

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
        """A part as it is printed: the whole of it, or how it begins and how large it is."""
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
        """What `replace`, and Python's own `copy.replace` (3.13), make."""
        made = copy.copy(self)
        for name, value in changes.items():
            if name not in self._fields:
                raise UnknownField.named(self._name, name, self._fields)
            set_attribute(made, name, value)
        return made

    def _with(self, change: Callable[[Any], Any]) -> Self:
        """The same with `change` applied to each part."""
        return type(self)(*(change(getattr(self, name)) for name in self._fields))


def is_equal(left: Any, right: Any) -> bool:
    """As Python compares the items of lists: a NaN is equal to itself, as the same object."""
    return left is right or bool(left == right)


P = TypeVar("P", bound=StructValue)


def replace(instance: P, /, **changes: Any) -> P:
    """A new record, or struct, with other values of some fields, as `dataclasses.replace` makes it.

    Raises `UnknownField`, with the closest name. Types are not checked here, but when the values
    are written, by the table that they are written to. Nothing is stored by this.
    """
    return instance.__replace__(**changes)


def etag(instance: StructValue, /) -> str:
    """A short text that stands for all parts: equal where they are, in any process.

    It is 22 characters of printable ASCII without spaces: 128 bits of a hash, which reveal nothing
    of the record. A record that is read at one schema has one etag, whatever revision it is stored
    at. Large values are read for it.
    """
    mark = hashlib.sha256(repr(_mark(instance)).encode()).digest()[:ETAG_SIZE_BYTES]
    return base64.urlsafe_b64encode(mark).decode().rstrip("=")


def _mark(value: Any) -> Any:
    """Plain values, of numbers and short texts alone, that are equal where these are."""
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
            zone = getattr(value.tzinfo, "key", "")  # without it: the instant, in UTC
            return "time", value.replace(tzinfo=None).isoformat(), value.fold, zone
        case None | bool() | float():
            return value
        case int():
            return "int", f"{value:x}"  # of a long one, Python writes no decimal digits
    return type(value).__name__, str(value)


def make_struct_class(base: type[P], name: str, fields: tuple[str, ...]) -> type[P]:
    """A subclass of `base` with one argument and slot per part, named like it.

    A word of Python's own is no name of a parameter: such a part is given by its place alone.
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
    """Statements that set `target` to an object with these values, its parts in declared order.

    They do what the constructor does; without the call, making an object takes half the time.
    """
    return [
        f"{target} = {names.bind(made._open, 'Open')}()",
        *_set_source(target, made._fields, values),
        f"{target}.__class__ = {names.bind(made, 'StructValue')}",
    ]


def part_source(instance: str, name: str) -> str:
    """An expression for a part of the value that a variable holds."""
    return f"getattr({instance}, {name!r})" if iskeyword(name) else f"{instance}.{name}"


def _set_source(target: str, fields: Sequence[str], values: Sequence[str]) -> list[str]:
    # `class` and the like are good names for a field, but no attribute that source text can set.
    return [
        f"setattr({target}, {name!r}, {value})" if iskeyword(name) else f"{target}.{name} = {value}"
        for name, value in zip(fields, values, strict=True)
    ]


_classes = WeakValueDictionary[tuple[type[StructValue], str, tuple[str, ...]], type[StructValue]]()
"""The classes that a codec or a value still uses: a process may see any number of them."""


def struct_class(base: type[P], name: str, fields: tuple[str, ...]) -> type[P]:
    """Return the class with these parts; there is one per process, so that all such values share
    it."""
    wanted = (base, name, fields)
    known = _classes.get(wanted)
    if known is None:
        known = _classes.setdefault(wanted, make_struct_class(base, name, fields))
    return known  # type: ignore[return-value]  # what is filed under a base is a subclass of it


def _rebuild(
    base: type[StructValue], name: str, fields: tuple[str, ...], values: tuple[Any, ...]
) -> StructValue:
    return struct_class(base, name, fields)(*values)
