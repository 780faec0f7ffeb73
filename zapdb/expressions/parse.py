"""From text to a tree. Python's `ast` reads the syntax; only the listed nodes are let through.

The words of a text are checked before (`tokens`), and it never reaches `compile`: what runs later
is generated from the checked tree. Attributes, subscripts, comprehensions, lambdas and everything
else are refused by name.

An author's text is bounded in length, a tree in depth and parts. The canonical text of a tree may
be longer than its author's, and is read back all the same: above the length of an author's text,
only canonical texts are read.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable
from typing import Final

from zapdb.expressions.tokens import ExpressionError, Token, scan
from zapdb.expressions.tree import (
    Arithmetic,
    ArithmeticOperator,
    Call,
    Compare,
    ComparisonOperator,
    Conditional,
    Expression,
    IsNull,
    Literal,
    Logic,
    LogicalNot,
    Name,
    Negate,
    unparse,
)
from zapdb.limits import (
    EXPRESSION_CANONICAL_LENGTH_CHARS_MAX,
    EXPRESSION_DEPTH_MAX,
    EXPRESSION_LENGTH_CHARS_MAX,
    EXPRESSION_NODES_MAX,
)
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN

_COMPARISONS: Final[dict[type[ast.cmpop], ComparisonOperator]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
ARITHMETIC: Final[dict[type[ast.operator], ArithmeticOperator]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_REFUSED: Final[dict[type[ast.AST], tuple[str, str]]] = {
    ast.Div: ("/", "write divide(a, b, scale, else=…)"),
    ast.Pow: ("**", "a power has no bound: write a * a"),
    ast.MatMult: ("@", ""),
    ast.LShift: ("<<", ""),
    ast.RShift: (">>", ""),
    ast.BitOr: ("|", "write `or` between booleans"),
    ast.BitXor: ("^", ""),
    ast.BitAnd: ("&", "write `and` between booleans"),
    ast.Invert: ("~", "write `not` before a boolean"),
    ast.UAdd: ("+", "a number has a plus sign without one"),
}
"""Operators of Python that the language has not, and what to write instead."""

NO_POINT: Final = "a number with a point or an exponent is not part of the expression language"
# `else=` is not Python; a name of the same length takes its place, so that columns stay true.
ELSE_KEYWORD: Final = "els_"


def parse_expression(text: str) -> Expression:
    """Parse one expression; raises `ExpressionError`."""
    if len(text) > EXPRESSION_CANONICAL_LENGTH_CHARS_MAX:
        raise _too_long()
    if "\n" in text or "\r" in text:
        raise ExpressionError("an expression must be on one line")
    stripped = text.strip(" \t")  # leading blanks would be an indent to Python
    lead = len(text) - len(text.lstrip(" \t"))
    reader = _Reader(stripped, lead)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(_admit_else(stripped, lead), mode="eval").body
    except SyntaxError as error:
        column = (error.offset or 1) + lead
        hint = _hint_for_operator(stripped, (error.offset or 1) - 1)
        raise ExpressionError(f"not an expression: {error.msg}", column, hint) from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError("this is not a valid expression") from None
    tree = reader.read(body, 0)
    if len(text) > EXPRESSION_LENGTH_CHARS_MAX and unparse(tree) != text:
        raise _too_long()
    return tree


_FOREIGN: Final = {
    "=>": "at least is written >=",
    "=<": "at most is written <=",
    "=": "equal is written ==",
    "<>": "not equal is written !=",
    "&&": "write `and`",
    "||": "write `or`; join(a, b) joins texts",
    "!": "write `not`",
    "like": "there are starts_with(text, prefix), ends_with(text, end) and contains(text, part)",
    "ilike": "write contains(lower(text), part)",
    "between": "write low <= a and a <= high",
    "is": "write `a is None`, or `a is not None`",
    "null": "write None",
    "case": "write `a if condition else b`",
    "end": "write `a if condition else b`",
}
"""What SQL and other languages write at the place of a syntax error, and what to write instead."""


def _hint_for_operator(text: str, at: int) -> str:
    """The hint for what stands at the place of a syntax error."""
    word = re.match(r"[a-z]+", text[at:].lower())
    found = (text[max(0, at - 1) : at + 1], text[at : at + 2], text[at : at + 1])
    spelled = (*found, word[0]) if word else found
    return next((_FOREIGN[one] for one in spelled if one in _FOREIGN), "")


def _too_long() -> ExpressionError:
    return ExpressionError(f"an expression has at most {EXPRESSION_LENGTH_CHARS_MAX} characters")


def _admit_else(text: str, lead: int) -> str:
    """Refuse words that do not mean the same everywhere, and make `else=` a keyword."""
    end = Token("", len(text))
    tokens = [*scan(text, lead), end, end]
    characters = list(text)
    for token, following, after in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if token.is_name and token.text == ELSE_KEYWORD:
            raise ExpressionError(f"{ELSE_KEYWORD!r} is reserved", token.at + lead + 1)
        compares = after.text == "=" and after.at == following.at + 1
        if token.is_name and token.text == "else" and following.text == "=" and not compares:
            characters[token.at : token.at + len(ELSE_KEYWORD)] = ELSE_KEYWORD
    return "".join(characters)


Read = Callable[[ast.expr], Expression]


class _Reader:
    """Turns syntax nodes into trees; `lead` is how many blanks were stripped before the text."""

    def __init__(self, text: str, lead: int) -> None:
        self.encoded = text.encode(errors="replace")
        self.lead = lead
        self.nodes = 0

    def column(self, node: ast.expr) -> int:
        """Counted in characters from 1; Python's syntax tree counts UTF-8 bytes."""
        before = self.encoded[: node.col_offset].decode(errors="replace")
        return len(before) + self.lead + 1

    def read(self, node: ast.expr, depth: int) -> Expression:  # noqa: C901 - a case for each kind
        self.nodes += 1
        column = self.column(node)
        if depth > EXPRESSION_DEPTH_MAX or self.nodes > EXPRESSION_NODES_MAX:
            raise ExpressionError(
                f"an expression is at most {EXPRESSION_DEPTH_MAX} deep and has at most "
                f"{EXPRESSION_NODES_MAX} parts",
                column,
            )

        def read(part: ast.expr) -> Expression:
            return self.read(part, depth + 1)

        match node:
            case ast.Constant(value=bool() | int() | str() | None as value):
                return _literal(value, column)
            case ast.Constant(value=float() as number):
                raise ExpressionError(
                    NO_POINT,
                    column,
                    f"write decimal('{number}', scale), or float('{number}')",
                )
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                if isinstance(value, bool):
                    raise ExpressionError("a sign belongs before a number", column)
                return _literal(-value, column)
            case ast.Name(id=name):
                return Name(name, column)
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                return Conditional(read(test), read(then), read(otherwise), column)
            case ast.BoolOp(op=operator, values=operands):
                word = "and" if isinstance(operator, ast.And) else "or"
                return Logic(word, tuple(map(read, operands)), column)  # type: ignore[arg-type]  # mypy widens the two words to str
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Negate(read(operand), column)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return LogicalNot(read(operand), column)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
                return Arithmetic(ARITHMETIC[type(op)], read(left), read(right), column)
            case ast.BinOp(op=op) | ast.UnaryOp(op=op):
                symbol, hint = _REFUSED[type(op)]
                message = f"`{symbol}` is not part of the expression language"
                raise ExpressionError(message, column, hint)
            case ast.Compare():
                return _read_comparison(node, read, column)
            case ast.Call(func=ast.Name(id=function)):
                return _read_call(function, node, read, column)
        kind = type(node).__name__
        raise ExpressionError(
            f"{kind} is not part of the expression language",
            column,
            "it has literals, field names, arithmetic, comparison, and/or/not, `a if b else c` and "
            "functions",
        )


def _read_comparison(node: ast.Compare, read: Read, column: int) -> Expression:
    match node:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as op], comparators=[right]):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise ExpressionError("`is` compares with None alone; use ==", column)
            return IsNull(read(left), isinstance(op, ast.IsNot), column)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            return Compare(_COMPARISONS[type(op)], read(left), read(right), column)
    raise ExpressionError("one comparison at a time: write `a < b and b < c`", column)


def _read_call(function: str, node: ast.Call, read: Read, column: int) -> Expression:
    if any(isinstance(argument, ast.Starred) for argument in node.args):
        raise ExpressionError("arguments cannot be unpacked", column)
    if any(keyword.arg != ELSE_KEYWORD for keyword in node.keywords) or len(node.keywords) > 1:
        raise ExpressionError("the only named argument is else=", column)
    fallback = read(node.keywords[0].value) if node.keywords else None
    return Call(function, tuple(map(read, node.args)), fallback, column)


def _literal(value: str | int | bool | None, column: int) -> Literal:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ExpressionError("a string of valid Unicode is needed", column) from None
    elif isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
        raise ExpressionError("the integer is too large", column)
    return Literal(value, column)
