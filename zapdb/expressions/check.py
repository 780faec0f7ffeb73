"""Types of expressions: every expression has one type, known when its file is loaded.

A value that may be null is of an optional type, and nothing but `is None`, `coalesce` and the
branches of a conditional take one: so no function has to say what it does with null.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from zapdb.errors import InvalidValue
from zapdb.expressions.functions import BOOLEAN, FUNCTIONS, INTEGER, STRING, Function
from zapdb.expressions.parse import ExpressionError
from zapdb.expressions.tree import (
    Call,
    Compare,
    Conditional,
    Expression,
    IsNull,
    Literal,
    Logic,
    Name,
    Not,
)
from zapdb.limits import DECIMAL_SCALE_MAX
from zapdb.values import Decimal, Integer, ValueType

COALESCE: Final = "coalesce"


@dataclass(frozen=True, slots=True)
class Type:
    """A value type, or None for the literal `None` alone; `optional` values may be null."""

    kind: ValueType | None
    optional: bool = False

    def __str__(self) -> str:
        if self.kind is None:
            return "None"
        return f"optional {self.kind}" if self.optional else str(self.kind)

    def fits(self, target: Type) -> bool:
        """Whether a value of this type may be stored where `target` is wanted."""
        if self.kind is None:
            return target.optional
        return (self.kind == target.kind) and (target.optional or not self.optional)


BOOLEAN_TYPE: Final = Type(BOOLEAN)


def check(expression: Expression, fields: Mapping[str, Type]) -> Type:
    """The type of the expression over these fields; raises `ExpressionError`."""
    match expression:
        case Literal(value, column):
            return _literal_type(value)
        case Name(name, column):
            if name not in fields:
                raise ExpressionError(
                    f"no field {name!r} here", column, f"there are: {', '.join(sorted(fields))}"
                )
            return fields[name]
        case Conditional(test, then, otherwise, column):
            _expect(test, fields, BOOLEAN_TYPE)
            return _unite(check(then, fields), check(otherwise, fields), column)
        case Compare(operator, left, right, column):
            _check_comparison(operator, check(left, fields), check(right, fields), column)
            return BOOLEAN_TYPE
        case IsNull(operand, _, column):
            if not check(operand, fields).optional:
                raise ExpressionError("this is never null", column)
            return BOOLEAN_TYPE
        case Logic(_, operands):
            for operand in operands:
                _expect(operand, fields, BOOLEAN_TYPE)
            return BOOLEAN_TYPE
        case Not(operand):
            _expect(operand, fields, BOOLEAN_TYPE)
            return BOOLEAN_TYPE
        case Call():
            return _check_call(expression, fields)


def _literal_type(value: str | int | bool | None) -> Type:
    match value:
        case None:
            return Type(None, optional=True)
        case bool():
            return BOOLEAN_TYPE
        case int():
            return Type(INTEGER)
        case str():
            return Type(STRING)


def _expect(expression: Expression, fields: Mapping[str, Type], wanted: Type) -> None:
    found = check(expression, fields)
    if not found.fits(wanted):
        raise ExpressionError(f"{wanted} is needed here, this is {found}", expression.column)


def _unite(left: Type, right: Type, column: int) -> Type:
    if left.kind is None or right.kind is None:
        return Type(left.kind or right.kind, optional=True)
    if left.kind != right.kind:
        raise ExpressionError(f"both branches need one type: {left} and {right}", column)
    return Type(left.kind, left.optional or right.optional)


def _check_comparison(operator: str, left: Type, right: Type, column: int) -> None:
    if left.optional or right.optional:
        raise ExpressionError("one side may be null", column, "test `is None`, or use coalesce()")
    numbers = isinstance(left.kind, Integer | Decimal) and isinstance(right.kind, Integer | Decimal)
    if not numbers and left.kind != right.kind:
        raise ExpressionError(f"{left} and {right} can't be compared", column)
    if left.kind is not None and not left.kind.comparable:
        raise ExpressionError(f"{left} can't be compared", column)
    if operator not in ("==", "!=") and left.kind is not None and not left.kind.ordered:
        raise ExpressionError(f"{left} has no order", column)


def _check_call(call: Call, fields: Mapping[str, Type]) -> Type:
    if call.function == COALESCE:
        return _check_coalesce(call, fields)
    function = FUNCTIONS.get(call.function)
    if function is None:
        raise ExpressionError(
            f"no function {call.function!r}",
            call.column,
            f"there are: {', '.join(sorted([*FUNCTIONS, COALESCE]))}",
        )
    _check_arguments(call, function, fields)
    result = Type(function.result or _decimal_of(call))
    if not function.partial:
        if call.otherwise is not None:
            raise ExpressionError(f"{call.function}() never fails: else= has no use", call.column)
        return result
    if call.otherwise is None:
        raise ExpressionError(
            f"{call.function}() can fail", call.column, "say what then: add else=…"
        )
    if isinstance(result.kind, Decimal) and widen(call.otherwise, result.kind) is not None:
        return result
    fallback = check(call.otherwise, fields)
    return _unite(result, fallback, call.column)


def _check_arguments(call: Call, function: Function, fields: Mapping[str, Type]) -> None:
    wanted = list(function.parameters)
    if function.variadic:
        wanted += wanted[-1:] * (len(call.arguments) - len(wanted))
    if len(call.arguments) != len(wanted):
        raise ExpressionError(
            f"{function.name}() takes {len(wanted)} arguments, not {len(call.arguments)}",
            call.column,
        )
    for argument, kinds in zip(call.arguments, wanted, strict=True):
        found = check(argument, fields)
        if found.optional:
            raise ExpressionError(
                f"{function.name}() takes no null, and this may be one",
                argument.column,
                "give it coalesce(…, a value for null)",
            )
        if not isinstance(found.kind, kinds):
            names = " or ".join(kind.name for kind in kinds)
            raise ExpressionError(
                f"{function.name}() takes {names} here, this is {found}", argument.column
            )


def _decimal_of(call: Call) -> Decimal:
    scale = call.arguments[1]
    if not (isinstance(scale, Literal) and isinstance(scale.value, int)):
        raise ExpressionError("the scale must be a literal", scale.column)
    if not 0 <= scale.value <= DECIMAL_SCALE_MAX:
        raise ExpressionError(f"a scale is 0 to {DECIMAL_SCALE_MAX}", scale.column)
    return Decimal(scale.value)


def widen(fallback: Expression, target: Decimal) -> decimal.Decimal | None:
    """An integer literal as the decimal it stands for beside decimals; None for all else."""
    if not isinstance(fallback, Literal) or type(fallback.value) is not int:
        return None
    try:
        widened: decimal.Decimal = target.check(fallback.value, "else")
    except InvalidValue:
        raise ExpressionError(f"{fallback.value} is too large", fallback.column) from None
    return widened


def _check_coalesce(call: Call, fields: Mapping[str, Type]) -> Type:
    if len(call.arguments) != 2 or call.otherwise is not None:
        raise ExpressionError("coalesce() takes a value and what stands for null", call.column)
    value, default = (check(argument, fields) for argument in call.arguments)
    if not value.optional:
        raise ExpressionError("this is never null", call.arguments[0].column)
    return Type(_unite(value, default, call.column).kind, default.optional)
