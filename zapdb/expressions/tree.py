"""The closed set of expressions, as frozen trees, with their one canonical text and their types.

Every expression has one type, known when its file is loaded. A value that may be null is of an
optional type, and nothing but `is None`, `coalesce` and the branches of a conditional take one: so
no function has to say what it does with null. Tests narrow the types of fields (see `type_check`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from typing import Literal as OneOf

from zapdb.values import ValueType

ComparisonOperator = OneOf["==", "!=", "<", "<=", ">", ">="]
LogicalOperator = OneOf["and", "or"]
ArithmeticOperator = OneOf["+", "-", "*", "//", "%"]


@dataclass(frozen=True, slots=True)
class Literal:
    value: str | int | bool | None
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    name: str
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """`on_failure` is what the author wrote as `else=`: the result where the call would fail."""

    function: str
    arguments: tuple[Expression, ...]
    on_failure: Expression | None = None
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Conditional:
    test: Expression
    then: Expression
    otherwise: Expression
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    operator: ComparisonOperator
    left: Expression
    right: Expression
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Expression
    negated: bool = False
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Logic:
    operator: LogicalOperator
    operands: tuple[Expression, ...]
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LogicalNot:
    operand: Expression
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    operator: ArithmeticOperator
    left: Expression
    right: Expression
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Negate:
    """Never of an integer literal that is not negative: with its sign that is one literal."""

    operand: Expression
    column: int = field(default=0, compare=False)


Expression = (
    Literal
    | Name
    | Call
    | Conditional
    | Compare
    | IsNull
    | Logic
    | LogicalNot
    | Arithmetic
    | Negate
)


def unparse(expression: Expression) -> str:  # noqa: C901 - a case for each kind of expression
    """The canonical text: every composite operand in parentheses, so nothing depends on ranks."""
    match expression:
        case Literal(value):
            return _quote(value) if isinstance(value, str) else str(value)
        case Name(name):
            return name
        case Call(function, arguments, on_failure):
            parts = [unparse(argument) for argument in arguments]
            if on_failure is not None:
                parts.append(f"else={unparse(on_failure)}")
            return f"{function}({', '.join(parts)})"
        case Conditional(test, then, otherwise):
            return f"{_operand(then)} if {_operand(test)} else {_operand(otherwise)}"
        case Compare(operator, left, right) | Arithmetic(operator, left, right):
            return f"{_operand(left)} {operator} {_operand(right)}"
        case IsNull(operand, negated):
            return f"{_operand(operand)} is {'not ' if negated else ''}None"
        case Logic(operator, operands):
            return f" {operator} ".join(_operand(operand) for operand in operands)
        case LogicalNot(operand):
            return f"not {_operand(operand)}"
        case Negate(operand):
            return f"-{_operand(operand)}"


def names_in(expression: Expression) -> frozenset[str]:
    """The field names that the expression reads."""
    match expression:
        case Literal():
            return frozenset()
        case Name(name):
            return frozenset((name,))
        case Call(_, arguments, on_failure):
            parts = arguments if on_failure is None else (*arguments, on_failure)
        case Conditional(test, then, otherwise):
            parts = (test, then, otherwise)
        case Compare(_, left, right) | Arithmetic(_, left, right):
            parts = (left, right)
        case IsNull(operand) | LogicalNot(operand) | Negate(operand):
            parts = (operand,)
        case Logic(_, operands):
            parts = operands
    return frozenset().union(*(names_in(part) for part in parts))


def _operand(expression: Expression) -> str:
    text = unparse(expression)
    return text if isinstance(expression, Literal | Name | Call) else f"({text})"


def _quote(text: str) -> str:
    """A string literal that does not depend on the running Python's idea of printable."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return (
        "'" + "".join(c if c >= " " and c != "\x7f" else f"\\x{ord(c):02x}" for c in escaped) + "'"
    )


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


@dataclass(frozen=True, slots=True)
class TypedExpression:
    """An expression of a known type, with its checked parts.

    The parts stand in the order of the tree's fields; those of a call end with its `else=`.
    `value` is that of a literal, as values of its type are held. `apply` is what is called with the
    values of the parts, where that is not an operator of Python.
    """

    node: Expression
    type: Type
    parts: tuple[TypedExpression, ...] = ()
    value: Any = None
    apply: Callable[..., Any] | None = None
