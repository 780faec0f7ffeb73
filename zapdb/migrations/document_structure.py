"""Dataclasses as the definition of documents: nodes are parsed by the annotations.

One mechanism reads migration files and stored structures, and writes the canonical structure: the
same mapping with every default filled in. An unknown key, a missing one, a wrong kind of value is a
violation with its place; all of them are collected.

Annotations understood: `Name`, `str`, `int`, `bool`, `Literal[…]`, `Plain` (any data),
`tuple[X, …]`, `dict[Name, X]`, `X | None`, and dataclasses. A field's metadata may give the `key`
it has in documents; a class with `from_scalar` may also be written as one name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NewType

from zapdb.errors import InvalidMigration, Location, NotExhaustive, Violation, suggest
from zapdb.limits import NAME_LENGTH_MAX, SUMMARY_LENGTH_CHARS_MAX, VIOLATIONS_SHOWN_MAX
from zapdb.migrations.did_you_mean_key import KEY_EXAMPLES, KEY_HABITS, KEY_NOTES, fix_name, hint_at
from zapdb.migrations.document import DocumentText, Mapping, Node, Scalar, Sequence, as_plain_data

Name = NewType("Name", str)
"""A table's, field's or index's name."""

Plain = NewType("Plain", object)
"""Any plain data; what it must be is known only once the schema is."""

Read = Callable[[Node, "ViolationCollector"], Any]
"""Parses values of one type."""

NAME: Final = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
RESERVED: Final = ("zapdb",)


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"


ABSENT: Final[Any] = _Absent()
"""The default of an optional key whose absence differs from null."""


class ParsingStopped(Exception):
    """Stops the parsing of one value; the violation is already noted."""


class ViolationCollector:
    """Collects the violations of one document."""

    def __init__(self, source: DocumentText) -> None:
        self.source = source
        self.violations: list[Violation] = []
        self.unresolved: list[Violation] = []
        self._context = ""
        self._added_hint = ""

    def report(self, location: Location, message: str, hint: str = "") -> None:
        hint = "; ".join(filter(None, (hint, self._added_hint)))
        self.violations.append(Violation(location, self._context + message, hint))

    @contextlib.contextmanager
    def within(self, context: str, added_hint: str) -> Iterator[None]:
        """Say of violations that are reported inside where they come from, and what else helps."""
        self._context, self._added_hint = f"{context}: ", added_hint
        try:
            yield
        finally:
            self._context = self._added_hint = ""

    def report_not_exhaustive(self, location: Location, message: str, hint: str) -> None:
        """Note that a rollback can't be inferred and is not declared."""
        self.unresolved.append(Violation(location, message, hint))

    def raise_violations(self) -> None:
        kind = InvalidMigration if self.violations else NotExhaustive
        found = sorted(self.violations + self.unresolved, key=_place_of)
        if found:
            shown = found[:VIOLATIONS_SHOWN_MAX]  # excerpts are made for these alone
            placed = [self.source.violation(v.location, v.message, v.hint) for v in shown]
            raise kind(placed, len(found) - len(shown))


def _place_of(violation: Violation) -> tuple[int, int]:
    return violation.location.line, violation.location.column


def key_of(field: dataclasses.Field[Any]) -> str:
    return str(field.metadata.get("key", field.name))


@dataclass(frozen=True, slots=True)
class Key:
    """A key of the mappings that describe a dataclass: the attribute it gives, and its values."""

    name: str
    attribute: str
    kind: Any
    is_required: bool
    is_reason: bool
    default: Any
    """`ABSENT` where there is none."""


@functools.cache
def keys_of(kind: type) -> dict[str, Key]:
    """The keys of a dataclass by name, in order; where it stands is none of them."""
    annotations = typing.get_type_hints(kind)
    keys = {}
    for field in dataclasses.fields(kind):
        if "location" in field.metadata:
            continue
        name, default = key_of(field), field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        is_required = default is dataclasses.MISSING
        keys[name] = Key(
            name,
            field.name,
            annotations[field.name],
            is_required,
            "reason" in field.metadata,
            ABSENT if is_required else default,
        )
    return keys


def takes_scalar(kind: type) -> bool:
    """Whether one name is enough in documents: by a method of its own, not an inherited one."""
    return "from_scalar" in vars(kind)


def parse_value(kind: Any, node: Node, collector: ViolationCollector) -> Any:
    """The value of type `kind` that `node` describes; raises `ParsingStopped`, and reports why."""
    return reader_of(kind)(node, collector)


def parse_at(kind: type, node: Node, collector: ViolationCollector, place: Location) -> Any:
    """As `parse_value`, for a dataclass that stands at `place`: at a key, not at its value."""
    return _parse_dataclass(kind, node, collector, place)


