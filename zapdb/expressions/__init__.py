"""The typed expression language: parse, check, emit; its functions are a closed registry."""

from zapdb.expressions.check import Type, check
from zapdb.expressions.emit import Emitter
from zapdb.expressions.functions import FUNCTIONS, Function
from zapdb.expressions.parse import ExpressionError, parse
from zapdb.expressions.tree import Expression, Literal, names_in, unparse

__all__ = [
    "FUNCTIONS",
    "Emitter",
    "Expression",
    "ExpressionError",
    "Function",
    "Literal",
    "Type",
    "check",
    "names_in",
    "parse",
    "unparse",
]
