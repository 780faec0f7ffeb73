"""Hypothesis strategies that the property tests share: types, values, tables, expressions, chains.

`chains` makes whole directories of migrations: each step draws an operation that is valid on the
schema reached so far, writes it as YAML text, and resolves it as files are. Expressions are drawn
by the type that is wanted of them.
"""

from __future__ import annotations

import datetime
import json
import string
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal as D
from functools import lru_cache
from typing import Any

from hypothesis import strategies as st

from tests.zoned import ZONES, instant_of, local_times
from zapdb.datasets import STRENGTHS, Collation
from zapdb.errors import InvalidMigration
from zapdb.expressions import Expression, Type, unparse
from zapdb.expressions.tree import (
    Arithmetic,
    Call,
    Compare,
    Conditional,
    IsNull,
    Literal,
    Logic,
    LogicalNot,
    Name,
    Negate,
)
from zapdb.migrations import Chain, NumberAllocator, read_stored, resolve
from zapdb.migrations.canonical_migration import to_structure
from zapdb.migrations.document import DocumentText, read_document
from zapdb.migrations.operations.constraints import checks_on, nested_types
from zapdb.migrations.operations.definitions import TypeDefinition
from zapdb.migrations.parsed_migration import parse_document
from zapdb.records import Layout
from zapdb.schema import (
    NO_DEFAULT,
    Field,
    Generator,
    Index,
    IndexComponent,
    Now,
    Schema,
    TableSchema,
)
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
    Member,
    Reference,
    String,
    Struct,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

# --- types and values ----------------------------------------------------------------------------

STATE = Enum("state", 1, ((3, "open"), (1, "done"), (2, "dropped")))
"""Declared in another order than numbered, as an enum is that was altered."""
PLACE = Struct(
    "place",
    2,
    (
        Member(2, "street", String(), optional=True),
        Member(1, "number", Integer()),
        Member(4, "state", STATE, optional=True),
        Member(3, "at", Timestamp()),
    ),
)
SIMPLE_TYPES: list[ValueType] = [
    Integer(),
    Decimal(0),
    Decimal(2),
    Decimal(64),
    Boolean(),
    Date(),
    Timestamp(),
    ZonedTimestamp(ZONES),
    Binary(),
    String(),
    Json(),
    Uuid(),
    Float(),
]
TYPES: list[ValueType] = [
    *SIMPLE_TYPES,
    STATE,
    PLACE,
    Reference("people", 1, (Uuid(),)),
    Reference("people", 1, (String(), Integer())),
    List(Integer()),
    List(List(PLACE)),
    Struct(
        "extra", 3, (Member(1, "data", Json(), optional=True), Member(2, "tags", List(String())))
    ),
]
KEY_TYPES = [kind for kind in TYPES if kind.keyable]
INDEX_TYPES = [kind for kind in TYPES if kind.indexable]

integers = st.one_of(
    st.integers(-300, 300),
    st.integers(INTEGER_MIN, INTEGER_MAX),
    st.builds(
        lambda size, sign, step: min(max(sign * 256**size + step, INTEGER_MIN), INTEGER_MAX),
        st.integers(0, 63),
        st.sampled_from([1, -1]),
        st.integers(-2, 2),
    ),
)
texts = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="ab \x00,.-019", max_size=8),
    st.text(min_size=60, max_size=70),
    st.sampled_from(["-12", "3.25", "007", "1,2", "Ada Lovelace", "ǅ ß İ", "\U0010ffff", "\uffff"]),
)
binaries = st.one_of(
    st.binary(max_size=12),
    st.lists(st.sampled_from([0, 1, 0xFE, 0xFF]), max_size=6).map(bytes),
    st.binary(min_size=60, max_size=70),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**64), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=6),
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


def _decimals(scale: int) -> st.SearchStrategy[D]:
    return integers.map(lambda number: D((number < 0, tuple(map(int, str(abs(number)))), -scale)))


RAW: dict[type[ValueType], st.SearchStrategy[Any]] = {
    Integer: integers,
    Boolean: st.booleans(),
    Date: st.dates(),
    Timestamp: st.datetimes(timezones=st.just(datetime.UTC)),
    ZonedTimestamp: local_times(),
    Binary: binaries,
    String: texts,
    Json: json_values,
    Uuid: st.uuids(),
    Float: st.floats(allow_nan=False) | st.integers(-(2**53), 2**53).map(float),
}


@lru_cache(maxsize=1_000)
def values_of(kind: ValueType) -> st.SearchStrategy[Any]:
    """Values of a type, checked: in the normal form in which they are stored.

    Kept, since making and validating a strategy takes longer than drawing from it.
    """
    match kind:
        case Decimal(scale):
            strategy = _decimals(scale)
        case Reference(key=(single,)):
            strategy = values_of(single)
        case Reference(key=parts):
            strategy = st.tuples(*map(values_of, parts))
        case Enum(members=members):
            strategy = st.sampled_from([name for _, name in members])
        case Struct(members=members):
            strategy = st.fixed_dictionaries({m.name: held_by(m) for m in members})
        case List(items):
            strategy = st.lists(values_of(items), max_size=3)
        case _:
            strategy = RAW[type(kind)]
    return strategy.map(lambda value: kind.check(value, "drawn"))


@lru_cache(maxsize=1_000)
def values_or_none_of(kind: ValueType) -> st.SearchStrategy[Any]:
    return st.none() | values_of(kind)


def held_by(part: Field | Member) -> st.SearchStrategy[Any]:
    """What a field or member may hold: a value of its type, or None if it is optional."""
    return values_or_none_of(part.type) if part.optional else values_of(part.type)


