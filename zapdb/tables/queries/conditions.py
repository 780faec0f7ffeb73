"""Conditions of `--where`: texts in the part of the expression language that queries can answer.

A condition compares a field with a value. The text is parsed to a tree of `zapdb.expressions`, and
this is turned into predicates of queries: no text is ever run.
"""

from __future__ import annotations

from typing import Any, Final, assert_never

from zapdb.errors import UsageError
from zapdb.expressions import Expression, ExpressionError, Literal, parse_expression
from zapdb.expressions.parse import NO_POINT
from zapdb.expressions.tree import (
    Call,
    Compare,
    ComparisonOperator,
    IsNull,
    Logic,
    LogicalNot,
    LogicalOperator,
    Name,
)
from zapdb.records.cell_format import from_plain
from zapdb.schema import Field
from zapdb.schema import TableSchema as Schema
from zapdb.tables.indexes.predicates import And, Or, Predicate, parts_of
from zapdb.tables.queries.fields import FieldExpression
from zapdb.tables.table_reading import ReadableTable
from zapdb.values import Boolean

_WORDS: Final = {"true": True, "false": False, "null": None}
"""As they are written in JSON; the language has True, False and None."""
_FLIPPED: Final[dict[ComparisonOperator, ComparisonOperator]] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "==": "==",
    "!=": "!=",
}
FORMS: Final = (
    "compare a field with a value: done == true and due < '2024-05-31'; there are is None, and, "
    "or, not, starts_with(field, text), matches(field, text), between(field, low, high) and "
    "one_of(field, value, …)"
)


def read_condition(table: ReadableTable, schema: Schema, text: str) -> Predicate:
    """The predicate that a text means; raises `UsageError`, `UnknownField`, `InvalidValue`."""
    try:
        return _Reader(table, schema).read(parse_expression(text))
    except ExpressionError as error:
        hint = error.hint or FORMS
        if error.message == NO_POINT:
            hint = "write a decimal or float as text: total > '12.50'"
        if text[error.column - 1 : error.column] == "=":
            hint = "equal is written =="
        raise UsageError(
            "the condition cannot be parsed",
            problem=error.message,
            condition=text,
            column=error.column,
            hint=hint,
        ) from None


class _Reader:
    def __init__(self, table: ReadableTable, schema: Schema) -> None:
        self._table = table
        self._schema = schema
        self._fields = {field.name: field for field in schema.fields}

    def read(self, node: Expression) -> Predicate:
        match node:
            case Logic(word, operands):
                return _join(word, list(map(self.read, operands)))
            case LogicalNot(operand):
                return ~self.read(operand)
            case IsNull(Name() as name, negated):
                is_null = self._field(name).is_null()
                return ~is_null if negated else is_null
            case Compare(op, Name() as name, right) if self._is_field(name):
                return _compare(op, self._field(name), self._value(name, right))
            case Compare(op, left, Name() as name):
                return _compare(_FLIPPED[op], self._field(name), self._value(name, left))
            case Name() if isinstance(self._schema_field(node).type, Boolean):
                return self._field(node) == True  # noqa: E712 - makes a condition
            case Call(function, (Name() as name, *values), None):
                return self._call(function, name, values, node.column)
        raise ExpressionError("this is not a condition on a field", node.column)

    def _call(self, function: str, name: Name, values: list[Expression], column: int) -> Predicate:
        field, given = self._field(name), [self._value(name, value) for value in values]
        match function, given:
            case "starts_with", [prefix]:
                return field.startswith(prefix)
            case "matches", [value]:
                return field.matches(value)
            case "between", [low, high]:
                return field.between(low, high)
            case "one_of", [_, *_]:
                return field.in_(given)
        raise ExpressionError(f"{function}() of {len(values)} values is not a condition", column)

    def _is_field(self, name: Name) -> bool:
        return name.name in self._fields or name.name not in _WORDS

    def _field(self, name: Name) -> FieldExpression:
        return self._table[name.name]

    def _schema_field(self, name: Name) -> Field:
        self._field(name)  # names the closest field
        return self._fields[name.name]

    def _value(self, name: Name, node: Expression) -> Any:
        match node:
            case Literal(value):
                plain: Any = value
            case Name(word) if word in _WORDS and word not in self._fields:
                plain = _WORDS[word]
            case _:
                raise ExpressionError("a field is compared with a value", node.column)
        return None if plain is None else from_plain(self._schema, self._schema_field(name), plain)


def _join(word: LogicalOperator, parts: list[Predicate]) -> Predicate:
    match word:
        case "and":
            return And(tuple(part for one in parts for part in parts_of(one, And)))
        case "or":
            return Or(tuple(part for one in parts for part in parts_of(one, Or)))
        case _:
            assert_never(word)


def _compare(op: ComparisonOperator, field: FieldExpression, value: object) -> Predicate:
    match op:
        case "==":
            return field == value
        case "!=":
            return field != value
        case "<":
            return field < value
        case "<=":
            return field <= value
        case ">":
            return field > value
        case ">=":
            return field >= value
        case _:
            assert_never(op)