@functools.cache
def reader_of(kind: Any) -> Read:
    """Return the parser of values of this type: annotations are evaluated once, not for every
    node."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Plain:
        return _parse_plain
    if kind is Name:
        return _parse_name
    if kind in (str, int, bool):
        return functools.partial(_parse_scalar, kind)
    if origin is typing.Literal:
        return functools.partial(_parse_choice, arguments)
    if origin is tuple:
        return functools.partial(_parse_items, reader_of(arguments[0]))
    if origin is dict:
        return functools.partial(_parse_entries, reader_of(arguments[1]))
    if origin is types.UnionType:
        (inner,) = (option for option in arguments if option is not types.NoneType)
        return reader_of(inner)
    if takes_scalar(kind):
        return functools.partial(_parse_scalar_or_dataclass, kind)
    return functools.partial(_parse_dataclass, kind)


def _refuse(
    collector: ViolationCollector, node: Node, message: str, hint: str = ""
) -> ParsingStopped:
    collector.report(node.location, message, hint)
    return ParsingStopped()


def _parse_plain(node: Node, collector: ViolationCollector) -> Any:
    return as_plain_data(node)


def _parse_name(node: Node, collector: ViolationCollector) -> str:
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        raise _refuse(collector, node, "a name is needed here")
    fault = _fault_in_name(node.value)
    if fault:
        raise _refuse(collector, node, *fault)
    return node.value


@functools.lru_cache(maxsize=4096)
def _fault_in_name(text: str) -> tuple[str, ...]:
    """Message and hint; empty for a name. Kept, since a chain says the same names over and over."""
    if not NAME.fullmatch(text) or len(text) > NAME_LENGTH_MAX:
        return f"{text!r} is not a name", fix_name(text)
    if text.startswith(RESERVED):
        return (f"{text!r}: names that begin with zapdb are reserved",)
    return ()


def _parse_scalar(kind: type, node: Node, collector: ViolationCollector) -> Any:
    if not isinstance(node, Scalar) or type(node.value) is not kind:
        words = {str: "text", int: "an integer", bool: "true or false"}
        hint = "quote it" if kind is str and isinstance(node, Scalar) else ""
        raise _refuse(collector, node, f"{words[kind]} is needed here", hint)
    return node.value


def _parse_choice(choices: tuple[Any, ...], node: Node, collector: ViolationCollector) -> Any:
    if isinstance(node, Scalar) and is_choice(node.value, choices):
        return node.value
    shown = [str(c).lower() if isinstance(c, bool) else str(c) for c in choices]
    given = node.value if isinstance(node, Scalar) else None
    hint = suggest(given.lower(), shown) if isinstance(given, str) else ""
    raise _refuse(collector, node, f"one of {', '.join(shown)} is needed here", hint)


def is_choice(value: Any, choices: tuple[Any, ...]) -> bool:
    """Whether a value is one of these; 1 is not true."""
    return any(type(value) is type(choice) and value == choice for choice in choices)


def _parse_items(read: Read, node: Node, collector: ViolationCollector) -> tuple[Any, ...]:
    if not isinstance(node, Sequence):
        hint = "begin each entry with a dash, or put all in [ ]"
        if isinstance(node, Scalar):
            hint = f"write [{node.value}], even for one"
        raise _refuse(collector, node, "a list is needed here", hint)
    return tuple(_parse_each(read, node.items, collector))


def _parse_entries(read: Read, node: Node, collector: ViolationCollector) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise _refuse(collector, node, "a mapping of names is needed here")
    names = [Scalar(key, location) for key, location in node.keys.items()]
    refused = False
    try:
        _parse_each(_parse_name, names, collector)
    except ParsingStopped:
        refused = True
    values = _parse_each(read, node.entries.values(), collector)
    if refused:
        raise ParsingStopped
    return dict(zip(node.entries, values, strict=True))


def _parse_each(read: Read, nodes: Iterable[Node], collector: ViolationCollector) -> list[Any]:
    """Parse all, so that every violation is found, then stop if one was refused."""
    parsed, refused = [], False
    for node in nodes:
        try:
            parsed.append(read(node, collector))
        except ParsingStopped:
            refused = True
    if refused:
        raise ParsingStopped
    return parsed


def _parse_scalar_or_dataclass(kind: Any, node: Node, collector: ViolationCollector) -> Any:
    if isinstance(node, Scalar):
        return kind.from_scalar(_parse_name(node, collector), node)
    return _parse_dataclass(kind, node, collector)


def _report_unknown(node: Mapping, known: Collection[str], collector: ViolationCollector) -> None:
    for name, location in node.keys.items():
        if name not in known:
            hint = hint_at(name, known, KEY_HABITS, otherwise=KEY_NOTES)
            collector.report(location, f"unknown key {name!r}", hint)


def _parse_dataclass(
    kind: type, node: Node, collector: ViolationCollector, place: Location | None = None
) -> Any:
    plan = _parse_plan_of(kind)
    if not isinstance(node, Mapping):
        raise _refuse(collector, node, "a mapping is needed here", f"such as {plan.sample}")
    refused = not plan.keys >= node.keys.keys()
    if refused:
        _report_unknown(node, [part[0] for part in plan.parts], collector)
    values: dict[str, Any] = {}
    for name, attribute, read, is_required in plan.parts:
        inner = node.entries.get(name)
        if inner is None:
            if is_required:
                hint = _sample_of(kind, name)
                collector.report(node.location, f"the key {name!r} is missing", hint)
                refused = True
            continue
        try:
            values[attribute] = read(inner, collector)
        except ParsingStopped:
            refused = True
            continue
        if name in plan.reasons:
            check_line(inner, "a reason", collector)
    if refused:
        raise ParsingStopped
    for attribute in plan.locations:
        values[attribute] = place or node.location
    return kind(**values)


def _sample_of(kind: type, name: str) -> str:
    """The hint for a key that is missing: its choices, or an example."""
    choices = typing.get_args(keys_of(kind)[name].kind)
    if typing.get_origin(keys_of(kind)[name].kind) is typing.Literal:
        return " or ".join(f"{name}: {choice}" for choice in choices)
    return f"write {KEY_EXAMPLES[name]}" if name in KEY_EXAMPLES else ""


@dataclass(frozen=True, slots=True)
class _ParsePlan:
    """How a dataclass is parsed: for each key its name, its attribute, and what reads its value."""

    parts: tuple[tuple[str, str, Read, bool], ...]
    keys: frozenset[str]
    locations: tuple[str, ...]
    reasons: frozenset[str]

    @property
    def sample(self) -> str:
        """A mapping with the keys that are required, or else with the first."""
        needed = [name for name, _, _, is_required in self.parts if is_required]
        shown = needed or [name for name, *_ in self.parts[:1]]
        return f"{{{', '.join(f'{name}: …' for name in shown)}}}"


@functools.cache
def _parse_plan_of(kind: type) -> _ParsePlan:
    keys = keys_of(kind)
    parts = [
        (name, key.attribute, reader_of(key.kind), key.is_required) for name, key in keys.items()
    ]
    fields = dataclasses.fields(kind)
    locations = tuple(field.name for field in fields if "location" in field.metadata)
    reasons = frozenset(name for name, key in keys.items() if key.is_reason)
    return _ParsePlan(tuple(parts), frozenset(keys), locations, reasons)


def join_lines(text: object) -> str:
    """A text for people as one line: YAML's blocks have several, and one line end behind them."""
    return str(text).strip("\n").replace("\n", " ")


