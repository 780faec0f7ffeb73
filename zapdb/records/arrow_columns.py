"""What Arrow makes of each value type: one column class per type, listed in `make_column`.

A column writes the source that reads one value (see `arrow`): it leaves *raw* values in lists that
belong to the column, with no Python object that Arrow has no use for. Instants, decimals, floats
and UUIDs stay bytes or plain integers; `to_array` turns a whole list into an array and checks it at
once. Structs and lists are shredded: their parts have lists of their own.

The source checks only whether the bytes are right, and does not say what is wrong: it raises
`IndexError` or `KeyError`, and the record's own decoder, which is asked then, names it.

Types are chosen so that DuckDB and Spark both take them: from Python, Spark 4 takes neither
fixed-size binaries, nor dictionaries, nor extension types. So a UUID is its 16 bytes (in DuckDB,
`token::uuid` makes it one), and a member of an enum its name.
"""

from __future__ import annotations

import datetime
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal
from uuid import UUID

from zapdb.datasets import zone, zone_version
from zapdb.errors import InvalidValue, MissingExtra, UnknownZone
from zapdb.limits import INLINE_SIZE_BYTES_MAX, RECORD_KEY_SIZE_BYTES_MAX
from zapdb.records.beside import Beside
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    List,
    Reference,
    String,
    Struct,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)
from zapdb.values.blob import MARK, decode_outlined
from zapdb.values.date import EPOCH_ORDINAL
from zapdb.values.decimal import with_scale
from zapdb.values.extent import read_extent, read_extent_source, unescape
from zapdb.values.float import MINUS_ZERO, NAN
from zapdb.values.source import Namespace, indent
from zapdb.values.timestamp import EPOCH, MICROSECOND

try:
    import numpy
    import pyarrow
    from pyarrow import compute, types
except ImportError as missing:
    raise MissingExtra.named("sql", "pyarrow") from missing

Place = Literal["field", "inside", "key"]
"""Where a value stands: strings and binaries are encoded differently in each."""

Lists = Sequence[list[Any]]
Allocate = Callable[[], int]
"""Numbers the lists of a table's columns."""

DECIMAL_DIGITS_MAX: Final = 38
"""Digits of the longest decimal that DuckDB and Spark have."""
DATE_RANGE: Final = (
    datetime.date.min.toordinal() - EPOCH_ORDINAL,
    datetime.date.max.toordinal() - EPOCH_ORDINAL,
)
TIMESTAMP_RANGE: Final = (
    (datetime.datetime.min.replace(tzinfo=datetime.UTC) - EPOCH) // MICROSECOND,
    (datetime.datetime.max.replace(tzinfo=datetime.UTC) - EPOCH) // MICROSECOND,
)
MIDDLE: Final = numpy.uint64(1 << 63)
"""As eight bytes both 0.0 and the first instant of 1970: what stands where a null is."""
FLOAT_NAN: Final = numpy.uint64(int.from_bytes(NAN, "big"))
FLOAT_MINUS_ZERO: Final = numpy.uint64(int.from_bytes(MINUS_ZERO, "big"))


class TooLarge(Exception):
    """A number that the column at `path` has no room for."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(path)
        self.path = path
        self.expected = expected


class Column(ABC):
    """How values of one type become an Arrow array, and back; `path` names it in errors."""

    arrow: Any
    """The Arrow type."""

    def __init__(self, path: str, at: int) -> None:
        self.path = path
        self.at = at
        """The number of its list, which has one item per value. In generated source the list is
        `l<at>`, and `a<at>` appends to it."""

    @abstractmethod
    def decode_source(self, place: Place, names: Namespace) -> list[str]:
        """Statements that append the value of `b` at `p` and advance `p`."""

    @abstractmethod
    def null_source(self) -> list[str]:
        """Statements that append a null."""

    def refuse_null_source(self) -> list[str]:
        """Statements that refuse what was just appended if it is a value that means null."""
        return []

    @abstractmethod
    def to_array(self, lists: Lists) -> Any:
        """The array of what was appended; raises `TooLarge`, and `ValueError` for bad bytes."""

    def to_values(self, array: Any) -> list[Any]:
        """What an array holds, as the type's `check` takes it; raises `InvalidValue`."""
        if isinstance(array, pyarrow.ExtensionArray):
            array = array.storage
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if types.is_null(array.type):
            return [None] * len(array)
        if not self.accepts(array.type):
            raise self.refuse(str(array.type))
        try:
            return self.convert(array)
        except InvalidValue:
            raise
        except (ValueError, OverflowError, RecursionError) as error:
            raise self.refuse(f"a {array.type} that can't be converted") from error

    @abstractmethod
    def accepts(self, kind: Any) -> bool:
        """Whether arrays of this Arrow type can be converted without guessing."""

    @abstractmethod
    def convert(self, array: Any) -> list[Any]:
        """The values of an array of an accepted type; `ValueError` for one that does not fit."""

    def refuse(self, got: str) -> InvalidValue:
        return InvalidValue(
            "a value does not fit its field", field=self.path, expected=str(self.arrow), got=got
        )


