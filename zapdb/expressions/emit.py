"""From a checked tree to Python source: one expression, with functions and literals bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, assert_never

from zapdb.expressions.arithmetic import FAILED
from zapdb.expressions.tree import (
    Arithmetic,
    Call,
    Compare,
    ComparisonOperator,
    Conditional,
    Expression,
    IsNull,
    Literal,
    Logic,
    LogicalNot,
    Name,
    Negate,
    Type,
    TypedExpression,
)
from zapdb.expressions.type_check import COALESCE, annotate_types
from zapdb.values import Decimal, Float
from zapdb.values.generated_source import Namespace

SMALL: Final = 1 << 62
"""Integers below this in size need no look at the bounds of the type."""


class Emitter:
    """Emits expressions over `fields`, each held by the variable that `variables` names.

    Temporaries are numbered, so that several expressions may stand in one function.
    """

    def __init__(
        self, fields: Mapping[str, Type], variables: Mapping[str, str], names: Namespace, tag: str
    ) -> None:
        self.fields = fields
        self.variables = variables
        self.names = names
        self.tag = tag
        self.temporaries = 0

    def emit(self, expression: Expression, wanted: Type | None = None) -> str:
        """The source of an expression that was checked with the same wanted type."""
        return self._emit(annotate_types(expression, self.fields, wanted, is_generated=True))

    def _emit(self, checked: TypedExpression) -> str:  # noqa: C901 - a case for each kind of expression
        parts = [self._emit(part) for part in checked.parts]
        match checked.node:
            case Literal():
                if checked.value is None or isinstance(checked.value, bool | int):
                    return f"({checked.value!r})"
                return self.names.bind(checked.value, "literal")
            case Name(name):
                return self.variables[name]
            case Conditional():
                test, then, otherwise = parts
                return f"({then} if {test} else {otherwise})"
            case Compare(operator):
                return self._emit_comparison(operator, checked, *parts)
            case IsNull(_, negated):
                return f"({parts[0]} is {'not ' if negated else ''}None)"
            case Logic(operator):
                return "(" + f" {operator} ".join(parts) + ")"
            case LogicalNot():
                return f"(not {parts[0]})"
            case Negate():
                return self._emit_arithmetic(checked, f"-{parts[0]}", parts)
            case Arithmetic(operator):
                return self._emit_arithmetic(checked, f"{parts[0]} {operator} {parts[1]}", parts)
            case Call(function):
                return self._emit_call(function, checked, parts)

    def _emit_comparison(
        self, operator: ComparisonOperator, checked: TypedExpression, left: str, right: str
    ) -> str:
        if checked.apply is None:  # Python's operators are called the same
            return f"({left} {operator} {right})"
        is_same = f"{self.names.bind(checked.apply, 'is_same')}({left}, {right})"
        match operator:
            case "==":
                return is_same
            case "!=":
                return f"(not {is_same})"
            case "<" | "<=" | ">" | ">=":
                raise TypeError(f"{checked.parts[0].type} has no order")
            case _:
                assert_never(operator)

    def _emit_arithmetic(self, checked: TypedExpression, source: str, parts: list[str]) -> str:
        if isinstance(checked.type.kind, Float):
            return f"({source} + 0.0)"  # −0.0 + 0.0 is 0.0
        if checked.apply is None:
            return f"({source})"
        helper = self.names.bind(checked.apply, "saturate")
        if isinstance(checked.type.kind, Decimal):
            return f"{helper}({', '.join(parts)})"
        held = self._temporary()
        return f"({held} if {-SMALL} <= ({held} := {source}) <= {SMALL} else {helper}({held}))"

    def _emit_call(self, function: str, checked: TypedExpression, parts: list[str]) -> str:
        held = self._temporary()
        if function == COALESCE:
            value, default = parts
            return f"({held} if ({held} := {value}) is not None else {default})"
        assert checked.apply is not None
        # Not the function's name alone: `float` and others would hide what Python has.
        name = self.names.bind(checked.apply, f"apply_{function}")
        call = checked.node
        assert isinstance(call, Call)
        if call.on_failure is None:
            return f"{name}({', '.join(parts)})"
        *arguments, fallback = parts
        failed = self.names.bind(FAILED, "FAILED")
        applied = f"{name}({', '.join(arguments)})"
        return f"({held} if ({held} := {applied}) is not {failed} else {fallback})"

    def _temporary(self) -> str:
        self.temporaries += 1
        return f"t{self.tag}_{self.temporaries}"
