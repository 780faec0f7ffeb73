"""No null reaches an operator that takes none, whatever tests an expression is guarded by."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from tests.forms import cases
from tests.oracle import evaluate
from tests.property.test_expressions import compile_expression
from zapdb.expressions import (
    Expression,
    ExpressionError,
    Type,
    infer_type,
    parse_expression,
    unparse,
)
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
    names_in,
)
from zapdb.values import Boolean, Integer, String

FIELDS = {
    "a": Type(Integer(), optional=True),
    "b": Type(Integer(), optional=True),
    "s": Type(String(), optional=True),
    "t": Type(Boolean(), optional=True),
    "u": Type(Boolean()),
}
VALUES: dict[str, list[Any]] = {
    "a": [None, 0, 2],
    "b": [None, 1],
    "s": [None, "", "xyz"],
    "t": [None, True, False],
    "u": [True, False],
}
RECORDS = [dict(zip(VALUES, values, strict=True)) for values in itertools.product(*VALUES.values())]
EXPRESSIONS = cases(6_000)


class NullReached(Exception):
    """An operand that must not be null is."""


def walk(node: Expression, record: Mapping[str, Any]) -> Any:
    """The value, as the oracle gives it; raises `NullReached` before null is taken for a value."""

    def needed(part: Expression) -> Any:
        value = walk(part, record)
        if value is None:
            raise NullReached(unparse(part))
        return value

    match node:
        case Literal(value):
            return value
        case Name(name):
            return record[name]
        case IsNull(operand, negated):
            return (walk(operand, record) is None) != negated
        case LogicalNot(operand):
            return not needed(operand)
        case Logic(operator, operands):
            for operand in operands:
                if needed(operand) == (operator == "or"):
                    return operator == "or"
            return operator == "and"
        case Conditional(test, then, otherwise):
            return walk(then if needed(test) else otherwise, record)
        case Call("coalesce", (first, default)):
            found = walk(first, record)
            return walk(default, record) if found is None else found
        case Call("length", (text,)):
            return len(needed(text))
        case Compare("<", left, right):
            return needed(left) < needed(right)
        case Arithmetic("+", left, right):
            return needed(left) + needed(right)
    raise AssertionError(node)


class Drawer:
    """Draws booleans and integers of which about half are guarded as they must be."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def boolean(self, depth: int) -> Expression:
        r = self.random
        if depth <= 0 or r.random() < 0.2:
            return self.leaf()
        match r.randrange(6):
            case 0:
                return LogicalNot(self.boolean(depth - 1))
            case 1:
                return self.choose(self.boolean(depth - 1), self.boolean(depth - 1), depth)
            case 2:
                operands = [self.boolean(depth - 1) for _ in range(r.randint(1, 2))]
                return Logic(r.choice(["and", "or"]), (self.test(depth), *operands))
            case _:
                return self.guard(self.boolean(depth - 1))

    def guard(self, guarded: Expression) -> Expression:
        """It, tested for the nulls of its fields before: of most of them, and mostly rightly."""
        r = self.random
        names = [name for name in sorted(names_in(guarded)) if r.random() < 0.9]
        if not names:
            return guarded
        is_or = r.random() < 0.5
        if r.random() < 0.5:
            tests = [IsNull(Name(name), not is_or) for name in names]
        else:
            tests = [LogicalNot(IsNull(Name(name), is_or)) for name in names]
        if r.random() < 0.1:
            is_or = not is_or
        if r.random() < 0.5:
            return Logic("or" if is_or else "and", (*tests, guarded))
        test = tests[0] if len(tests) == 1 else Logic("or" if is_or else "and", tuple(tests))
        if r.random() < 0.3:
            other = test if r.random() < 0.6 else self.test(1)
            test = Conditional(self.test(0), *r.sample([test, other], 2))
        if is_or:
            return Conditional(test, Literal(True), guarded)
        return Conditional(test, guarded, Name("u"))

    def choose(self, then: Expression, otherwise: Expression, depth: int) -> Expression:
        return Conditional(self.test(depth), then, otherwise)

    def test(self, depth: int) -> Expression:
        """Mostly of nulls, in one of the ways to write it."""
        r = self.random
        if depth > 1 and r.random() < 0.25:
            return self.boolean(depth - 1)
        tests = [self.is_null() for _ in range(r.choice([1, 1, 2, 3]))]
        made = tests[0] if len(tests) == 1 else Logic(r.choice(["and", "or"]), tuple(tests))
        return LogicalNot(made) if r.random() < 0.3 else made

    def is_null(self) -> Expression:
        return IsNull(Name(self.random.choice("aabst")), self.random.random() < 0.5)

    def leaf(self) -> Expression:
        r = self.random
        match r.randrange(7):
            case 0:
                return self.is_null()
            case 1:
                return Name("u")
            case 2:
                return Name("t")
            case 3:
                return Literal(r.random() < 0.5)
            case _:
                return Compare("<", self.integer(1), self.integer(1))

    def integer(self, depth: int) -> Expression:
        r = self.random
        match r.randrange(8 if depth else 4):
            case 0 | 1:
                return Name("a")
            case 2:
                return Literal(r.randint(0, 2))
            case 3:
                return Call("length", (Name("s"),))
            case 4:
                return Call("coalesce", (Name("b"), self.integer(0)))
            case 5:
                return Arithmetic("+", self.integer(0), self.integer(0))
            case 6:
                return self.choose(self.integer(0), self.integer(0), 1)
            case _:
                return Name("b")


@pytest.mark.parametrize("seed", range(4))
def test_rule_18_no_null_reaches_an_operator_that_takes_none(seed: int) -> None:
    drawer, told = Drawer(Random(seed)), Counter[str]()
    for _ in range(EXPRESSIONS // 4):
        tree = drawer.boolean(4)
        is_safe = True
        try:
            values = [walk(tree, record) for record in RECORDS]
        except NullReached:
            is_safe = False
        try:
            found = infer_type(tree, FIELDS)
        except ExpressionError:
            told["refused"] += not is_safe
            continue
        assert is_safe, unparse(tree)
        assert found.kind == Boolean()
        assert found.optional or None not in values, unparse(tree)
        assert infer_type(parse_expression(unparse(tree)), FIELDS) == found
        run = compile_expression(tree, FIELDS, found)
        assert [run(*record.values()) for record in RECORDS] == values, unparse(tree)
        assert [evaluate(tree, record, FIELDS) for record in RECORDS[:20]] == values[:20]
        told["accepted"] += 1
        told["accepted, fields needed"] += "<" in unparse(tree)
    # Both answers are common, or nothing is shown.
    assert told["accepted, fields needed"] > EXPRESSIONS // 4 // 10, told
    assert told["refused"] > EXPRESSIONS // 4 // 10, told
