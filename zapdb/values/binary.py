"""Binary: length prefix and bytes as value, or a blob; escaped bytes as key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zapdb.limits import BINARY_SIZE_BYTES_MAX, INLINE_SIZE_BYTES_MAX
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
    skip_length_prefixed_source,
    unescape,
)
from zapdb.values.value_type import ValueType


@dataclass(frozen=True)
class Binary(ValueType):
    name = "binary"
    expected = f"bytes, at most {BINARY_SIZE_BYTES_MAX}"
    text_form = "pairs of hexadecimal digits, such as 00ff"
    held_as = "bytes"
    plain_kind = "binary"
    has_python_order = True
    may_be_blob = True
    size_bytes_max = BINARY_SIZE_BYTES_MAX

    def neutral(self) -> bytes:
        return b""

    def check(self, value: Any, path: str) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise self.refuse(value, path)
        raw = bytes(value)
        if len(raw) > BINARY_SIZE_BYTES_MAX:
            raise self.refuse(raw, path)
        return raw

    def to_bytes(self, value: bytes) -> bytes:
        return value

    def from_bytes(self, raw: bytes) -> bytes:
        return raw

    def encode(self, value: bytes) -> bytes:
        return encode_length_prefixed(value)

    def decode(self, data: bytes, position: int) -> tuple[bytes, int]:
        start, end = read_length_prefixed(data, position)
        return bytes(data[start:end]), end

    def skip(self, data: bytes, position: int) -> int:
        return read_length_prefixed(data, position)[1]

    def encode_field_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        encode_large = names.bind(encode_inline_or_blob, "encode_inline_or_blob")
        encoded = f"{value}_b"
        return [
            f"if type({value}) is not bytes or len({value}) > {INLINE_SIZE_BYTES_MAX}:",
            f"    {encoded} = {encode_large}"
            f"({names.bind(self, 'kind')}, {value}, {names.bind(path, 'path')}, attachments)",
            "else:",
            f"    {encoded} = {encode_length_prefixed_source(value, names)}",
        ], encoded

    def decode_field_source(self, target: str, names: Namespace) -> list[str]:
        return decode_inline_or_blob_source(self, target, [f"{target} = b[q:p]"], names)

    def skip_source(self, names: Namespace) -> list[str]:
        return skip_length_prefixed_source(names)

    def skip_field_source(self, names: Namespace) -> list[str]:
        return skip_inline_or_blob_source(names)

    def encode_key(self, value: bytes) -> bytes:
        return escape(value)

    def decode_key(self, data: bytes, position: int) -> tuple[bytes, int]:
        return unescape(data, position)

    def from_document(self, plain: Any, path: str) -> bytes:
        if isinstance(plain, str):
            try:
                plain = bytes.fromhex(plain)
            except ValueError:
                raise self.refuse(plain, path) from None
        return self.check(plain, path)

    def to_document(self, value: bytes) -> str:
        return value.hex()
