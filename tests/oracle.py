"""What expressions and operations mean, written as plainly as possible and compiled nowhere.

Records are dicts here, and one operation after another is applied to them. Nothing is shared with
the code under test but the trees, the schemas and the registry of types.
"""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Mapping
from decimal import Decimal as D
from fractions import Fraction
from typing import Any

from zapdb.expressions import Expression, Type, parse_expression
from zapdb.expressions.tree import (
    Arithmetic,
    Call,
    Compare,
    Conditional,
    IsNull,
    Literal,
    Logic,
    LogicalNot,
    Name,
    Negate,
)
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.migrations import Chain, NumberAllocator
from zapdb.migrations.document_structure import ABSENT
from zapdb.migrations.migration import ReplayAllocator
from zapdb.migrations.operations import Operation
from zapdb.migrations.operations.alter_type import AlterType
from zapdb.migrations.operations.change_type import ChangeType
from zapdb.migrations.operations.field import AddField, DropField, RestoreField
from zapdb.migrations.operations.field_change import MakeRequired
from zapdb.migrations.operations.rename import RenameField
from zapdb.migrations.operations.transform import Transform
from zapdb.schema import Field, TableSchema
from zapdb.values import Enum, List, Reference, Struct, ValueType
from zapdb.values.varint import INTEGER_MAX, INTEGER_MIN


class Failed(Exception):
    """A partial function has no result."""


def evaluate(
    expression: Expression,
    values: Mapping[str, Any],
    types: Mapping[str, Type] | None = None,
    enum: Any = None,
) -> Any:
    """The value; `types` are those of the names and `enum` is the wanted one, for `member()`."""

    def given(part: Expression, wanted: Any = None) -> Any:
        return evaluate(part, values, types, wanted)

    enum = enum or enum_of(expression, types or {})
    match expression:
        case Literal(value):
            return value
        case Name(name):
            return values[name]
        case Conditional(test, then, otherwise):
            return given(then if given(test) else otherwise, enum)
        case Compare(operator, left, right):
            beside = enum_of(left, types or {}) or enum_of(right, types or {})
            return compare(operator, given(left, beside), given(right, beside))
        case IsNull(operand, negated):
            return (given(operand) is None) != negated
        case Logic("and", operands):
            return all(given(part) for part in operands)
        case Logic(_, operands):
            return any(given(part) for part in operands)
        case LogicalNot(operand):
            return not given(operand)
        case Negate(operand):
            number = given(operand)
            return calculate("*", -1.0 if isinstance(number, float) else -1, number)
        case Arithmetic(operator, left, right):
            return calculate(operator, given(left), given(right))
        case Call("coalesce", (value, default)):
            found = given(value, enum)
            return given(default, enum) if found is None else found
        case Call("member", (argument,), otherwise):
            text = given(argument)
            assert otherwise is not None
            return text if text in [name for _, name in enum.members] else given(otherwise, enum)
        case Call(function, arguments, otherwise):
            items = list_items(arguments[0], types or {}) if arguments else None
            try:
                return CALLS[function](*(given(part, items) for part in arguments))
            except Failed:
                assert otherwise is not None
                found = given(otherwise)
                if function in ("decimal", "divide") and type(found) is int:
                    return decimal(found, given(arguments[-1]))
                return found
    raise AssertionError(expression)


def enum_of(expression: Expression, types: Mapping[str, Type]) -> Any:
    """The enum that an expression is of by the fields in it."""
    match expression:
        case Name(name) if name in types and isinstance(types[name].kind, Enum):
            return types[name].kind
        case Conditional(_, then, otherwise) | Call("coalesce", (then, otherwise)):
            return enum_of(then, types) or enum_of(otherwise, types)
        case Call("member", _, otherwise) if otherwise is not None:
            return enum_of(otherwise, types)
    return None


def list_items(expression: Expression, types: Mapping[str, Type]) -> Any:
    """The enum of a list's items."""
    if isinstance(expression, Name) and expression.name in types:
        kind = types[expression.name].kind
        return kind.items if isinstance(kind, List) and isinstance(kind.items, Enum) else None
    return None


