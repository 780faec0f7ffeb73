"""Operations as plain data, as they are stored and digested, and back again."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Callable
from typing import Any

from zapdb.migrations.document_structure import ABSENT, Name, Plain, is_choice, keys_of

Build = Callable[[Any], Any]
Recipe = tuple[dict[str, tuple[str, Build]], dict[str, Any], frozenset[str]]


def to_structure(value: Any) -> Any:
    """Plain data of a parsed value, every key present, those absent on purpose left out."""
    if isinstance(value, str | int | None):
        return value
    kind: type = type(value)
    if dataclasses.is_dataclass(kind):
        return {
            name: to_structure(part)
            for name, attribute in _structure_of(kind)
            if (part := getattr(value, attribute)) is not ABSENT
        }
    if isinstance(value, tuple):
        return [to_structure(item) for item in value]
    if isinstance(value, dict):
        return {key: to_structure(item) for key, item in value.items()}
    return value


def from_structure(kind: Any, data: Any) -> Any:
    """Return the value whose structure `data` is; raises `ValueError` and the like if it is none.

    The structure is taken as normalized, since it was checked together with its digest. A database
    reads its whole chain when it is opened, which may be long, so nothing that only documents need
    is made here: no nodes, no locations, no canonical texts. `to_structure` is the inverse.
    """
    return _builder_of(kind)(data)


@functools.cache
def _builder_of(kind: Any) -> Build:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Plain:
        return _build_plain
    if kind is Name or kind in (str, int, bool):
        return functools.partial(_build_scalar, str if kind is Name else kind)
    if origin is typing.Literal:
        return functools.partial(_build_choice, arguments)
    if origin is tuple:
        return functools.partial(_build_items, _builder_of(arguments[0]))
    if origin is dict:
        return functools.partial(_build_entries, _builder_of(arguments[1]))
    return functools.partial(_build_dataclass, kind)


def _build_plain(data: Any) -> Any:
    return data


def _build_scalar(kind: type, data: Any) -> Any:
    if type(data) is not kind:
        raise ValueError(f"{kind.__name__} is needed here")
    return data


def _build_choice(choices: tuple[Any, ...], data: Any) -> Any:
    if not is_choice(data, choices):
        raise ValueError(f"one of {', '.join(map(str, choices))} is needed here")
    return data


def _build_items(build: Build, data: Any) -> tuple[Any, ...]:
    if type(data) is not list:
        raise ValueError("a list is needed here")
    return tuple([build(item) for item in data])


def _build_entries(build: Build, data: Any) -> dict[str, Any]:
    """In order of their names, which is the one that operations keep them in."""
    return {_build_scalar(str, key): build(item) for key, item in sorted(data.items())}


def _build_dataclass(kind: type, data: Any) -> Any:
    attributes, template, required = _recipe_of(kind)
    made: Any = object.__new__(
        kind
    )  # as its constructor makes it of what is normal, in a third of time
    values = vars(made)
    values.update(template)
    for name, item in data.items():
        attribute, build = attributes[name]
        values[attribute] = build(item)
    if not data.keys() >= required:
        raise ValueError(f"keys of {kind.__name__} are missing")
    return made


@functools.cache
def _recipe_of(kind: type) -> Recipe:
    """How a dataclass is built: what each key gives, what absent ones are, which there must be."""
    keys = keys_of(kind).values()
    template = {key.attribute: key.default for key in keys if not key.is_required}
    template |= {
        field.name: field.default
        for field in dataclasses.fields(kind)
        if "location" in field.metadata
    }
    attributes = {key.name: (key.attribute, _builder_of(key.kind)) for key in keys}
    required = frozenset(key.name for key in keys if key.is_required)
    return attributes, template, required


@functools.cache
def _structure_of(kind: type) -> tuple[tuple[str, str], ...]:
    """The keys of a dataclass that are part of its structure, with their attributes."""
    return tuple((name, key.attribute) for name, key in keys_of(kind).items() if not key.is_reason)