@st.composite
def types(draw: st.DrawFn, depth: int = 3) -> ValueType:
    """Any type, also those that nobody would declare."""
    way = draw(st.integers(0, 9)) if depth else 0
    if way == 7:
        return List(draw(types(depth - 1)))
    if way == 8:
        return Reference(
            "t", 1, tuple(draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=3)))
        )
    if way == 9:
        numbers = draw(st.lists(st.integers(1, 99), min_size=1, max_size=9, unique=True))
        members = (Member(n, f"m{n}", draw(types(depth - 1)), draw(st.booleans())) for n in numbers)
        return Struct("drawn", 1, tuple(members))
    return draw(st.sampled_from(TYPES))


def order_of(kind: ValueType) -> Callable[[Any], Any]:
    """An independent oracle: what Python's own comparison sorts values of the type by."""
    if isinstance(kind, String):
        return lambda value: tuple(struct.unpack(f">{len(value)}I", value.encode("utf-32-be")))
    match kind:
        case Uuid():
            return lambda value: value.int
        case Reference(key=(single,)):
            return order_of(single)
        case Reference(key=parts):
            return lambda value: tuple(
                order_of(part)(each) for part, each in zip(parts, value, strict=True)
            )
        case Enum(members=members):
            return {name: number for number, name in members}.__getitem__
    return lambda value: value


def index_order_of(kind: ValueType) -> Callable[[Any], Any]:
    """What values sort by in an index: enums in declared order, structs member by member."""
    match kind:
        case Enum(members=members):
            return [name for _, name in members].index
        case Struct(members=members):
            return lambda value: tuple(
                (False,) if part is None else (True, index_order_of(member.type)(part))
                for member in members
                for part in (getattr(value, member.name),)
            )
        case ZonedTimestamp():
            return instant_of
    return order_of(kind)


types_and_values = types().flatmap(lambda kind: st.tuples(st.just(kind), values_of(kind)))

# --- tables --------------------------------------------------------------------------------------

NAMES = [
    *(f"{letter}{number}" for letter in "abcd" for number in range(6)),
    *("name", "class", "from", "none", "asdict", "value", "key", "prefix", "present", "text"),
    *("b", "p", "n", "m", "c", "q", "start", "self", "convert", "default", "known", "path"),
]
"""Names that generated code might trip over are among them."""
WORDS = [name for name in NAMES if name not in ("class", "from")]
"""Those that an expression can use."""

names = st.sampled_from(NAMES)


@st.composite
def collations(draw: st.DrawFn) -> Collation:
    locale = draw(st.sampled_from(["und", "de", "cs", "de@collation=phonebook"]))
    return Collation(locale, draw(st.sampled_from(STRENGTHS)), draw(st.booleans()))


@st.composite
def fields_of(
    draw: st.DrawFn, number: int, name: str, key: bool, kinds: Sequence[ValueType] = TYPES
) -> Field:
    kind = draw(st.sampled_from([kind for kind in kinds if kind.keyable or not key]))
    optional = not key and draw(st.booleans())
    default: Any = NO_DEFAULT
    generated: Generator | None = None
    if isinstance(kind, Uuid | Integer) and draw(st.booleans()):
        generated = "uuid" if isinstance(kind, Uuid) else "sequence"
    if not generated and draw(st.booleans()):
        default = draw(values_or_none_of(kind) if optional else values_of(kind))
        if isinstance(kind, Timestamp) and draw(st.booleans()):
            default = Now()
        if isinstance(kind, ZonedTimestamp) and draw(st.booleans()):
            default = Now("Europe/Vienna")
    return Field(number, name, kind, optional, default, generated)


@st.composite
def tables(
    draw: st.DrawFn, fields_max: int = 12, kinds: Sequence[ValueType] = TYPES
) -> TableSchema:
    """Numbers and declared order differ; keys have one to three fields, in any order."""
    drawn = draw(st.lists(names, min_size=1, max_size=fields_max, unique=True))
    numbers = draw(st.permutations(range(1, len(drawn) + 1)))
    key_size = draw(st.integers(1, min(3, len(drawn))))
    key = tuple(draw(st.permutations(numbers))[:key_size])
    fields = tuple(
        draw(fields_of(number, name, number in key, kinds))
        for number, name in zip(numbers, drawn, strict=True)
    )
    indexable = [f for f in fields if f.type.indexable]
    indexes = []
    for number in range(1, draw(st.integers(0, 2)) + 1):
        chosen = draw(st.lists(st.sampled_from(indexable), min_size=1, max_size=3, unique_by=id))
        components = tuple(
            IndexComponent(
                f.number,
                draw(st.none() | collations()) if isinstance(f.type, String) else None,
                draw(st.booleans()),
            )
            for f in chosen
        )
        indexes.append(Index(number, f"by_{number}", components))
    return TableSchema(draw(st.integers(1, 9)), draw(names), key, fields, tuple(indexes))


@st.composite
def records_of(draw: st.DrawFn, table: TableSchema) -> dict[str, Any]:
    """A full record of the table: a checked value, or None, for every field."""
    return {f.name: draw(held_by(f)) for f in table.fields}


large_sizes = st.sampled_from([4_095, 4_096, 4_097, 4_098, 9_000])
large_texts = st.builds(
    lambda unit, size: (unit * size).encode()[:size].decode(errors="ignore"),
    st.text(min_size=1, max_size=3) | st.sampled_from(["x", "ß", "a,-1 "]),
    large_sizes,
)
large_binaries = st.builds(
    lambda byte, size: bytes([byte]) * size, st.integers(0, 255), large_sizes
)


@st.composite
def large_records_of(draw: st.DrawFn, table: TableSchema) -> dict[str, Any]:
    """As `records_of`; about every other string or binary is a blob, or nearly one."""
    record = draw(records_of(table))
    for f in table.value_fields:
        if f.type.may_be_blob and draw(st.booleans()):
            record[f.name] = draw(large_texts if isinstance(f.type, String) else large_binaries)
    return record


