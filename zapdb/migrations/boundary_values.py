"""Values and records to try conversions on: for each type those where things go wrong.

The most telling come first. Deterministic, and of the type: each passed its `check`. Where
encodings grow by a byte, where signs and scales change, what is empty, blank, long or beyond ASCII,
what looks like a number; and values made of the literals that a migration's own expressions compare
and split by. Records are an ordinary one, and what differs from it: one field at a time, then
fields that meet in one expression, by twos and all at once. A bounded number, always the same ones.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import itertools
import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import singledispatch
from math import isqrt
from typing import Any, Final

from zapdb.datasets import zone
from zapdb.errors import InvalidValue, UnknownZone
from zapdb.expressions import Expression, Literal
from zapdb.limits import INLINE_SIZE_BYTES_MAX
from zapdb.memo import Memo
from zapdb.records import Computed, ConversionPlan, Restored, SourceField
from zapdb.records.derivation import inputs_of, subderivations
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
    Zones,
)
from zapdb.values.decimal import with_scale
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

ZONE_NAMES: Final = ("UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe")
"""Zones of the values; any data have them."""

_INTEGERS: Final = (
    *(7, 0, 1, -1, 2, 10, 42, 100, -7, 63, 64, -64, -65, 127, 128, 255, 256, -256, -257, 999, 1000),
    *(65_535, 65_536, -65_536, -65_537, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63),
    *(-(2**63), INTEGER_MAX, INTEGER_MIN),
)
LONG: Final = INLINE_SIZE_BYTES_MAX + 1
_STRINGS: Final = (
    *("Ada Lovelace", "", "Ada", " ", "Ada de la Cruz", "Ada ", " Ada", "Ada  Lovelace", "  ", ","),
    *("Lovelace, Ada", "Lovelace,Ada", "a,b,c", "ADA", "ada", "aDa lOVELACE", "Émilie du Châtelet"),
    *("東京", "Straße", "İstanbul", "e\u0301", "😀", "007", "-12", "3.25", "1e3", " 5 ", "0", "12"),
    *(
        "3.0",
        "0.10",
        "+5",
        "-0",
        "true",
        "True",
        "false",
        "yes",
        "null",
        "nan",
        "inf",
        "2024-02-29",
    ),
    *(
        "1970-01-01T00:00:00Z",
        "2024-02-29T12:30:00.5+01:00",
        "-",
        "a-b",
        "a/b",
        "a|b",
        "a;b",
        "a:b",
    ),
    *("a_b", "a.b", "user@example.org", "\t", "a\nb", "\n", "\0", "\xa0", "a\xa0b", "'", '"', "\\"),
    *("00000000-0000-0000-0000-000000000001", "00ff", "x" * 63, "x" * 64, "x" * LONG),
    "word " * (LONG // 5 + 1),
)
FLOATS: Final = (
    *(1.5, 0.0, 1.0, -1.0, 0.1, 0.5, 2.5, -2.5, 3.0, 1e16, 2.0**53, 2.0**53 + 2, -(2.0**63), 1e22),
    *(1e-7, 5e-324, 1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, math.nan),
)
DATES: Final = (
    *(datetime.date(2024, 2, 29), datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)),
    *(datetime.date(2023, 1, 1), datetime.date(2023, 12, 31), datetime.date(1900, 3, 1)),
    *(datetime.date.min, datetime.date.max),
)
LOCAL_TIMES: Final = (
    datetime.datetime(2024, 2, 29, 12, 30),
    datetime.datetime(1970, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime.datetime(1970, 1, 1, 0, 0, 0, 1),
    datetime.datetime(2023, 3, 26, 2, 30),  # in Paris clocks show no such time
    datetime.datetime(2023, 10, 29, 2, 30),  # and this one twice
    datetime.datetime(2023, 12, 31, 23, 59, 59),
    datetime.datetime.min,
    datetime.datetime.max,
)
_BINARIES: Final = (b"ab", b"", b"\0", b"\xff", b"\x00\xff\x00", b"7f", b"x" * 64, b"x" * LONG)
UUIDS: Final = (
    uuid.UUID(int=0x018F_0000_0000_7000_8000_0000_0000_0001),
    uuid.UUID(int=0),
    uuid.UUID(int=2**128 - 1),
)
JSONS: Final[tuple[Any, ...]] = (
    *({"a": 1}, None, True, False, 0, 1, -1, 1.0, 1.5, "", "text", [], {}, [1, "a", None]),
    *({"a": {"b": [1, {"c": None}]}}, 2**64 - 1, -(2**64), "x" * 64, [[[]]], {"": ""}),
)
ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"
NO_VALUE: Final = object()
VALUES_REMEMBERED_MAX: Final = 64
ITEMS_MAX: Final = 6
"""Of a part's values, in structs and lists."""


