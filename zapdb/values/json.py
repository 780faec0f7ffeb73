"""JSON: deterministic CBOR (RFC 8949, section 4.2.1) behind a length prefix; not indexable.

Maps have string keys in bytewise order, integers and floats their shortest form, and no tags are
used, so equal values have equal bytes. Decoding re-encodes and compares: any other form is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cbor2

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.limits import JSON_DEPTH_MAX, VALUE_SIZE_BYTES_MAX
from zapdb.values.base import ValueType
from zapdb.values.extent import encode_extent, read_extent, skip_extent_source
from zapdb.values.source import Namespace

INTEGER_MAX = 2**64 - 1
INTEGER_MIN = -(2**64)
"""Longer integers would need CBOR's bignum tags."""


@dataclass(frozen=True)
class Json(ValueType):
    name = "json"
    expected = "null, a boolean, number, string, list, or object with string keys"
    keyable = False
    indexable = False
    ordered = False
    holds_null = True

    def check(self, value: Any, path: str) -> Any:
        checked = _normalize(value, path)
        _encode_checked(checked, path)  # for its size
        return checked

    def encode(self, value: Any) -> bytes:
        return encode_extent(dumps(value))

    def decode(self, data: bytes, position: int) -> tuple[Any, int]:
        start, end = read_extent(data, position)
        raw = bytes(data[start:end])
        try:
            value = cbor2.loads(raw)
        except (cbor2.CBORDecodeError, RecursionError):
            raise CorruptRecord.at("JSON", data, position) from None
        if not _is_plain(value, JSON_DEPTH_MAX) or dumps(value) != raw:
            raise CorruptRecord.at("JSON that is not in its canonical form", data, position)
        return value, end

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        where = names.bind(path, "path")
        return [
            f"{value} = {names.bind(_normalize, 'normalize_json')}({value}, {where})"
        ], f"{names.bind(_encode_checked, 'encode_json')}({value}, {where})"

    def skip(self, data: bytes, position: int) -> int:
        return read_extent(data, position)[1]

    def skip_source(self, names: Namespace) -> list[str]:
        return skip_extent_source(names)


def dumps(value: Any) -> bytes:
    """Deterministic CBOR of plain data."""
    return cbor2.dumps(value, canonical=True)


def _encode_checked(value: Any, path: str) -> bytes:
    """Encode a value that is in its normal form; raises `InvalidValue` for one too long."""
    raw = dumps(value)
    if len(raw) > VALUE_SIZE_BYTES_MAX:
        raise InvalidValue.of(path, f"JSON of at most {VALUE_SIZE_BYTES_MAX} bytes", value)
    return encode_extent(raw)


def _normalize(value: Any, path: str) -> Any:
    """The value in its normal form: itself, where it is in it already."""
    return value if _is_plain(value, JSON_DEPTH_MAX) else _check(value, path, 0)


def _is_plain(value: Any, depth: int) -> bool:
    """Whether `_check` would return an equal value: made of exact types alone, all in range.

    It says no more than that, and so takes a fraction of the time.
    """
    kind = type(value)
    if kind is str:
        return value.isascii() or _is_valid(value)
    if kind is int:
        return bool(INTEGER_MIN <= value <= INTEGER_MAX)
    if kind is bool or value is None:
        return True
    if kind is float:
        return math.isfinite(value) and (value != 0.0 or math.copysign(1.0, value) > 0.0)
    if not depth:
        return False
    if kind is list:
        return all([_is_plain(item, depth - 1) for item in value])  # noqa: C419 - lists are fast
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or _is_valid(key)):
                return False
            if not _is_plain(item, depth - 1):
                return False
        return True
    return False


def _is_valid(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _check(value: Any, path: str, depth: int) -> Any:
    """A copy made of exact types; the depth limit also ends cycles."""
    if depth > JSON_DEPTH_MAX:
        raise InvalidValue.of(path, f"JSON nested at most {JSON_DEPTH_MAX} deep", value)
    match value:
        case None | bool():
            return value
        case int() if INTEGER_MIN <= value <= INTEGER_MAX:
            return int(value)
        case float() if math.isfinite(value):
            return value + 0.0  # −0.0 + 0.0 is 0.0
        case str():
            return _check_text(value, path)
        case list() | tuple():
            return [_check(item, f"{path}[{at}]", depth + 1) for at, item in enumerate(value)]
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise InvalidValue.of(path, "string keys", key)
            return {
                _check_text(key, path): _check(item, f"{path}.{key}", depth + 1)
                for key, item in value.items()
            }
    raise InvalidValue.of(path, Json.expected, value)


def _check_text(value: str, path: str) -> str:
    if not _is_valid(value):
        raise InvalidValue.of(path, "a string of valid Unicode", value)
    return str(value)
