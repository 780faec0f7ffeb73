"""Values of elsewhere as values of a field: `12.0` as an integer, `t` as true, hex digits as bytes.

The law: a value changes its form, never its meaning. What could mean two things is refused: a time
without a zone, unless the import says which zone; a time that a clock shows twice or never; a float
that several numbers may have become; a number with more digits than the field keeps. A null is a
null, and nothing else is one; only in pandas' frames NaN and NaT are. The result is checked again
when the record is encoded.

These are the rules of all ways in; docs/guides/import.md has them as a table, and
tests/contract/test_ways_in.py tries each value type by each way.
"""

from __future__ import annotations

import datetime
import decimal
import ipaddress
import math
import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Final

from zapdb.errors import InvalidValue, describe_value
from zapdb.printing import one_line
from zapdb.records.cell_format import REFUSED_CHARS_MAX, parse_json_cell, show_json
from zapdb.schema import Field
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
from zapdb.values.float import decimal_of
from zapdb.values.timestamp import read_iso_time
from zapdb.values.value_type import MISSING

Coerce = Callable[[Any], Any]
"""From a value of the source to a value of the field; raises `InvalidValue`."""

INTEGER_DIGITS_MAX: Final = 160
"""More than any integer field keeps: the digits of a longer number are not made."""
_DIGITS: Final = re.compile(r"([+-]?[0-9]{1,1000})(?:\.0*)?", re.ASCII)
_MIDNIGHT: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ]00:00(?::00(?:\.0+)?)?", re.ASCII)
_WORDS: Final[Mapping[str, bool]] = {
    word: value
    for value, words in ((True, ("true", "t", "1", "yes")), (False, ("false", "f", "0", "no")))
    for word in words
}


@dataclass(frozen=True, slots=True)
class ForeignText:
    """A value that Python has no equal of, such as a time with nanoseconds: its text is known."""

    text: str

    def __str__(self) -> str:
        return self.text


_WRITTEN: Final = (
    ForeignText,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    uuid.UUID,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Interface,
    ipaddress.IPv6Interface,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
)
"""Values whose text says what they are; of others it would say more, or only what Python calls
them."""
LOST_HINT: Final = (
    "a float has no room for all numbers of this size: digits may be lost already. Give the column "
    "as integers, decimals or text"
)


@dataclass(frozen=True, slots=True)
class Coercion:
    """What a source's values mean.

    `time_zone` is the zone of times that have none. If `is_text`, a text is JSON's text in JSON
    fields; else it is a string of JSON. If `nan_is_null`, NaN, NaT and NA are nulls in optional
    fields.
    """

    time_zone: datetime.tzinfo | None = None
    is_text: bool = False
    nan_is_null: bool = False


def make_coercer(field: Field, path: str, how: Coercion) -> Coerce:
    """The function from a source's values to a field's; `path` is what errors call the field."""
    coerce = _Coercer(path, how).make(field.type)
    nan_is_null = how.nan_is_null and field.optional

    def coerce_or_null(value: Any) -> Any:
        if value is None:
            if field.optional or field.type.holds_null:
                return None
            raise _refuse(field.type, path, None)
        if nan_is_null and _is_missing(value):
            return None
        return coerce(value)

    return coerce_or_null


