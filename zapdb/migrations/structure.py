"""Dataclasses as the definition of documents: nodes are parsed by the annotations.

One mechanism reads migration files and stored structures, and writes the canonical structure: the
same mapping with every default filled in. An unknown key, a missing one, a wrong kind of value is a
violation with its place; all of them are collected.

Annotations understood: `Name`, `str`, `int`, `bool`, `Literal[…]`, `Plain` (any data),
`tuple[X, …]`, `dict[Name, X]`, `X | None`, and dataclasses. A field's metadata may give the `key`
it has in documents; a class with `from_scalar` may also be written as one name.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from typing import Any, Final, NewType

from zapdb.errors import InvalidMigration, Location, NotExhaustive, Violation
from zapdb.limits import NAME_LENGTH_MAX
from zapdb.migrations.document import Mapping, Node, Scalar, Sequence, Source, plain

Name = NewType("Name", str)
"""A table's, field's or index's name."""

Plain = NewType("Plain", object)
"""Any plain data; what it must be is known only once the schema is."""

NAME: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
RESERVED: Final = ("zapdb",)


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final[Any] = _Absent()
"""The default of an optional key whose absence differs from null."""


class Refused(Exception):
    """Stops the parsing of one value; the violation is already noted."""


class Reporter:
    """Collects the violations of one document."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.violations: list[Violation] = []
        self.unresolved: list[Violation] = []

    def report(self, location: Location, message: str, hint: str = "") -> None:
        self.violations.append(self.source.violation(location, message, hint))

    def report_not_exhaustive(self, location: Location, message: str, hint: str) -> None:
        """Note that a rollback can't be inferred and is not declared."""
        self.unresolved.append(self.source.violation(location, message, hint))

    def raise_violations(self) -> None:
        kind = InvalidMigration if self.violations else NotExhaustive
        found = sorted(self.violations + self.unresolved, key=_place_of)
        if found:
            raise kind(found)


def _place_of(violation: Violation) -> tuple[int, int]:
    return violation.location.line, violation.location.column


def key_of(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("key", field.name))


@functools.cache
def _annotations(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def parse(kind: Any, node: Node, reporter: Reporter) -> Any:
    """The value of type `kind` that `node` describes; raises `Refused` after reporting why not."""
    origin = typing.get_origin(kind)
    if kind is Plain:
        return plain(node)
    if kind is Name:
        return _parse_name(node, reporter)
    if kind in (str, int, bool):
        return _parse_scalar(kind, node, reporter)
    if origin is typing.Literal:
        choices = typing.get_args(kind)
        if isinstance(node, Scalar) and node.value in choices:
            return node.value
        raise _refuse(reporter, node, f"one of {', '.join(map(str, choices))} is needed here")
    if origin is tuple:
        return _parse_items(typing.get_args(kind)[0], node, reporter)
    if origin is dict:
        return _parse_entries(typing.get_args(kind)[1], node, reporter)
    if origin is types.UnionType:
        (inner,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
        return parse(inner, node, reporter)
    if isinstance(node, Scalar) and "from_scalar" in vars(kind):  # its own, not an inherited one
        return kind.from_scalar(_parse_name(node, reporter), node)
    return _parse_dataclass(kind, node, reporter)


def _refuse(reporter: Reporter, node: Node, message: str, hint: str = "") -> Refused:
    reporter.report(node.location, message, hint)
    return Refused()


def _parse_name(node: Node, reporter: Reporter) -> str:
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        raise _refuse(reporter, node, "a name is needed here")
    if not NAME.fullmatch(node.value) or len(node.value) > NAME_LENGTH_MAX:
        hint = f"a to z first, then a to z, 0 to 9 and _, at most {NAME_LENGTH_MAX} characters"
        raise _refuse(reporter, node, f"{node.value!r} is not a name", hint)
    if node.value.startswith(RESERVED):
        raise _refuse(reporter, node, f"{node.value!r}: names that begin with zapdb are reserved")
    return node.value


def _parse_scalar(kind: type, node: Node, reporter: Reporter) -> Any:
    words = {str: "text", int: "an integer", bool: "true or false"}
    if not isinstance(node, Scalar) or type(node.value) is not kind:
        hint = "quote it" if kind is str and isinstance(node, Scalar) else ""
        raise _refuse(reporter, node, f"{words[kind]} is needed here", hint)
    return node.value


def _parse_items(kind: Any, node: Node, reporter: Reporter) -> tuple[Any, ...]:
    if not isinstance(node, Sequence):
        raise _refuse(reporter, node, "a list is needed here")
    return tuple(_parse_each([(item, kind) for item in node.items], reporter))


def _parse_entries(kind: Any, node: Node, reporter: Reporter) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise _refuse(reporter, node, "a mapping of names is needed here")
    keys: list[tuple[Any, Any]] = [(Scalar(key, node.keys[key]), Name) for key in node.entries]
    values = [(value, kind) for value in node.entries.values()]
    parsed = _parse_each(keys + values, reporter)
    return dict(zip(parsed[: len(keys)], parsed[len(keys) :], strict=True))


def _parse_each(pairs: list[tuple[Any, Any]], reporter: Reporter) -> list[Any]:
    """Parse all, so that every violation is found, then stop if one was refused."""
    parsed, refused = [], False
    for node, kind in pairs:
        try:
            parsed.append(parse(kind, node, reporter))
        except Refused:
            refused = True
    if refused:
        raise Refused
    return parsed


def _parse_dataclass(kind: type, node: Node, reporter: Reporter) -> Any:
    if not isinstance(node, Mapping):
        raise _refuse(reporter, node, "a mapping is needed here")
    fields = {key_of(field): field for field in dataclasses.fields(kind)}
    known = {key: field for key, field in fields.items() if "location" not in field.metadata}
    refused = False
    for key, location in node.keys.items():
        if key not in known:
            reporter.report(location, f"unknown key {key!r}", f"there are: {', '.join(known)}")
            refused = True
    values: dict[str, Any] = {}
    for key, field in known.items():
        required = field.default is dataclasses.MISSING and (
            field.default_factory is dataclasses.MISSING
        )
        if key in node.entries:
            try:
                values[field.name] = parse(
                    _annotations(kind)[field.name], node.entries[key], reporter
                )
            except Refused:
                refused = True
        elif required:
            reporter.report(node.location, f"the key {key!r} is missing")
            refused = True
    if refused:
        raise Refused
    for field in fields.values():
        if "location" in field.metadata:
            values[field.name] = node.location
    return kind(**values)


def located() -> Any:
    """A field that holds where the value stands; no part of its value or of its structure."""
    return dataclasses.field(
        default=Location("<stored>"), compare=False, repr=False, metadata={"location": True}
    )


def reason() -> Any:
    """An optional key that tells people why: parsed, but no part of the structure or its digest."""
    return dataclasses.field(default=ABSENT, compare=False, metadata={"reason": True})


def to_structure(value: Any) -> Any:
    """Plain data of a parsed value, every key present, those absent on purpose left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            key_of(field): to_structure(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not field.metadata.keys() & {"location", "reason"}
            and getattr(value, field.name) is not ABSENT
        }
    if isinstance(value, tuple):
        return [to_structure(item) for item in value]
    if isinstance(value, dict):
        return {key: to_structure(item) for key, item in value.items()}
    return value
