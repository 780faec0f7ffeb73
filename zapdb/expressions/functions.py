"""The registry of functions: pure, total, and dependent on their arguments' bytes alone (rule 18).

A function gets arguments that are not null, of types that `Function` resolves. One that can fail
for some arguments is marked `partial`: its call must say `else=`, and it returns `FAILED` then. No
function consults Unicode tables, locale, the clock, tz data or ICU, so a conversion gives the same
bytes on every machine and for ever. What a name means never changes: the texts of expressions enter
digests.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from zapdb.errors import InvalidValue
from zapdb.expressions import arithmetic, value_functions
from zapdb.expressions.arithmetic import FAILED
from zapdb.expressions.tokens import ExpressionError
from zapdb.expressions.tree import Call, Literal, Type, TypedExpression
from zapdb.limits import DECIMAL_SCALE_MAX
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    List,
    String,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)

STRING: Final = String()
INTEGER: Final = Integer()
BOOLEAN: Final = Boolean()

Kinds = tuple[type[ValueType], ...]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a call is for arguments of these types; `arguments` may be held otherwise now."""

    kind: ValueType
    apply: Callable[..., Any]
    arguments: tuple[TypedExpression, ...]


Resolve = Callable[[Call, tuple[TypedExpression, ...]], Resolved]


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the language.

    `parameters` lists which types each argument may have; the last repeats if `variadic`. `result`
    is the type of the value. Where it is a tuple of types, the arguments decide on more than that,
    and `apply` is no function of values but a `Resolve`.
    """

    name: str
    parameters: tuple[Kinds, ...]
    result: ValueType | Kinds
    apply: Callable[..., Any]
    description: str
    variadic: bool = False
    partial: bool = False

    @property
    def results(self) -> Kinds:
        return self.result if isinstance(self.result, tuple) else (type(self.result),)

    def resolve(self, call: Call, arguments: tuple[TypedExpression, ...]) -> Resolved:
        """The function for these arguments, whose number and types were checked."""
        if not isinstance(self.result, tuple):
            return Resolved(self.result, self.apply, arguments)
        resolved: Resolved = self.apply(call, arguments)
        return resolved


def scale_of(argument: TypedExpression) -> int:
    """The scale that a literal argument says."""
    column = argument.node.column
    if not isinstance(argument.node, Literal):
        raise ExpressionError("the scale must be a literal", column)
    scale: int = argument.value
    if not 0 <= scale <= DECIMAL_SCALE_MAX:
        raise ExpressionError(f"a scale is 0 to {DECIMAL_SCALE_MAX}", column)
    return scale


def widen(literal: TypedExpression, target: ValueType | None) -> TypedExpression:
    """Return an integer literal next to decimals as a decimal; return any other expression
    unchanged."""
    if not (isinstance(target, Decimal) and isinstance(literal.node, Literal)):
        return literal
    if type(literal.value) is not int:
        return literal
    try:
        value = target.check(literal.value, "literal")
    except InvalidValue:
        raise ExpressionError(f"{literal.value} is too large", literal.node.column) from None
    return replace(literal, type=Type(target), value=value)


def is_constant(call: Call, resolved: Resolved) -> bool:
    """Return whether a call without `else=` has literals alone, and does not fail for them."""
    if call.on_failure is not None:
        return False
    arguments = resolved.arguments
    if not all(isinstance(argument.node, Literal) for argument in arguments):
        return False
    return resolved.apply(*[argument.value for argument in arguments]) is not FAILED


def to_scale(apply: Callable[[int], Callable[..., Any]], at: int) -> Resolve:
    """Resolves to a decimal of the scale that the argument at a place says."""

    def resolve(call: Call, arguments: tuple[TypedExpression, ...]) -> Resolved:
        scale = scale_of(arguments[at])
        return Resolved(Decimal(scale), apply(scale), arguments)

    return resolve


def resolve_absolute(call: Call, arguments: tuple[TypedExpression, ...]) -> Resolved:
    kind = arguments[0].type.kind
    match kind:
        case Decimal(scale):
            apply = arithmetic.decimal_operation("abs", scale)
            return Resolved(Decimal(scale), apply, arguments)
        case Float():
            return Resolved(Float(), abs, arguments)
    return Resolved(INTEGER, arithmetic.absolute, arguments)


def choosing(exact: Callable[..., Any], floats: Callable[..., float]) -> Resolve:
    """Resolve to one of several arguments of one type; integer literals next to decimals become
    decimals."""

    def resolve(call: Call, arguments: tuple[TypedExpression, ...]) -> Resolved:
        kinds = [a.type.kind for a in arguments if a.type.kind is not None]
        kind = next((kind for kind in kinds if not isinstance(kind, Integer)), INTEGER)
        arguments = tuple(widen(argument, kind) for argument in arguments)
        _expect_kind(call, arguments, kind)
        return Resolved(kind, floats if isinstance(kind, Float) else exact, arguments)

    return resolve


def _expect_kind(call: Call, arguments: Sequence[TypedExpression], kind: ValueType | None) -> None:
    for argument in arguments:
        if argument.type.kind != kind:
            raise ExpressionError(
                f"{call.function}() takes {kind} here, not {argument.type}",
                argument.node.column,
            )


def resolve_contains(call: Call, arguments: tuple[TypedExpression, ...]) -> Resolved:
    kind = arguments[0].type.kind
    if not isinstance(kind, List):
        _expect_kind(call, arguments[1:], STRING)
        return Resolved(BOOLEAN, str.__contains__, arguments)
    if not kind.items.comparable:
        raise ExpressionError(f"{kind.items} cannot be compared", call.column)
    arguments = (arguments[0], widen(arguments[1], kind.items))
    _expect_kind(call, arguments[1:], kind.items)
    return Resolved(BOOLEAN, _containing(kind.items), arguments)


def _containing(items: ValueType) -> Callable[[Sequence[Any], Any], bool]:
    return lambda held, wanted: any(items.is_same(item, wanted) for item in held)


_TEXT: Final[Kinds] = (String,)
NUMBER: Final[Kinds] = (Integer, Decimal, Float)
EXACT_NUMBER: Final[Kinds] = (Integer, Decimal)
_ANY: Final[Kinds] = (ValueType,)


TEXTABLE: Final[Kinds] = (
    Integer,
    Decimal,
    Boolean,
    Date,
    Uuid,
    String,
    Timestamp,
    Float,
    Binary,
    Enum,
)

FUNCTIONS: Final[dict[str, Function]] = {
    function.name: function
    for function in (
        # texts
        Function(
            "before",
            (_TEXT, _TEXT),
            STRING,
            value_functions.before,
            "The text before the first separator; all of it where there is none.",
        ),
        Function(
            "after",
            (_TEXT, _TEXT),
            STRING,
            value_functions.after,
            "The text after the first separator; empty where there is none.",
        ),
        Function(
            "part",
            (_TEXT, _TEXT, (Integer,)),
            STRING,
            value_functions.part,
            "The part of that number, from 1, of the text split at the separator; empty where "
            "there is none. An empty separator splits nothing.",
        ),
        Function(
            "substring",
            (_TEXT, (Integer,), (Integer,)),
            STRING,
            value_functions.substring,
            "The characters from that position, the first being 1, as many as that; those that "
            "there are.",
        ),
        Function(
            "join",
            (_TEXT, _TEXT),
            STRING,
            value_functions.join_text,
            "The texts, with the first argument between them.",
            variadic=True,
        ),
        Function(
            "replace",
            (_TEXT, _TEXT, _TEXT),
            STRING,
            value_functions.replace_text,
            "The text with the third in place of the second, everywhere; as it is where the second "
            "is empty.",
        ),
        Function(
            "lower",
            (_TEXT,),
            STRING,
            value_functions.lower,
            "A to Z as a to z; all else as it is.",
        ),
        Function(
            "upper",
            (_TEXT,),
            STRING,
            value_functions.upper,
            "a to z as A to Z; all else as it is.",
        ),
        Function(
            "strip",
            (_TEXT,),
            STRING,
            value_functions.strip,
            "Without ASCII white space at both ends.",
        ),
        Function(
            "length",
            ((String, Binary, List),),
            INTEGER,
            len,
            "The number of code points, bytes or items.",
        ),
        Function(
            "contains",
            ((String, List), _ANY),
            (Boolean,),
            resolve_contains,
            "Whether the second text occurs in the first, or the value among the list's items.",
        ),
        Function(
            "starts_with",
            (_TEXT, _TEXT),
            BOOLEAN,
            str.startswith,
            "Whether the first text begins with the second.",
        ),
        Function(
            "ends_with",
            (_TEXT, _TEXT),
            BOOLEAN,
            str.endswith,
            "Whether the first text ends with the second.",
        ),
        # numbers
        Function("abs", (NUMBER,), NUMBER, resolve_absolute, "The number without its sign."),
        Function(
            "min",
            (NUMBER, NUMBER),
            NUMBER,
            choosing(min, arithmetic.least_float),
            "The least of numbers of one type. NaN comes after all others.",
            variadic=True,
        ),
        Function(
            "max",
            (NUMBER, NUMBER),
            NUMBER,
            choosing(max, arithmetic.greatest_float),
            "The greatest of numbers of one type. NaN comes after all others.",
            variadic=True,
        ),
        Function(
            "round",
            ((Decimal,), (Integer,)),
            (Decimal,),
            to_scale(lambda scale: arithmetic.round_to(scale, decimal.ROUND_HALF_EVEN), 1),
            "The nearest decimal of the literal scale; of two, the one with an even last digit.",
        ),
        Function(
            "truncate",
            ((Decimal,), (Integer,)),
            (Decimal,),
            to_scale(lambda scale: arithmetic.round_to(scale, decimal.ROUND_DOWN), 1),
            "The decimal cut to the literal scale, towards 0.",
        ),
        Function(
            "quotient",
            ((Integer,), (Integer,)),
            INTEGER,
            arithmetic.quotient,
            "The integer below or equal to the first divided by the second; fails for 0.",
            partial=True,
        ),
        Function(
            "remainder",
            ((Integer,), (Integer,)),
            INTEGER,
            arithmetic.remainder,
            "What `quotient` leaves, with the sign of the second; fails for 0.",
            partial=True,
        ),
        Function(
            "divide",
            (EXACT_NUMBER, EXACT_NUMBER, (Integer,)),
            (Decimal,),
            to_scale(lambda scale: arithmetic.divide, 2),
            "The first divided by the second, rounded as by `round` to the literal scale; fails "
            "for 0.",
            partial=True,
        ),
        # dates and times
        Function("year", ((Date,),), INTEGER, value_functions.year, "The year of the date."),
        Function(
            "month", ((Date,),), INTEGER, value_functions.month, "The month of the date, 1 to 12."
        ),
        Function("day", ((Date,),), INTEGER, value_functions.day, "The day of the month, from 1."),
        Function(
            "add_days",
            ((Date,), (Integer,)),
            Date(),
            value_functions.add_days,
            "So many days later, or earlier; fails outside the years 1 to 9999.",
            partial=True,
        ),
        Function(
            "days_between",
            ((Date,), (Date,)),
            INTEGER,
            value_functions.days_between,
            "The days from the first date to the second; below 0 where that is earlier.",
        ),
        Function(
            "date_of",
            ((Timestamp,),),
            Date(),
            value_functions.date_of,
            "The date in UTC.",
        ),
        Function(
            "timestamp_of",
            ((Date,),),
            Timestamp(),
            value_functions.timestamp_of,
            "Midnight UTC at the beginning of the date.",
        ),
        Function(
            "local_date",
            ((ZonedTimestamp,),),
            Date(),
            value_functions.local_date,
            "The date of the local time, as it is stored.",
        ),
        Function(
            "zone_name",
            ((ZonedTimestamp,),),
            STRING,
            value_functions.zone_name,
            "The name of the time zone, as it is stored.",
        ),
        # from type to type
        Function(
            "text",
            (TEXTABLE,),
            STRING,
            value_functions.to_text,
            "The value as text: digits, `true` or `false`, an ISO date, an RFC 3339 instant with "
            "`Z`, lower-case hexadecimal digits, the name of an enum's member.",
        ),
        Function(
            "integer",
            ((String, Decimal),),
            INTEGER,
            value_functions.to_integer,
            "The integer that the text spells in ASCII digits, or that the decimal equals.",
            partial=True,
        ),
        Function(
            "decimal",
            ((String, Integer, Decimal), (Integer,)),
            (Decimal,),
            to_scale(lambda scale: value_functions.to_decimal, 1),
            f"The decimal of that value, exactly, with the literal scale 0 to {DECIMAL_SCALE_MAX}.",
            partial=True,
        ),
        Function(
            "float",
            ((Integer, Decimal, String),),
            Float(),
            value_functions.to_float,
            "The float nearest to that value; fails beyond the largest. A text has ASCII digits, "
            "maybe an exponent after `e`, or is `nan`, `inf` or `-inf`.",
            partial=True,
        ),
        Function(
            "date",
            (_TEXT,),
            Date(),
            value_functions.to_date,
            "The date that the text spells as `YYYY-MM-DD`.",
            partial=True,
        ),
        Function(
            "timestamp",
            (_TEXT,),
            Timestamp(),
            value_functions.to_timestamp,
            "The instant that the text spells as `YYYY-MM-DDThh:mm:ssZ`, with a point and 1 to 6 "
            "digits before the `Z` maybe.",
            partial=True,
        ),
        Function(
            "uuid",
            (_TEXT,),
            Uuid(),
            value_functions.to_uuid,
            "The UUID that the text spells in 36 characters, in lower or upper case.",
            partial=True,
        ),
        Function(
            "hex",
            ((Binary,),),
            STRING,
            value_functions.to_hex,
            "The bytes as lower-case hexadecimal digits.",
        ),
        Function(
            "unhex",
            (_TEXT,),
            Binary(),
            value_functions.from_hex,
            "The bytes that the text spells in pairs of hexadecimal digits.",
            partial=True,
        ),
        Function(
            "utf8",
            ((Binary,),),
            STRING,
            value_functions.from_utf8,
            "The text that the bytes are in UTF-8; fails for what a string can't hold.",
            partial=True,
        ),
        Function(
            "bytes_of", (_TEXT,), Binary(), value_functions.to_bytes, "The text as bytes in UTF-8."
        ),
    )
}
