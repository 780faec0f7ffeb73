"""Strings: length prefix and UTF-8 as value, or a blob.

Keys come in two orders. In code-point order the UTF-8 bytes are escaped: stable, reversible, the
only order allowed in record keys. Under a collation the key is the ICU sort key. It ends in 00 and
has no other 00, so no key is a prefix of another. It can't be decoded, equal keys do not mean equal
strings, and its bytes depend on the collation data in use (see `datasets`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zapdb.errors import CorruptRecord
from zapdb.limits import INLINE_SIZE_BYTES_MAX, VALUE_SIZE_BYTES_MAX
from zapdb.values.blob import (
    decode_inline_or_blob_source,
    encode_inline_or_blob,
    skip_inline_or_blob_source,
)
from zapdb.values.generated_source import Namespace
from zapdb.values.length_prefixed import (
    encode_length_prefixed,
    encode_length_prefixed_source,
    escape,
    read_length_prefixed,
    read_length_prefixed_source,
    skip_length_prefixed_source,
    unescape,
)
from zapdb.values.value_type import ValueType


@dataclass(frozen=True)
class String(ValueType):
    name = "string"
    expected = f"a string of valid Unicode, at most {VALUE_SIZE_BYTES_MAX} bytes of UTF-8"
    text_form = "the text itself"
    held_as = "str"
    plain_kind = "text"
    has_python_order = True
    may_be_blob = True
    size_bytes_max = VALUE_SIZE_BYTES_MAX

    def neutral(self) -> str:
        return ""

    def check(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            raise self.refuse(value, path)
        try:
            if len(value.encode()) > VALUE_SIZE_BYTES_MAX:
                raise self.refuse(value, path)
        except UnicodeEncodeError:  # a lone surrogate
            raise self.refuse(value, path) from None
        return str(value)

    def to_bytes(self, value: str) -> bytes:
        return value.encode()

    def from_bytes(self, raw: bytes) -> str:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise CorruptRecord.at("string that is not UTF-8", raw, 0) from None

    def encode(self, value: str) -> bytes:
        return encode_length_prefixed(value.encode())

    def decode(self, data: bytes, position: int) -> tuple[str, int]:
        start, end = read_length_prefixed(data, position)
        try:
            return bytes(data[start:end]).decode(), end
        except UnicodeDecodeError:
            raise CorruptRecord.at("string that is not UTF-8", data, position) from None

    def skip(self, data: bytes, position: int) -> int:
        return read_length_prefixed(data, position)[1]

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        check = names.bind(self.check, "check_string")
        where = names.bind(path, "path")
        encoded = f"{value}_b"
        return [
            f"if type({value}) is not str or len({value}) > {VALUE_SIZE_BYTES_MAX // 4}:",
            f"    {value} = {check}({value}, {where})",
            *_utf8_source(value, encoded, check, where),
        ], encode_length_prefixed_source(encoded, names)

    def encode_field_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        where = names.bind(path, "path")
        check = names.bind(self.check, "check_string")
        encode_large = names.bind(encode_inline_or_blob, "encode_inline_or_blob")
        encoded = f"{value}_b"
        # A character has at most 4 bytes, so the size of a short string need not be checked.
        return [
            f"if type({value}) is not str or len({value}) > {INLINE_SIZE_BYTES_MAX // 4}:",
            f"    {encoded} = {encode_large}({names.bind(self, 'kind')}, {value}, {where}, "
            "attachments)",
            "else:",
            *(f"    {line}" for line in _utf8_source(value, encoded, check, where)),
            f"    {encoded} = {encode_length_prefixed_source(encoded, names)}",
        ], encoded

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        return [
            *read_length_prefixed_source(names),
            "if p > n:",
            "    p = q - 1",
            "    raise IndexError",
            f"{target} = b[q:p].decode()",
        ]

    def decode_field_source(self, target: str, names: Namespace) -> list[str]:
        return decode_inline_or_blob_source(self, target, [f"{target} = b[q:p].decode()"], names)

    def skip_source(self, names: Namespace) -> list[str]:
        return skip_length_prefixed_source(names)

    def skip_field_source(self, names: Namespace) -> list[str]:
        return skip_inline_or_blob_source(names)

    def encode_key(self, value: str) -> bytes:
        return escape(value.encode())

    def decode_key(self, data: bytes, position: int) -> tuple[str, int]:
        raw, after = unescape(data, position)
        try:
            return raw.decode(), after
        except UnicodeDecodeError:
            raise CorruptRecord.at("key that is not UTF-8", data, position) from None


def _utf8_source(value: str, encoded: str, check: str, where: str) -> list[str]:
    """Return statements that set `encoded` to the UTF-8 of a string, or raise the error of
    `check`."""
    return [
        "try:",
        f"    {encoded} = {value}.encode()",
        "except UnicodeEncodeError:",
        f"    {check}({value}, {where})",
        "    raise",
    ]