def damage(encoded: bytes, data: st.DataObject) -> bytes:
    """The bytes with one thing wrong, or, by chance, none."""
    at = data.draw(st.integers(0, len(encoded)))
    match data.draw(st.sampled_from(["cut", "insert", "flip", "replace"])):
        case "cut":
            return encoded[:at]
        case "insert":
            return encoded[:at] + data.draw(st.binary(min_size=1, max_size=3)) + encoded[at:]
        case "replace":
            return encoded[:at] + data.draw(st.binary(max_size=12))
    damaged = bytearray(encoded or b"\x00")
    damaged[at % len(damaged)] ^= 1 << data.draw(st.integers(0, 7))
    return bytes(damaged)


# --- expressions ---------------------------------------------------------------------------------

STRING, INTEGER, BOOLEAN = Type(String()), Type(Integer()), Type(Boolean())
FLOAT, DATE, TIMESTAMP = Type(Float()), Type(Date()), Type(Timestamp())
BINARY, ZONED = Type(Binary()), Type(ZonedTimestamp(ZONES))
TEXTABLE = (Integer, Decimal, Boolean, Date, Uuid, String, Timestamp, Float, Binary, Enum)
COMPARABLE = (*TEXTABLE, Json, List, Struct, Reference)
literal_texts = st.sampled_from(
    [
        *("", " ", ",", "a", "'", "\\", "\x00\n", "ß", "-1", "2.50", "1e5", "nan", "open", "00fF"),
        *("2024-02-29", "2024-02-29T12:00:00.5Z", "00000000-0000-0000-0000-0000000000fF"),
    ]
)
literal_integers = st.integers(-300, 300) | st.sampled_from([INTEGER_MAX, INTEGER_MIN, 1 << 62])


@st.composite
def expressions(
    draw: st.DrawFn,
    wanted: Type,
    given: Mapping[str, Type],
    depth: int = 2,
    told: bool = False,
    members: bool = False,
) -> Any:
    """A checked expression over `given` whose result fits `wanted`; None where there is none.

    A literal is a member of a wanted enum only where `check` is `told` what is wanted; `member()`
    is drawn with `members`.
    """
    options: list[Callable[[], Any]] = []
    for name, kind in given.items():
        if name in WORDS and kind.fits(wanted):
            options.append(lambda name=name: Name(name))
        if name in WORDS and kind.optional and kind.kind == wanted.kind:

            def fill(name: str = name) -> Any:
                fallback = draw(expressions(wanted, given, depth - 1, True, members))
                is_none = isinstance(fallback, Literal) and fallback.value is None
                return (
                    None
                    if fallback is None or is_none
                    else Call("coalesce", (Name(name), fallback))
                )

            if depth > 0:
                options.append(fill)
    if wanted.optional:
        options.append(lambda: Literal(None))
    options += _literals(draw, wanted, told)
    if depth > 0:
        options += _calls(draw, wanted, given, depth - 1, told, members)
    if not options:
        return None
    drawn: Expression | None = draw(st.sampled_from(options))()
    if drawn is not None:
        return drawn
    # that way led nowhere: the first option has no parts
    return options[0]() if depth > 0 else None


def _literals(draw: st.DrawFn, wanted: Type, told: bool) -> list[Callable[[], Any]]:
    match wanted.kind:
        case String():
            return [lambda: Literal(draw(literal_texts))]
        case Integer():
            return [lambda: Literal(draw(literal_integers))]
        case Boolean():
            return [lambda: Literal(draw(st.booleans()))]
        case Enum(members=members) if told:
            return [lambda: Literal(draw(st.sampled_from([name for _, name in members])))]
    return []