class Leaf(Column):
    """A column with one list, of raw values."""

    accepted: tuple[Callable[[Any], bool], ...] = ()

    @abstractmethod
    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        """Statements that set `target` to the raw value of `b` at `p` and advance `p`."""

    def decode_source(self, place: Place, names: Namespace) -> list[str]:
        return [*self.take_source(f"v{self.at}", place, names), f"a{self.at}(v{self.at})"]

    def null_source(self) -> list[str]:
        return [f"a{self.at}(None)"]

    def to_array(self, lists: Lists) -> Any:
        return self.make(lists[self.at])

    def make(self, raw: list[Any]) -> Any:
        return pyarrow.array(raw, self.arrow)

    def accepts(self, kind: Any) -> bool:
        return any(is_accepted(kind) for is_accepted in self.accepted)

    def convert(self, array: Any) -> list[Any]:
        values: list[Any] = array.to_pylist()
        return values


STRINGS = (types.is_string, types.is_large_string, types.is_string_view)
BINARIES = (
    types.is_binary,
    types.is_large_binary,
    types.is_binary_view,
    types.is_fixed_size_binary,
)


def _each(values: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    return [None if value is None else change(value) for value in values]


def _read_texts(array: Any, read: Callable[[str], Any]) -> list[Any]:
    """The values of an array; of texts, what `read` makes of them."""
    values: list[Any] = array.to_pylist()
    return _each(values, read) if any(is_text(array.type) for is_text in STRINGS) else values


def _take_fixed(target: str, size_bytes: int) -> list[str]:
    # Bytes that are missing at the end are found there: `p` is beyond it then.
    return [f"{target} = b[p:p + {size_bytes}]", f"p += {size_bytes}"]


def _to_words(raw: list[Any]) -> tuple[Any, Any]:
    """Values of eight bytes as a binary array, which says where nulls are, and as numbers."""
    held = pyarrow.array(raw, pyarrow.binary(8))
    words = numpy.frombuffer(held.buffers()[1], ">u8").astype("u8")
    if held.null_count:
        words[held.is_null().to_numpy(zero_copy_only=False)] = MIDDLE
    return held, words


def _with_nulls_of(held: Any, kind: Any, data: Any) -> Any:
    """An array of these data, with nulls where `held` has them."""
    return pyarrow.Array.from_buffers(kind, len(held), [held.buffers()[0], data], held.null_count)


def _check_range(array: Any, within: tuple[int, int]) -> None:
    found = compute.min_max(array).as_py()
    if found["min"] is not None and not within[0] <= found["min"] <= found["max"] <= within[1]:
        raise ValueError("outside of the years 1 to 9999")


# --- numbers -------------------------------------------------------------------------------------


class IntegerColumn(Leaf):
    arrow = pyarrow.int64()
    accepted = (types.is_integer, *STRINGS)

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        return Integer().decode_source(target, names)

    def make(self, raw: list[Any]) -> Any:
        try:
            return pyarrow.array(raw, self.arrow)
        except (OverflowError, pyarrow.ArrowInvalid):
            raise TooLarge(self.path, "an integer of 64 bits") from None

    def convert(self, array: Any) -> list[Any]:
        return _read_texts(array, _read_integer)


def _read_integer(text: str) -> int:
    number = int(text)
    if str(number) != text:
        raise ValueError("an integer in another form")
    return number


class IntegerTextColumn(IntegerColumn):
    arrow = pyarrow.string()

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        return [*super().take_source(target, place, names), f"{target} = str({target})"]

    def make(self, raw: list[Any]) -> Any:
        return pyarrow.array(raw, self.arrow)


class DecimalColumn(Leaf):
    accepted = (types.is_decimal, types.is_integer, *STRINGS)

    def __init__(self, kind: Decimal, path: str, at: int) -> None:
        super().__init__(path, at)
        self.kind = kind
        self.arrow = pyarrow.decimal128(DECIMAL_DIGITS_MAX, kind.scale)

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        return Integer().decode_source(target, names)

    def make(self, raw: list[Any]) -> Any:
        try:
            held = pyarrow.array(raw, pyarrow.int64())
        except (OverflowError, pyarrow.ArrowInvalid):
            held = pyarrow.array(_each(raw, self._to_bytes), pyarrow.binary(16))
            return _with_nulls_of(held, self.arrow, held.buffers()[1])
        # Nearly always all of them fit a machine word: the upper half is its sign.
        low = numpy.frombuffer(held.buffers()[1], "<i8")
        pairs = numpy.stack((low, low >> 63), axis=1)
        return _with_nulls_of(held, self.arrow, pyarrow.py_buffer(pairs))

    def _to_bytes(self, number: int) -> bytes:
        if abs(number) >= 10**DECIMAL_DIGITS_MAX:
            raise TooLarge(self.path, f"a decimal of {DECIMAL_DIGITS_MAX} digits")
        return number.to_bytes(16, "little", signed=True)

    def convert(self, array: Any) -> list[Any]:
        return _read_texts(array, lambda text: self.kind.from_document(text, self.path))


class DecimalTextColumn(DecimalColumn):
    def __init__(self, kind: Decimal, path: str, at: int) -> None:
        Column.__init__(self, path, at)
        self.kind = kind
        self.arrow = pyarrow.string()

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        text = names.bind(self._to_text, "decimal_text")
        return [*super().take_source(target, place, names), f"{target} = {text}({target})"]

    def _to_text(self, number: int) -> str:
        return self.kind.to_document(with_scale(number, self.kind.scale))

    def make(self, raw: list[Any]) -> Any:
        return pyarrow.array(raw, self.arrow)


class FloatColumn(Leaf):
    arrow = pyarrow.float64()
    accepted = (types.is_floating, types.is_integer)

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        return _take_fixed(target, 8)

    def make(self, raw: list[Any]) -> Any:
        held, words = _to_words(raw)
        floats = numpy.where(words >= MIDDLE, words ^ MIDDLE, ~words).view("f8")
        is_wrong = (numpy.isnan(floats) & (words != FLOAT_NAN)) | (words == FLOAT_MINUS_ZERO)
        if is_wrong.any():
            raise ValueError("floats that no encoder wrote")
        return _with_nulls_of(held, self.arrow, pyarrow.py_buffer(floats))

    def convert(self, array: Any) -> list[Any]:
        # How long an integer may be is for the type to say.
        wide = array.cast(self.arrow) if types.is_floating(array.type) else array
        return super().convert(wide)


class FoldColumn(IntegerColumn):
    arrow = pyarrow.int8()


class BooleanColumn(Leaf):
    arrow = pyarrow.bool_()
    accepted = (types.is_boolean,)

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        return ["c = b[p]", "if c > 1: raise IndexError", f"{target} = c == 1", "p += 1"]


# --- times ---------------------------------------------------------------------------------------


class DateColumn(Leaf):
    arrow = pyarrow.date32()
    accepted = (types.is_date,)

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        return Integer().decode_source(target, names)

    def make(self, raw: list[Any]) -> Any:
        days = pyarrow.array(raw, pyarrow.int32())
        _check_range(days, DATE_RANGE)
        return days.view(self.arrow)

    def convert(self, array: Any) -> list[Any]:
        return super().convert(array.cast(self.arrow))


class TimestampColumn(Leaf):
    arrow = pyarrow.timestamp("us", "UTC")
    within: tuple[int, int] | None = TIMESTAMP_RANGE

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        return _take_fixed(target, 8)

    def make(self, raw: list[Any]) -> Any:
        held, words = _to_words(raw)
        microseconds = _with_nulls_of(held, pyarrow.int64(), pyarrow.py_buffer(words ^ MIDDLE))
        if self.within is not None:
            _check_range(microseconds, self.within)
        return microseconds.view(self.arrow)

    def accepts(self, kind: Any) -> bool:
        return types.is_timestamp(kind) and kind.tz is not None

    def convert(self, array: Any) -> list[Any]:
        microseconds = array.cast(self.arrow).view(pyarrow.int64()).to_pylist()
        return _each(microseconds, lambda count: EPOCH + datetime.timedelta(0, 0, count))


class LocalTimeColumn(TimestampColumn):
    arrow = pyarrow.timestamp("us")

    def accepts(self, kind: Any) -> bool:
        return types.is_timestamp(kind) and kind.tz is None

    def convert(self, array: Any) -> list[Any]:
        return [value and value.replace(tzinfo=None) for value in super().convert(array)]


class InstantColumn(TimestampColumn):
    """The instants of local times; of the first and the last, they are no datetimes."""

    within = None

    def convert(self, array: Any) -> list[Any]:
        # What the clock showed is what was meant; the instant follows from it.
        return [None] * len(array)


# --- bytes and text ------------------------------------------------------------------------------


class UuidColumn(Leaf):
    arrow = pyarrow.binary()
    accepted = BINARIES

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        return _take_fixed(target, 16)

    def convert(self, array: Any) -> list[Any]:
        return _each(array.to_pylist(), lambda raw: UUID(bytes=raw))


class BytesColumn(Leaf):
    """Strings and binaries. UTF-8 goes to Arrow as it is, which checks it."""

    def __init__(self, kind: String | Binary, path: str, at: int) -> None:
        super().__init__(path, at)
        self.kind = kind
        is_text = isinstance(kind, String)
        self.arrow = pyarrow.string() if is_text else pyarrow.binary()
        self.accepted = STRINGS if is_text else BINARIES

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        if place == "key":
            return [f"{target}, p = {names.bind(unescape, 'unescape')}(b, p)"]
        if place == "inside":
            return [*read_extent_source(names), f"{target} = b[q:p]"]
        load = names.bind(self._load, "load_outlined")
        return [
            "c = b[p]",
            "if 0x80 <= c < 0xC0:",
            "    q = p + 1",
            "    p = q + c - 0x80",
            f"    {target} = b[q:p]",
            "else:",
            f"    {target}, p, c = {load}(b, p, near)",
            "    room -= c",
        ]

    def _load(self, data: bytes, position: int, beside: Beside) -> tuple[Any, int, int]:
        """The value, loaded where it is a blob; the position after it; the blob's size."""
        if data[position : position + 1] == MARK:
            blob, after = decode_outlined(self.kind, data, position)
            return beside.load_value(blob), after, blob.size
        start, after = read_extent(data, position, INLINE_SIZE_BYTES_MAX)
        return data[start:after], after, 0


class JsonColumn(Leaf):
    """JSON as text without spaces, the keys of objects sorted."""

    arrow = pyarrow.string()
    accepted = STRINGS

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        to_json = names.bind(_to_json, "to_json")
        return [*Json().decode_source(target, names), f"{target} = {to_json}({target})"]

    def refuse_null_source(self) -> list[str]:
        return [f"if v{self.at} == 'null': raise IndexError"]

    def convert(self, array: Any) -> list[Any]:
        return _each(array.to_pylist(), _read_json)


# What was just decoded has no cycles; to look for them takes longer than all the rest.
_to_json = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, separators=(",", ":"), sort_keys=True
).encode


