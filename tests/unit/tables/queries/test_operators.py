"""Every operator of conditions can be written wherever conditions are, and is drawn by the tests
that compare queries with an independent answer.

What an operator means, which keys it reads and what types it takes is told in `match` statements
that end in `assert_never`: the type checker lists those that lack one.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final, get_args

import pytest

from tests.contract import api_model, test_queries
from tests.property.test_queries import MAKERS
from zapdb.datasets import Collation
from zapdb.expressions.parse import _COMPARISONS, ARITHMETIC
from zapdb.expressions.tree import ArithmeticOperator, ComparisonOperator, LogicalOperator
from zapdb.schema import Field, Index, IndexComponent, TableSchema
from zapdb.tables.did_you_mean import _FIELD_HABITS
from zapdb.tables.indexes.predicates import Comparison, Operator, Predicate, comparisons_in
from zapdb.tables.queries import typed_fields
from zapdb.tables.queries.conditions import _FLIPPED, FORMS, read_condition
from zapdb.tables.queries.fields import Condition, FieldExpression, bind, make_field
from zapdb.transfer.export.plain_checks import _JOINERS
from zapdb.values import Boolean, Float, Integer, String

GUIDES: Final = Path(__file__).parents[4] / "docs" / "guides"
OPERATORS: Final = get_args(Operator)
WRITTEN: Final[dict[Operator, tuple[str, str, str]]] = {
    "==": ("{} == 'a'", "title == 'a'", "=="),
    "in": ("{}.in_(['a', 'b'])", "one_of(title, 'a', 'b')", "in_("),
    "<": ("{} < 'a'", "title < 'a'", "<"),
    "<=": ("{} <= 'a'", "title <= 'a'", "<="),
    ">": ("{} > 'a'", "title > 'a'", ">"),
    ">=": ("{} >= 'a'", "title >= 'a'", ">="),
    "starts with": ("{}.startswith('a')", "starts_with(title, 'a')", "startswith("),
}
"""A condition in Python and on the command line, and what the guide to queries calls it."""
TABLE: Final = TableSchema(
    1,
    "items",
    (1,),
    (
        Field(1, "id", Integer()),
        Field(2, "title", String(), optional=True),
        Field(3, "done", Boolean()),
        Field(4, "due", Integer(), optional=True),
        Field(5, "weight", Float(), optional=True),
        Field(6, "count", Integer(), optional=True),
    ),
    (Index(1, "by_title", (IndexComponent(2, Collation("sv", "primary")),)),),
)


class _Readable:
    """What the reader of conditions asks of a table."""

    def __getitem__(self, name: str) -> FieldExpression:
        return make_field(TABLE, name)


def operators_of(condition: Predicate) -> set[str]:
    return {one.op for one in comparisons_in(bind(TABLE, condition))}


def test_each_operator_has_its_line_here() -> None:
    assert set(WRITTEN) == set(OPERATORS)


@pytest.mark.parametrize("op", OPERATORS)
def test_each_operator_can_be_written_in_python(op: Operator) -> None:
    names = {"field": make_field(TABLE, "title")}
    condition = eval(WRITTEN[op][0].format("field"), names)
    assert isinstance(condition, Condition)
    assert condition.op == op
    assert str(condition) == WRITTEN[op][0].format("items.title")
    bound = bind(TABLE, condition)
    assert isinstance(bound, Comparison)
    assert op in str(bound)


@pytest.mark.parametrize("op", OPERATORS)
def test_each_operator_can_be_written_on_the_command_line(op: Operator) -> None:
    table: Any = _Readable()
    assert operators_of(read_condition(table, TABLE, WRITTEN[op][1])) == {op}
    name, call, _ = WRITTEN[op][1].partition("(")
    if call:
        assert f"{name}(field, " in FORMS
        assert f"`{name}(" in (GUIDES / "data.md").read_text()


@pytest.mark.parametrize("op", OPERATORS)
def test_each_operator_is_in_the_guide_to_queries(op: Operator) -> None:
    assert WRITTEN[op][2] in (GUIDES / "queries.md").read_text()


def test_a_condition_is_not_told_to_be_written_otherwise() -> None:
    assert not _FIELD_HABITS.keys() & set(dir(FieldExpression))


def test_each_condition_of_a_field_is_known_to_type_checkers() -> None:
    """Those of generated models, by the types of their fields."""
    typed = (
        typed_fields.TypedField,
        typed_fields.TypedOrderedField,
        typed_fields.TypedStringField,
    )
    assert _conditions_of(FieldExpression) == set().union(*map(_conditions_of, typed))


def _conditions_of(kind: type) -> set[str]:
    methods = {name for one in kind.__mro__ for name in vars(one) if name != "_compare"}
    found = set()
    for name in methods:
        method = getattr(kind, name)
        if "-> Predicate" in f"-> {getattr(method, '__annotations__', {}).get('return')}":
            found.add(name)
    return found


def test_what_is_compared_with_an_independent_answer_has_every_operator() -> None:
    random_, names = Random(7), {field.number: field.name for field in TABLE.fields}
    items = {name: make_field(TABLE, name) for name in names.values()}
    modelled = TableSchema(1, "items", (1,), TABLE.fields[:3])
    drawn: set[tuple[str, str]] = {("plan", op) for op in MAKERS}
    for _ in range(2_000):
        condition, _ = test_queries.draw_comparison(items, random_)
        drawn |= {("query", op) for op in operators_of(condition)}
        condition = api_model._draw_compared(random_, modelled).make(items, names)
        drawn |= {("model", op) for op in operators_of(condition)}
    assert drawn == {(by, op) for by in ("query", "model", "plan") for op in OPERATORS}


def test_operators_of_expressions_are_read_turned_round_and_joined() -> None:
    comparisons = set(get_args(ComparisonOperator))
    assert set(_COMPARISONS.values()) == comparisons
    assert set(_FLIPPED) == set(_FLIPPED.values()) == comparisons
    assert set(ARITHMETIC.values()) == set(get_args(ArithmeticOperator))
    assert set(_JOINERS) == set(get_args(LogicalOperator))
