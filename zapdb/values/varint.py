"""The orderable varint: integers whose bytes sort as the integers do.

    −64 … 63                       one byte, 0x80 + v  (0x40 … 0xBF)
    larger, n bytes of magnitude   0xBF + n, then v in n big-endian bytes        (0xC0 … 0xFE)
    smaller, n bytes               0x40 − n, then v + 256ⁿ in n big-endian bytes (0x01 … 0x3F)

n lies in 1 … 63. The first bytes 0x00 and 0xFF stay reserved. Only the shortest form is written,
and decoders refuse any other, so equal integers have equal bytes. No encoding is a prefix of
another: encodings concatenate, and a reader knows from the first byte how many follow.
"""

from __future__ import annotations

from typing import Final

from zapdb.errors import CorruptRecord
from zapdb.limits import VARINT_SIZE_BYTES_MAX

INTEGER_MAX: Final = 256**VARINT_SIZE_BYTES_MAX - 1
INTEGER_MIN: Final = -(256**VARINT_SIZE_BYTES_MAX)

ONE_BYTE: Final = tuple(bytes([0x80 + v]) for v in range(64))
"""Encodings of 0 … 63, by value: lengths, revisions and small numbers are nearly always here."""

SIZES: Final = tuple(
    0 if first in (0x00, 0xFF) else 1 + max(0, first - 0xBF, 0x40 - first) for first in range(256)
)
"""Encoded size in bytes by first byte; 0 marks the two that are reserved."""


def encode_varint(value: int) -> bytes:
    """Encode an integer of −256⁶³ … 256⁶³ − 1; the caller has checked the range."""
    if -64 <= value < 64:
        return bytes((0x80 + value,))
    if value > 0:
        size = (value.bit_length() + 7) >> 3
        return bytes((0xBF + size,)) + value.to_bytes(size, "big")
    size = ((-value - 1).bit_length() + 7) >> 3
    return bytes((0x40 - size,)) + (value + (1 << (size << 3))).to_bytes(size, "big")


def decode_varint(data: bytes, position: int) -> tuple[int, int]:
    """Decode the varint at `position`; return it with the position after it.

    Raises `CorruptRecord` on a reserved first byte, on missing bytes, and on any but the shortest
    form.
    """
    if position >= len(data):
        raise CorruptRecord.at("integer", data, position)
    first = data[position]
    if 0x40 <= first < 0xC0:
        return first - 0x80, position + 1
    size = SIZES[first] - 1
    end = position + 1 + size
    if size < 1 or end > len(data):
        raise CorruptRecord.at("integer", data, position)
    value = int.from_bytes(data[position + 1 : end], "big")
    if first >= 0xC0:
        if value < 64 or (size > 1 and not data[position + 1]):
            raise CorruptRecord.at("integer that is not in its shortest form", data, position)
        return value, end
    value -= 1 << (size << 3)
    if value >= -64 or (size > 1 and data[position + 1] == 0xFF):
        raise CorruptRecord.at("integer that is not in its shortest form", data, position)
    return value, end


def skip_varint(data: bytes, position: int) -> int:
    """The position after the varint at `position`, which is taken to be in its shortest form."""
    size = SIZES[data[position]]
    if not size or position + size > len(data):
        raise CorruptRecord.at("integer", data, position)
    return position + size