def compare(operator: str, left: Any, right: Any) -> bool:
    if operator in ("==", "!="):
        return is_equal(left, right) == (operator == "==")
    if isinstance(left, str):  # by code points, whatever the internal form of strings
        left, right = left.encode("utf-32-be"), right.encode("utf-32-be")
    if isinstance(left, D | int) and not isinstance(left, bool):
        left, right = Fraction(left), Fraction(right)
    below, above = left < right, left > right
    equal = left == right  # neither of the three for NaN
    return {"<": below, "<=": below or equal, ">": above, ">=": above or equal}[operator]


def is_equal(left: Any, right: Any, inside: bool = False) -> bool:
    """Numbers by value, all else by type, too; NaN equals NaN inside lists and structs alone."""
    if type(left) in (int, D) and type(right) in (int, D):
        return Fraction(left) == Fraction(right)
    if hasattr(left, "_fields"):
        return all(is_equal(getattr(left, n), getattr(right, n), True) for n in left._fields)
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return left == right or (inside and left != left and right != right)
    if isinstance(left, list):
        pairs = zip(left, right, strict=False)
        return len(left) == len(right) and all(is_equal(a, b, True) for a, b in pairs)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(
            is_equal(left[key], right[key], True) for key in left
        )
    return bool(left == right)


# Numbers: as fractions, then held in the range of their type.


def hold(number: Fraction, scale: int | None) -> Any:
    """An integer, or the decimal of a scale: a number of whole units, or the nearest that fits."""
    units = number * 10 ** (scale or 0)
    assert units.denominator == 1
    whole = int(units)
    whole = INTEGER_MAX if whole > INTEGER_MAX else INTEGER_MIN if whole < INTEGER_MIN else whole
    if scale is None:
        return whole
    return D((int(whole < 0), tuple(map(int, str(abs(whole)))), -scale))


def scale_of(value: Any) -> int | None:
    return -value.as_tuple().exponent if isinstance(value, D) else None


def nearest_float(number: Fraction) -> float:
    try:
        return number.numerator / number.denominator + 0.0  # rounded correctly; −0.0 is 0.0
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def calculate(operator: str, left: Any, right: Any) -> Any:
    apply: Any = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "//": lambda a, b: Fraction(math.floor(a / b)),
        "%": lambda a, b: a - b * math.floor(a / b),
    }[operator]
    if isinstance(left, float):
        if math.isfinite(left) and math.isfinite(right):
            return nearest_float(apply(Fraction(left), Fraction(right)))
        return apply(left, right)
    scales = [scale for scale in (scale_of(left), scale_of(right)) if scale is not None]
    scale = (sum if operator == "*" else max)(scales) if scales else None
    return hold(apply(Fraction(left), Fraction(right)), scale)


def absolute(value: Any) -> Any:
    if isinstance(value, float):
        return -value if value < 0 else value
    return hold(abs(Fraction(value)), scale_of(value))


def choose(place: int, values: tuple[Any, ...]) -> Any:
    if isinstance(values[0], float):
        return sorted(values, key=lambda value: (math.isnan(value), value))[place]
    scales = [scale for scale in map(scale_of, values) if scale is not None]
    return hold(sorted(map(Fraction, values))[place], scales[0] if scales else None)


def quotient(left: int, right: int) -> Any:
    if not right:
        raise Failed
    return calculate("//", left, right)


def remainder(left: int, right: int) -> Any:
    if not right:
        raise Failed
    return calculate("%", left, right)


def divide(left: Any, right: Any, scale: int) -> D:
    if not right:
        raise Failed
    return rounded(Fraction(left) / Fraction(right), scale)


def rounded(value: Any, scale: int, to_whole: Any = round) -> Any:
    """Python rounds fractions to the even neighbour."""
    return hold(Fraction(to_whole(Fraction(value) * 10**scale), 10**scale), scale)


# Texts.


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


def replace(text: str, old: str, new: str) -> str:
    return cut(new.join(text.split(old))) if old else text


def part(text: str, separator: str, number: int) -> str:
    parts = text.split(separator) if separator else [text]
    return dict(enumerate(parts, 1)).get(number, "")


def substring(text: str, start: int, count: int) -> str:
    return "".join(c for at, c in enumerate(text, 1) if start <= at < start + count)


