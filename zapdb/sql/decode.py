"""The values of an answer as Python has them: exactly, or refused with the name of their column.

Arrow holds numbers, text and bytes as they are. Times are checked as integers, since Python's times
go from year 1 to 9999 and have no infinity and no 24:00; types that Arrow would change come as text
(see `sandbox.carried`).
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import pyarrow
import pyarrow.compute

from zapdb.errors import SqlError

ColumnKind = Mapping[str, Any]
"""A type as `sandbox.carried.describe` gives it: `id`, `text`, `parts`."""

_EPOCH: Final = datetime.datetime(1970, 1, 1)
DAY_US: Final = 86_400_000_000
UNITS_NS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
OFFSET: Final = re.compile(r"([+-])(\d\d)(?::(\d\d)(?::(\d\d))?)?$")
INTERVAL: Final = re.compile(
    r"(?:(-?\d+) years? ?)?(?:(-?\d+) months? ?)?(?:(-?\d+) days? ?)?"
    r"(?:(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)


class NotRepresentable(Exception):
    """A value that Python has not; the reason."""


def decode_column(name: str, kind: ColumnKind, array: Any) -> list[Any]:
    """The values of an Arrow array; raises `SqlError`."""
    try:
        return _decode(kind, array)
    except NotRepresentable as unfit:
        reason = str(unfit)
    except (ArithmeticError, ValueError, RecursionError, pyarrow.ArrowException):
        reason = "Python has no such value"
    except (AttributeError, LookupError, RuntimeError, StopIteration, TypeError):
        reason = "its values are not of this type"  # somebody else has written the answer
    raise refuse(name, kind, reason) from None


def refuse(name: str, kind: ColumnKind, reason: str) -> SqlError:
    """The error for a column that has a value which can't be given."""
    return SqlError(
        "a value of the result has no equivalent in Python",
        column=name,
        type=kind["text"],
        problem=reason,
        hint="cast the column to VARCHAR in the statement, or read the result with to_arrow()",
    )


def _decode(kind: ColumnKind, array: Any) -> list[Any]:
    nested = _NESTED.get(kind["id"])
    if nested is not None:
        return nested(kind, array)
    is_time = kind["id"] in _INTEGERS
    values = _integers(array) if is_time else array.to_pylist()
    convert = _INTEGERS[kind["id"]] if is_time else _simple(kind)
    if convert is None:
        return list(values)
    return [None if value is None else convert(value) for value in values]


def _integers(array: Any) -> list[int | None]:
    """Of an array of times: in nanoseconds, or days of dates."""
    if pyarrow.types.is_date(array.type):
        return list(array.cast(pyarrow.int32()).to_pylist())
    factor = UNITS_NS[array.type.unit]
    values = array.cast(pyarrow.int64()).to_pylist()
    return [None if value is None else value * factor for value in values]


def _simple(kind: ColumnKind) -> Callable[[Any], Any] | None:
    if kind["text"] == "JSON":
        return _json
    return SIMPLE.get(kind["id"])


# --- what stands alone ---------------------------------------------------------------------------


def _integer(value: Any) -> int:
    return int(value)


def _json(text: str) -> Any:
    return json.loads(text, parse_float=_json_float, object_pairs_hook=_json_object)


def _json_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise NotRepresentable("a JSON number is too large for a float")
    return value


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotRepresentable("a JSON object has the same name twice")
    return value


def _date(days: int) -> datetime.date:
    try:
        return _EPOCH.date() + datetime.timedelta(days=days)
    except OverflowError:
        raise NotRepresentable("a date is infinite, or outside the years 1 to 9999") from None


def _timestamp(nanoseconds: int) -> datetime.datetime:
    microseconds = _whole(nanoseconds)
    try:
        return _EPOCH + datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        raise NotRepresentable("a time is infinite, or outside the years 1 to 9999") from None


def _instant(nanoseconds: int) -> datetime.datetime:
    return _timestamp(nanoseconds).replace(tzinfo=datetime.UTC)


def _time(nanoseconds: int) -> datetime.time:
    microseconds = _whole(nanoseconds)
    if microseconds == DAY_US:
        raise NotRepresentable("a time is 24:00")
    return (_EPOCH + datetime.timedelta(microseconds=microseconds)).time()


def _whole(nanoseconds: int) -> int:
    microseconds, rest = divmod(nanoseconds, 1_000)
    if rest:
        raise NotRepresentable("a time has nanoseconds")
    return microseconds


