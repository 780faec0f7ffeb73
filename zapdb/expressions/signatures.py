"""What a function of expressions takes and gives: how the types of its arguments are resolved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from zapdb.errors import InvalidValue
from zapdb.expressions import arithmetic
from zapdb.expressions.arithmetic import FAILED
from zapdb.expressions.tokens import ExpressionError
from zapdb.expressions.tree import Call, Literal
from zapdb.expressions.typed import Type, TypedExpression
from zapdb.limits import DECIMAL_SCALE_MAX
from zapdb.values import (
    Boolean,
    Decimal,
    Float,
    Integer,
    List,
    String,
    ValueType,
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
