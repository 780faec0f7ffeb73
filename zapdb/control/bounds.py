"""What arguments of methods may be: numbers within their ranges, texts and lists of bounded size.

The type of a parameter says its bounds, `Annotated[int, Between(0, 9)]`, and `call_method` checks
all of them before a method runs, for a command as for a service. So no method has to, and no
caller holds a worker or the memory of a service by a number alone. A number without bounds is a
`TypeError` of the method.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeVar, Union, get_args

from zapdb.errors import InvalidValue
from zapdb.limits import (
    ANSWERS_MAX,
    ARGUMENT_ENTRIES_MAX,
    ARGUMENT_LENGTH_CHARS_MAX,
    SEQUENCE_MAX,
)
from zapdb.migrations import GivenDirectory

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")

Check = Callable[[str, Any], None]
"""Raises `InvalidValue` for the value of a parameter, which is named."""


@dataclass(frozen=True, slots=True)
class Between:
    """The range of a number, both ends included; of a list, how many entries it may have."""

    least: float
    most: float


Number = Annotated[int, Between(0, SEQUENCE_MAX)]
"""The number of a migration, a table or a revision, or a seq; or a rate."""
Count = Annotated[int, Between(0, ANSWERS_MAX)]
"""How many answers are wanted at most."""
ANY_ENTRIES: Final = Between(0, ARGUMENT_ENTRIES_MAX)


def call_method(
    method: Callable[Concatenate[T, P], A], target: T, /, *args: P.args, **named: P.kwargs
) -> A:
    """Call a method of the control plane; raises `InvalidValue` for arguments out of bounds."""
    given = _signature(method).bind(target, *args, **named).arguments if args else named
    for name, check in checks_of(method).items():
        if name in given:
            check(name, given[name])
    return method(target, *args, **named)


@cache
def _signature(method: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(method)


@cache
def checks_of(method: Callable[..., Any]) -> Mapping[str, Check]:
    """What is checked of the arguments of a method, by the names of its parameters."""
    hints = typing.get_type_hints(method, include_extras=True)
    found = {name: _check_of(hints[name]) for name in list(_signature(method).parameters)[1:]}
    return {name: check for name, check in found.items() if check is not None}


def _check_of(hint: Any) -> Check | None:
    """What is checked of a value of a type, if anything is."""
    if hint == GivenDirectory:
        return None  # its files have bounds of their own, which are checked as they come
    bounds: Between | None = None
    if typing.get_origin(hint) is Annotated:
        hint, *said = get_args(hint)
        bounds = next((one for one in said if isinstance(one, Between)), None)
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        return _check_if_any(hint)
    if hint in (int, float):
        if bounds is None:
            raise TypeError("the number has no bounds: Annotated[int, Between(…)]")
        return _check_range(bounds)
    if hint is str:
        return _check_length
    if origin in (tuple, list, Sequence):
        return _check_entries(bounds or ANY_ENTRIES, _check_of(get_args(hint)[0]))
    return _check_fields(hint) if is_dataclass(hint) else None


def _check_if_any(hint: Any) -> Check | None:
    checks = [_check_of(one) for one in get_args(hint) if one is not types.NoneType]
    (check,) = checks  # a parameter has one type, or None

    def act(name: str, value: Any) -> None:
        if value is not None and check is not None:
            check(name, value)

    return act


def _check_range(bounds: Between) -> Check:
    def act(name: str, value: Any) -> None:
        if not bounds.least <= value <= bounds.most:  # nan is nowhere
            raise InvalidValue(
                "the number is out of its range",
                parameter=name,
                given=value,
                hint=f"give {bounds.least:,} to {bounds.most:,}",
            )

    return act


def _check_length(name: str, value: str) -> None:
    if len(value) > ARGUMENT_LENGTH_CHARS_MAX:
        raise InvalidValue(
            "the text is too long",
            parameter=name,
            length=len(value),
            hint=f"give at most {ARGUMENT_LENGTH_CHARS_MAX:,} characters",
        )


def _check_entries(bounds: Between, check: Check | None) -> Check:
    def act(name: str, value: Sequence[Any]) -> None:
        if not bounds.least <= len(value) <= bounds.most:
            raise InvalidValue(
                "the list is too long",
                parameter=name,
                entries=len(value),
                hint=f"give at most {bounds.most:,} entries at a time",
            )
        if check is not None:
            for one in value:
                check(name, one)

    return act


def _check_fields(cls: Any) -> Check:
    hints = typing.get_type_hints(cls, include_extras=True)
    checks = {one.name: _check_of(hints[one.name]) for one in fields(cls)}

    def act(name: str, value: Any) -> None:
        for field, check in checks.items():
            if check is not None:
                check(f"{name}.{field}", getattr(value, field))

    return act