def _calls(
    draw: st.DrawFn,
    wanted: Type,
    given: Mapping[str, Type],
    depth: int,
    told: bool,
    members: bool,
) -> list[Callable[[], Any]]:
    def part(kind: Type, told: bool = False) -> Any:
        return draw(expressions(kind, given, depth, told, members))

    def build(make: Callable[..., Any], *parts: Any) -> Any:
        return None if None in parts else make(*parts)

    def call(function: str, *kinds: Type) -> Any:
        return build(lambda *parts: Call(function, parts), *map(part, kinds))

    def partial(function: str, *kinds: Type, scale: int | None = None) -> Any:
        """Else what is wanted, or an integer for decimals, or null where that is wanted, too."""
        arguments = [part(kind) for kind in kinds]
        if scale is not None:
            arguments.append(Literal(scale))
        fallback = part(Type(wanted.kind, wanted.optional))
        if fallback is None and isinstance(wanted.kind, Decimal):
            fallback = Literal(draw(st.integers(-300, 300)))
        return build(lambda *parts: Call(function, parts[:-1], parts[-1]), *arguments, fallback)

    def named(kinds: tuple[type[ValueType], ...], optional: bool = False) -> list[Type]:
        return [
            kind
            for name, kind in given.items()
            if name in WORDS and kind.optional <= optional and isinstance(kind.kind, kinds)
        ]

    def of_named(kinds: tuple[type[ValueType], ...], *besides: Type) -> Type:
        return draw(st.sampled_from([*besides, *named(kinds)]))

    def compare() -> Any:
        kind = of_named(COMPARABLE, STRING, INTEGER)
        assert kind.kind is not None
        other = kind
        if isinstance(kind.kind, Integer | Decimal):
            other = of_named((Integer, Decimal), INTEGER)
        order = ["<", "<=", ">", ">="] if kind.kind.ordered and kind.kind.comparable else []
        operator = draw(st.sampled_from(["==", "!=", *order]))
        left, right = part(kind), part(other, told=True)
        if not kind.kind.comparable:
            return None
        return build(lambda *parts: Compare(operator, *parts), left, right)

    def is_null() -> Any:
        optional = [name for name, kind in given.items() if kind.optional and name in WORDS]
        return (
            IsNull(Name(draw(st.sampled_from(optional))), draw(st.booleans())) if optional else None
        )

    def conditional() -> Any:
        test, then, otherwise = part(BOOLEAN), part(wanted, told), part(wanted, told)
        return build(Conditional, test, then, otherwise)

    def contains_item() -> Any:
        lists = [
            (name, kind.kind)
            for name, kind in given.items()
            if name in WORDS and not kind.optional and isinstance(kind.kind, List)
            if kind.kind.comparable
        ]
        if not lists:
            return None
        name, kind = draw(st.sampled_from(lists))
        return build(
            lambda item: Call("contains", (Name(name), item)), part(Type(kind.items), True)
        )

    def arithmetic(left: Type, right: Type, *operators: str) -> Any:
        operator: Any = draw(st.sampled_from(operators))
        return build(lambda *parts: Arithmetic(operator, *parts), part(left), part(right))

    def negate() -> Any:
        operand = part(result)
        if isinstance(operand, Literal) and isinstance(operand.value, int) and operand.value >= 0:
            return Literal(-operand.value)  # with its sign it is one literal
        return build(Negate, operand)

    def divide_by_literal() -> Any:
        operator: Any = draw(st.sampled_from(["//", "%"]))
        divisor = draw(literal_integers.filter(bool) | st.just(-1))
        return build(lambda left: Arithmetic(operator, left, Literal(divisor)), part(INTEGER))

    def choose() -> Any:
        kinds = [result] * draw(st.integers(2, 3))
        parts = [part(kind) for kind in kinds]
        if isinstance(result.kind, Decimal) and draw(st.booleans()):
            parts[draw(st.integers(0, 1))] = Literal(draw(st.integers(-300, 300)))
            if all(isinstance(argument, Literal) for argument in parts):
                return None
        return build(lambda *parts: Call(draw(st.sampled_from(["min", "max"])), parts), *parts)

    result = Type(wanted.kind)
    options: list[Callable[[], Any]] = [conditional]
    numbers = [negate, lambda: call("abs", result), choose]
    match wanted.kind:
        case String():
            options += [
                lambda: call(draw(st.sampled_from(["before", "after"])), STRING, STRING),
                lambda: call("join", *[STRING] * draw(st.integers(2, 4))),
                lambda: call(draw(st.sampled_from(["lower", "upper", "strip"])), STRING),
                lambda: call("replace", STRING, STRING, STRING),
                lambda: call("part", STRING, STRING, INTEGER),
                lambda: call("substring", STRING, INTEGER, INTEGER),
                lambda: call("text", of_named(TEXTABLE, STRING, INTEGER)),
                lambda: call("hex", BINARY),
                lambda: partial("utf8", BINARY),
                lambda: call("zone_name", ZONED),
            ]
        case Integer():
            options += [
                lambda: call("length", of_named((String, Binary, List), STRING)),
                lambda: partial("integer", of_named((String, Decimal), STRING)),
                lambda: arithmetic(INTEGER, INTEGER, "+", "-", "*"),
                divide_by_literal,
                lambda: partial(draw(st.sampled_from(["quotient", "remainder"])), INTEGER, INTEGER),
                lambda: call(draw(st.sampled_from(["year", "month", "day"])), DATE),
                lambda: call("days_between", DATE, DATE),
                *numbers,
            ]
        case Decimal(scale):
            exact = (Integer, Decimal)
            less = draw(st.integers(0, scale))
            options += [
                lambda: partial("decimal", of_named((String, *exact), STRING), scale=scale),
                lambda: Call(
                    "decimal",
                    (part(draw(st.sampled_from([STRING, INTEGER]))), Literal(scale)),
                    Literal(0),
                ),
                lambda: arithmetic(result, Type(Decimal(less)), "+", "-"),
                lambda: arithmetic(INTEGER, result, "+", "-", "*"),
                lambda: arithmetic(Type(Decimal(less)), Type(Decimal(scale - less)), "*"),
                lambda: build(
                    lambda value: Call(
                        draw(st.sampled_from(["round", "truncate"])), (value, Literal(scale))
                    ),
                    part(of_named((Decimal,), Type(Decimal(less)), Type(Decimal(64)))),
                ),
                lambda: partial(
                    "divide", of_named(exact, INTEGER), of_named(exact, INTEGER), scale=scale
                ),
                *numbers,
            ]
        case Float():
            options += [
                lambda: arithmetic(FLOAT, FLOAT, "+", "-", "*"),
                lambda: partial("float", of_named((Integer, Decimal, String), STRING, INTEGER)),
                *numbers,
            ]
        case Boolean():
            texts = ["contains", "starts_with", "ends_with"]
            options += [
                compare,
                compare,
                is_null,
                contains_item,
                lambda: call(draw(st.sampled_from(texts)), STRING, STRING),
                lambda: LogicalNot(part(BOOLEAN)),
                lambda: Logic(draw(st.sampled_from(["and", "or"])), (part(BOOLEAN), part(BOOLEAN))),
            ]
        case Date():
            options += [
                lambda: partial("date", STRING),
                lambda: partial("add_days", DATE, INTEGER),
                lambda: call("date_of", TIMESTAMP),
                lambda: call("local_date", ZONED),
            ]
        case Timestamp():
            options += [lambda: partial("timestamp", STRING), lambda: call("timestamp_of", DATE)]
        case Uuid():
            options += [lambda: partial("uuid", STRING)]
        case Binary():
            options += [lambda: partial("unhex", STRING), lambda: call("bytes_of", STRING)]
        case Enum() if told and members:
            options += [
                lambda: build(
                    lambda text, fallback: Call("member", (text,), fallback),
                    part(STRING),
                    part(wanted, told),
                )
            ]
    return options