@dataclass(frozen=True, slots=True)
class ExpressionLiterals:
    """The literals of a migration's expressions."""

    texts: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()

    @classmethod
    def of(cls, expressions: Iterable[Expression]) -> ExpressionLiterals:
        found = [literal.value for e in expressions for literal in _literals_in(e)]
        texts = dict.fromkeys(value for value in found if isinstance(value, str))
        numbers = dict.fromkeys(value for value in found if type(value) is int)
        return cls(tuple(texts), tuple(numbers))


def _literals_in(part: object) -> Iterator[Literal]:
    if isinstance(part, Literal):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from _literals_in(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from _literals_in(getattr(part, field.name))


NO_LITERALS: Final = ExpressionLiterals()


def values_of(kind: ValueType, literals: ExpressionLiterals = NO_LITERALS) -> list[Any]:
    """The values of a type that are worth trying, each once; the first is an ordinary one."""
    return list(_values.get((kind, literals), lambda: _list_values(kind, literals)))


_values = Memo[tuple[ValueType, ExpressionLiterals], Sequence[Any]](VALUES_REMEMBERED_MAX)
"""Of the last types: the fields of a table have few, and so have migrations one after another."""


def _list_values(kind: ValueType, literals: ExpressionLiterals) -> list[Any]:
    found: list[Any] = []
    seen: set[bytes | None] = set()
    for raw in _candidates(kind, literals):
        with contextlib.suppress(InvalidValue, UnknownZone):
            value = kind.check(raw, "value")
            shown = repr(value).encode("utf-8", "backslashreplace")
            if shown not in seen:
                seen.add(shown)
                found.append(value)
    return found


def field_values(field: Field, literals: ExpressionLiterals = NO_LITERALS) -> list[Any]:
    """As `values_of`, with the field's default and null where it has them."""
    found = values_of(field.type, literals)
    if field.optional:
        found = [value for value in found if value is not None]
        found.insert(min(1, len(found)), None)
    if field.has_constant and field.default is not None:
        found.append(field.default)
    return found


def neutral(field: Field) -> Any:
    """What a field gets that an example leaves out: its default if that is a constant, null, or a
    neutral value."""
    if field.has_constant:
        return field.default
    return None if field.optional else field.type.neutral()


def _candidates(kind: ValueType, literals: ExpressionLiterals) -> Iterator[Any]:
    """Ordinary values and harvested ones in turn, so that few of them have some of both."""
    for pair in itertools.zip_longest(
        ordinary_values(kind, literals), _from_literals(kind, literals), fillvalue=NO_VALUE
    ):
        yield from (value for value in pair if value is not NO_VALUE)


@singledispatch
def ordinary_values(kind: ValueType, literals: ExpressionLiterals) -> Sequence[Any]:
    """Values that are worth trying whatever the migration does, most telling first."""
    raise NotImplementedError(f"{kind.name} has no boundary values")


def _always(values: Sequence[Any]) -> Callable[[ValueType, ExpressionLiterals], Sequence[Any]]:
    return lambda kind, literals: values


ordinary_values.register(Integer, _always(_INTEGERS))
ordinary_values.register(Boolean, _always((True, False)))
ordinary_values.register(Float, _always(FLOATS))
ordinary_values.register(String, _always(_STRINGS))
ordinary_values.register(Binary, _always(_BINARIES))
ordinary_values.register(Date, _always(DATES))
ordinary_values.register(Uuid, _always(UUIDS))
ordinary_values.register(Json, _always(JSONS))
ordinary_values.register(
    Timestamp, _always([local.replace(tzinfo=datetime.UTC) for local in LOCAL_TIMES])
)


@ordinary_values.register
def _(kind: Decimal, literals: ExpressionLiterals) -> Sequence[Any]:
    return [with_scale(number, kind.scale) for number in _decimal_numbers(kind.scale)]


@ordinary_values.register
def _(kind: Enum, literals: ExpressionLiterals) -> Sequence[Any]:
    return [name for _, name in kind.members]


def _decimal_numbers(scale: int) -> list[int]:
    """Times 10^scale: whole numbers, halves, the smallest steps, where encodings grow, limits."""
    one = 10**scale
    near = [whole * one + step for whole in (1, 0, -1, 12, 1000) for step in (0, 1, -1)]
    halves = [one * tenths // 10 for tenths in (5, 15, 25, -5, -25, 5 * 10 - 1)]
    return [*near, *halves, *_INTEGERS]


@ordinary_values.register
def _(kind: ZonedTimestamp, literals: ExpressionLiterals) -> Sequence[Any]:
    return [
        local.replace(tzinfo=zone(name), fold=fold)
        for at, local in enumerate(LOCAL_TIMES)
        for name in (ZONE_NAMES if at == 0 else ZONE_NAMES[1:2])
        for fold in (0, 1)
    ]


@ordinary_values.register
def _(kind: Struct, literals: ExpressionLiterals) -> Sequence[Any]:
    return list(_structs(kind, literals))


def _structs(kind: Struct, literals: ExpressionLiterals) -> Iterator[Any]:
    """Each member varied by itself, and all of them at once."""
    choices = []
    for member in kind.members:
        values = values_of(member.type, literals)
        if member.optional:
            values.insert(1, None)
        choices.append(values)
    names = [member.name for member in kind.members]
    base = {name: values[0] for name, values in zip(names, choices, strict=True)}
    yield base
    for member, values in zip(kind.members, choices, strict=True):
        most = len(values) if isinstance(member.type, Enum) else 4 * ITEMS_MAX
        yield from (base | {member.name: value} for value in values[1:most])
    for turn in range(1, ITEMS_MAX):
        yield {n: values[turn % len(values)] for n, values in zip(names, choices, strict=True)}


@ordinary_values.register
def _(kind: List, literals: ExpressionLiterals) -> Sequence[Any]:
    values = values_of(kind.items, literals)
    single = ([value] for value in values[1 : 2 * ITEMS_MAX])
    return [values[:1], [], *single, values[:2], [values[0]] * 2, values[:ITEMS_MAX]]


@ordinary_values.register
def _(kind: Reference, literals: ExpressionLiterals) -> Sequence[Any]:
    choices = [values_of(part, literals) for part in kind.key]
    if len(choices) == 1:
        return choices[0]
    base = [values[0] for values in choices]
    varied = (
        (*base[:at], value, *base[at + 1 :])
        for at, values in enumerate(choices)
        for value in values[1 : 2 * ITEMS_MAX]
    )
    return [tuple(base), *varied]


def _from_literals(kind: ValueType, literals: ExpressionLiterals) -> Iterator[Any]:
    match kind:
        case String():
            yield from _strings_near(literals)
        case Integer():
            for number in literals.numbers:
                yield from (number, number - 1, number + 1, -number)
            for text in literals.texts:
                with contextlib.suppress(ValueError):
                    yield int(text)
        case Decimal(scale):
            for number in literals.numbers:
                whole = number * 10**scale
                yield from (with_scale(whole + step, scale) for step in (0, 1, -1))
        case Float():
            yield from (float(n) for n in literals.numbers if abs(n) < 2**53)
    if not isinstance(kind, String | Enum | Struct | List | Json):
        for text in literals.texts:
            with contextlib.suppress(InvalidValue, UnknownZone, decimal.InvalidOperation):
                yield kind.from_document(text, "literal")


def _strings_near(literals: ExpressionLiterals) -> Iterator[str]:
    """Texts with a literal in them once and twice, at the start, in the middle, at the end."""
    for text in literals.texts:
        yield from (text, f"a{text}b", f"{text}b", f"a{text}", f"a{text}b{text}c", text + text)
        yield from (f"a{text}{text}b", f"{text}a{text}", text.upper(), text.lower(), f" {text} ")
        yield from (text[:-1], text[1:], f"a{text[:1]}b")
    for number in literals.numbers:
        yield str(number)
        if 0 < number <= 200:
            for length in (number - 1, number, number + 1):
                yield (ALPHABET * 8)[:length]


SINGLES_MAX: Final = 1_000
"""Records that differ from the ordinary one in one field."""
ARCHIVED_MAX: Final = 20
"""Values tried for one archived field."""


def generate_records(
    table: TableSchema, plan: ConversionPlan, back: ConversionPlan, most: int
) -> Iterator[dict[str, Any]]:
    """Yield up to `most` records of `table`, values by name, to test a conversion from it and
    back."""
    literals = _literals_of(plan, back)
    varied = _touched_fields(table, plan, back)
    each = max(3, SINGLES_MAX // max(1, len(varied)))
    choices = {f.number: field_values(f, literals)[:each] for f in table.fields}
    names = {f.number: f.name for f in table.fields}
    made = _vary(choices, varied, _groups(plan, back, varied), most)
    for values in itertools.islice(made, most):
        yield {names[number]: value for number, value in values.items()}


def generate_archives(plan: ConversionPlan, zones: Zones) -> Iterator[Mapping[int, bytes]]:
    """Archived values, of an earlier migration, that a plan takes back."""
    slots = {
        part.slot.number: part.slot
        for derivation in plan.derivations.values()
        for part in subderivations(derivation)
        if isinstance(part, Restored)
    }
    for number, slot in slots.items():
        if slot.optional:
            yield {number: b""}
        kind = slot.type.bind(zones)
        for value in values_of(slot.type)[:ARCHIVED_MAX]:
            encoded = kind.encode(value)
            if len(encoded) < INLINE_SIZE_BYTES_MAX:
                yield {number: encoded}


def _literals_of(*plans: ConversionPlan) -> ExpressionLiterals:
    return ExpressionLiterals.of(
        part.expression
        for plan in plans
        for derivation in plan.derivations.values()
        for part in subderivations(derivation)
        if isinstance(part, Computed)
    )


def _touched_fields(table: TableSchema, plan: ConversionPlan, back: ConversionPlan) -> list[int]:
    """The fields that are not merely copied there and back, by number."""
    read = frozenset[int]().union(
        *(inputs_of(d) for d in plan.derivations.values() if not isinstance(d, SourceField))
    )
    found = []
    for f in table.fields:
        there, home = plan.derivations.get(f.number), back.derivations.get(f.number)
        is_copied = isinstance(there, SourceField) and isinstance(home, SourceField)
        if not is_copied or f.number in read:
            found.append(f.number)
    return found


def _groups(plan: ConversionPlan, back: ConversionPlan, varied: list[int]) -> list[tuple[int, ...]]:
    """Fields that meet in one expression, there or on the way back."""
    found: dict[tuple[int, ...], None] = {}
    for derivation in (*plan.derivations.values(), *plan.archives.values()):
        found[tuple(sorted(inputs_of(derivation)))] = None
    for derivation in back.derivations.values():
        read = (plan.derivations[n] for n in inputs_of(derivation) if n in plan.derivations)
        together = frozenset[int]().union(*map(inputs_of, read))
        found[tuple(sorted(together))] = None
    return [group for group in found if len(group) > 1 and set(group) & set(varied)]


def _vary(
    choices: Mapping[int, list[Any]],
    varied: list[int],
    groups: list[tuple[int, ...]],
    most: int,
) -> Iterator[dict[int, Any]]:
    """An ordinary record; one field at a time; fields that meet, by twos and all at once."""
    base = {number: values[0] for number, values in choices.items()}
    yield base
    count = 1
    for number in varied:
        for value in choices[number][1:]:
            yield base | {number: value}
            count += 1
    rest = [number for number in choices if number not in set(varied)]
    for turn in (1, 2, 3):
        yield base | {n: choices[n][turn % len(choices[n])] for n in rest}
    pairs = list(dict.fromkeys(p for group in groups for p in itertools.combinations(group, 2)))
    each = max(2, isqrt(max(0, most - count) // max(1, len(pairs) + len(groups))))
    for group in groups:
        for turn in range(1, each * 2):
            at = enumerate(group, 1)
            yield base | {n: choices[n][turn * step % len(choices[n])] for step, n in at}
    for left, right in pairs:
        for one, other in itertools.product(choices[left][:each], choices[right][:each]):
            yield base | {left: one, right: other}
