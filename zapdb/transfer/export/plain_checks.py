"""Checks as SQL, where the columns of plain tables surely tell the same.

Only what compares integers, booleans, texts and enums with constants, and what joins that, is
translated; on PostgreSQL also decimals and the length of a text. A null that the check does not ask
for can't be met: zapdb refuses such a check, and what SQL makes of the parts beside a test for null
changes nothing of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from zapdb.expressions import parse_expression
from zapdb.expressions.tree import (
    Call,
    Compare,
    ComparisonOperator,
    Expression,
    IsNull,
    Literal,
    Logic,
    LogicalNot,
    LogicalOperator,
    Name,
    unparse,
)
from zapdb.transfer.plain_tables import (
    NUL_SHOWN,
    PlainTable,
    quote_name,
    quote_text,
)
from zapdb.values.plain_kinds import Engine, PlainKind

_JOINERS: Final[dict[LogicalOperator, str]] = {"and": " AND ", "or": " OR "}
_BITS: Final = 63


class _Operand(NamedTuple):
    sql: str
    kind: PlainKind
    is_column: bool


class _NoEquivalent(Exception):
    """The check is not the same in SQL."""


def check_sql(expression: str, table: PlainTable, engine: Engine) -> str | None:
    """The condition of a check, None if there is no equivalent."""
    try:
        return _Translator(table, engine).condition(parse_expression(expression))
    except _NoEquivalent:
        return None


@dataclass(frozen=True, slots=True)
class _Translator:
    table: PlainTable
    engine: Engine

    def condition(self, expression: Expression) -> str:
        match expression:
            case Logic(operator, operands):
                return f"({_JOINERS[operator].join(map(self.condition, operands))})"
            case LogicalNot(operand):
                return f"(NOT {self.condition(operand)})"
            case IsNull(Name() as name, negated):
                return f"({self._nullable(name)} IS {'NOT ' if negated else ''}NULL)"
            case Compare(operator, left, right):
                return self._compare(operator, self._operand(left), self._operand(right))
            case Name() | Literal(bool()):
                found = self._operand(expression)
                if found.kind == "boolean":
                    return found.sql
        raise _NoEquivalent(unparse(expression))

    def _nullable(self, name: Name) -> str:
        """A column that is null exactly where the field is."""
        columns = self.table.columns_of(name.name)
        if not columns or columns[0].kind == "json":
            raise _NoEquivalent(name.name)
        return quote_name(columns[-1].name)  # the instant of a zoned time may be missing

    def _compare(self, operator: ComparisonOperator, left: _Operand, right: _Operand) -> str:
        if not _are_alike(left.kind, right.kind) or (left.is_column and right.is_column):
            raise _NoEquivalent(operator)
        match operator:
            case "==":
                return f"({left.sql} = {right.sql})"
            case "!=":
                return f"({left.sql} <> {right.sql})"
            case "<" | "<=" | ">" | ">=":
                if left.kind in ("text", "boolean"):
                    raise _NoEquivalent(operator)  # enums have another order, PostgreSQL no NUL
                return f"({left.sql} {operator} {right.sql})"
            case _:
                assert_never(operator)

    def _operand(self, expression: Expression) -> _Operand:
        match expression:
            case Name(name):
                columns = self.table.columns_of(name)
                if len(columns) == 1 and self._may_compare(columns[0].kind):
                    return _Operand(quote_name(columns[0].name), columns[0].kind, True)
            case Literal(bool() as value):
                names = ("FALSE", "TRUE") if self.engine == "postgresql" else ("0", "1")
                return _Operand(names[value], "boolean", False)
            case Literal(int() as value) if value.bit_length() <= _BITS:
                return _Operand(str(value), "integer", False)
            case Literal(str() as value) if "\0" not in value and NUL_SHOWN not in value:
                return _Operand(quote_text(value), "text", False)
            case Call("length", (Name(name),)) if self.engine == "postgresql":
                columns = self.table.columns_of(name)
                if len(columns) == 1 and columns[0].kind == "text":
                    return _Operand(f"char_length({quote_name(columns[0].name)})", "integer", True)
        raise _NoEquivalent(unparse(expression))

    def _may_compare(self, kind: PlainKind) -> bool:
        """Whether SQL compares values as zapdb does: SQLite has long numbers and decimals as
        texts."""
        if kind in ("long_integer", "decimal", "long_decimal"):
            return self.engine == "postgresql"
        return kind in ("integer", "boolean", "text")


_NUMBERS: Final = ("integer", "long_integer", "decimal", "long_decimal")


def _are_alike(left: PlainKind, right: PlainKind) -> bool:
    return left == right or (left in _NUMBERS and right in _NUMBERS)
