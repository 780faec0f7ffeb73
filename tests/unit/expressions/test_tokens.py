"""What other Pythons would read otherwise, or not at all, is refused at its place."""

from __future__ import annotations

import ast

import pytest

from zapdb.expressions import ExpressionError, Literal, parse_expression

REFUSED = [
    (r"'\d'", 2, "is not an escape", "r'…'"),
    (r"f(a, 'ä\w')", 8, "is not an escape", "r'…'"),
    (r"'\ '", 2, "is not an escape", "r'…'"),
    (r"'a\8'", 3, "is not an escape", "r'…'"),
    (r"u'\d'", 3, "is not an escape", "r'…'"),
    (r"'''\d'''", 4, "is not an escape", "r'…'"),
    ("'\\ä'", 2, "U+00E4", "r'…'"),
    ("'\\\0'", 2, "U+0000", "r'…'"),
    (r"'\777'", 2, "beyond", r"\u01ff"),
    (r"'x\400'", 3, "beyond", r"\u0100"),
    (r"'\N{DIGIT ONE}'", 2, "Unicode tables", r"\uXXXX"),
    (r"'\N'", 2, "Unicode tables", r"\uXXXX"),
    (r"'\x1'", 2, "2 hexadecimal digits", ""),
    (r"'\u123'", 2, "4 hexadecimal digits", ""),
    (r"'\U00110000'", 2, "8, at most", ""),
    ("1if a else b", 2, "a blank is missing after a number", "blank"),
    ("a if b else 1or c", 14, "a blank is missing after a number", "blank"),
    ("0xfor x", 4, "a blank is missing after a number", "blank"),
    ("1_000and a", 6, "a blank is missing after a number", "blank"),
    ("1else", 2, "a blank is missing after a number", "blank"),
    ("0o17in a", 5, "a blank is missing after a number", "blank"),
    ("0b12", 4, "a blank is missing after a number", "blank"),
    ("1.5if a else b", 2, "a blank is missing after a number", "blank"),
    ("1.__class__", 2, "a blank is missing after a number", "blank"),
    ("1_", 1, "underscore", ""),
    ("1__0", 1, "underscore", ""),
    ("0777", 1, "begins with a zero", "write 777"),
    ("-00_1", 2, "begins with a zero", "write 1"),
    ("١", 1, "U+0661", "0 to 9"),
    ("a + １", 5, "U+FF11", "0 to 9"),
    ("1١", 2, "U+0661", "0 to 9"),
    ("aª", 1, "names are ASCII", ""),
    ("aⅷ", 1, "names are ASCII", ""),
    ("a²", 2, "U+00B2", ""),
    ("a\x0cb", 2, "U+000C", "blanks and tabs"),
    ("a\x0b + b", 2, "U+000B", "blanks and tabs"),
    ("a\xa0== b", 2, "U+00A0", "blanks and tabs"),
    ("\ufeffa", 1, "U+FEFF", "blanks and tabs"),
    ("a\u2028== b", 2, "U+2028", "blanks and tabs"),
    ("a \u202e== b", 3, "U+202E", "blanks and tabs"),
    ("a \\", 3, "backslash", "one line"),
    ("t'x'", 1, "`t` before a string", "join"),
    ("rb'x'", 1, "`rb` before a string", "join"),
    ("Fr'{a}'", 1, "`fr` before a string", "join"),
    ("a if b == 'x'else'y'", 14, "a blank is missing between", "blank"),
    ("a $ b", 3, "`$` has no meaning", ""),
    ("'''a", 1, "no closing quote", ""),
]


@pytest.mark.parametrize(("text", "column", "message", "hint"), REFUSED)
def test_what_other_pythons_read_otherwise_is_refused_at_its_place(
    text: str, column: int, message: str, hint: str
) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert caught.value.column == column
    assert message in caught.value.message
    assert hint in caught.value.hint
    with pytest.raises(ExpressionError) as caught:
        parse_expression(f"  f(a, {text})")
    assert caught.value.column == column + 7


ESCAPES = "".join(f"\\{c}" for c in "\\'\"abfnrtv") + r"\0\18\377\x7f\u00e4\U0001F600"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"'{ESCAPES}'", ast.literal_eval(f"'{ESCAPES}'")),
        (r"r'\d\N{x}\777'", r"\d\N{x}\777"),
        (r"R'\''", r"\'"),
        (r"u'\u00e4'", "ä"),
        ("'''a'b'''", "a'b"),
        ('"""a"b"""', 'a"b'),
        ("''''a'''", "'a"),
        ("'' 'a'", "a"),
        (r"'a' # 'b' \d ١", "a"),
        ("'#' 'b'", "#b"),
        ("(" * 100 + "'a'" + ")" * 100, "a"),
        ("'a\x0c\x1b'", "a\x0c\x1b"),
        ("'١\u202e\xa0'", "١\u202e\xa0"),
        ("0_0", 0),
        ("0XFF_ff", 65535),
    ],
)
def test_what_means_the_same_to_all_is_read(text: str, value: str | int) -> None:
    assert parse_expression(text) == Literal(value)
    assert ast.literal_eval(text) == value


def test_parentheses_are_bounded() -> None:
    with pytest.raises(ExpressionError, match="at most 100 parentheses") as caught:
        parse_expression("(" * 101 + "a" + ")" * 101)
    assert caught.value.column == 101
