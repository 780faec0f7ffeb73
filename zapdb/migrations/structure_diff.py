"""The structural difference of two migrations, by the names of the objects that differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

import cbor2

from zapdb.limits import VIOLATIONS_SHOWN_MAX


class _Shown(str):
    """A text that is shown as it is, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


_ABSENT: Final = _Shown("(absent)")
PARTS: Final = ("changes", "rollback")
OBJECT_KEYS: Final = ("field", "index", "check", "type", "into")
"""Keys of an operation that name its object, in addition to its table."""


@dataclass(frozen=True)
class _Place:
    """Where a value is: the object that it belongs to, and the keys inside that object."""

    is_rollback: bool = False
    subject: str = ""
    keys: str = ""

    def key(self, name: str) -> _Place:
        return replace(self, keys=f"{self.keys}.{name}" if self.keys else name)

    def element(self, at: int) -> _Place:
        return replace(self, keys=f"{self.keys}[{at}]")

    def inside(self, name: str) -> _Place:
        """In an object of this name that belongs to the present one, as a field to its table."""
        return replace(self, subject=f"{self.subject}.{name}" if self.subject else name, keys="")

    def __str__(self) -> str:
        subject = f"rollback of {self.subject}" if self.is_rollback else self.subject
        return f"{subject}: {self.keys} " if self.subject else f"{self.keys}: "


_Difference = tuple[_Place, Any, Any]


def diff_structures(stored: bytes, given: bytes) -> list[str]:
    """Lines such as `people.fax: type 'string' stored, 'integer' in the file`."""
    lines = [
        f"{place}{_show(left)} stored, {_show(right)} in the file"
        for place, left, right in _diff_migrations(cbor2.loads(stored), cbor2.loads(given))
    ]
    if len(lines) > VIOLATIONS_SHOWN_MAX:
        rest = len(lines) - VIOLATIONS_SHOWN_MAX
        lines = [*lines[:VIOLATIONS_SHOWN_MAX], f"… and {rest} more"]
    return lines


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"


def _diff_migrations(left: dict[str, Any], right: dict[str, Any]) -> Iterator[_Difference]:
    for key in sorted(left.keys() | right.keys()):
        mine, theirs = left.get(key, _ABSENT), right.get(key, _ABSENT)
        if key in PARTS and isinstance(mine, list) and isinstance(theirs, list):
            yield from _diff_operations(key, mine, theirs)
        else:
            yield from _diff(_Place(keys=key), mine, theirs)


def _diff_operations(part: str, left: list[Any], right: list[Any]) -> Iterator[_Difference]:
    """Operations are compared in their order; two that do the same, key by key."""
    for at, (mine, theirs) in enumerate(zip_longest(left, right, fillvalue=_ABSENT)):
        if isinstance(mine, dict) and isinstance(theirs, dict) and mine.keys() == theirs.keys():
            for operation, parameters in mine.items():
                place = _Place(is_rollback=part == "rollback", subject=_subject(parameters))
                yield from _diff_values(place, parameters, theirs[operation])
        else:
            yield _Place(keys=f"{part}[{at}]"), _describe(mine), _describe(theirs)


def _describe(operation: Any) -> _Shown:
    if not isinstance(operation, dict):
        return _ABSENT
    return _Shown(", ".join(f"{name} of {_subject(of)}" for name, of in operation.items()))


def _subject(parameters: dict[str, Any]) -> str:
    """What an operation is about: `people`, `people.fax`, `people.by_name`, or a type's name."""
    named = [parameters.get("table")]
    for key in OBJECT_KEYS:
        value = parameters.get(key)
        named.append(value.get("name") if isinstance(value, dict) else value)
    return ".".join([name for name in named if isinstance(name, str)][:2])


def _diff(place: _Place, left: Any, right: Any) -> Iterator[_Difference]:
    if isinstance(left, dict) and isinstance(right, dict):
        yield from _diff_values(place, left, right)
    elif isinstance(left, list) and isinstance(right, list):
        if left and right and all(_is_named(value) for value in (*left, *right)):
            yield from _diff_named(place, left, right)
        else:
            yield from _diff_elements(place, left, right)
    elif left != right or type(left) is not type(right):
        yield place, left, right


def _diff_values(
    place: _Place, left: dict[str, Any], right: dict[str, Any]
) -> Iterator[_Difference]:
    for key in sorted(left.keys() | right.keys()):
        inner = place if key == "field" and _is_named(left.get(key)) else place.key(key)
        yield from _diff(inner, left.get(key, _ABSENT), right.get(key, _ABSENT))


def _diff_elements(place: _Place, left: list[Any], right: list[Any]) -> Iterator[_Difference]:
    for at, (mine, theirs) in enumerate(zip_longest(left, right, fillvalue=_ABSENT)):
        yield from _diff(place.element(at), mine, theirs)


def _is_named(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str)


def _diff_named(place: _Place, left: list[Any], right: list[Any]) -> Iterator[_Difference]:
    """Fields and the like are compared by their names, so one more is one line."""
    mine = {value["name"]: value for value in left}
    theirs = {value["name"]: value for value in right}
    shared = [name for name in mine if name in theirs]
    for name in dict.fromkeys((*mine, *theirs)):
        if name in shared:
            yield from _diff_values(place.inside(name), mine[name], theirs[name])
        else:
            yield place, *((name, _ABSENT) if name in mine else (_ABSENT, name))
    other_order = [name for name in theirs if name in mine]
    if shared != other_order:
        yield place, shared, other_order
