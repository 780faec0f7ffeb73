"""Expressions: canonical text, types, and values, against an evaluator that walks the tree."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.oracle import evaluate
from tests.strategies import TYPES, WORDS, expressions, values_of
from zapdb.expressions import (
    Emitter,
    Expression,
    ExpressionError,
    Type,
    check,
    names_in,
    parse,
    unparse,
)
from zapdb.expressions.tree import (
    Call,
    Compare,
    Conditional,
    IsNull,
    Literal,
    Logic,
    Name,
    Not,
)
from zapdb.limits import EXPRESSION_LENGTH_CHARS_MAX
from zapdb.values.source import Namespace, compile_function
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

identifiers = st.sampled_from(["a", "b_1", "_", "lower", "integer", "match", "x" * 63])
leaves: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Name, identifiers),
    st.builds(Literal, st.none() | st.booleans()),
    st.builds(Literal, st.integers(-5, 5) | st.sampled_from([INTEGER_MAX, INTEGER_MIN])),
    st.builds(Literal, st.text(max_size=6) | st.text(alphabet="'\"\\\n\r\t\x00{}#ä", max_size=5)),
)


def combine(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Call, identifiers, st.lists(inner, max_size=3).map(tuple), st.none() | inner),
        st.builds(Conditional, inner, inner, inner),
        st.builds(Compare, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(IsNull, inner, st.booleans()),
        st.builds(Logic, st.sampled_from(["and", "or"]), several),
        st.builds(Not, inner),
    )


trees = st.recursive(leaves, combine, max_leaves=12)


@settings(deadline=None, max_examples=400)
@given(trees)
def test_canonical_text_reads_as_its_tree(tree: Expression) -> None:
    text = unparse(tree)
    assume(len(text) <= EXPRESSION_LENGTH_CHARS_MAX)
    assert parse(text) == tree
    assert unparse(parse(text)) == text
    assert parse(f"\t {text}  # why") == tree


@settings(deadline=None, max_examples=400)
@given(st.text(max_size=40) | st.text(alphabet="abelse=(),.'\" \\0_[]{}:<>!-+é", max_size=40))
def test_any_text_is_an_expression_or_an_expression_error(text: str) -> None:
    column = 1
    try:
        tree = parse(text)
        assert parse(unparse(tree)) == tree
    except ExpressionError as error:
        column = error.column
    assert 1 <= column <= len(text) + 2


@st.composite
def typed(draw: st.DrawFn) -> tuple[dict[str, Type], dict[str, Any], Expression, Type]:
    """Fields, their values, an expression over them, and the type that was wanted of it."""
    drawn = draw(st.lists(st.sampled_from(WORDS), max_size=4, unique=True))
    fields = {name: Type(draw(st.sampled_from(TYPES)), draw(st.booleans())) for name in drawn}
    wanted = Type(draw(st.sampled_from(TYPES)), draw(st.booleans()))
    tree = draw(expressions(wanted, fields, depth=3))
    assume(tree is not None)
    values = {}
    for name, kind in fields.items():
        assert kind.kind is not None
        held = values_of(kind.kind)
        values[name] = draw(st.none() | held if kind.optional else held)
    return fields, values, tree, wanted


@settings(deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(typed())
def test_rule_18_compiled_expressions_are_total_and_do_what_the_tree_says(
    drawn: tuple[dict[str, Type], dict[str, Any], Expression, Type],
) -> None:
    fields, values, tree, wanted = drawn
    found = check(tree, fields)
    assert found.fits(wanted)
    assert names_in(tree) <= fields.keys()
    names = Namespace()
    variables = {name: f"f{at}" for at, name in enumerate(fields)}
    source = Emitter(fields, variables, names, "x").emit(tree)
    lines = [f"def run({', '.join(variables.values())}):", f"    return {source}"]
    run, _ = compile_function("run", lines, names, "test expression")
    result, expected = run(*values.values()), evaluate(tree, values)
    assert (result, type(result), str(result)) == (expected, type(expected), str(expected))
    if result is None:
        assert wanted.optional or repr(wanted.kind) == "Json()"
    else:
        assert wanted.kind is not None
        assert str(wanted.kind.check(result, "p")) == str(result)
