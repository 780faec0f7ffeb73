"""What expressions and operations mean, written as plainly as possible and compiled nowhere.

Records are dicts here, and one operation after another is applied to them. Nothing is shared with
the code under test but the trees, the schemas and the registry of types.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal as D
from fractions import Fraction
from typing import Any

from zapdb.expressions import Expression, parse
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
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.migrations import Chain, Migration, Numbers
from zapdb.migrations.operations import Operation
from zapdb.migrations.operations.add_field import AddField
from zapdb.migrations.operations.change_type import ChangeType
from zapdb.migrations.operations.create_table import CreateTable
from zapdb.migrations.operations.drop_field import DropField
from zapdb.migrations.operations.rename_field import RenameField
from zapdb.migrations.operations.rename_table import RenameTable
from zapdb.migrations.operations.transform import Transform
from zapdb.schema import Schema
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN


class Failed(Exception):
    """A partial function has no result."""


def evaluate(expression: Expression, values: Mapping[str, Any]) -> Any:
    match expression:
        case Literal(value):
            return value
        case Name(name):
            return values[name]
        case Conditional(test, then, otherwise):
            return evaluate(then if evaluate(test, values) else otherwise, values)
        case Compare(operator, left, right):
            return compare(operator, evaluate(left, values), evaluate(right, values))
        case IsNull(operand, negated):
            return (evaluate(operand, values) is None) != negated
        case Logic("and", operands):
            return all(evaluate(part, values) for part in operands)
        case Logic(_, operands):
            return any(evaluate(part, values) for part in operands)
        case Not(operand):
            return not evaluate(operand, values)
        case Call("coalesce", (value, default)):
            found = evaluate(value, values)
            return evaluate(default, values) if found is None else found
        case Call(function, arguments, otherwise):
            try:
                return CALLS[function](*(evaluate(part, values) for part in arguments))
            except Failed:
                assert otherwise is not None
                found = evaluate(otherwise, values)
                if function == "decimal" and type(found) is int:
                    return decimal(found, evaluate(arguments[1], values))
                return found
    raise AssertionError(expression)


def compare(operator: str, left: Any, right: Any) -> bool:
    if isinstance(left, str):  # by code points, whatever the internal form of strings
        left, right = left.encode("utf-32-be"), right.encode("utf-32-be")
    if isinstance(left, D | int) and not isinstance(left, bool):
        left, right = Fraction(left), Fraction(right)
    below, equal = left < right, left == right
    return {
        "==": equal,
        "!=": not equal,
        "<": below,
        "<=": below or equal,
        ">": not below and not equal,
        ">=": not below,
    }[operator]


def cut(text: str) -> str:
    while len(text.encode()) > VALUE_SIZE_BYTES_MAX:
        text = text[:-1]
    return text


def before(text: str, separator: str) -> str:
    at = text.find(separator)
    return text if at < 0 or not separator else text[:at]


def after(text: str, separator: str) -> str:
    at = text.find(separator)
    return "" if at < 0 or not separator else text[at + len(separator) :]


def join(separator: str, first: str, *rest: str) -> str:
    for text in rest:
        first += separator + text
    return cut(first)


def shift_case(text: str, first: str, last: str, by: int) -> str:
    return "".join(chr(ord(c) + by) if first <= c <= last else c for c in text)


def strip(text: str) -> str:
    while text and text[0] in " \t\r\n":
        text = text[1:]
    while text and text[-1] in " \t\r\n":
        text = text[:-1]
    return text


def to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, D):
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        shown = "".join(map(str, digits)).rjust(1 - exponent, "0")
        shown = f"{shown[:exponent]}.{shown[exponent:]}" if exponent else shown
        return "-" * sign + shown
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def read_number(text: str, places_max: int) -> Fraction:
    """Digits of ASCII, with a point between them at most."""
    unsigned = text.removeprefix("-")
    whole, point, places = unsigned.partition(".")
    digits = set(whole + places) <= set("0123456789")
    if not digits or not whole or len(whole) > 152 or len(places) > places_max:
        raise Failed
    if point and not places:
        raise Failed
    value = Fraction(int(whole + places), 10 ** len(places))
    return -value if text.startswith("-") else value


def integer(value: Any) -> int:
    number = Fraction(value) if isinstance(value, D) else read_number(value, 0)
    if isinstance(value, str) and "." in value:
        raise Failed
    if number.denominator != 1 or not INTEGER_MIN <= number <= INTEGER_MAX:
        raise Failed
    return int(number)


def decimal(value: Any, scale: int) -> D:
    number = read_number(value, 64) if isinstance(value, str) else Fraction(value)
    scaled = number * 10**scale
    if scaled.denominator != 1 or not INTEGER_MIN <= scaled <= INTEGER_MAX:
        raise Failed
    digits = tuple(map(int, str(abs(int(scaled)))))
    return D((scaled < 0, digits, -scale))


CALLS: Mapping[str, Any] = {
    "before": before,
    "after": after,
    "join": join,
    "lower": lambda text: shift_case(text, "A", "Z", 32),
    "upper": lambda text: shift_case(text, "a", "z", -32),
    "strip": strip,
    "length": lambda text: len(text.encode("utf-32-be")) // 4,
    "contains": lambda text, part: text.find(part) >= 0,
    "starts_with": lambda text, part: text[: len(part)] == part,
    "text": to_text,
    "integer": integer,
    "decimal": decimal,
}

# --- operations on records -----------------------------------------------------------------------

Rows = dict[str, dict[str, Any]]
"""One record of each table, by the table's name."""


