"""What a query demands of a record: plain data, and the functions that are made of it.

The law: a predicate is true or false of every record; there is no third value. A null is equal to
null alone, and neither less nor greater than anything. Without a collation, `==` means that two
values have the same bytes, and strings are ordered by code points. Under a collation, strings are
equal and ordered as their sort keys are. All other types are ordered as their index keys are: as
Python orders their values, if it does; NaN behind all other floats, members of an enum as they are
declared, local times by their instants, structs member by member.

So an index never decides what a comparison means; it may only make it fast.

The kinds of predicates, and the operators of comparisons, are closed sets. What depends on which
one it is has a case for each, and `assert_never` behind them: so the type checker lists what one
more has to be told.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, Literal, NoReturn, TypeGuard, assert_never

import msgspec

from zapdb.datasets import Collation, sort_keys
from zapdb.errors import UnknownName, UsageError
from zapdb.records import Record
from zapdb.schema import Field, TableSchema

Bound = Literal["<", "<=", ">", ">="]
"""True of all values on one side of the given one."""
OneValue = Literal["==", Bound, "starts with"]
"""Takes one value."""
Operator = Literal[OneValue, "in"]

Matches = Callable[[Record], bool]


class Combinable(msgspec.Struct, frozen=True):
    """What `&`, `|` and `~` combine: the base of all kinds of `Predicate`.

    A structure of msgspec: each query makes some, in a tenth of the time that dataclasses take.
    """

    def __and__(self, other: Predicate) -> And:
        return And((*parts_of(_as_predicate(self), And), *parts_of(_as_predicate(other), And)))

    def __or__(self, other: Predicate) -> Or:
        return Or((*parts_of(_as_predicate(self), Or), *parts_of(_as_predicate(other), Or)))

    def __rand__(self, other: object) -> And:
        return _as_predicate(other) & _as_predicate(self)

    def __ror__(self, other: object) -> Or:
        return _as_predicate(other) | _as_predicate(self)

    def __invert__(self) -> Predicate:
        return self.part if isinstance(self, Not) else Not(_as_predicate(self))

    def __repr__(self) -> str:
        return str(self)

    def __bool__(self) -> bool:
        raise UsageError(
            "a condition on records has no truth value",
            condition=self,
            hint="combine conditions with & | ~ and parentheses instead of and, or, not; "
            "write between(low, high) instead of low <= x <= high",
        )


class Comparison(Combinable, frozen=True):
    """A field, by its number, compared with a checked value; of `in`, a tuple of them.

    `name` is for people: the field may have another one by the time of the query.
    """

    field: int
    name: str
    op: Operator
    value: Any
    collation: Collation | None = None

    def __str__(self) -> str:
        left = self.name if self.collation is None else f"{self.name} under {self.collation}"
        if self.op == "==" and self.value is None:
            return f"{left} is null"
        return f"{left} {self.op} {shorten_value(self.value)}"

    def describe(self) -> tuple[Hashable, int]:
        """Return the shape of the condition (all but its values), and how many ranges it makes at
        most."""
        value, op = self.value, self.op
        if op == "in":
            count = len(value)
            return (self.field, op, False, count, self.collation), max(count, 1)
        one: OneValue = op
        return (self.field, one, value is None, 1, self.collation), 1

    @property
    def values(self) -> tuple[Any, ...]:
        """What the field is compared with."""
        value, op = self.value, self.op
        if op == "in":
            several: tuple[Any, ...] = value
            return several
        _: OneValue = op
        return (value,)

    def accepts_null(self) -> bool:
        """Return whether it is true of records in which the field is null."""
        match self.op:
            case "==" | "in":
                return any(value is None for value in self.values)
            case "<" | "<=" | ">" | ">=" | "starts with":
                return False
            case op:
                assert_never(op)


class And(Combinable, frozen=True):
    parts: tuple[Predicate, ...]

    def describe(self) -> tuple[Hashable, int]:
        return _describe_parts("and", self.parts)

    def __str__(self) -> str:
        return " and ".join(_enclose(part, Or) for part in self.parts) or "anything"


class Or(Combinable, frozen=True):
    parts: tuple[Predicate, ...]

    def describe(self) -> tuple[Hashable, int]:
        return _describe_parts("or", self.parts)

    def __str__(self) -> str:
        return " or ".join(_enclose(part, And) for part in self.parts) or "nothing"


class Not(Combinable, frozen=True):
    part: Predicate

    def describe(self) -> tuple[Hashable, int]:
        shape, count = self.part.describe()
        return ("not", shape), count

    def __str__(self) -> str:
        if getattr(self.part, "op", None) == "==":
            text = str(self.part)
            if text.endswith(" is null"):
                return text.removesuffix("is null") + "is not null"
            return text.replace(" == ", " != ", 1)
        return f"not ({self.part})"


class Unbound(Combinable, frozen=True):
    """A comparison of a field that is not looked up yet: the planner has none of them."""

    def describe(self) -> NoReturn:
        raise TypeError(self)


Predicate = Comparison | And | Or | Not | Unbound
"""Of a record, true or false."""

EVERYTHING: Final = And(())
"""True of every record."""


def parts_of(predicate: Predicate, kind: type[And | Or]) -> tuple[Predicate, ...]:
    """The parts of a conjunction or disjunction, or the predicate as the only one."""
    return predicate.parts if isinstance(predicate, kind) else (predicate,)


def _describe_parts(word: str, parts: Sequence[Predicate]) -> tuple[Hashable, int]:
    found = [part.describe() for part in parts]
    ranges = math.prod(count for _, count in found) * max(len(found), 1)
    return (word, *(shape for shape, _ in found)), ranges


def comparisons_in(predicate: Predicate) -> Iterator[Comparison]:
    """All comparisons, from left to right."""
    match predicate:
        case Comparison():
            yield predicate
        case And(parts) | Or(parts):
            for part in parts:
                yield from comparisons_in(part)
        case Not(part):
            yield from comparisons_in(part)
        case Unbound():
            raise TypeError(predicate)
        case _:
            assert_never(predicate)


def find_field(table: TableSchema, number: int, name: str) -> Field:
    """The field that a query was made with; raises `UnknownName` if it was dropped since."""
    for field in table.fields:
        if field.number == number:
            return field
    raise UnknownName(
        "a field of the query was dropped",
        table=table.name,
        field=name,
        hint="make the query again",
    )


def compile_predicate(predicate: Predicate, table: TableSchema) -> Matches:
    """The predicate as a function of the table's records.

    Raises `UnknownName` for a field that the table has no more, `InvalidValue` for a value that
    does not fit it any more.
    """
    match predicate:
        case Comparison():
            return _compile_comparison(
                predicate, find_field(table, predicate.field, predicate.name)
            )
        case And(parts):
            return _compile_and([compile_predicate(part, table) for part in parts])
        case Or(parts):
            some = [compile_predicate(part, table) for part in parts]
            return lambda record: any(matches(record) for matches in some)
        case Not(part):
            matches = compile_predicate(part, table)
            return lambda record: not matches(record)
        case Unbound():
            raise TypeError(predicate)
        case _:
            assert_never(predicate)


def order_value(field: Field, collation: Collation | None) -> Callable[[Any], Any] | None:
    """Return a function to the bytes or keys that values are compared by; None to compare
    values."""
    if collation is not None:
        keys = sort_keys(collation)
        return lambda value: keys.get(value)  # each thread has a collator of its own
    return None if field.type.has_python_order else field.type.encode_index_key


def _compile_and(every: list[Matches]) -> Matches:
    if len(every) == 1:
        return every[0]
    if len(every) == 2:
        one, other = every
        return lambda record: one(record) and other(record)
    return lambda record: all(matches(record) for matches in every)


def _compile_comparison(comparison: Comparison, field: Field) -> Matches:
    get, collation = operator.attrgetter(field.name), comparison.collation
    values = [None if v is None else field.type.check(v, field.name) for v in comparison.values]
    match comparison.op:
        case "==" | "in":
            return _compile_equal(get, field, collation, order_value(field, collation), values)
        case "<":
            return _compile_bound(get, operator.lt, order_value(field, collation), *values)
        case "<=":
            return _compile_bound(get, operator.le, order_value(field, collation), *values)
        case ">":
            return _compile_bound(get, operator.gt, order_value(field, collation), *values)
        case ">=":
            return _compile_bound(get, operator.ge, order_value(field, collation), *values)
        case "starts with":
            (prefix,) = values
            return lambda record: (v := get(record)) is not None and v.startswith(prefix)
        case op:
            assert_never(op)


def _compile_bound(
    get: Callable[[Record], Any],
    is_so: Callable[[Any, Any], bool],
    by: Callable[[Any], Any] | None,
    value: Any,
) -> Matches:
    if by is None:
        return lambda record: (v := get(record)) is not None and is_so(v, value)
    bound = by(value)
    return lambda record: (v := get(record)) is not None and is_so(by(v), bound)


def _compile_equal(
    get: Callable[[Record], Any],
    field: Field,
    collation: Collation | None,
    by: Callable[[Any], Any] | None,
    values: list[Any],
) -> Matches:
    if len(values) == 1 and (values[0] is None or by is None):
        (value,) = values
        if value is None:
            return lambda record: get(record) is None
        return lambda record: bool(get(record) == value)
    if by is None:
        wanted = frozenset(values)
        return lambda record: get(record) in wanted
    if collation is not None:
        keys = frozenset(None if v is None else by(v) for v in values)
        return lambda record: (None if (v := get(record)) is None else by(v)) in keys
    is_same, has_null = field.type.is_same, None in [v for v in values if v is None]
    others = [v for v in values if v is not None]

    def matches(record: Record) -> bool:
        found = get(record)
        if found is None:
            return has_null
        return any(is_same(found, value) for value in others)

    return matches


def is_predicate(given: object) -> TypeGuard[Predicate]:
    return isinstance(given, Combinable)


def _as_predicate(given: object) -> Predicate:
    if not is_predicate(given):
        raise UsageError(
            "this is not a condition on records",
            got=type(given).__name__,
            hint="& and | bind more tightly than ==: put parentheses around each comparison",
        )
    return given


def _enclose(part: Predicate, kind: type[And | Or]) -> str:
    return f"({part})" if isinstance(part, kind) else str(part)


def shorten_value(value: Any) -> str:
    """A value, shortened: conditions are shown in explanations."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
