"""Values of elsewhere as values of a field: `12.0` as an integer, `t` as true, NaN as a null.

The law: a value changes its form, never its meaning. What could mean two things is refused: a time
without a zone, unless the import says which zone; a number with more digits than the field keeps.
The result is checked again when the record is encoded.
"""

from __future__ import annotations

import datetime
import decimal
import json
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
from zapdb.records.cell_format import REFUSED_CHARS_MAX, parse_json_cell
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

Coerce = Callable[[Any], Any]
"""From a value of the source to a value of the field; raises `InvalidValue`."""

_DIGITS: Final = re.compile(r"([+-]?[0-9]{1,1000})(?:\.0*)?", re.ASCII)
_MIDNIGHT: Final = re.compile(r"(\d{4}-\d\d-\d\d)[T ]00:00(?::00(?:\.0+)?)?", re.ASCII)
_NANOSECONDS: Final = re.compile(r"[.,]\d{6}\d*[1-9]", re.ASCII)
_WORDS: Final[Mapping[str, bool]] = {
    word: value
    for value, words in ((True, ("true", "t", "1", "yes")), (False, ("false", "f", "0", "no")))
    for word in words
}
_OPAQUE: Final = (int, float, decimal.Decimal, bytes, bytearray, list, tuple, dict)
"""Values that no text stands for without saying more than they do."""


@dataclass(frozen=True, slots=True)
class Coercion:
    """What a source's values mean.

    `time_zone` is the zone of times that have none. If `is_text`, all values are texts: JSON fields
    and lists are their JSON. If `nan_is_null`, NaN is a null in optional float fields, too.
    """

    time_zone: datetime.tzinfo | None = None
    is_text: bool = False
    nan_is_null: bool = False


def make_coercer(field: Field, path: str, how: Coercion) -> Coerce:
    """The function from a source's values to a field's; `path` is what errors call the field."""
    coerce = _Coercer(path, how).make(field.type)
    is_float = isinstance(field.type, Float)
    keeps_nan = is_float and not (how.nan_is_null and field.optional)

    def coerce_or_null(value: Any) -> Any:
        if value is None or (not keeps_nan and _is_nan(value)):
            if field.optional:
                return None
            if value is None and field.type.holds_null:
                return None
            raise _refuse(field.type, path, None)
        return coerce(value)

    return coerce_or_null


def _is_nan(value: Any) -> bool:
    """Whether a value is NaN, of a float or a decimal, or pandas' NA or NaT."""
    kind = type(value)
    if kind is float:
        return math.isnan(value)
    if kind is decimal.Decimal:
        return bool(value.is_nan())
    return kind.__name__ in ("NaTType", "NAType")


@dataclass(frozen=True, slots=True)
class _Coercer:
    path: str
    how: Coercion

    def make(self, kind: ValueType) -> Coerce:
        made: Coerce = coercer_of(kind, self)
        return made

    def refuse(self, kind: ValueType, value: Any) -> InvalidValue:
        return _refuse(kind, self.path, value)

    def read(self, kind: ValueType, text: str) -> Any:
        """What a text stands for, in the form of documents."""
        try:
            return kind.from_document(text, self.path)
        except InvalidValue as error:
            refused = self.refuse(kind, text)
            expected = error.context.get("expected")
            if isinstance(kind, Decimal) and expected != kind.expected:
                refused.context["expected"] = expected  # it is a number, with too many digits
            raise refused from None


def _refuse(kind: ValueType, path: str, value: Any, hint: str = "") -> InvalidValue:
    context: dict[str, Any] = {
        "field": path,
        "expected": kind.text_form,
        "got": "null" if value is None else describe_value(value),
    }
    if isinstance(value, bool | list | dict):
        with suppress(TypeError, ValueError):  # of what no JSON has
            context["value"] = one_line(json.dumps(value, ensure_ascii=False), REFUSED_CHARS_MAX)
    elif isinstance(value, str | int | float | decimal.Decimal | datetime.date | datetime.time):
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
        if isinstance(value, str):
            match = _DIGITS.fullmatch(value)
            if match is None:
                raise at.refuse(kind, value)
            return int(match[1])
        if isinstance(value, float | decimal.Decimal):
            if not math.isfinite(value) or value != int(value):
                raise at.refuse(kind, value)
            return int(value)
        raise at.refuse(kind, value)

    return coerce


@coercer_of.register
def _(kind: Decimal, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            return at.read(kind, value)
        if isinstance(value, float):  # the shortest digits that are this float: what was written
            return at.read(kind, repr(value))
        if isinstance(value, bool) or not isinstance(value, int | decimal.Decimal):
            raise at.refuse(kind, value)
        return value

    return coerce


@coercer_of.register
def _(kind: Float, at: _Coercer) -> Coerce:
    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            return at.read(kind, value)
        if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal):
            raise at.refuse(kind, value)
        return float(value) if isinstance(value, decimal.Decimal) else value

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
            if value.time() != datetime.time.min:
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
                if _NANOSECONDS.search(value):
                    raise ValueError
                value = datetime.datetime.fromisoformat(value)
            except ValueError:
                raise at.refuse(kind, given) from None
        if not isinstance(value, datetime.datetime):
            raise at.refuse(kind, given)
        if value.tzinfo is None:
            if at.how.time_zone is None:
                hint = "the time has no zone: say which one is meant, as in --time-zone UTC"
                raise _refuse(kind, at.path, given, hint)
            value = value.replace(tzinfo=at.how.time_zone)
        return value

    return coerce


@coercer_of.register
def _(kind: ZonedTimestamp, at: _Coercer) -> Coerce:
    return lambda value: at.read(kind, value) if isinstance(value, str) else value


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
        if isinstance(value, _OPAQUE):
            raise at.refuse(kind, value)
        return str(value)  # of a type that has no equivalent: a time, an interval, an address

    return coerce


@coercer_of.register
def _(kind: Enum, at: _Coercer) -> Coerce:
    return lambda value: at.read(kind, value) if isinstance(value, str) else value


@coercer_of.register
def _(kind: Json, at: _Coercer) -> Coerce:
    if not at.how.is_text:
        return lambda value: value
    return lambda value: parse_json_cell(value, at.path, kind.text_form)


@coercer_of.register
def _(kind: List, at: _Coercer) -> Coerce:
    item = _Coercer(f"{at.path}[]", Coercion(at.how.time_zone)).make(kind.items)

    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            value = parse_json_cell(value, at.path, kind.text_form)
        if not isinstance(value, list | tuple):
            raise at.refuse(kind, value)
        return [item(part) for part in value]

    return coerce


@coercer_of.register
def _(kind: Struct, at: _Coercer) -> Coerce:
    members = {
        m.name: (_Coercer(f"{at.path}.{m.name}", Coercion(at.how.time_zone)).make(m.type))
        for m in kind.members
    }

    def coerce(value: Any) -> Any:
        if isinstance(value, str):
            value = parse_json_cell(value, at.path, kind.text_form)
        if not isinstance(value, Mapping):
            return value
        return {
            name: members[name](part) if name in members and part is not None else part
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
