"""From a checked tree to Python source: one expression, with functions and literals bound."""

from __future__ import annotations

from collections.abc import Mapping

from zapdb.expressions.check import COALESCE, Type, check, widen
from zapdb.expressions.functions import FAILED, FUNCTIONS
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
from zapdb.values import Decimal
from zapdb.values.source import Namespace


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

    def emit(self, expression: Expression) -> str:
        match expression:
            case Literal(value):
                if value is None or isinstance(value, bool | int):
                    return f"({value!r})"
                return self.names.bind(value, "text")
            case Name(name):
                return self.variables[name]
            case Conditional(test, then, otherwise):
                return f"({self.emit(then)} if {self.emit(test)} else {self.emit(otherwise)})"
            case Compare(operator, left, right):
                return f"({self.emit(left)} {operator} {self.emit(right)})"
            case IsNull(operand, negated):
                return f"({self.emit(operand)} is {'not ' if negated else ''}None)"
            case Logic(operator, operands):
                return "(" + f" {operator} ".join(self.emit(part) for part in operands) + ")"
            case Not(operand):
                return f"(not {self.emit(operand)})"
            case Call():
                return self._emit_call(expression)

    def _emit_call(self, call: Call) -> str:
        arguments = [self.emit(argument) for argument in call.arguments]
        if call.function == COALESCE:
            held = self._temporary()
            value, default = arguments
            return f"({held} if ({held} := {value}) is not None else {default})"
        function = FUNCTIONS[call.function]
        applied = f"{self.names.bind(function.apply, function.name)}({', '.join(arguments)})"
        if call.otherwise is None:
            return applied
        failed = self.names.bind(FAILED, "FAILED")
        held = self._temporary()
        return f"({held} if ({held} := {applied}) is not {failed} else {self._fallback(call)})"

    def _fallback(self, call: Call) -> str:
        assert call.otherwise is not None
        result = check(call, self.fields).kind
        if isinstance(result, Decimal):
            widened = widen(call.otherwise, result)
            if widened is not None:
                return self.names.bind(widened, "number")
        return self.emit(call.otherwise)

    def _temporary(self) -> str:
        self.temporaries += 1
        return f"t{self.tag}_{self.temporaries}"