def _time_with_offset(text: str) -> datetime.time:
    match = OFFSET.search(text)
    if match is None or text.startswith("24"):
        raise NotRepresentable("a time is 24:00")
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
    offset = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    zone = datetime.timezone(-offset if match[1] == "-" else offset)
    return datetime.time.fromisoformat(text[: match.start()]).replace(tzinfo=zone)


def _interval(text: str) -> Any:
    """As Arrow has it: months, days and nanoseconds, which no timedelta keeps apart."""
    match = INTERVAL.fullmatch(text)
    if match is None:
        raise NotRepresentable("an interval is not understood")
    years, months, days = (int(part or 0) for part in match.groups()[:3])
    hours, minutes, seconds = (int(part or 0) for part in match.groups()[4:7])
    microseconds = int((match[8] or "").ljust(6, "0"))
    whole = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + microseconds
    nanoseconds = (-whole if match[4] else whole) * 1_000
    return pyarrow.MonthDayNano([years * 12 + months, days, nanoseconds])


def _refuse(value: Any) -> Any:
    raise NotRepresentable("its type has no equivalent in Python")


_INTEGERS: Final[dict[str, Callable[[int], Any]]] = {
    "date": _date,
    "time": _time,
    "time_ns": _time,
    "timestamp": _timestamp,
    "timestamp_s": _timestamp,
    "timestamp_ms": _timestamp,
    "timestamp_ns": _timestamp,
    "timestamp with time zone": _instant,
    "timestamptz_ns": _instant,
}
SIMPLE: Final[dict[str, Callable[[Any], Any] | None]] = {
    **dict.fromkeys(("boolean", "float", "double", "varchar", "blob", "decimal", "enum")),
    **dict.fromkeys(("tinyint", "smallint", "integer", "bigint")),
    **dict.fromkeys(("utinyint", "usmallint", "uinteger", "ubigint", "null", "sqlnull")),
    **dict.fromkeys(("bit", "geometry")),
    **dict.fromkeys(("hugeint", "uhugeint", "bignum"), _integer),
    "uuid": UUID,
    "time with time zone": _time_with_offset,
    "interval": _interval,
    "type": _refuse,
    "variant": _refuse,
}


# --- what consists of others ---------------------------------------------------------------------


def _part(kind: ColumnKind, at: int) -> ColumnKind:
    found: ColumnKind = kind["parts"][at][1]
    return found


def _lists(kind: ColumnKind, array: Any) -> list[Any]:
    """Of lists of any length, and of one."""
    lengths = pyarrow.compute.list_value_length(array).to_pylist()
    values = iter(_decode(_part(kind, 0), array.flatten()))
    return [None if n is None else [next(values) for _ in range(n)] for n in lengths]


def _structs(kind: ColumnKind, array: Any) -> list[Any]:
    names = [name for name, _ in kind["parts"]]
    parts = zip(kind["parts"], array.flatten(), strict=True)
    columns = [_decode(part, column) for (_, part), column in parts]
    rows = zip(*columns, strict=True)
    if kind["id"] == "tuple":
        return _where_valid(array, rows)
    return _where_valid(array, (dict(zip(names, row, strict=True)) for row in rows))


def _where_valid(array: Any, values: Iterable[Any]) -> list[Any]:
    valid = array.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]


def _maps(kind: ColumnKind, array: Any) -> list[Any]:
    offsets = array.offsets.to_pylist()
    keys, values = _decode(_part(kind, 0), array.keys), _decode(_part(kind, 1), array.items)
    spans = pairwise(offsets)
    return _where_valid(array, (_make_map(keys[a:b], values[a:b]) for a, b in spans))


def _make_map(keys: Sequence[Any], values: Sequence[Any]) -> dict[Any, Any]:
    try:
        found = dict(zip(keys, values, strict=True))
    except TypeError:
        raise NotRepresentable("the keys of a map are lists, structs or maps") from None
    if len(found) != len(keys):
        raise NotRepresentable("different keys of a map are equal in Python")
    return found


def _unions(kind: ColumnKind, array: Any) -> list[Any]:
    columns = [_decode(part, array.field(at)) for at, (_, part) in enumerate(kind["parts"])]
    return [columns[code][row] for row, code in enumerate(array.type_codes.to_pylist())]


_NESTED: Final[dict[str, Callable[[ColumnKind, Any], list[Any]]]] = {
    "list": _lists,
    "array": _lists,
    "struct": _structs,
    "tuple": _structs,
    "map": _maps,
    "union": _unions,
}
