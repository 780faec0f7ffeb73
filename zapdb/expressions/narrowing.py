"""What a test says of nulls: `f is not None and f >= 17` compares no null.

Operands of `and` and `or` are evaluated from the left, and no further than needed; of a conditional
only the branch that its test selects. So what is known where an operand is evaluated follows from
how the tests before it came out. Only fields are followed, since that is what people test; a field
has one value throughout an expression.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from zapdb.expressions.tree import Conditional, Expression, IsNull, Logic, LogicalNot, Name

NO_FIELDS = frozenset[str]()


@dataclass(frozen=True, slots=True)
class NotNull:
    """Which fields are not null wherever a test is true, and wherever it is false."""

    if_true: frozenset[str] = NO_FIELDS
    if_false: frozenset[str] = NO_FIELDS

    def flip(self) -> NotNull:
        return NotNull(self.if_false, self.if_true)

    def given(self, outcome: bool) -> frozenset[str]:
        return self.if_true if outcome else self.if_false


NOTHING_KNOWN = NotNull()


def find_not_null(test: Expression) -> NotNull:
    """What the outcomes of a test, a boolean, say of fields."""
    match test:
        case IsNull(Name(name), negated):
            found = NotNull(if_false=frozenset((name,)))
            return found.flip() if negated else found
        case LogicalNot(operand):
            return find_not_null(operand).flip()
        case Logic(operator, operands):
            first, *rest = map(find_not_null, operands)
            match operator:
                case "and":
                    return _any_of(first.flip(), [other.flip() for other in rest]).flip()
                case "or":
                    return _any_of(first, rest)
                case _:
                    assert_never(operator)
        case Conditional(condition, then, otherwise):
            tested = find_not_null(condition)
            left, right = find_not_null(then), find_not_null(otherwise)
            return NotNull(
                (tested.if_true | left.if_true) & (tested.if_false | right.if_true),
                (tested.if_true | left.if_false) & (tested.if_false | right.if_false),
            )
    return NOTHING_KNOWN


def _any_of(first: NotNull, rest: list[NotNull]) -> NotNull:
    """What `or` says: one operand is true and those before it are not, or none is true."""
    if_true, if_false = first.if_true, first.if_false
    for operand in rest:
        if_true &= if_false | operand.if_true
        if_false |= operand.if_false
    return NotNull(if_true, if_false)