def check_line(node: Node, what: str, collector: ViolationCollector) -> None:
    """Report a text for people that is too long, or that a terminal would not show as it is."""
    text = join_lines(node.value) if isinstance(node, Scalar) else ""
    if len(text) > SUMMARY_LENGTH_CHARS_MAX:
        collector.report(node.location, f"{what} has at most {SUMMARY_LENGTH_CHARS_MAX} characters")
    elif not text.isprintable():
        wrong = next(c for c in text if not c.isprintable())
        collector.report(
            node.location,
            f"{what} is one line of printable text, and has U+{ord(wrong):04X}",
            "write it without control characters",
        )


def located() -> Any:
    """A field that holds where the value stands; no part of its value or of its structure."""
    return dataclasses.field(
        default=Location("<stored>"), compare=False, repr=False, metadata={"location": True}
    )


def locate(value: Any, place: Location) -> Any:
    """A value that no document holds, with all of its parts standing at `place`."""
    if isinstance(value, tuple):
        return tuple(locate(item, place) for item in value)
    if isinstance(value, dict):
        return {key: locate(item, place) for key, item in value.items()}
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    parts = {
        field.name: place if "location" in field.metadata else locate(part, place)
        for field in dataclasses.fields(value)
        if (part := getattr(value, field.name)) is not ABSENT
    }
    return dataclasses.replace(value, **parts)


def reason() -> Any:
    """An optional key that tells people why: parsed, but no part of the structure or its digest."""
    return dataclasses.field(default=ABSENT, compare=False, metadata={"reason": True})