def shift_case(text: str, first: str, last: str, by: int) -> str:
    return "".join(chr(ord(c) + by) if first <= c <= last else c for c in text)


def strip(text: str) -> str:
    while text and text[0] in " \t\r\n":
        text = text[1:]
    while text and text[-1] in " \t\r\n":
        text = text[:-1]
    return text


def contains(whole: Any, wanted: Any) -> bool:
    if isinstance(whole, str):
        return whole.find(wanted) >= 0
    return any(is_equal(item, wanted, True) for item in whole)


# From type to type.


def to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, D):
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        shown = "".join(map(str, digits)).rjust(1 - exponent, "0")
        shown = f"{shown[:exponent]}.{shown[exponent:]}" if exponent else shown
        return "-" * sign + shown
    if isinstance(value, bytes):
        return "".join(f"{byte:02x}" for byte in value)
    if isinstance(value, datetime.datetime):
        parts = value.year, value.month, value.day, value.hour, value.minute, value.second
        shown = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*parts)
        return shown + (f".{value.microsecond:06}Z" if value.microsecond else "Z")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def read_number(text: str, places_max: int, whole_max: int = 152) -> Fraction:
    """Digits of ASCII, with a point between them at most."""
    unsigned = text.removeprefix("-")
    whole, point, places = unsigned.partition(".")
    digits = set(whole + places) <= set("0123456789")
    if not digits or not whole or len(whole) > whole_max or len(places) > places_max:
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


def to_float(value: Any) -> float:
    if not isinstance(value, str):
        found = nearest_float(Fraction(value))
    elif value in ("nan", "inf", "-inf"):
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[value]
    else:
        mantissa, mark, exponent = value.partition("e")
        digits = exponent.removeprefix("-").removeprefix("" if "-" in exponent else "+")
        if mark and not (1 <= len(digits) <= 4 and set(digits) <= set("0123456789")):
            raise Failed
        power = Fraction(10) ** (int(exponent) if mark else 0)
        found = nearest_float(read_number(mantissa, 1100, 400) * power)
    if math.isinf(found):
        raise Failed
    return found


def numbers_in(text: str, pattern: str) -> list[int]:
    """The digits that stand for letters of the pattern, other characters being as they are."""
    if len(text) != len(pattern):
        raise Failed
    found: dict[str, str] = {}
    for character, place in zip(text, pattern, strict=True):
        if not place.islower():
            if character != place:
                raise Failed
        elif character not in "0123456789":
            raise Failed
        else:
            found[place] = found.get(place, "") + character
    return [int(digits) for digits in found.values()]


def date(text: str) -> datetime.date:
    try:
        return datetime.date(*numbers_in(text, "yyyy-mm-dd"))
    except ValueError:
        raise Failed from None


def timestamp(text: str) -> datetime.datetime:
    whole, point, fraction = text.removesuffix("Z").partition(".")
    if not text.endswith("Z") or (point and not 1 <= len(fraction) <= 6):
        raise Failed
    (micro,) = numbers_in(fraction + "0" * (6 - len(fraction)), "uuuuuu")
    try:
        parts = numbers_in(whole, "yyyy-mm-ddThh:ii:ss")
        return datetime.datetime(*parts, micro, datetime.UTC)
    except ValueError:
        raise Failed from None


def add_days(day: datetime.date, days: int) -> datetime.date:
    try:
        return day + datetime.timedelta(days)
    except OverflowError:
        raise Failed from None


def unhex(text: str) -> bytes:
    if len(text) % 2 or not set(text) <= set("0123456789abcdefABCDEF"):
        raise Failed
    return bytes(int(text[at : at + 2], 16) for at in range(0, len(text), 2))


def utf8(raw: bytes) -> str:
    """RFC 3629, character by character: shortest forms, no surrogates, nothing above 10FFFF."""
    text, at = "", 0
    while at < len(raw):
        first = raw[at]
        size = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
        following = raw[at + 1 : at + size]
        code = first & (0x7F if size == 1 else 0xFF >> (size + 1))
        for byte in following:
            code = code << 6 | byte & 0x3F
        is_valid = (
            not 0x80 <= first < 0xC0
            and first < 0xF8
            and len(following) == size - 1
            and all(0x80 <= byte < 0xC0 for byte in following)
            and code >= (0, 0, 0x80, 0x800, 0x10000)[size]
            and code <= 0x10FFFF
            and not 0xD800 <= code < 0xE000
        )
        if not is_valid:
            raise Failed
        text, at = text + chr(code), at + size
    return text


