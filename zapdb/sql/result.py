"""The answer of a statement: rows as Python has them, as Arrow, as pandas, or shown.

Values are given exactly, or refused with the name of their column. Arrow holds numbers, text and
bytes as they are. Times are checked as integers, since Python's times go from year 1 to 9999 and
have no infinity and no 24:00; types that Arrow would change come as text (see
`sandbox.inside.carried`). A DataFrame has columns of pandas' types if they keep all values, else
objects. What is shown has no control characters.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import pyarrow
import pyarrow.compute

from zapdb.errors import SqlError
from zapdb.limits import SQL_ROWS_SHOWN

ColumnKind = Mapping[str, Any]
"""A type as `sandbox.inside.carried.describe` gives it: `id`, `text`, `parts`."""

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


WIDTH_CHARS_MAX: Final = 60
"""The width of a cell; longer values are cut."""

NUMBERS: Final = ("int", "integer", "double", "float", "decimal", "bignum")
"""The ends of the ids of types whose values are aligned to the right."""


def show_rows(columns: Sequence[str], kinds: Sequence[ColumnKind], held: Any, limit: int) -> str:
    """Return the rows as text; if there are more than `limit`, only the first and last ones."""
    count = held.num_rows
    head = count if count <= limit else (limit + 1) // 2
    tail = 0 if count <= limit else limit - head
    parts = [_cells(columns, kinds, held.slice(0, head))]
    if tail:
        parts.append(_cells(columns, kinds, held.slice(count - tail)))
    heads = [[_clean(name) for name in columns], [_clean(kind["id"]) for kind in kinds]]
    rows = [row for part in parts for row in part]
    widths = [max(map(len, column)) for column in zip(*heads, *rows, strict=True)]
    right = [kind["id"].endswith(NUMBERS) for kind in kinds]
    lines = [_line(row, widths, right) for row in heads]
    lines.append("─┼─".join("─" * width for width in widths))
    for at, part in enumerate(parts):
        if at:
            lines.append(" │ ".join("·".center(width) for width in widths))
        lines += [_line(row, widths, right) for row in part]
    shown = f" ({head + tail:,} shown)" if head + tail < count else ""
    return "\n".join([*lines, f"{count:,} {'row' if count == 1 else 'rows'}{shown}"])


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    aligned = zip(row, widths, right, strict=True)
    return " │ ".join(t.rjust(w) if r else t.ljust(w) for t, w, r in aligned).rstrip()


def _cells(columns: Sequence[str], kinds: Sequence[ColumnKind], held: Any) -> list[list[str]]:
    described = zip(columns, kinds, held.combine_chunks().columns, strict=True)
    texts = [_format_column(*column) for column in described]
    return [list(row) for row in zip(*texts, strict=True)]


def _format_column(name: str, kind: ColumnKind, column: Any) -> list[str]:
    chunks = column.chunks
    try:
        values = [value for chunk in chunks for value in decode_column(name, kind, chunk)]
    except SqlError:  # what Python has not
        try:
            values = column.cast(pyarrow.string()).to_pylist()
        except pyarrow.ArrowException:
            values = ["?"] * len(column)
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return _clean(value[:WIDTH_CHARS_MAX].hex())
    return _clean(str(value))


def _clean(text: str) -> str:
    """One line without control characters, no longer than a cell."""
    cut = text if len(text) <= WIDTH_CHARS_MAX else text[: WIDTH_CHARS_MAX - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


ResultRow = tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Result:
    """The rows that a statement of `db.sql` found, held in memory in columns.

    Iterating gives rows as tuples. Values are what records have: `UUID`, `Decimal`, `datetime` in
    UTC, JSON as it was read; structs are dicts, long integers `int`. A value that Python has not
    (a date in the year 20000, a time 24:00) raises `SqlError`, which names its column.
    """

    columns: tuple[str, ...]
    """Their names, which may be there twice."""
    types: tuple[str, ...]
    """Their types as DuckDB names them."""
    _held: Any = field()
    _kinds: tuple[ColumnKind, ...] = field()

    @classmethod
    def make(
        cls,
        columns: Sequence[str],
        kinds: Sequence[ColumnKind],
        schema: Any,
        batches: Sequence[Any],
    ) -> Result:
        """Of what the process of a statement sent: types, described, and batches."""
        held = pyarrow.Table.from_batches(batches, schema)
        return cls(
            tuple(columns),
            tuple(kind["text"] for kind in kinds),
            held.rename_columns(list(columns)),
            tuple(kinds),
        )

    def __len__(self) -> int:
        return int(self._held.num_rows)

    def __iter__(self) -> Iterator[ResultRow]:
        for batch in self._held.to_batches():
            described = zip(self.columns, self._kinds, batch.columns, strict=True)
            yield from zip(*(decode_column(*column) for column in described), strict=True)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {', '.join(self.columns)}; show() prints them>"

    def fetchall(self) -> list[ResultRow]:
        """All rows."""
        return list(self)

    def fetchone(self) -> ResultRow | None:
        """The first row, each time; None if there is none."""
        return next(iter(self), None)

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`: UUIDs and JSON are text, members of enums entries of a dictionary.

        Signed integers of 128 bits are decimals; unsigned ones, those of any size, bits, intervals
        and times with an offset are text, since Arrow has no type that holds all of them.
        """
        return self._held

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, its values as rows have them. Needs the extra `pandas`."""
        return make_result_frame(self.columns, self._kinds, self._held)

    def show(self, limit: int = SQL_ROWS_SHOWN) -> None:
        """Print the rows as a table; only the first and last ones if there are more than
        `limit`."""
        print(show_rows(self.columns, self._kinds, self._held, limit))


PLAIN: Final = frozenset(
    {
        *("boolean", "tinyint", "smallint", "integer", "bigint", "float", "double", "decimal"),
        *("utinyint", "usmallint", "uinteger", "ubigint", "varchar", "blob", "geometry"),
    }
)
_TIMES: Final = frozenset(
    {
        *("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"),
        *("timestamp with time zone", "timestamptz_ns"),
    }
)
FINITE_MAX: Final = (1 << 63) - 2
"""Times are integers of 64 bits; the greatest, and its negative, are infinite."""


def make_result_frame(columns: Sequence[str], kinds: Sequence[ColumnKind], held: Any) -> Any:
    """A `pandas.DataFrame`; raises `SqlError` for what neither pandas nor Python has."""
    from zapdb.tables import pandas_frames

    described = zip(columns, kinds, held.columns, strict=True)
    return pandas_frames.make_frame(columns, [_make_series(*column) for column in described])


def _make_series(name: str, kind: ColumnKind, column: Any) -> Any:
    from zapdb.tables import pandas_frames

    if kind["id"] in _TIMES:
        bounds = pyarrow.compute.min_max(column.cast(pyarrow.int64())).as_py()
        if any(abs(bound or 0) > FINITE_MAX for bound in bounds.values()):
            raise refuse(name, kind, "a time is infinite")
        try:
            return pandas_frames.plain_series(column, nullable=True)
        except (ValueError, OverflowError):
            raise refuse(name, kind, "pandas has no such time") from None
    if kind["id"] == "enum":
        return column.to_pandas().cat.as_ordered()
    if kind["id"] == "hugeint":
        return pandas_frames.integer_series(column)
    if kind["id"] in PLAIN and kind["text"] != "JSON":
        return pandas_frames.plain_series(column, nullable=True)
    values: list[Any] = []
    for chunk in column.chunks:
        values += decode_column(name, kind, chunk)
    return pandas_frames.object_series(values)
