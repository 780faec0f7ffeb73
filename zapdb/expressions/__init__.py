"""The typed expression language: parse, check, emit; its functions are a closed registry."""

from zapdb.expressions.emit import Emitter
from zapdb.expressions.functions import FUNCTIONS, Function
from zapdb.expressions.parse import parse_expression
from zapdb.expressions.tokens import ExpressionError
from zapdb.expressions.tree import Expression, Literal, Type, names_in, unparse
from zapdb.expressions.type_check import SPECIAL, check_assignable, infer_type

__all__ = [
    "FUNCTIONS",
    "SPECIAL",
    "Emitter",
    "Expression",
    "ExpressionError",
    "Function",
    "Literal",
    "Type",
    "check_assignable",
    "infer_type",
    "names_in",
    "parse_expression",
    "unparse",
]
