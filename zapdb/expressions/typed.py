"""Types of expressions, and expressions that carry theirs: what checking gives and emission takes.

Every expression has one type, known when its file is loaded. A value that may be null is of an
optional type, and nothing but `is None`, `coalesce` and the branches of a conditional take one: so
no function has to say what it does with null. Tests narrow the types of fields: see `narrowing`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from zapdb.expressions.tree import Expression
from zapdb.values import ValueType


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
