import pytest

from zapdb.expressions import Expression, Literal, names_in, parse_expression, unparse
from zapdb.expressions.tree import (
    Arithmetic,
    Call,
    Compare,
    Conditional,
    IsNull,
    Logic,
    LogicalNot,
    Name,
    Negate,
)

A, B, C = Name("a"), Name("b"), Name("c")


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (Literal("it's\\\n\x7f\x00ä"), "'it\\'s\\\\\\x0a\\x7f\\x00ä'"),
        (Literal(-5), "-5"),
        (Literal(False), "False"),
        (Literal(None), "None"),
        (Call("f", (A, Literal(1)), B), "f(a, 1, else=b)"),
        (Call("f", ()), "f()"),
        (Conditional(A, Conditional(A, B, C), C), "(b if a else c) if a else c"),
        (Compare("<", Compare("==", A, B), C), "(a == b) < c"),
        (Compare("==", Literal(-1), Call("f", ())), "-1 == f()"),
        (IsNull(LogicalNot(A), True), "(not a) is not None"),
        (Logic("or", (A, Logic("and", (B, C)))), "a or (b and c)"),
        (LogicalNot(LogicalNot(A)), "not (not a)"),
        (Arithmetic("+", A, Arithmetic("+", B, C)), "a + (b + c)"),
        (Arithmetic("//", Arithmetic("*", A, B), Literal(-2)), "(a * b) // -2"),
        (Arithmetic("%", A, Literal(3)), "a % 3"),
        (Arithmetic("-", Negate(A), Negate(Negate(B))), "(-a) - (-(-b))"),
        (Negate(Literal(-5)), "--5"),
        (Negate(Call("f", ())), "-f()"),
        (Compare("<", Arithmetic("-", A, B), C), "(a - b) < c"),
    ],
)
def test_a_tree_has_one_canonical_text(tree: Expression, text: str) -> None:
    assert unparse(tree) == text
    assert parse_expression(text) == tree


@pytest.mark.parametrize(
    "text",
    ["f(a,b)", " f( a , b ) ", "f((a), (b))", "f(a, b,)", "f(a, b) # why"],
)
def test_all_spellings_have_one_canonical_text(text: str) -> None:
    assert unparse(parse_expression(text)) == "f(a, b)"


def test_columns_are_no_part_of_equality() -> None:
    assert Name("a", 1) == Name("a", 9)
    assert Name("a", 1) != Name("b", 1)


def test_names_in_are_the_fields_that_are_read() -> None:
    text = "f(a, else=b) if c is None and not d else (g('e') == -h + i)"
    assert names_in(parse_expression(text)) == {"a", "b", "c", "d", "h", "i"}
    assert names_in(parse_expression("'a'")) == frozenset()
