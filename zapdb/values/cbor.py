"""Deterministic CBOR (RFC 8949, section 4.2.1) of plain data: one form for each value, no other.

    null, booleans   one byte
    integers         −2⁶⁴ … 2⁶⁴ − 1, in the shortest head
    floats           finite, no −0.0; in the shortest of half, single and double that is exact
    strings          valid UTF-8 behind the shortest head
    lists, objects   behind the shortest head; keys are strings, strictly increasing bytewise

Nothing else is written or read: no tags, bytes, indefinite lengths or other simple values.
`encode_cbor` takes exactly the types that `decode_cbor` returns; the caller converts others. Both
are one pass. The loops over a container's items write out the common cases, because each call in
them costs time. A declared length allocates nothing: it only bounds slices and loops, and missing
bytes are an error.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

MAJOR_NEGATIVE, MAJOR_TEXT, MAJOR_LIST, MAJOR_MAP = 0x20, 0x60, 0x80, 0xA0

_INTEGERS: Final = tuple([bytes((n,)) if n < 24 else bytes((24, n)) for n in range(256)])
TEXTS: Final = tuple([bytes((MAJOR_TEXT + n,)) for n in range(24)])
"""The heads of short lengths; those of longer ones are computed."""
LISTS: Final = tuple([bytes((MAJOR_LIST + n,)) for n in range(24)])
MAPS: Final = tuple([bytes((MAJOR_MAP + n,)) for n in range(24)])
NULL, TRUE, FALSE = b"\xf6", b"\xf5", b"\xf4"

_HALF, _SINGLE, _DOUBLE = struct.Struct(">e"), struct.Struct(">f"), struct.Struct(">d")


class NotPlain(ValueError):
    """A value can't be encoded: it has another type, is out of range, or is nested too deep."""


def encode_cbor(value: Any, depth: int) -> bytes:  # noqa: C901 - a case for each type
    """Return the value's bytes; containers may be nested `depth` deep.

    Raises `NotPlain`, or `UnicodeEncodeError` for a lone surrogate; both are `ValueError`s.
    """
    kind = type(value)
    if kind is dict:
        if not depth:
            raise NotPlain("depth")
        parts = []
        for key, item in value.items():
            if type(key) is not str:
                raise NotPlain("key")
            raw = key.encode()
            size = len(raw)
            part = (TEXTS[size] if size < 24 else _head(MAJOR_TEXT, size)) + raw
            kind = type(item)
            if kind is str:
                raw = item.encode()
                size = len(raw)
                parts.append(part + (TEXTS[size] if size < 24 else _head(MAJOR_TEXT, size)) + raw)
            elif kind is int and 0 <= item < 256:
                parts.append(part + _INTEGERS[item])
            elif kind is list:
                parts.append(part + _pack_list(item, depth - 1))
            else:
                parts.append(part + encode_cbor(item, depth - 1))
        # No key is a prefix of another, so pairs of key and value sort as the keys do.
        parts.sort()
        size = len(parts)
        return (MAPS[size] if size < 24 else _head(MAJOR_MAP, size)) + b"".join(parts)
    if kind is list:
        return _pack_list(value, depth)
    if kind is str:
        text: bytes = value.encode()
        return _head(MAJOR_TEXT, len(text)) + text
    if kind is int:
        if value >= 0:
            return _INTEGERS[value] if value < 256 else _head(0, value)
        return _head(MAJOR_NEGATIVE, ~value)
    if kind is float:
        return _pack_float(value)
    if value is None:
        return NULL
    if kind is bool:
        return TRUE if value else FALSE
    raise NotPlain(kind)


def _pack_list(items: list[Any], depth: int) -> bytes:
    if not depth:
        raise NotPlain("depth")
    items = [*items]  # a finalizer may change them meanwhile, and their number comes first
    size = len(items)
    parts = [LISTS[size] if size < 24 else _head(MAJOR_LIST, size)]
    for item in items:
        if type(item) is str:
            raw = item.encode()
            size = len(raw)
            parts.append(TEXTS[size] if size < 24 else _head(MAJOR_TEXT, size))
            parts.append(raw)
        else:
            parts.append(encode_cbor(item, depth - 1))
    return b"".join(parts)


def _head(major: int, argument: int) -> bytes:
    """Return the shortest head: the argument is in the first byte, or in 1, 2, 4 or 8 more."""
    if argument < 24:
        return bytes((major + argument,))
    if argument < 1 << 8:
        return bytes((major + 24, argument))
    if argument < 1 << 16:
        return bytes((major + 25,)) + argument.to_bytes(2, "big")
    if argument < 1 << 32:
        return bytes((major + 26,)) + argument.to_bytes(4, "big")
    if argument < 1 << 64:
        return bytes((major + 27,)) + argument.to_bytes(8, "big")
    raise NotPlain("integer")