def _is_missing(value: Any) -> bool:
    """Whether a value is NaN, or pandas' NaT or NA."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return is_nan or type(value).__name__ in MISSING


@dataclass(frozen=True, slots=True)
class _Coercer:
    path: str
    how: Coercion

    def make(self, kind: ValueType) -> Coerce:
        made: Coerce = coercer_of(kind, self)
        return made

    def make_part(self, place: str, kind: ValueType) -> tuple[Coerce, Coerce]:
        """For a value inside of this one: as the source has it, and as JSON has it."""
        path = f"{self.path}{place}"
        return (
            _Coercer(path, self.how).make(kind),
            _Coercer(path, Coercion(self.how.time_zone)).make(kind),
        )

    def refuse(self, kind: ValueType, value: Any) -> InvalidValue:
        return _refuse(kind, self.path, value)

    def read(self, kind: ValueType, plain: str | int | decimal.Decimal) -> Any:
        """What a text or a number stands for, in the form of documents."""
        try:
            return kind.from_document(plain, self.path)
        except InvalidValue as error:
            refused = self.refuse(kind, plain)
            expected = error.context.get("expected")
            if isinstance(kind, Decimal | Float) and expected != kind.expected:
                refused.context["expected"] = expected  # it is a number, with too many digits
                refused.hint = error.hint
            raise refused from None


def _refuse(kind: ValueType, path: str, value: Any, hint: str = "") -> InvalidValue:
    context: dict[str, Any] = {
        "field": path,
        "expected": kind.text_form,
        "got": "null" if value is None else describe_value(value),
    }
    if isinstance(value, bool | list | dict):
        with suppress(TypeError, ValueError):  # of what no JSON has
            context["value"] = show_json(value)
    elif isinstance(value, (str, int, float, decimal.Decimal, *_WRITTEN)):
        context["value"] = one_line(str(value), REFUSED_CHARS_MAX)
    return InvalidValue("a value does not fit its field", hint=hint, **context)


@singledispatch
def coercer_of(kind: ValueType, at: _Coercer) -> Coerce:
    raise NotImplementedError(f"values of type {kind.name} cannot be imported")


@coercer_of.register
def _(kind: Integer, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if type(value) is int:
            return value
        given = value
        if isinstance(value, str):
            match = _DIGITS.fullmatch(value)
            if match is None:
                raise at.refuse(kind, value)
            return int(match[1])
        if isinstance(value, float):
            value = _number_of(kind, at, value, 0)
        is_number = isinstance(value, decimal.Decimal) and value.is_finite()
        if not is_number or value.adjusted() >= INTEGER_DIGITS_MAX or value != int(value):
            raise at.refuse(kind, given)
        return int(value)

    return coerce


def _number_of(kind: ValueType, at: _Coercer, value: float, scale: int) -> decimal.Decimal:
    """The number that a float stands for; raises `InvalidValue`."""
    found = decimal_of(value, scale)
    if found is None:
        hint = LOST_HINT if math.isfinite(value) else ""
        raise _refuse(kind, at.path, value, hint)
    return found


@coercer_of.register
def _(kind: Decimal, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            return at.read(kind, value)
        if isinstance(value, float):
            return at.read(kind, str(_number_of(kind, at, value, kind.scale)))
        if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
            raise at.refuse(kind, value)
        return value

    return coerce


@coercer_of.register
def _(kind: Float, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if isinstance(value, float):
            return value
        if isinstance(value, bool) or not isinstance(value, str | int | decimal.Decimal):
            raise at.refuse(kind, value)
        return at.read(kind, value)

    return coerce


@coercer_of.register
def _(kind: Boolean, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if isinstance(value, bool):
            return value
        word = str(value).lower() if isinstance(value, str | int) else ""
        if word not in _WORDS:
            raise at.refuse(kind, value)
        return _WORDS[word]

    return coerce


@coercer_of.register
def _(kind: Date, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            match = _MIDNIGHT.fullmatch(value)
            return at.read(kind, value if match is None else match[1])
        if isinstance(value, datetime.datetime):
            if value.tzinfo is not None or value.time() != datetime.time.min:
                raise at.refuse(kind, value)
            if getattr(value, "nanosecond", 0):
                raise at.refuse(kind, value)
            return value.date()
        return value

    return coerce


@coercer_of.register
def _(kind: Timestamp, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        given = value
        if isinstance(value, str):
            try:
                value = read_iso_time(value)
            except ValueError:
                raise at.refuse(kind, given) from None
        if not isinstance(value, datetime.datetime):
            raise at.refuse(kind, given)
        if value.tzinfo is None:
            if at.how.time_zone is None:
                hint = "the time has no zone: say which one is meant, as in --time-zone UTC"
                raise _refuse(kind, at.path, given, hint)
            value = value.replace(tzinfo=at.how.time_zone)
            if value.replace(fold=0).utcoffset() != value.replace(fold=1).utcoffset():
                hint = "clocks there showed this time twice or never: give it with its offset"
                raise _refuse(kind, at.path, given, hint)
        return value

    return coerce


@coercer_of.register
def _(kind: ZonedTimestamp, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            return at.read(kind, value)
        if not isinstance(value, Mapping) or not {"local", "zone"} <= value.keys():
            raise at.refuse(kind, value)  # the zone of a moment is the session's, or the column's
        fold = " fold=1" if value.get("fold") else ""  # a struct, as exports have it
        local = value["local"]
        if not isinstance(local, datetime.datetime):
            raise at.refuse(kind, local)
        return at.read(kind, f"{local.isoformat()} {value['zone']}{fold}")

    return coerce


@coercer_of.register
def _(kind: Uuid, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            return at.read(kind, value)
        is_raw = isinstance(value, bytes) and len(value) == 16
        return uuid.UUID(bytes=value) if is_raw else value

    return coerce


@coercer_of.register
def _(kind: Binary, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            return at.read(kind, value)
        return bytes(value) if isinstance(value, bytearray | memoryview) else value

    return coerce


@coercer_of.register
def _(kind: String, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if type(value) is str:
            return value
        if isinstance(value, str):
            return str(value)
        if not isinstance(value, _WRITTEN) or type(value).__name__ in MISSING:
            raise at.refuse(kind, value)
        return str(value)

    return coerce


@coercer_of.register
def _(kind: Enum, at: _Coercer) -> Coerce:
    return lambda value: at.read(kind, value) if isinstance(value, str) else value


@coercer_of.register
def _(kind: Json, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        plain = value
        if at.how.is_text and isinstance(value, str):
            plain = parse_json_cell(value, at.path, kind.text_form)
        try:
            return kind.from_document(plain, at.path)
        except InvalidValue as error:
            error.context.setdefault("value", show_json(plain))
            raise

    return coerce


@coercer_of.register
def _(kind: List, at: _Coercer) -> Coerce:
    item, item_of_json = at.make_part("[]", kind.items)

    def coerce(value: Any) -> Any:
        each = item
        if isinstance(value, str):
            value, each = parse_json_cell(value, at.path, kind.text_form), item_of_json
        if type(value) not in (list, tuple):
            raise at.refuse(kind, value)
        return [each(part) for part in value]

    return coerce


@coercer_of.register
def _(kind: Struct, at: _Coercer) -> Coerce:
    members = {m.name: at.make_part(f".{m.name}", m.type) for m in kind.members}

    def coerce(value: Any) -> Any:
        is_json = isinstance(value, str)
        if is_json:
            value = parse_json_cell(value, at.path, kind.text_form)
        if not isinstance(value, Mapping):
            raise at.refuse(kind, value)
        return {
            name: members[name][is_json](part) if name in members and part is not None else part
            for name, part in value.items()
        }

    return coerce


@coercer_of.register
def _(kind: Reference, at: _Coercer) -> Coerce:
    if len(kind.key) == 1:
        return at.make(kind.key[0])
    parts = [_Coercer(f"{at.path}[{n}]", at.how).make(part) for n, part in enumerate(kind.key)]

    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            value = parse_json_cell(value, at.path, kind.text_form)
        if isinstance(value, Mapping):  # a struct of key_0, key_1, … in Arrow
            value = list(value.values())
        if not isinstance(value, list | tuple) or len(value) != len(parts):
            raise at.refuse(kind, value)
        return tuple(part(one) for part, one in zip(parts, value, strict=True))

    return coerce
