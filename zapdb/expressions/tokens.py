r"""The words of an expression's text, before Python's parser reads it.

The law: what goes on to the parser means the same to every Python. What does not, or may not, is
refused here with its place: escapes that Python gives up or takes from its Unicode tables (`'\d'`,
`'\777'`, `'\N{…}'`), numbers that are glued to words (`1if a else b`), prefixes of texts that came
and will come (`f`, `t`, `b`), names that would be normalised, and blanks other than a blank and a
tab. Python's own `tokenize` is not used: it has changed more than once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from zapdb.limits import EXPRESSION_PARENTHESES_MAX

_TEXT: Final = re.compile(
    r"""(?P<prefix>[A-Za-z]*)(?P<quote>(?>'''|\"\"\"|'|"))(?P<body>(?:[^\\]|\\.)*?)(?P=quote)""",
    re.DOTALL,
)
_OPENING: Final = re.compile(r"""[A-Za-z]*['"]""")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER: Final = re.compile(r"[0-9](?:[A-Za-z0-9_.]|(?<=[0-9.][eE])[+-](?=[0-9]))*")
_INTEGER: Final = re.compile(
    r"0[xX](?:_?[0-9a-fA-F])+|0[oO](?:_?[0-7])+|0[bB](?:_?[01])+|[1-9](?:_?[0-9])*|0(?:_?0)*"
)
_OTHER_NUMBER: Final = re.compile(
    r"(?:[0-9](?:_?[0-9])*)?\.?(?:[0-9](?:_?[0-9])*)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?[jJ]?"
)
_ESCAPE: Final = re.compile(r"\\(?:[0-7]{1,3}|x..|u.{4}|U.{8}|.)", re.DOTALL)
_ESCAPE_OF_ALL: Final = re.compile(
    r"\\(?:[\\'\"abfnrtv]|[0-3]?[0-7]{1,2}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}"
    r"|U(?:0010|000[0-9a-fA-F])[0-9a-fA-F]{4})"
)
_SYMBOLS: Final = frozenset("()[]{}+-*/%<>=!,.:;@&|^~")


class ExpressionError(Exception):
    """What is wrong with an expression, and at which column of its text (from 1)."""

    def __init__(self, message: str, column: int = 1, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.column = column
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    at: int
    is_name: bool = False


def scan(text: str, lead: int = 0) -> Iterator[Token]:
    """The names and other words of a text, comments aside; columns count from `lead` on.

    Raises `ExpressionError` for what does not mean the same to every Python.
    """
    at = depth = 0
    while at < len(text) and text[at] != "#":
        if text[at] in " \t":
            at += 1
            continue
        token = _scan_one(text, at, lead)
        depth += (token.text in "([{") - (token.text in ")]}")
        if depth > EXPRESSION_PARENTHESES_MAX:
            raise ExpressionError(
                f"at most {EXPRESSION_PARENTHESES_MAX} parentheses are open at a time",
                at + lead + 1,
            )
        yield token
        at += len(token.text)


def _scan_one(text: str, at: int, lead: int) -> Token:
    column = at + lead + 1
    if _OPENING.match(text, at):
        return _scan_text(text, at, column)
    if name := _NAME.match(text, at):
        following = text[name.end() : name.end() + 1]
        if following and not following.isascii() and following.isidentifier():
            raise ExpressionError("names are ASCII", column)
        return Token(name[0], at, is_name=True)
    if number := _NUMBER.match(text, at):
        _check_number(number[0], column)
        return Token(number[0], at)
    if text[at] in _SYMBOLS:
        return Token(text[at], at)
    if text[at].isidentifier():
        raise ExpressionError("names are ASCII", column)
    if text[at] in "$?`":
        raise ExpressionError(f"not an expression: `{text[at]}` has no meaning", column)
    if text[at] == "\\":
        raise ExpressionError(
            "a backslash is outside of a string", column, "an expression must be on one line"
        )
    raise ExpressionError(
        f"not an expression: the character U+{ord(text[at]):04X} is outside of a string",
        column,
        "only blanks and tabs separate words, and digits are 0 to 9",
    )


def _scan_text(text: str, at: int, column: int) -> Token:
    found = _TEXT.match(text, at)
    if found is None:
        raise ExpressionError("not an expression: a string has no closing quote", column)
    prefix = found["prefix"].lower()
    if prefix not in ("", "r", "u"):
        if not set(prefix) <= set("bfrtu"):  # a word that a text follows directly
            raise ExpressionError(
                f"a blank is missing between `{found['prefix']}` and a string",
                column,
                "put a blank between them",
            )
        raise ExpressionError(
            f"`{prefix}` before a string is not part of the expression language",
            column,
            "join(' ', a, b) puts values together",
        )
    if prefix != "r":
        start = found.start("body")
        for escape in _ESCAPE.finditer(found["body"]):
            _check_escape(escape[0], column - at + start + escape.start())
    return Token(found[0], at)


def _check_escape(escape: str, column: int) -> None:
    if _ESCAPE_OF_ALL.fullmatch(escape):
        return
    if escape[1] == "N":
        raise ExpressionError(
            r"`\N{…}` depends on the Unicode tables of the running Python",
            column,
            r"write the character itself, or its number as \uXXXX or \UXXXXXXXX",
        )
    if escape[1] in "01234567":
        raise ExpressionError(
            f"`{escape}` is beyond \\377, the last octal escape",
            column,
            f"write \\u{int(escape[1:], 8):04x}",
        )
    if escape[1] in "xuU":
        digits = {"x": "2", "u": "4", "U": "8, at most 0010ffff,"}[escape[1]]
        raise ExpressionError(f"`\\{escape[1]}` is followed by {digits} hexadecimal digits", column)
    raise ExpressionError(
        f"`\\` is followed by U+{ord(escape[1]):04X}, which is not an escape",
        column,
        r"write \\ for a backslash, or r'…' for a text without escapes",
    )


def _check_number(number: str, column: int) -> None:
    if _INTEGER.fullmatch(number) or (
        _OTHER_NUMBER.fullmatch(number) and not number.replace("_", "").isdigit()
    ):
        return  # what is no integer is refused by its kind
    if number.replace("_", "").isdigit():
        if "__" in number or number.endswith("_"):
            raise ExpressionError("an underscore must be between two digits of a number", column)
        raise ExpressionError(
            "a number begins with a zero",
            column,
            f"write {number.lstrip('0_') or '0'}; octal numbers begin with 0o",
        )
    glued = _INTEGER.match(number)
    raise ExpressionError(
        "a blank is missing after a number",
        column + (glued.end() if glued else 0),
        "put a blank between them",
    )