# --- documents -----------------------------------------------------------------------------------

SAFE = frozenset(string.ascii_letters + string.digits + string.punctuation + " ") - {'"', "\\"}


def quote(text: str) -> str:
    """A double-quoted YAML scalar in ASCII."""
    escaped = "".join(
        c if c in SAFE else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\U{ord(c):08x}" for c in text
    )
    return f'"{escaped}"'


def to_yaml(data: Any) -> str:
    """Plain data as YAML in flow style, every key and text quoted."""
    match data:
        case str():
            return quote(data)
        case dict():
            return "{" + ", ".join(f"{quote(k)}: {to_yaml(v)}" for k, v in data.items()) + "}"
        case list():
            return "[" + ", ".join(map(to_yaml, data)) + "]"
    return json.dumps(data)


# --- chains --------------------------------------------------------------------------------------

DECLARATIONS = [
    {"create_type": {"type": "state", "enum": ["open", "done", "dropped"]}},
    {
        "create_type": {
            "type": "place",
            "struct": [
                {"name": "street", "type": "string", "optional": True},
                {"name": "states", "type": "list", "of": "state"},
            ],
        }
    },
]
"""What the first migration of a chain declares, numbered 1 and 2."""
MAKEABLE = [Integer(), Decimal(2), Boolean(), String()]
"""Types that an expression can make from whatever there is: these are drawn more often."""


def _field_document(field: Field) -> dict[str, Any]:
    described: dict[str, Any] = to_structure(TypeDefinition.describe(field.type))
    if field.optional:
        described["optional"] = True
    if field.generated:
        described["generated"] = field.plain_generated
    if field.has_default:
        described["default"] = field.plain_default
    return described


def _has_plain_default(field: Field) -> bool:
    """JSON defaults may hold floats, and JSON's null, which documents can't write."""
    return not (isinstance(field.type, Json) and field.has_default)


def wide(wanted: Type, given: Mapping[str, Type]) -> st.SearchStrategy[Any]:
    """Expressions as operations may have them, where the wanted type is told."""
    return expressions(wanted, given, told=True, members=True)