def _pack_float(value: float) -> bytes:
    if not math.isfinite(value) or (value == 0.0 and math.copysign(1.0, value) < 0.0):
        raise NotPlain("float")
    try:
        raw = _SINGLE.pack(value)
    except OverflowError:
        return b"\xfb" + _DOUBLE.pack(value)
    if _SINGLE.unpack(raw)[0] != value:
        return b"\xfb" + _DOUBLE.pack(value)
    try:
        half = _HALF.pack(value)
    except OverflowError:
        return b"\xfa" + raw
    return b"\xf9" + half if _HALF.unpack(half)[0] == value else b"\xfa" + raw


def decode_cbor(raw: bytes, p: int, depth: int) -> tuple[Any, int]:  # noqa: C901 - a case for each type
    """Return the item at `p` and the position after it; containers may be nested `depth` deep.

    Raises `ValueError` (also for a string that is not UTF-8) or `IndexError` for bytes that
    `encode_cbor` does not write. A slice ends where the bytes end, so a truncated item may raise no
    error. Then the position after it is beyond the end of the bytes, and the caller has to check
    that.
    """
    head = raw[p]
    if MAJOR_MAP <= head < 0xC0:
        size, p = (head - MAJOR_MAP, p + 1) if head < MAJOR_MAP + 24 else _unpack_head(raw, p)
        if not depth:
            raise ValueError("depth")
        items: dict[str, Any] = {}
        # Shorter keys come first; keys of equal length compare as strings as their UTF-8 does.
        last_size, last_key = -1, ""
        while size:
            size -= 1
            head = raw[p]
            if 0x60 <= head < 0x78:
                key_size = head - 0x60
                p += 1
            elif 0x78 <= head < 0x80:
                key_size, p = _unpack_head(raw, p)
            else:
                raise ValueError("key")
            q = p + key_size
            key = raw[p:q].decode()
            if key_size <= last_size and (key_size < last_size or key <= last_key):
                raise ValueError("order")
            last_size, last_key = key_size, key
            head = raw[q]
            if 0x60 <= head < 0x78:
                q += 1
                p = q + head - 0x60
                items[key] = raw[q:p].decode()
            elif head < 24:
                items[key] = head
                p = q + 1
            elif 0x80 <= head < 0x98:
                items[key], p = _unpack_list(raw, q + 1, head - 0x80, depth - 1)
            else:
                items[key], p = decode_cbor(raw, q, depth - 1)
        return items, p
    if MAJOR_LIST <= head < MAJOR_MAP:
        size, p = _unpack_head(raw, p)
        return _unpack_list(raw, p, size, depth)
    if head == 0xF6:
        return None, p + 1
    if head == 0xF5:
        return True, p + 1
    if head == 0xF4:
        return False, p + 1
    if head >= 0xF9:
        return _unpack_float(raw, p)
    argument, p = _unpack_head(raw, p)
    if head < MAJOR_NEGATIVE:
        return argument, p
    if head < 0x40:
        return ~argument, p
    if MAJOR_TEXT <= head < MAJOR_LIST:
        q = p + argument
        return raw[p:q].decode(), q
    raise ValueError("type")


def _unpack_list(raw: bytes, p: int, size: int, depth: int) -> tuple[list[Any], int]:
    if not depth:
        raise ValueError("depth")
    items: list[Any] = []
    while size:
        size -= 1
        head = raw[p]
        if 0x60 <= head < 0x78:
            q = p + 1
            p = q + head - 0x60
            items.append(raw[q:p].decode())
        elif head < 24:
            items.append(head)
            p += 1
        else:
            item, p = decode_cbor(raw, p, depth - 1)
            items.append(item)
    return items, p


def _unpack_head(raw: bytes, p: int) -> tuple[int, int]:
    """Return the argument of the head at `p`, which must be in its shortest form, and its end."""
    argument = raw[p] & 0x1F
    if argument < 24:
        return argument, p + 1
    if argument > 27:
        raise ValueError("head")
    size = 1 << (argument - 24)
    q = p + 1 + size
    argument = int.from_bytes(raw[p + 1 : q], "big")
    # The least argument of this size: 24, or one more than half as many bytes can hold.
    if argument < (24 if size == 1 else 1 << (size << 2)):
        raise ValueError("head")
    return argument, q


def _unpack_float(raw: bytes, p: int) -> tuple[float, int]:
    kind = {0xF9: _HALF, 0xFA: _SINGLE, 0xFB: _DOUBLE}.get(raw[p])
    if kind is None:
        raise ValueError("type")
    q = p + 1 + kind.size
    if q > len(raw):
        raise IndexError(q)
    value: float = kind.unpack_from(raw, p + 1)[0]
    if _pack_float(value) != raw[p:q]:
        raise ValueError("float")
    return value, q