def apply_operation(operation: Operation, rows: Rows, before: Schema, after: Schema) -> Rows:
    """What becomes of one record of each table; new tables have none."""
    if operation.table not in rows or isinstance(operation, CreateTable):
        return rows
    row = dict(rows[operation.table])
    match operation:
        case RenameTable(table, to):
            return {(to if name == table else name): held for name, held in rows.items()}
        case RenameField(_, field, to):
            row[to] = row.pop(field)
        case DropField(_, field):
            del row[field]
        case AddField():
            target = after.table_named(operation.table)
            assert target is not None
            field = target.field_named(operation.field.name)
            assert field is not None
            fill = operation.fill
            if hasattr(fill, "expression") and isinstance(fill.expression, str):
                row[field.name] = evaluate(parse(fill.expression), row)
            elif hasattr(fill, "value"):
                plain: Any = fill.value
                row[field.name] = None if plain is None else field.type.from_document(plain, "p")
            else:
                row[field.name] = field.default if field.has_default else None
        case ChangeType(_, field, _, up):
            if row[field] is not None:
                row[field] = evaluate(parse(up), {field: row[field]})
        case Transform():
            given = {name: row.pop(name) for name in operation.source}
            for name, text in operation.up.items():
                row[name] = evaluate(parse(text), given)
    return rows | {operation.table: row}


def convert_row(chain: Chain, table: int, row: dict[str, Any], source: int, target: int) -> Any:
    """A record of a table at position `source`, as it is at position `target`."""
    schema = chain.schema_at(source)
    start = schema.table_numbered(table)
    assert start is not None
    rows: Rows = {start.name: row}
    low, high = sorted((source, target))
    steps = list(chain.migrations[low:high])
    if source > target:
        steps.reverse()
    for migration in steps:
        if touches(migration, table):
            rows = apply_migration(migration, rows, source < target)
        else:
            rows = {name_of(migration, table, source < target): next(iter(rows.values()))}
    return next(iter(rows.values()))


def touches(migration: Migration, table: int) -> bool:
    return migration.before.table_numbered(table) != migration.after.table_numbered(table)


def name_of(migration: Migration, table: int, up: bool) -> str:
    reached = (migration.after if up else migration.before).table_numbered(table)
    assert reached is not None
    return reached.name


def apply_migration(migration: Migration, rows: Rows, up: bool) -> Rows:
    schema = migration.before if up else migration.after
    numbers = Numbers(step=-1)  # never seen: the schemas serve to look names up
    for operation in migration.changes if up else migration.rollback:
        following = operation.apply(schema, numbers)
        rows = apply_operation(operation, rows, schema, following)
        schema = following
    return rows
