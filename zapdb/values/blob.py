"""Blobs: large strings and binaries of a field, which a record refers to instead of holding them.

    blob = 7F | id, 16 bytes | varint of the size in bytes

A field of more than `INLINE_SIZE_BYTES_MAX` bytes is always a blob, a smaller one never. Values
inside structs and lists are never blobs. This module only knows the reference; an `Attachments`
object knows where the bytes are (see `records.attachments`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from zapdb.errors import CorruptRecord
from zapdb.limits import INLINE_SIZE_BYTES_MAX
from zapdb.values.generated_source import Namespace
from zapdb.values.length_prefixed import encode_length_prefixed, read_length_prefixed
from zapdb.values.varint import decode_varint, encode_varint

if TYPE_CHECKING:
    from zapdb.values.value_type import ValueType

BLOB_MARK: Final = b"\x7f"
"""The varint −1, in the place of the length of an inline value."""
ID_SIZE_BYTES: Final = 16
REFERENCE_SIZE_BYTES_MIN: Final = (
    len(BLOB_MARK) + ID_SIZE_BYTES + len(encode_varint(INLINE_SIZE_BYTES_MAX + 1))
)
"""The least size of a reference to a blob in a record."""


@dataclass(frozen=True, slots=True)
class Blob:
    """A reference to bytes in the blob table, in the place of the value."""

    id: bytes
    size: int
    type: LargeValueType

    def encode(self) -> bytes:
        return BLOB_MARK + self.id + encode_varint(self.size)

    def value_of(self, raw: bytes) -> Any:
        """Return the value of the blob's bytes; raises `CorruptRecord`."""
        if len(raw) != self.size:
            raise CorruptRecord.at("blob of another size than its record says", raw, 0)
        return self.type.from_bytes(raw)


def is_blob(encoded: bytes) -> bool:
    """Return whether a field's value encoding refers to a blob."""
    return encoded[: len(BLOB_MARK)] == BLOB_MARK


class BlobSink(Protocol):
    """Takes the bytes of a new blob, and returns its id."""

    def add(self, raw: bytes) -> bytes: ...


class LargeValueType(Protocol):
    """What string and binary have in common: their values are bytes, inline or in a blob."""

    @property
    def name(self) -> str: ...

    @property
    def size_bytes_max(self) -> int: ...

    def check(self, value: Any, path: str) -> Any: ...

    def refuse(self, value: object, path: str) -> Exception: ...

    def to_bytes(self, value: Any) -> bytes: ...

    def from_bytes(self, raw: bytes) -> Any: ...


def encode_inline_or_blob(
    kind: LargeValueType, value: Any, path: str, attachments: BlobSink
) -> bytes:
    """Check and encode a field's value; a large one is added as a blob."""
    if isinstance(value, Blob):
        if value.type != kind:
            raise kind.refuse(value, path)
        return value.encode()
    raw = kind.to_bytes(kind.check(value, path))
    if len(raw) <= INLINE_SIZE_BYTES_MAX:
        return encode_length_prefixed(raw)
    return Blob(attachments.add(raw), len(raw), kind).encode()


def decode_inline_or_blob(kind: LargeValueType, data: bytes, position: int) -> tuple[Any, int]:
    """Return the field's value or its `Blob`, and the position after it; raises `CorruptRecord`."""
    if data[position : position + 1] == BLOB_MARK:
        (made, size), end = read_blob(data, position)
        if not INLINE_SIZE_BYTES_MAX < size <= kind.size_bytes_max:
            raise CorruptRecord.at("size of a blob", data, position)
        return Blob(made, size, kind), end
    start, end = read_length_prefixed(data, position, INLINE_SIZE_BYTES_MAX)
    try:
        return kind.from_bytes(bytes(data[start:end])), end
    except CorruptRecord:
        raise CorruptRecord.at("string that is not UTF-8", data, position) from None


def read_blob(data: bytes, position: int) -> tuple[tuple[bytes, int], int]:
    """Return the id and size of the blob whose mark is at `position`, and the position after it."""
    start = position + len(BLOB_MARK)
    size, end = decode_varint(data, start + ID_SIZE_BYTES)
    return (bytes(data[start : start + ID_SIZE_BYTES]), size), end


def skip_inline_or_blob(data: bytes, position: int) -> int:
    """Return the position after a field's inline value or blob."""
    if data[position : position + 1] == BLOB_MARK:
        return decode_varint(data, position + 1 + ID_SIZE_BYTES)[1]
    return read_length_prefixed(data, position, INLINE_SIZE_BYTES_MAX)[1]


def decode_inline_or_blob_source(
    kind: LargeValueType, target: str, take: list[str], names: Namespace
) -> list[str]:
    """Return statements that set `target` from `b` at `p`, and `late` to true for a blob.

    `take` are the statements that set the target from `b[q:p]`, for an inline value.
    """
    decode = names.bind(decode_inline_or_blob, "decode_inline_or_blob")
    return [
        "c = b[p]",
        "if 0x80 <= c < 0xC0:",
        "    q = p + 1",
        "    p = q + c - 0x80",
        "    if p > n:",
        "        p = q - 1",
        "        raise IndexError",
        *(f"    {line}" for line in take),
        "else:",
        f"    {target}, p = {decode}({names.bind(kind, 'kind')}, b, p)",
        f"    if type({target}) is {names.bind(Blob, 'Blob')}: late = True",
    ]


def skip_inline_or_blob_source(names: Namespace) -> list[str]:
    return [
        "c = b[p]",
        "if 0x80 <= c < 0xC0:",
        "    p += c - 0x7F",
        "else:",
        f"    p = {names.bind(skip_inline_or_blob, 'skip_inline_or_blob')}(b, p)",
    ]


def find_blob_source(names: Namespace) -> list[str]:
    """As `skip_inline_or_blob_source`, and append a blob's id and size to `found`."""
    return [
        "if b[p] == 0x7F:",
        f"    c, p = {names.bind(read_blob, 'read_blob')}(b, p)",
        "    found.append(c)",
        "else:",
        *(f"    {line}" for line in skip_inline_or_blob_source(names)),
    ]


def is_same_held(kind: ValueType, left: Any, right: Any) -> bool:
    """Return whether two values of a field, or blobs or nulls in their place, are one value."""
    if left is None or right is None or isinstance(left, Blob) or isinstance(right, Blob):
        return bool(left == right)  # blobs never change: one id is one value
    return kind.is_same(left, right)
