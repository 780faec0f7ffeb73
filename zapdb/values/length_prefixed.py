"""Values with a length prefix: an orderable varint from 0 to the limit, then as many bytes.

Lengths below 0 are reserved; in fields that may be blobs, −1 marks a blob (see `blob`).

The key encoding, in code-point or byte order, writes each 00 as 00 FF and ends the key with 00 01.
It is reversible, keeps the order of the bytes, and no such key is a prefix of another.
"""

from __future__ import annotations

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.values.generated_source import Namespace
from zapdb.values.varint import ONE_BYTE, decode_varint, encode_varint

ESCAPED_END = b"\x00\x01"


def encode_length_prefixed(raw: bytes) -> bytes:
    size = len(raw)
    return (ONE_BYTE[size] if size < 64 else encode_varint(size)) + raw


def encode_length_prefixed_source(raw: str, names: Namespace) -> str:
    """Return an expression for the prefix and bytes of the variable `raw`."""
    one_byte, encode = (
        names.bind(ONE_BYTE, "ONE_BYTE"),
        names.bind(encode_length_prefixed, "encode_length_prefixed"),
    )
    return f"({one_byte}[len({raw})] + {raw} if len({raw}) < 64 else {encode}({raw}))"


def encode_limited_length_prefixed(raw: bytes, path: str) -> bytes:
    """As `encode_length_prefixed`; raises `InvalidValue` for too many bytes, which names `path`."""
    if len(raw) > VALUE_SIZE_BYTES_MAX:
        raise InvalidValue(
            "a value is too long",
            field=path,
            size_bytes=len(raw),
            size_bytes_max=VALUE_SIZE_BYTES_MAX,
        )
    return encode_length_prefixed(raw)


def read_length_prefixed(
    data: bytes, position: int, size_bytes_max: int = VALUE_SIZE_BYTES_MAX
) -> tuple[int, int]:
    """Return the start and end of the bytes whose length prefix is at `position`; raises
    `CorruptRecord`."""
    size, start = decode_varint(data, position)
    if not 0 <= size <= size_bytes_max or start + size > len(data):
        raise CorruptRecord.at("length", data, position)
    return start, start + size


def read_length_prefixed_source(names: Namespace) -> list[str]:
    """Return statements that set `q` and `p` to the start and end of the bytes at `p`."""
    return [
        "c = b[p]",
        "if 0x80 <= c < 0xC0:",
        "    q = p + 1",
        "    p = q + c - 0x80",
        "else:",
        f"    q, p = {names.bind(read_length_prefixed, 'read_length_prefixed')}(b, p)",
    ]


def skip_length_prefixed_source(names: Namespace) -> list[str]:
    return [
        "c = b[p]",
        "if 0x80 <= c < 0xC0:",
        "    p += c - 0x7F",
        "else:",
        f"    p = {names.bind(read_length_prefixed, 'read_length_prefixed')}(b, p)[1]",
    ]


def escape(raw: bytes) -> bytes:
    return raw.replace(b"\x00", b"\x00\xff") + ESCAPED_END


def unescape(data: bytes, position: int) -> tuple[bytes, int]:
    """Return the bytes that are escaped at `position`, and the position after their end mark."""
    at = position
    while True:
        at = data.find(b"\x00", at)
        mark = data[at + 1 : at + 2] if at >= 0 else b""
        if mark == b"\x01":
            return data[position:at].replace(b"\x00\xff", b"\x00"), at + 2
        if mark != b"\xff":
            raise CorruptRecord.at("escaped bytes", data, position if at < 0 else at)
        at += 2