class Author:
    """Draws operations that are valid on a schema, as plain data of documents."""

    def __init__(self, draw: st.DrawFn, *, archives: bool = False) -> None:
        self.draw = draw
        self.archives = archives

    def field(self, schema: Schema, name: str, key: bool = False) -> Field:
        state, place = schema.types
        kinds = [*SIMPLE_TYPES, *[state] * 2, *[place] * 2, List(String()), List(place)]
        for table in schema:
            to = Reference(table.name, table.number, tuple(f.type for f in table.key_fields))
            kinds += [to] * 4
        drawn = fields_of(0, name, key, [*MAKEABLE * 6, *kinds])
        return self.draw(drawn.filter(_has_plain_default))

    def new_name(self, table: TableSchema, *besides: str) -> str:
        taken = {f.name for f in table.fields} | set(besides)
        return self.draw(st.sampled_from([name for name in WORDS if name not in taken]))

    def create_table(self, schema: Schema) -> Any:
        taken = [t.name for t in schema]
        name = self.draw(st.sampled_from([n for n in WORDS if n not in taken]))
        fields = self.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6, unique=True))
        key = self.draw(st.lists(st.sampled_from(fields), min_size=1, max_size=2, unique=True))
        described = [
            {"name": f, **_field_document(self.field(schema, f, f in key))} for f in fields
        ]
        return {"create_table": {"table": name, "key": key, "fields": described}}

    def fill(self, table: TableSchema, target: Field) -> Any:
        """How a field is filled that has no value; None where nothing was found."""
        given = {f.name: Type(f.type, f.optional) for f in table.fields}
        if self.draw(st.booleans()):
            found = self.draw(wide(Type(target.type, target.optional), given))
            if found is not None:
                return {"expression": unparse(found)}
        if isinstance(target.type, Json):
            value = self.draw(st.dictionaries(st.text(max_size=3), st.integers(-9, 9), max_size=2))
        else:
            value = target.type.to_document(self.draw(values_of(target.type)))
        if target.optional and self.draw(st.booleans()):
            value = None
        return {"value": value}

    def add_field(self, schema: Schema, table: TableSchema) -> Any:
        field = self.field(schema, self.new_name(table))
        body = {"table": table.name, "field": {"name": field.name, **_field_document(field)}}
        if self.draw(st.booleans()):
            body["position"] = self.draw(st.integers(0, len(table.fields)))
        if not (field.has_constant or field.optional) or self.draw(st.booleans()):
            body["fill"] = self.fill(table, field)
        return {"add_field": body}

    def free_fields(self, table: TableSchema) -> list[Field]:
        """Fields that are neither of the key nor of an index, and that nothing else rests on."""
        return [f for f in self.unbound_fields(table) if not table.indexes_on(f.number)]

    def unbound_fields(self, table: TableSchema) -> list[Field]:
        """Fields that are not of the key, and that no check reads and no reference is made of."""
        return [
            f
            for f in table.fields
            if f.number not in table.key
            and table.foreign_key_on(f.number) is None
            and not list(checks_on(table, f.name))
        ]

    def drop_field(self, table: TableSchema) -> Any:
        free = self.free_fields(table)
        if not free:
            return None
        field = self.draw(st.sampled_from(free))
        rest = table.with_fields(tuple(f for f in table.fields if f is not field))
        restore = self.fill(rest, field)
        if self.archives and self.draw(st.booleans()):
            is_filled = not field.optional or self.draw(st.booleans())
            restore = {"archive": True} | ({"otherwise": restore} if is_filled else {})
        return {"drop_field": {"table": table.name, "field": field.name, "restore": restore}}

    def restore_field(self, schema: Schema, table: TableSchema) -> Any:
        """Of the archived fields, one that can come back."""
        fitting: list[Any] = []
        for archived in table.archived:
            field = archived.field
            body = {"table": table.name, "field": field.name, "archived_by": archived.archived_by}
            fill = self.fill(table, field)
            if not field.optional or self.draw(st.booleans()):
                body["otherwise"] = fill
            if self.draw(st.booleans()):
                body["position"] = self.draw(st.integers(0, len(table.fields)))
            if is_valid({"restore_field": body}, schema):
                fitting.append({"restore_field": body})
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def drop_table(self, schema: Schema, table: TableSchema) -> Any:
        if len(schema.tables) < 2 or list(schema.users_of(table)):
            return None
        records = self.draw(st.sampled_from(["archive", "discard"])) if self.archives else "discard"
        return {"drop_table": {"table": table.name, "records": records}}

    def restore_table(self, schema: Schema) -> Any:
        if not schema.archived:
            return None
        archived = self.draw(st.sampled_from(schema.archived))
        restored = {
            "restore_table": {"table": archived.table.name, "archived_by": archived.archived_by}
            | ({"position": 0} if self.draw(st.booleans()) else {})
        }
        return restored if is_valid(restored, schema) else None

    def make_required(self, table: TableSchema) -> Any:
        optional = [
            f
            for f in self.unbound_fields(table)
            if f.optional and (f.default is not None or isinstance(f.type, Json))
        ]
        if not optional:
            return None
        field = self.draw(st.sampled_from(optional))
        body = {"table": table.name, "field": field.name}
        if not field.has_constant or self.draw(st.booleans()):
            rest = table.with_fields(tuple(f for f in table.fields if f is not field))
            body["fill"] = self.fill(rest, replace(field, optional=False))
        return {"make_required": body}

    def make_optional(self, table: TableSchema) -> Any:
        required = [f for f in self.unbound_fields(table) if not f.optional]
        if not required:
            return None
        field = self.draw(st.sampled_from(required))
        body = {"table": table.name, "field": field.name}
        if not field.has_constant or self.draw(st.booleans()):
            rest = table.with_fields(tuple(f for f in table.fields if f is not field))
            body["fill"] = self.fill(rest, field)
        return {"make_optional": body}

    def change_default(self, table: TableSchema) -> Any:
        fields = [f for f in table.fields if not f.generated and not isinstance(f.type, Json)]
        if not fields:
            return None
        field = self.draw(st.sampled_from(fields))
        body: dict[str, Any] = {"table": table.name, "field": field.name}
        if field.has_default and self.draw(st.booleans()):
            return {"change_default": body | {"remove": True}}
        if field.optional and field.has_default and self.draw(st.booleans()):
            return {"change_default": body | {"default": None}}
        value = field.type.to_document(self.draw(values_of(field.type)))
        if isinstance(field.type, Timestamp) and self.draw(st.booleans()):
            value = "now"
        return {"change_default": body | {"default": value}}

    def reorder_field(self, table: TableSchema) -> Any:
        if len(table.fields) < 2:
            return None
        at = self.draw(st.sampled_from(range(len(table.fields))))
        to = self.draw(st.sampled_from([n for n in range(len(table.fields)) if n != at]))
        name = table.fields[at].name
        return {"reorder_field": {"table": table.name, "field": name, "position": to}}

    def alter_type(self, schema: Schema) -> Any:
        declared = self.draw(st.sampled_from(schema.types))
        users = [
            (table, f) for table in schema for f in table.fields if declared in nested_types(f.type)
        ]
        if any(list(checks_on(table, f.name)) for table, f in users):
            return None
        in_key = any(f.number in table.key for table, f in users)
        removable = not in_key and all(f.default in (None, NO_DEFAULT) for _, f in users)
        if isinstance(declared, Enum):
            body = self.alter_enum(declared, removable=removable, extensible=not in_key)
        else:
            body = self.alter_struct(declared, removable=removable)
        return {"alter_type": {"type": declared.declared_name, **body}} if body else None

    def alter_enum(self, declared: Enum, *, removable: bool, extensible: bool) -> dict[str, Any]:
        names = [name for _, name in declared.members]
        free = [name for name in WORDS if name not in names]
        body: dict[str, Any] = {}
        removed = []
        if removable and len(names) > 1 and self.draw(st.booleans()):
            removed = [self.draw(st.sampled_from(names))]
        kept = [name for name in names if name not in removed]
        if self.draw(st.booleans()):
            renamed = self.draw(st.sampled_from(kept))
            to = self.draw(st.sampled_from([*free, *removed]))
            free = [name for name in free if name != to]
            kept = [to if name == renamed else name for name in kept]
            body["rename"] = {renamed: to}
        if extensible and self.draw(st.booleans()):
            count = self.draw(st.integers(1, 2))
            body["add"] = [
                {"name": free[at], "back": self.draw(st.sampled_from(names))}
                | ({"position": at} if self.draw(st.booleans()) else {})
                for at in range(count)
            ]
            kept += free[:count]
        if removed:
            body["remove"] = {removed[0]: {"to": self.draw(st.sampled_from(kept))}}
        return body

    def alter_struct(self, declared: Struct, *, removable: bool) -> dict[str, Any]:
        names = [member.name for member in declared.members]
        free = [name for name in WORDS if name not in names]
        body: dict[str, Any] = {}
        removed = []
        if removable and len(names) > 1 and self.draw(st.booleans()):
            member = self.draw(st.sampled_from(declared.members))
            removed, restore = [member.name], {}
            if not member.optional or self.draw(st.booleans()):
                value = self.draw(values_of(member.type))
                restore = {"restore": member.type.to_document(value)}
            body["remove"] = {member.name: restore}
        if self.draw(st.booleans()):
            kept = [name for name in names if name not in removed]
            to = self.draw(st.sampled_from(free))
            free = [name for name in free if name != to]
            body["rename"] = {self.draw(st.sampled_from(kept)): to}
        if self.draw(st.booleans()):
            kind = self.draw(st.sampled_from([String(), Integer(), Decimal(2)]))
            member = {"name": free[0], "type": kind.name, **kind.parameters()}
            is_optional = self.draw(st.booleans())
            if is_optional:
                member["optional"] = True
            if not is_optional or self.draw(st.booleans()):
                member["fill"] = kind.to_document(self.draw(values_of(kind)))
            if self.draw(st.booleans()):
                member["position"] = 0
            body["add"] = [member]
        return body

    def add_check(self, table: TableSchema) -> Any:
        free = [n for n in ("is_a", "is_b", "is_c") if table.check_named(n) is None]
        given = {f.name: Type(f.type, f.optional) for f in table.fields}
        found = self.draw(expressions(BOOLEAN, given))
        if not free or found is None:
            return None
        body = {"table": table.name, "check": free[0], "expression": unparse(found)}
        return {"add_check": body}

    def drop_check(self, table: TableSchema) -> Any:
        if not table.checks:
            return None
        check = self.draw(st.sampled_from(table.checks))
        return {"drop_check": {"table": table.name, "check": check.name}}

    def add_reference(self, table: TableSchema) -> Any:
        """Or the index that it needs."""
        free = [
            f
            for f in table.fields
            if isinstance(f.type, Reference) and table.foreign_key_on(f.number) is None
        ]
        if not free:
            return None
        field = self.draw(st.sampled_from(free))
        if all(index.components[0].field != field.number for index in table.indexes):
            return self.create_index(table, [field])
        ways = ["restrict", "cascade"]
        if field.optional:
            ways.append("set_null")
        way = self.draw(st.sampled_from(ways))
        return {"add_reference": {"table": table.name, "field": field.name, "on_delete": way}}

    def drop_reference(self, table: TableSchema) -> Any:
        if not table.foreign_keys:
            return None
        key = self.draw(st.sampled_from(table.foreign_keys))
        name = table.field_numbered(key.field).name
        return {"drop_reference": {"table": table.name, "field": name}}

    def rename_field(self, table: TableSchema) -> Any:
        field = self.draw(st.sampled_from(table.fields))
        body = {"table": table.name, "field": field.name, "to": self.new_name(table)}
        return {"rename_field": body}

    def change_type(self, table: TableSchema) -> Any:
        free = [f for f in self.free_fields(table) if f.name in WORDS and f.type in MAKEABLE]
        free = [f for f in free if not f.generated]
        if not free:
            return None
        old = self.draw(st.sampled_from(free))
        kind = self.draw(st.sampled_from([k for k in MAKEABLE if k != old.type]))
        up = self.draw(wide(Type(kind), {old.name: Type(old.type)}))
        down = self.draw(wide(Type(old.type), {old.name: Type(kind)}))
        if up is None or down is None:
            return None
        body = {
            "table": table.name,
            "field": old.name,
            "type": kind.name,
            **kind.parameters(),
            "up": unparse(up),
            "down": unparse(down),
        }
        if old.has_default:
            body["default"] = kind.to_document(self.draw(values_of(kind)))
        return {"change_type": body}

    def transform(self, table: TableSchema) -> Any:
        free = [f for f in self.free_fields(table) if f.name in WORDS]
        if not free:
            return None
        old = self.draw(st.lists(st.sampled_from(free), min_size=1, max_size=2, unique_by=id))
        into: dict[str, Field] = {}
        for f in old:  # what can't be made can be handed on
            if f.type not in MAKEABLE:
                name = self.new_name(table, *into)
                into[name] = replace(f, name=name, default=NO_DEFAULT, generated=None)
        for _ in range(self.draw(st.integers(0 if into else 1, 2))):
            name = self.new_name(table, *into)
            into[name] = self.draw(fields_of(0, name, False, MAKEABLE))
        given = {f.name: Type(f.type, f.optional) for f in old}
        made = {name: Type(f.type, f.optional) for name, f in into.items()}
        up = {name: self.draw(wide(kind, given)) for name, kind in made.items()}
        down = {name: self.draw(wide(kind, made)) for name, kind in given.items()}
        if None in (*up.values(), *down.values()):
            return None
        return {
            "transform": {
                "table": table.name,
                "from": {
                    f.name: _field_document(replace(f, default=NO_DEFAULT, generated=None))
                    for f in old
                },
                "into": {name: _field_document(f) for name, f in into.items()},
                "up": {name: unparse(e) for name, e in up.items()},
                "down": {name: unparse(e) for name, e in down.items()},
            }
        }

    def create_index(self, table: TableSchema, chosen: list[Field] | None = None) -> Any:
        indexable = [f for f in table.fields if f.type.indexable]
        free = [n for n in ("by_a", "by_b", "by_c") if table.index_named(n) is None]
        if not indexable or not free:
            return None
        chosen = chosen or self.draw(
            st.lists(st.sampled_from(indexable), min_size=1, max_size=2, unique_by=id)
        )
        components = []
        for f in chosen:
            component: dict[str, Any] = {"field": f.name, "descending": self.draw(st.booleans())}
            if isinstance(f.type, String) and self.draw(st.booleans()):
                collation = self.draw(collations())
                component["collation"] = {
                    "locale": collation.locale,
                    "strength": collation.strength,
                    "numeric": collation.numeric,
                }
            components.append(component)
        body = {"table": table.name, "index": free[0], "fields": components}
        if self.draw(st.booleans()):
            body["unique"] = self.draw(st.booleans())
        return {"create_index": body}

    def drop_index(self, table: TableSchema) -> Any:
        free = [
            index
            for index in table.indexes
            if table.foreign_key_on(index.components[0].field) is None
        ]
        if not free:
            return None
        index = self.draw(st.sampled_from(free))
        return {"drop_index": {"table": table.name, "index": index.name}}

    def rename_index(self, table: TableSchema) -> Any:
        free = [n for n in ("by_a", "by_b", "by_c") if table.index_named(n) is None]
        if not table.indexes or not free:
            return None
        index = self.draw(st.sampled_from(table.indexes))
        to = self.draw(st.sampled_from(free))
        return {"rename_index": {"table": table.name, "index": index.name, "to": to}}

    def rename_table(self, schema: Schema, table: TableSchema) -> Any:
        taken = [t.name for t in schema]
        to = self.draw(st.sampled_from([n for n in WORDS if n not in taken]))
        return {"rename_table": {"table": table.name, "to": to}}

    def operation(self, schema: Schema) -> Any:
        if not schema.tables or (len(schema.tables) < 2 and self.draw(st.integers(0, 4)) == 4):
            return self.create_table(schema)
        table = self.draw(st.sampled_from(schema.tables))
        choices: list[Callable[[], Any]] = [
            lambda: self.add_field(schema, table),
            *[lambda: self.drop_field(table)] * 2,
            lambda: self.rename_field(table),
            lambda: self.reorder_field(table),
            *[lambda: self.change_type(table)] * 2,
            lambda: self.change_default(table),
            lambda: self.make_required(table),
            lambda: self.make_optional(table),
            *[lambda: self.transform(table)] * 2,
            *[lambda: self.alter_type(schema)] * 2,
            lambda: self.create_index(table),
            lambda: self.drop_index(table),
            lambda: self.rename_index(table),
            lambda: self.add_check(table),
            lambda: self.drop_check(table),
            *[lambda: self.add_reference(table)] * 2,
            lambda: self.drop_reference(table),
            lambda: self.rename_table(schema, table),
            lambda: self.drop_table(schema, table),
        ]
        if self.archives and table.archived:
            choices += [lambda: self.restore_field(schema, table)] * 4
        if schema.archived:
            choices += [lambda: self.restore_table(schema)] * 4
        # what is impossible on this table (there is no index to drop) becomes a new field
        return self.draw(st.sampled_from(choices))() or self.add_field(schema, table)


