"""JSON: deterministic CBOR (see `cbor`) behind a length prefix; not indexable.

Equal values have equal bytes; any other bytes are refused.
"""

from __future__ import annotations

import decimal
import json
import math
from dataclasses import dataclass
from typing import Any

import cbor2

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.limits import JSON_DEPTH_MAX, VALUE_SIZE_BYTES_MAX
from zapdb.values.cbor import NotPlain, decode_cbor, encode_cbor
from zapdb.values.float import Float
from zapdb.values.generated_source import Namespace
from zapdb.values.length_prefixed import (
    read_length_prefixed,
    read_length_prefixed_source,
    skip_length_prefixed_source,
)
from zapdb.values.value_type import ValueType
from zapdb.values.varint import ONE_BYTE, encode_varint

_FLOAT = Float()
_INTEGER_MAX = 2**64 - 1
_INTEGER_MIN = -(2**64)
"""Longer integers would need CBOR's bignum tags."""


@dataclass(frozen=True)
class Json(ValueType):
    name = "json"
    expected = "null, a boolean, number, string, list, or object with string keys"
    text_form = 'JSON, such as {"a": 1}'
    held_as = "Any"
    plain_kind = "json"
    text_is_json = True
    keyable = False
    indexable = False
    ordered = False
    holds_null = True

    def neutral(self) -> Any:
        return None

    def check(self, value: Any, path: str) -> Any:
        return _normalize(value, path)[0]

    def from_document(self, plain: Any, path: str) -> Any:
        """Also takes decimals, of which `read_json` makes numbers; raises `InvalidValue` for digits
        that no float stands for."""
        return _normalize(plain, path, may_be_decimal=True)[0]

    def encode(self, value: Any) -> bytes:
        return encode_json(value, self.name)

    def decode(self, data: bytes, position: int) -> tuple[Any, int]:
        start, end = read_length_prefixed(data, position)
        return decode_json(data, start, end), end

    def skip(self, data: bytes, position: int) -> int:
        return read_length_prefixed(data, position)[1]

    def is_same(self, left: Any, right: Any) -> bool:
        """Compare their bytes, since Python's == takes 1, True and 1.0 for equal."""
        return self.encode(left) == self.encode(right)

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        encode = names.bind(encode_json, "encode_json")
        return [], f"{encode}({value}, {names.bind(path, 'path')})"

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        return [
            *read_length_prefixed_source(names),
            "if p > n:",
            "    p = q - 1",
            "    raise IndexError",
            f"{target} = {names.bind(decode_json, 'read_json')}(b, q, p)",
        ]

    def skip_source(self, names: Namespace) -> list[str]:
        return skip_length_prefixed_source(names)


def encode_json(value: Any, path: str) -> bytes:
    """Check and encode a value, in one pass if it is in its normal form; raises `InvalidValue`."""
    try:
        raw = encode_cbor(value, JSON_DEPTH_MAX)
    except ValueError:
        raw = _normalize(value, path)[1]
    size = len(raw)
    if size < 64:
        return ONE_BYTE[size] + raw
    if size > VALUE_SIZE_BYTES_MAX:
        raise _too_long(value, path)
    return encode_varint(size) + raw


def decode_json(data: bytes, start: int, end: int) -> Any:
    """Return the value whose CBOR is between `start` and `end`; raises `CorruptRecord`."""
    try:
        value, after = decode_cbor(data[start:end], 0, JSON_DEPTH_MAX)
        if after == end - start:
            return value
    except (ValueError, IndexError):
        pass
    raise CorruptRecord.at("JSON that is not in its canonical form", data, start)


def dumps(value: Any) -> bytes:
    """Return the deterministic CBOR of plain data; the catalog has more kinds of it than JSON."""
    try:
        return encode_cbor(value, JSON_DEPTH_MAX)
    except NotPlain:  # longer integers, integer keys, tuples: the same bytes, by the slow way
        return cbor2.dumps(value, canonical=True)


def read_json(text: str) -> Any:
    """Return plain data, in which numbers with a point or an exponent are decimals.

    Raises `ValueError` or `RecursionError` for what is not JSON, or says a thing twice.
    """
    return json.loads(
        text,
        parse_float=_read_decimal,
        parse_constant=_refuse_constant,
        object_pairs_hook=_require_unique_names,
    )


def _read_decimal(digits: str) -> decimal.Decimal:
    try:
        return decimal.Decimal(digits)
    except decimal.InvalidOperation:
        raise ValueError("a number has an exponent without measure") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"JSON has no value {name}")


def _require_unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same name twice")
    return found


def _normalize(value: Any, path: str, *, may_be_decimal: bool = False) -> tuple[Any, bytes]:
    """Return the value in its normal form, which may be the value itself, and its bytes."""
    try:
        raw = encode_cbor(value, JSON_DEPTH_MAX)
    except ValueError:
        value = _check(value, path, may_be_decimal, 0)
        raw = encode_cbor(value, JSON_DEPTH_MAX)
    if len(raw) > VALUE_SIZE_BYTES_MAX:
        raise _too_long(value, path)
    return value, raw


def _too_long(value: Any, path: str) -> InvalidValue:
    return InvalidValue.of(path, f"JSON of at most {VALUE_SIZE_BYTES_MAX} bytes", value)


def _check(value: Any, path: str, may_be_decimal: bool, depth: int) -> Any:
    """Return a copy of exact types only; the depth limit also ends cycles."""
    if depth > JSON_DEPTH_MAX:
        raise InvalidValue.of(path, f"JSON nested at most {JSON_DEPTH_MAX} deep", value)
    match value:
        case None | bool():
            return value
        case int() | float() | decimal.Decimal():
            return _check_number(value, path, may_be_decimal)
        case str():
            return _check_text(value, path)
        case list() | tuple():
            return [
                _check(item, f"{path}[{at}]", may_be_decimal, depth + 1)
                for at, item in enumerate(value)
            ]
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise InvalidValue.of(path, "string keys", key)
            return {
                _check_text(key, path): _check(item, f"{path}.{key}", may_be_decimal, depth + 1)
                for key, item in value.items()
            }
    raise InvalidValue.of(path, Json.expected, value)


def _check_number(value: Any, path: str, may_be_decimal: bool) -> int | float:
    match value:
        case int() if _INTEGER_MIN <= value <= _INTEGER_MAX:
            return int(value)
        case float() if math.isfinite(value):
            return float(value) + 0.0  # −0.0 + 0.0 is 0.0
        case decimal.Decimal() if may_be_decimal and value.is_finite():
            return _FLOAT.from_document(value, path)
    raise InvalidValue.of(path, Json.expected, value)


def _check_text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        raise InvalidValue.of(path, "a string of valid Unicode", value) from None
    return str(value)