def to_uuid(text: str) -> uuid.UUID:
    digits = text.split("-")
    if [len(part) for part in digits] != [8, 4, 4, 4, 12]:
        raise Failed
    return uuid.UUID(int=int.from_bytes(unhex("".join(digits)), "big"))


CALLS: Mapping[str, Any] = {
    "before": before,
    "after": after,
    "part": part,
    "substring": substring,
    "join": join,
    "replace": replace,
    "lower": lambda text: shift_case(text, "A", "Z", 32),
    "upper": lambda text: shift_case(text, "a", "z", -32),
    "strip": strip,
    "length": lambda value: (
        len(value.encode("utf-32-be")) // 4 if isinstance(value, str) else sum(1 for _ in value)
    ),
    "contains": contains,
    "starts_with": lambda text, part: text[: len(part)] == part,
    "ends_with": lambda text, part: not part or text[-len(part) :] == part,
    "abs": absolute,
    "min": lambda *values: choose(0, values),
    "max": lambda *values: choose(-1, values),
    "round": rounded,
    "truncate": lambda value, scale: rounded(value, scale, int),
    "quotient": quotient,
    "remainder": remainder,
    "divide": divide,
    "year": lambda day: int(day.isoformat()[:4]),
    "month": lambda day: int(day.isoformat()[5:7]),
    "day": lambda day: int(day.isoformat()[8:]),
    "add_days": add_days,
    "days_between": lambda first, second: (second - first).days,
    "date_of": lambda instant: date(to_text(instant)[:10]),
    "timestamp_of": lambda day: timestamp(f"{day.isoformat()}T00:00:00Z"),
    "local_date": lambda local: date(local.replace(tzinfo=None).isoformat()[:10]),
    "zone_name": lambda local: local.tzinfo.key,
    "text": to_text,
    "integer": integer,
    "decimal": decimal,
    "float": to_float,
    "date": date,
    "timestamp": timestamp,
    "uuid": to_uuid,
    "hex": to_text,
    "unhex": unhex,
    "utf8": utf8,
    "bytes_of": lambda text: b"".join(encode_utf8(ord(c)) for c in text),
}


def encode_utf8(code: int) -> bytes:
    if code < 0x80:
        return bytes([code])
    following = 1 if code < 0x800 else 2 if code < 0x10000 else 3
    head = (0, 0xC0, 0xE0, 0xF0)[following] | code >> 6 * following
    return bytes([head, *(0x80 | code >> 6 * at & 0x3F for at in reversed(range(following)))])


# --- operations on records -----------------------------------------------------------------------


class Kept:
    """A record, and what is archived beside it, by the number of the field."""

    def __init__(self, row: dict[str, Any], archive: Mapping[int, Any] | None = None) -> None:
        self.row = dict(row)
        self.archive = dict(archive or {})


def apply_operation(
    operation: Operation, kept: Kept, before: TableSchema, after: TableSchema
) -> None:
    """What becomes of one record of the table, which has the shape `before`, then `after`."""
    row = kept.row
    match operation:
        case RenameField(_, field, to):
            row[to] = row.pop(field)
        case DropField(_, field, restore):
            value = row.pop(field)
            if given(restore) and restore.archive is True:
                kept.archive[number_of(before, field)] = value
        case RestoreField(_, field, _, otherwise):
            number = number_of(after, field)
            if number in kept.archive:
                row[field] = kept.archive.pop(number)
            else:
                row[field] = fill_of(otherwise, row, after, field) if given(otherwise) else None
        case AddField():
            name = operation.field.name
            field = field_of(after, name)
            if given(operation.fill):
                row[name] = fill_of(operation.fill, row, after, name)
            else:
                row[name] = field.default if field.has_constant else None
        case MakeRequired(_, name, fill):
            if row[name] is None:
                rest = {other: value for other, value in row.items() if other != name}
                default = field_of(before, name).default
                row[name] = fill_of(fill, rest, after, name) if given(fill) else default
        case ChangeType(_, field, _, up):
            if row[field] is not None:
                row[field] = evaluate_for(after, field, up, {field: row[field]}, before)
        case Transform():
            taken = {name: row.pop(name) for name in operation.source}
            for name, text in operation.up.items():
                row[name] = evaluate_for(after, name, text, taken, before)
        case AlterType():
            for old, new in zip(before.fields, after.fields, strict=True):
                row[old.name] = alter_value(operation, old.type, new.type, row[old.name])