def _read_json(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no {name}")


class EnumColumn(Leaf):
    arrow = pyarrow.string()
    accepted = STRINGS

    def __init__(self, kind: Enum, path: str, at: int) -> None:
        super().__init__(path, at)
        self.members = dict(kind.members)

    def take_source(self, target: str, place: Place, names: Namespace) -> list[str]:
        members = names.bind(self.members, "members")
        return [*Integer().decode_source(target, names), f"{target} = {members}[{target}]"]


# --- what has parts ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """A member of a struct, or a field of a composite key."""

    name: str
    column: Column
    optional: bool = False


class ProductColumn(Column):
    """A column of columns; its own list says of each value whether it is null."""

    def __init__(self, path: str, at: int, parts: Sequence[Part], encoded: Sequence[Part]) -> None:
        """`parts` in the order of the Arrow type, and in that of the encoding."""
        super().__init__(path, at)
        self.parts = parts
        self.encoded = encoded
        # All parts are nullable, since they are null where the whole is: Spark refuses to convert
        # a null struct whose parts are not.
        self.arrow = pyarrow.struct([(part.name, part.column.arrow) for part in parts])

    def null_source(self) -> list[str]:
        nulls = [line for part in self.parts for line in part.column.null_source()]
        return [f"a{self.at}(True)", *nulls]

    def to_array(self, lists: Lists) -> Any:
        arrays = [part.column.to_array(lists) for part in self.parts]
        nulls = pyarrow.array(lists[self.at], pyarrow.bool_())
        return pyarrow.StructArray.from_arrays(arrays, fields=list(self.arrow), mask=nulls)

    def accepts(self, kind: Any) -> bool:
        if not types.is_struct(kind):
            return False
        names = [field.name for field in kind]
        return len(names) == len(set(names)) and {part.name for part in self.parts} >= set(names)

    def convert(self, array: Any) -> list[Any]:
        given = {field.name for field in array.type}
        parts = [part for part in self.parts if part.name in given]
        columns = []
        for part in parts:
            values = array.field(part.name)
            if not part.optional and self._has_null(array, values):
                raise part.column.refuse("null")
            columns.append(part.column.to_values(values))
        names = tuple(part.name for part in parts)
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        is_there = array.is_valid().to_pylist()
        return [
            self.join(names, row) if there else None
            for there, row in zip(is_there, rows, strict=True)
        ]

    @staticmethod
    def _has_null(array: Any, values: Any) -> bool:
        """Whether a part is null where the whole is not."""
        nulls = compute.and_(values.is_null(), array.is_valid())
        return bool(values.null_count) and compute.any(nulls).as_py() is True

    @abstractmethod
    def join(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        """A value of its parts; one that is not given is missing."""


class StructColumn(ProductColumn):
    def decode_source(self, place: Place, names: Namespace) -> list[str]:
        end, present = f"e{self.at}", f"m{self.at}"
        lines = [*read_extent_source(names), f"{end} = p", "p = q", f"a{self.at}(False)"]
        optional = [part for part in self.encoded if part.optional]
        if optional:
            size = (len(optional) + 7) // 8
            lines += [
                f"{present} = int.from_bytes(b[p:p + {size}], 'little')",
                f"if {present} >> {len(optional)}: raise IndexError",
                f"p += {size}",
            ]
        for part in self.encoded:
            read = part.column.decode_source("inside", names)
            if part.optional:
                bit = 1 << optional.index(part)
                lines.append(f"if {present} & {bit}:")
                lines += indent([*read, *part.column.refuse_null_source()])
                lines += ["else:", *indent(part.column.null_source())]
            else:
                lines += read
        return [*lines, f"if p != {end}: raise IndexError"]

    def join(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        return dict(zip(names, values, strict=True))


class ZonedColumn(ProductColumn):
    """Local time, fold and zone, which are the value, and the instant that they are now."""

    def __init__(self, kind: ZonedTimestamp, path: str, at: int, allocate: Allocate) -> None:
        parts = (
            Part("local", LocalTimeColumn(f"{path}.local", allocate())),
            Part("fold", FoldColumn(f"{path}.fold", allocate())),
            Part("zone", BytesColumn(String(), f"{path}.zone", allocate())),
            Part("instant", InstantColumn(f"{path}.instant", allocate())),
        )
        super().__init__(path, at, parts, parts)
        self.kind = kind

    def decode_source(self, place: Place, names: Namespace) -> list[str]:
        take = names.bind(self._take, "take_zoned")
        lists = [part.column.at for part in self.parts]
        targets = ", ".join(f"v{at}" for at in lists)
        appends = [f"a{at}(v{at})" for at in lists]
        return [f"{targets}, p = {take}(b, p)", f"a{self.at}(False)", *appends]

    def _take(self, data: bytes, position: int) -> tuple[bytes, int, str, bytes, int]:
        value, after = self.kind.decode(data, position)
        at = position + 8
        instant = self.kind.encode_index_key(value)
        return data[position:at], data[at], str(value.tzinfo), instant, after

    def accepts(self, kind: Any) -> bool:
        return super().accepts(kind) and {"local", "zone"} <= {field.name for field in kind}

    def join(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        given = dict(zip(names, values, strict=True))
        try:
            tzinfo = zone(given["zone"])
        except UnknownZone:
            raise self.refuse(f"a zone that {zone_version()} lacks") from None
        return given["local"].replace(tzinfo=tzinfo, fold=given.get("fold", 0))


class CompositeKeyColumn(ProductColumn):
    """References to a table whose key has several fields: `key_0`, `key_1`, …"""

    def decode_source(self, place: Place, names: Namespace) -> list[str]:
        reads = [line for part in self.encoded for line in part.column.decode_source("key", names)]
        return [f"a{self.at}(False)", *_limited_source(self.at, reads)]

    def join(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        return values


def _limited_source(at: int, reads: list[str]) -> list[str]:
    """The statements that read a reference, and one that refuses what no record's key can be."""
    too_long = f"if p - k{at} > {RECORD_KEY_SIZE_BYTES_MAX}: raise IndexError"
    return [f"k{at} = p", *reads, too_long]


class KeyColumn(Column):
    """References to a table whose key has one field: a column of that field's type.

    `limited`: values of that type can be longer than a record's key.
    """

    def __init__(self, target: Column, *, limited: bool) -> None:
        super().__init__(target.path, target.at)
        self.target = target
        self.limited = limited
        self.arrow = target.arrow

    def decode_source(self, place: Place, names: Namespace) -> list[str]:
        reads = self.target.decode_source("key", names)
        return _limited_source(self.at, reads) if self.limited else reads

    def null_source(self) -> list[str]:
        return self.target.null_source()

    def to_array(self, lists: Lists) -> Any:
        return self.target.to_array(lists)

    def accepts(self, kind: Any) -> bool:
        return self.target.accepts(kind)

    def convert(self, array: Any) -> list[Any]:
        return self.target.convert(array)


class ListColumn(Column):
    """A column over another; its own list says where the items of each value begin."""

    def __init__(self, path: str, at: int, items: Column) -> None:
        super().__init__(path, at)
        self.items = items
        self.arrow = pyarrow.list_(pyarrow.field("item", items.arrow, nullable=False))

    def decode_source(self, place: Place, names: Namespace) -> list[str]:
        end = f"e{self.at}"
        return [
            *read_extent_source(names),
            f"{end} = p",
            "p = q",
            f"a{self.at}(len(l{self.items.at}))",
            f"while p < {end}:",
            *indent(self.items.decode_source("inside", names)),
            f"if p != {end}: raise IndexError",
        ]

    def null_source(self) -> list[str]:
        return [f"a{self.at}(None)"]

    def to_array(self, lists: Lists) -> Any:
        items = self.items.to_array(lists)
        starts = pyarrow.array([*lists[self.at], len(items)], pyarrow.int32())
        return pyarrow.ListArray.from_arrays(starts, items, type=self.arrow)

    def accepts(self, kind: Any) -> bool:
        return bool(
            types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        )

    def convert(self, array: Any) -> list[Any]:
        items = array.flatten()
        if items.null_count:
            raise self.items.refuse("null")
        rest = iter(self.items.to_values(items))
        sizes = compute.list_value_length(array).to_pylist()
        return _each(sizes, lambda size: list(islice(rest, size)))


def make_column(kind: ValueType, path: str, allocate: Allocate, *, as_text: bool = False) -> Column:
    """The column of a type; with `as_text` all numbers in it are strings, and so of any length."""

    def make(inner: ValueType, where: str) -> Column:
        return make_column(inner, where, allocate, as_text=as_text)

    at = allocate()
    match kind:
        case Integer():
            return IntegerTextColumn(path, at) if as_text else IntegerColumn(path, at)
        case Decimal(scale):
            is_text = as_text or scale > DECIMAL_DIGITS_MAX
            return (DecimalTextColumn if is_text else DecimalColumn)(kind, path, at)
        case Boolean():
            return BooleanColumn(path, at)
        case Float():
            return FloatColumn(path, at)
        case Date():
            return DateColumn(path, at)
        case Timestamp():
            return TimestampColumn(path, at)
        case ZonedTimestamp():
            return ZonedColumn(kind, path, at, allocate)
        case Uuid():
            return UuidColumn(path, at)
        case String() | Binary():
            return BytesColumn(kind, path, at)
        case Json():
            return JsonColumn(path, at)
        case Enum():
            return EnumColumn(kind, path, at)
        case Reference(key=(target,)):
            return KeyColumn(make(target, path), limited=not target.key_is_value)
        case Reference():
            key = [
                Part(f"key_{place}", make(part, f"{path}[{place}]"))
                for place, part in enumerate(kind.key)
            ]
            return CompositeKeyColumn(path, at, key, key)
        case List(items):
            return ListColumn(path, at, make(items, f"{path}[]"))
        case Struct():
            members = {
                m.number: Part(m.name, make(m.type, f"{path}.{m.name}"), m.optional)
                for m in kind.members
            }
            encoded = [members[number] for number in sorted(members)]
            return StructColumn(path, at, list(members.values()), encoded)
    raise NotImplementedError(f"{kind.name} has no Arrow type")
