"""From text to trees: what is let through, and at which column the rest is refused."""

from __future__ import annotations

import time

import pytest

from zapdb.expressions import Expression, ExpressionError, Literal, parse_expression, unparse
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
from zapdb.limits import (
    EXPRESSION_CANONICAL_LENGTH_CHARS_MAX,
    EXPRESSION_DEPTH_MAX,
    EXPRESSION_LENGTH_CHARS_MAX,
    EXPRESSION_NODES_MAX,
)
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

A, B, C = Name("a"), Name("b"), Name("c")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", A),
        ("'x'", Literal("x")),
        ('"it\'s"', Literal("it's")),
        ("'a' 'b'", Literal("ab")),
        ("r'\\n'", Literal("\\n")),
        ("5", Literal(5)),
        ("-5", Literal(-5)),
        ("0x_ff", Literal(255)),
        ("1_000", Literal(1000)),
        ("True", Literal(True)),
        ("None", Literal(None)),
        ("(a)", A),
        ("  a  ", A),
        ("a # why", A),
        ("a == b", Compare("==", A, B)),
        ("a >= -1", Compare(">=", A, Literal(-1))),
        ("a is None", IsNull(A)),
        ("a is not None", IsNull(A, True)),
        ("not a", LogicalNot(A)),
        ("a and b and c", Logic("and", (A, B, C))),
        ("-a", Negate(A)),
        ("--5", Negate(Literal(-5))),
        ("-(5)", Literal(-5)),
        ("-'x'", Negate(Literal("x"))),
        ("a + b - c", Arithmetic("-", Arithmetic("+", A, B), C)),
        ("a - (b - c)", Arithmetic("-", A, Arithmetic("-", B, C))),
        ("a + b * c", Arithmetic("+", A, Arithmetic("*", B, C))),
        ("a - -5", Arithmetic("-", A, Literal(-5))),
        ("-5 * a", Arithmetic("*", Literal(-5), A)),
        ("-a * b", Arithmetic("*", Negate(A), B)),
        ("-(a * b)", Negate(Arithmetic("*", A, B))),
        ("a // 7 % -3", Arithmetic("%", Arithmetic("//", A, Literal(7)), Literal(-3))),
        ("a + 1 < b", Compare("<", Arithmetic("+", A, Literal(1)), B)),
        ("(a and b) and c", Logic("and", (Logic("and", (A, B)), C))),
        ("a or b and c", Logic("or", (A, Logic("and", (B, C))))),
        ("a if b else c", Conditional(B, A, C)),
        ("f()", Call("f", ())),
        ("f(a, b, else=c)", Call("f", (A, B), C)),
        ("f(a, else = c)", Call("f", (A,), C)),
        ("f(a, else=b if c else a)", Call("f", (A,), Conditional(C, B, A))),
        ("f(else=g(a, else=b))", Call("f", (), Call("g", (A,), B))),
        ("'else=' if a else 'b'", Conditional(A, Literal("else="), Literal("b"))),
    ],
)
def test_this_text_is_this_tree(text: str, tree: Expression) -> None:
    assert parse_expression(text) == tree
    assert parse_expression(unparse(tree)) == tree


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "not an expression"),
        ("   ", 4, "not an expression"),
        ("a b", 3, "not an expression"),
        ("  a b", 5, "not an expression"),
        ("'ä' b", 5, "not an expression"),
        ("a = b", 3, "not an expression"),
        ("'open", 1, "not an expression"),
        ("(a", 1, "not an expression"),
        ("a\n", 1, "an expression must be on one line"),
        ("a\r", 1, "an expression must be on one line"),
        ("a\x00", 2, "not an expression"),
        ("f(a).b", 1, "Attribute is not part of the expression language"),
        ("a / b", 1, "`/` is not part of the expression language"),
        ("a ** b", 1, "`**` is not part of the expression language"),
        ("a @ b", 1, "`@` is not part of the expression language"),
        ("a << b", 1, "`<<` is not part of the expression language"),
        ("a >> b", 1, "`>>` is not part of the expression language"),
        ("a | b", 1, "`|` is not part of the expression language"),
        ("a ^ b", 1, "`^` is not part of the expression language"),
        ("f(a & b)", 3, "`&` is not part of the expression language"),
        ("~a", 1, "`~` is not part of the expression language"),
        ("a[0]", 1, "Subscript is not part of the expression language"),
        ("lower(a.b)", 7, "Attribute is not part of the expression language"),
        ("  lower(a.b)", 9, "Attribute is not part of the expression language"),
        ("f('ä😀', a.b)", 9, "Attribute is not part of the expression language"),
        ("f(a, else=a.b)", 11, "Attribute is not part of the expression language"),
        ("f'{a}'", 1, "`f` before a string is not part of the expression language"),
        ("1.5", 1, "a number with a point or an exponent is not part of the expression language"),
        ("b'x'", 1, "`b` before a string is not part of the expression language"),
        ("...", 1, "Constant is not part of the expression language"),
        ("1j", 1, "Constant is not part of the expression language"),
        ("+a", 1, "`+` is not part of the expression language"),
        ("lambda: a", 1, "Lambda is not part of the expression language"),
        ("f((a := b))", 4, "NamedExpr is not part of the expression language"),
        ("[x for x in a]", 1, "ListComp is not part of the expression language"),
        ("await a", 1, "Await is not part of the expression language"),
        ("-True", 1, "a sign belongs before a number"),
        ("a, b", 1, "Tuple is not part of the expression language"),
        ("a(b)(c)", 1, "Call is not part of the expression language"),
        ("a in b", 1, "one comparison at a time: write `a < b and b < c`"),
        ("1 < a < 3", 1, "one comparison at a time: write `a < b and b < c`"),
        ("a is b", 1, "`is` compares with None alone; use =="),
        ("a is True", 1, "`is` compares with None alone; use =="),
        ("f(*a)", 1, "arguments cannot be unpacked"),
        ("f(**a)", 1, "the only named argument is else="),
        ("f(x=a)", 1, "the only named argument is else="),
        ("f(a, els_=b)", 6, "'els_' is reserved"),
        (" els_", 2, "'els_' is reserved"),
        ("ä", 1, "names are ASCII"),
        (" f(ﬁ)", 4, "names are ASCII"),
        ("ｌower(a)", 1, "names are ASCII"),
        ("'\\ud800'", 1, "a string of valid Unicode is needed"),
        (str(INTEGER_MAX + 1), 1, "the integer is too large"),
        (f"f({INTEGER_MIN - 1})", 3, "the integer is too large"),
        ("0x" + "f" * 1900, 1, "the integer is too large"),
    ],
)
def test_this_text_is_refused_at_this_column(text: str, column: int, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert caught.value.column == column
    assert caught.value.message.startswith(message)  # Python's own words follow


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "a.__class__.__mro__",
        "().__class__.__bases__[0].__subclasses__()",
        "lambda: a",
        "(lambda: a)()",
        "[x for x in a]",
        "{x: x for x in a}",
        "{a}",
        "(x for x in a)",
        "f'{a.__class__}'",
        "f'{__import__(\"os\")}'",
        "(a := b)",
        "await a",
        "yield",
        "yield a",
        "[*a]",
        "f(*[a])",
        "a if b",
        "a; b",
        "import os",
        "print(a) or exec('1')[0]",
        "a @ b",
        "2 ** 99999999",
        "9" * 1999,
        "1e999",
        "~1",
        "a[::1]",
        "not",
        "else=",
        "f(else=a, else=b)",
        "f(else)",
        "a if b else=c",
        "a\x0cb",
        "a \\",
        "\ufeffa",
        "a\u2028b",
        "\t\ta.b",
    ],
)
def test_hostile_text_is_refused_with_a_column_and_nothing_else(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert 1 <= caught.value.column <= len(text) + 1


def test_calling_import_is_no_syntax_error_but_no_function_either() -> None:
    assert parse_expression("__import__('os')") == Call("__import__", (Literal("os"),))


DEEP = {
    "parentheses": "(" * 900 + "a" + ")" * 900,
    "open parentheses": "(" * 2000,
    "brackets": "[" * 2000,
    "not": "not " * 490 + "a",
    "minus": "-" * 1990 + "1",
    "attributes": "a" + ".b" * 900,
    "calls": "f(" * 600 + "a" + ")" * 600,
    "call of calls": "f" + "()" * 900,
    "conditionals": "a if b else " * 150 + "c",
    "else": "f(else=" * 249 + "a" + ")" * 249,
    "comparisons": "a<" * 900 + "a",
    "strings": "'a'" * 600 + ".b",
    "subscripts": "a" + "[a" * 600 + "]" * 600,
    "lambda": "lambda:" * 250 + "a",
    "f-strings": "f'" + "{" * 1500,
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_deep_nesting_is_refused_quickly(text: str) -> None:
    assert len(text) <= EXPRESSION_LENGTH_CHARS_MAX
    started = time.process_time()
    with pytest.raises(ExpressionError):
        parse_expression(text)
    assert time.process_time() - started < 1


def test_an_expression_is_bounded_in_length_depth_and_parts() -> None:
    longest = "'" + "x" * (EXPRESSION_LENGTH_CHARS_MAX - 2) + "'"
    assert parse_expression(longest) == Literal(longest[1:-1])
    with pytest.raises(ExpressionError, match="has at most 2000 characters"):
        parse_expression(longest + " ")
    with pytest.raises(ExpressionError, match="has at most 2000 characters"):
        parse_expression("'" + "x" * (EXPRESSION_CANONICAL_LENGTH_CHARS_MAX - 1) + "'")

    deepest = "not " * EXPRESSION_DEPTH_MAX + "a"
    assert unparse(parse_expression(deepest)).count("not") == EXPRESSION_DEPTH_MAX
    with pytest.raises(ExpressionError, match="at most 32 deep") as caught:
        parse_expression("not " + deepest)
    assert caught.value.column == 4 * (EXPRESSION_DEPTH_MAX + 1) + 1

    widest = "f(" + ",".join(["a"] * (EXPRESSION_NODES_MAX - 1)) + ")"
    assert len(parse_expression(widest).arguments) == EXPRESSION_NODES_MAX - 1
    with pytest.raises(ExpressionError, match="has at most 500 parts"):
        parse_expression(widest[:-1] + ",a)")


LONGER = {
    "control characters": "'" + "\x01" * (EXPRESSION_LENGTH_CHARS_MAX - 2) + "'",
    "quotes": '"' + "'" * (EXPRESSION_LENGTH_CHARS_MAX - 2) + '"',
    "backslashes": "r'" + "\\" * (EXPRESSION_LENGTH_CHARS_MAX - 4) + "x'",
    "parts": "f(" + ",".join(["a<b"] * 166) + ")",
    "hexadecimal": "f(" + ",".join(["0x" + "f" * 126] * 15) + ")",
    "else": "f(" + ",".join(["g(else=a)"] * 180) + ")",
    "nulls": "f(" + ",".join(["a is None"] * 190) + ")",
    "sums": "f(" + ",".join(["a+b*c"] * 99) + ")",
}


@pytest.mark.parametrize("text", LONGER.values(), ids=LONGER.keys())
def test_what_was_accepted_is_accepted_in_its_longer_canonical_text(text: str) -> None:
    assert len(text) <= EXPRESSION_LENGTH_CHARS_MAX
    tree = parse_expression(text)
    canonical = unparse(tree)
    assert len(text) < len(canonical) <= EXPRESSION_CANONICAL_LENGTH_CHARS_MAX
    assert parse_expression(canonical) == tree
    if len(canonical) > EXPRESSION_LENGTH_CHARS_MAX:  # of authors, it is no text all the same
        with pytest.raises(ExpressionError, match="has at most 2000 characters"):
            parse_expression(canonical + " ")


def test_hints_say_what_to_do() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression("a / b")
    assert caught.value.hint == "write divide(a, b, scale, else=…)"


def test_parts_know_their_columns_in_characters() -> None:
    tree = parse_expression("  lower('ä😀') == b if c else None")
    assert isinstance(tree, Conditional)
    assert isinstance(tree.then, Compare)
    columns = [tree, tree.then.left, tree.then.right, tree.test, tree.otherwise]
    assert [part.column for part in columns] == [3, 3, 18, 23, 30]