def given(value: Any) -> bool:
    return value is not ABSENT


def evaluate_for(
    table: TableSchema, name: str, text: str, values: Mapping[str, Any], source: TableSchema
) -> Any:
    """The value of a field by an expression over fields of another shape of its table."""
    types = {f.name: Type(f.type, f.optional) for f in source.fields if f.name in values}
    kind = field_of(table, name).type
    return evaluate(parse_expression(text), values, types, kind if isinstance(kind, Enum) else None)


def field_of(table: TableSchema, name: str) -> Field:
    (found,) = (f for f in table.fields if f.name == name)
    return found


def number_of(table: TableSchema, name: str) -> int:
    return field_of(table, name).number


def fill_of(fill: Any, row: Mapping[str, Any], table: TableSchema, name: str) -> Any:
    if given(fill.expression):
        return evaluate_for(table, name, fill.expression, row, table)
    return None if fill.value is None else field_of(table, name).type.from_document(fill.value, "p")


def alter_value(operation: AlterType, old: ValueType, new: ValueType, value: Any) -> Any:
    """A value of a type of which a declared type is a part, or not, after that was altered."""
    if value is None:
        return None
    if isinstance(old, Enum) and old.declared_name == operation.type:
        if value in operation.remove:
            return operation.remove[value].to
        return operation.rename.get(value, value)
    if isinstance(old, List) and isinstance(new, List):
        return [alter_value(operation, old.items, new.items, item) for item in value]
    if isinstance(old, Reference) and isinstance(new, Reference):
        if len(old.key) == 1:
            return alter_value(operation, old.key[0], new.key[0], value)
        kinds = zip(old.key, new.key, value, strict=True)
        return tuple(alter_value(operation, *each) for each in kinds)
    if not isinstance(old, Struct) or not isinstance(new, Struct):
        return value
    is_meant = old.declared_name == operation.type
    held = {}
    for member in old.members:
        if is_meant and member.name in operation.remove:
            continue
        name = operation.rename.get(member.name, member.name) if is_meant else member.name
        (there,) = (m for m in new.members if m.name == name)
        part = getattr(value, member.name)
        held[name] = alter_value(operation, member.type, there.type, part)
    for added in operation.add if is_meant else ():
        (there,) = (m for m in new.members if m.name == added.name)
        is_null = not given(added.fill) or added.fill is None
        held[added.name] = None if is_null else there.type.from_document(added.fill, "p")
    return new.value_class(*(held[m.name] for m in new.members))


def convert_row(chain: Chain, table: int, row: dict[str, Any], source: int, target: int) -> Any:
    """A record of a table at position `source`, as it is at position `target`."""
    return convert_kept(chain, table, Kept(row), source, target).row


def convert_kept(chain: Chain, table: int, kept: Kept, source: int, target: int) -> Kept:
    """The same with what is archived beside it, which the way takes back or adds to."""
    kept = Kept(kept.row, kept.archive)
    low, high = sorted((source, target))
    steps = list(chain.migrations[low:high])
    if source > target:
        steps.reverse()
    for migration in steps:
        is_up = source < target
        schema = migration.before if is_up else migration.after
        numbers = (
            ReplayAllocator(migration.drawn, migration.number)
            if is_up
            else NumberAllocator(step=-1, migration=migration.number)
        )
        for operation in migration.changes if is_up else migration.rollback:
            following = operation.apply(schema, numbers)
            before, after = schema.table_numbered(table), following.table_numbered(table)
            concerned = isinstance(operation, AlterType) or (
                before is not None and getattr(operation, "table", None) == before.name
            )
            if before is not None and after is not None and concerned:
                apply_operation(operation, kept, before, after)
            schema = following
    return kept
