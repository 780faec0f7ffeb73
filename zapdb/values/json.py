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

    def check(self, value: Any, path: str) -> Any:
        checked = _check(value, path, 0)
        if len(dumps(checked)) > VALUE_SIZE_BYTES_MAX:
            raise InvalidValue.of(path, f"JSON of at most {VALUE_SIZE_BYTES_MAX} bytes", value)
        return checked

    def encode(self, value: Any) -> bytes:
        return encode_extent(dumps(value))

    def decode(self, data: bytes, position: int) -> tuple[Any, int]:
        start, end = read_extent(data, position)
        raw = bytes(data[start:end])
        try:
            value = _check(cbor2.loads(raw), "", 0)
        except (cbor2.CBORDecodeError, InvalidValue, RecursionError):
            raise CorruptRecord.at("JSON", data, position) from None
        if dumps(value) != raw:
            raise CorruptRecord.at("JSON that is not in its canonical form", data, position)
        return value, end

    def skip(self, data: bytes, position: int) -> int:
        return read_extent(data, position)[1]

    def skip_source(self, names: Namespace) -> list[str]:
        return skip_extent_source(names)


def dumps(value: Any) -> bytes:
    """Deterministic CBOR of plain data."""
    return cbor2.dumps(value, canonical=True)


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
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise InvalidValue.of(path, "a string of valid Unicode", value) from None
    return str(value)
