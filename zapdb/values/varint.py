"""The orderable varint: integers whose bytes sort as the integers do.

    −64 … 63                       one byte, 0x80 + v  (0x40 … 0xBF)
    larger, n bytes of magnitude   0xBF + n, then v in n big-endian bytes        (0xC0 … 0xFE)
    smaller, n bytes               0x40 − n, then v + 256ⁿ in n big-endian bytes (0x01 … 0x3F)

n is 1 … 63. The first bytes 0x00 and 0xFF are reserved. Only the shortest form is written, and
decoders refuse any other, so equal integers have equal bytes. The first byte tells how many follow.
So no encoding is a prefix of another, and encodings can be concatenated.
"""

from __future__ import annotations

from typing import Final

from zapdb.errors import CorruptRecord
from zapdb.limits import VARINT_SIZE_BYTES_MAX
from zapdb.values.generated_source import Namespace

INTEGER_MAX: Final = 256**VARINT_SIZE_BYTES_MAX - 1
INTEGER_MIN: Final = -(256**VARINT_SIZE_BYTES_MAX)

ONE_BYTE: Final = tuple([bytes((0x80 + value,)) for value in (*range(64), *range(-64, 0))])
"""Encodings of −64 … 63 by value; those below 0 are at the end, where negative indexes find them.

Lengths, revisions and small numbers are nearly always among them.
"""

SIZES: Final = tuple(
    [0 if first in (0x00, 0xFF) else 1 + max(0, first - 0xBF, 0x40 - first) for first in range(256)]
)
"""Encoded size in bytes by first byte; 0 for the two reserved ones."""


FROM_BYTES: Final = int.from_bytes
"""One object, so that the functions of a namespace share its name; big-endian by default."""

# Tables for encoders and decoders of numbers above 63, which are faster than computing.
_PAYLOAD_SIZES = [(bits + 7) // 8 for bits in range(8 * VARINT_SIZE_BYTES_MAX + 1)]
SIZES_BY_BITS: Final = tuple([1 + size for size in _PAYLOAD_SIZES])
"""Encoded size in bytes of a number above 63, by its bit length."""
HEADS_BY_BITS: Final = tuple([(0xBF + size) << (8 * size) for size in _PAYLOAD_SIZES])
"""The number to add to a number above 63, so that its first byte comes first, by bit length."""
LEAST: Final = tuple(
    [{0xC0: 64, 0xFF: 256**64}.get(first, 256 ** max(0, first - 0xC0)) for first in range(256)]
)
"""The least number above 63 with this first byte; for 0xFF, one that is too large for it."""


def encode_varint(value: int) -> bytes:
    """Encode an integer of −256⁶³ … 256⁶³ − 1; the caller has checked the range."""
    if -64 <= value < 64:
        return ONE_BYTE[value]
    if value > 0:
        bits = value.bit_length()
        return (value + HEADS_BY_BITS[bits]).to_bytes(SIZES_BY_BITS[bits], "big")
    size = ((~value).bit_length() + 7) >> 3
    return (value + ((0x41 - size) << (size << 3))).to_bytes(size + 1, "big")


def encode_varint_source(
    value: str, target: str, names: Namespace, otherwise: str | None = None
) -> list[str]:
    """Return statements that set `target` to the encoding of the variable `value`.

    `otherwise` is the expression for an integer below −64 or of more than 64 bits, if the caller
    has not checked the range.
    """
    heads, sizes = names.bind(HEADS_BY_BITS, "HEADS"), names.bind(SIZES_BY_BITS, "SIZES_BY_BITS")
    return [
        f"if -64 <= {value} < 64:",
        f"    {target} = {names.bind(ONE_BYTE, 'ONE_BYTE')}[{value}]",
        f"elif 0 < {value} < {1 << 64}:",
        f"    c = {value}.bit_length()",
        f"    {target} = ({value} + {heads}[c]).to_bytes({sizes}[c], 'big')",
        "else:",
        f"    {target} = {otherwise or names.bind(encode_varint, 'encode_varint') + f'({value})'}",
    ]


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
    if first < 0xC0:
        value -= 1 << (size << 3)
        is_shortest = value < -64 and (size == 1 or data[position + 1] != 0xFF)
    else:
        is_shortest = value >= LEAST[first]
    if not is_shortest:
        raise CorruptRecord.at("integer that is not in its shortest form", data, position)
    return value, end


def decode_varint_source(target: str, names: Namespace, *, advance: bool = False) -> list[str]:
    """Return statements that set `target` from `b` at `p`, and `q` to the position after it.

    With `advance` they set `p` instead, directly for an integer of one byte.
    """
    decode = names.bind(decode_varint, "decode_varint")
    from_bytes = names.bind(FROM_BYTES, "from_bytes")
    return [
        "c = b[p]",
        "if 0x40 <= c < 0xC0:",
        f"    {target} = c - 0x80",
        "    p += 1" if advance else "    q = p + 1",
        "elif c >= 0xC0:",
        "    q = p + c - 0xBE",
        f"    {target} = {from_bytes}(b[p + 1:q])",
        f"    if q > n or {target} < {names.bind(LEAST, 'LEAST')}[c]:",
        f"        {decode}(b, p)  # says what is wrong",
        *["    p = q"] * advance,
        "else:",
        f"    {target}, {'p' if advance else 'q'} = {decode}(b, p)",
    ]


def skip_varint(data: bytes, position: int) -> int:
    """Return the position after the varint at `position`, without checking its form."""
    size = SIZES[data[position]]
    if not size or position + size > len(data):
        raise CorruptRecord.at("integer", data, position)
    return position + size
