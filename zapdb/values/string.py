"""Strings: length prefix and UTF-8 as value.

Keys come in two orders. In code-point order the UTF-8 bytes are escaped: stable, reversible, the
only order allowed in record keys. Under a collation the key is the ICU sort key: it ends in 00 and
holds no other 00, so it is a prefix of no other, but it can't be turned back into the string, equal
keys do not mean equal strings, and its bytes depend on the collation data in use (see `datasets`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zapdb.errors import CorruptRecord
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.values.base import ValueType
from zapdb.values.extent import (
    encode_extent,
    escape,
    read_extent,
    read_extent_source,
    skip_extent_source,
    unescape,
)
from zapdb.values.source import Namespace


@dataclass(frozen=True)
class String(ValueType):
    name = "string"
    expected = f"a string of valid Unicode, at most {VALUE_SIZE_BYTES_MAX} bytes of UTF-8"

    def check(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise self.refuse(value, path)
        try:
            if len(value.encode()) > VALUE_SIZE_BYTES_MAX:
                raise self.refuse(value, path)
        except UnicodeEncodeError:  # a lone surrogate
            raise self.refuse(value, path) from None
        return str(value)

    def encode(self, value: str) -> bytes:
        return encode_extent(value.encode())

    def decode(self, data: bytes, position: int) -> tuple[str, int]:
        start, end = read_extent(data, position)
        try:
            return bytes(data[start:end]).decode(), end
        except UnicodeDecodeError:
            raise CorruptRecord.at("string that is not UTF-8", data, position) from None

    def skip(self, data: bytes, position: int) -> int:
        return read_extent(data, position)[1]

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        check = names.bind(self.check, "check_string")
        where = names.bind(path, "path")
        encoded = f"{value}_b"
        return [
            f"if type({value}) is not str or len({value}) > {VALUE_SIZE_BYTES_MAX // 4}:",
            f"    {value} = {check}({value}, {where})",
            "try:",
            f"    {encoded} = {value}.encode()",
            "except UnicodeEncodeError:",
            f"    {check}({value}, {where})",
            "    raise",
        ], f"{names.bind(encode_extent, 'encode_extent')}({encoded})"

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        return [
            *read_extent_source(names),
            "if p > n:",
            "    p = q - 1",
            "    raise IndexError",
            f"{target} = b[q:p].decode()",
        ]

    def skip_source(self, names: Namespace) -> list[str]:
        return skip_extent_source(names)

    def encode_key(self, value: str) -> bytes:
        return escape(value.encode())

    def decode_key(self, data: bytes, position: int) -> tuple[str, int]:
        raw, after = unescape(data, position)
        try:
            return raw.decode(), after
        except UnicodeDecodeError:
            raise CorruptRecord.at("key that is not UTF-8", data, position) from None