def is_valid(operation: Any, schema: Schema) -> bool:
    """Whether one operation may stand alone in a migration after this schema."""
    source = DocumentText("9999_tried.yaml", document_of([operation]).encode())
    parsed = parse_document(read_document(source), source, 9999, "tried")
    try:
        resolve(parsed, schema, NumberAllocator(dict.fromkeys(KINDS, 10**6)))
    except InvalidMigration:
        return False
    return True


KINDS = ("table", "field", "index", "type", "check")


def document_of(operations: list[Any], rollback: Any = "inferred") -> str:
    return to_yaml({"zapdb": 1, "summary": "drawn", "changes": operations, "rollback": rollback})


def extend(chain: Chain, text: str, numbers: NumberAllocator) -> Chain:
    """The chain with one more migration, read from text."""
    number = chain.end + 1
    source = DocumentText(f"{number:04d}_drawn.yaml", text.encode())
    parsed = parse_document(read_document(source), source, number, "drawn")
    return chain.with_migration(resolve(parsed, chain.schema_at(chain.end), numbers))


@st.composite
def chains(draw: st.DrawFn, migrations_max: int = 5, *, archives: bool = False) -> Chain:
    """Chains of valid migrations, one or two operations each; the first declares types.

    With `archives`, some fields and tables that go are archived, and some of those come back:
    records have values beside them then, which conversions have to carry along.
    """
    author, chain, numbers = Author(draw, archives=archives), Chain(), NumberAllocator()
    chain = extend(chain, document_of(DECLARATIONS), numbers)
    for _ in range(draw(st.integers(2, migrations_max))):
        schema, operations = chain.schema_at(chain.end), []
        for _ in range(draw(st.integers(1, 2))):
            operations.append(author.operation(schema))
            # resolved on a copy of the numbers, to see the schema that the next operation meets
            try:
                tried = extend(chain, document_of(operations), NumberAllocator(numbers.following))
            except InvalidMigration:  # there and back again, in one migration
                operations.pop()
                break
            schema = tried.schema_at(tried.end)
            if operations[-1].keys() & {"restore_field", "restore_table"}:
                break  # what comes back goes again in another migration only
        if operations:
            chain = extend(chain, document_of(operations), numbers)
    return chain


def check_cells(chain: Chain) -> None:
    """Each migration of a chain leaves the cells of a table as they were if, and only if, its
    records keep all their bytes both ways; and cells are no others' cells or numbers."""
    for migration in chain.migrations:
        for table in migration.after:
            fields = [*table.fields, *(archived.field for archived in table.archived)]
            cells = [field.cell for field in fields]
            assert len({*cells}) == len(cells)
            assert {cell for cell, f in zip(cells, fields, strict=True) if cell != f.number} <= {
                number for m in chain.migrations for number in m.drawn.get("field", ())
            } - {f.number for f in fields}
            before = migration.before.table_active_or_archived(table.number)
            if before is None or before == table:
                continue
            plans = migration.conversion_up(table.number), migration.conversion_down(table.number)
            is_same = Layout.of(before) == Layout.of(table) and all(p.is_identity for p in plans)
            assert (before.cells == table.cells) == is_same
        read = read_stored(
            migration.structure, migration.name, "", migration.drawn, migration.before
        )
        assert read.after == migration.after
