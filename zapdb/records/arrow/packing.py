"""Arrays of bytes, made by whole arrays: no Python object is made for a value.

Each function gives a `pyarrow.BinaryArray` whose items are the encodings of the given items, and
nulls where these are null. The encodings are defined by `zapdb.values`; property tests compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import compute, types

_PAYLOAD_LIMITS: Final = numpy.array([1 << bits for bits in range(8, 64, 8)], "u8")
NO_UUID: Final = "00000000-0000-0000-0000-000000000000"
_DASH_PLACES: Final = [at for at, char in enumerate(NO_UUID) if char == "-"]
_DIGIT_PLACES: Final = [at for at, char in enumerate(NO_UUID) if char == "0"]
_DIGITS: Final = numpy.array(
    [int(chr(c), 16) if chr(c) in "0123456789abcdefABCDEF" else 255 for c in range(256)], "u1"
)
_NOTHING: Final = pyarrow.scalar(b"", pyarrow.binary())


def constant(raw: bytes) -> Any:
    """The same bytes for each item, as a piece for `join`."""
    return pyarrow.scalar(raw, pyarrow.binary())


def constant_like(array: Any, raw: bytes) -> Any:
    """The same, but nothing where an array is null."""
    if not array.null_count:
        return constant(raw)
    return compute.if_else(array.is_valid(), constant(raw), pyarrow.scalar(None, pyarrow.binary()))


def repeated(raw: bytes, count: int) -> Any:
    """An array of the same bytes."""
    return pyarrow.repeat(constant(raw), count)


def concatenate(pieces: Sequence[Any]) -> Any:
    """The bytes of all pieces of an item, one after the other; those that are null have none. One
    piece at least is an array."""
    return compute.binary_join_element_wise(
        *pieces, _NOTHING, null_handling="replace", null_replacement=""
    )


def pack_varints(numbers: Any) -> Any:
    """Orderable varints of an array of int64."""
    values = compute.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
    if not len(values):
        return pyarrow.array([], pyarrow.binary())
    if values.min() >= -64 and values.max() < 64:
        return _of_matrix((values + 0x80).astype("u1").reshape(-1, 1), numbers)
    is_small = (values >= -64) & (values < 64)
    magnitudes = numpy.where(values < 0, ~values, values).view("u8")
    sizes = numpy.searchsorted(_PAYLOAD_LIMITS, magnitudes, side="right") + 1
    sizes[is_small] = 0
    firsts = numpy.where(values > 0, 0xBF + sizes, 0x40 - sizes)
    firsts[is_small] = values[is_small] + 0x80
    most = int(sizes.max())
    matrix = numpy.empty((len(values), most + 1), "u1")
    matrix[:, 0] = firsts
    # The last bytes of the two's complement: of v, and of v + 256ⁿ if v is negative.
    matrix[:, 1:] = values.astype(">i8").view("u1").reshape(-1, 8)[:, 8 - most :]
    is_used = numpy.arange(most + 1) > most - sizes[:, None]
    is_used[:, 0] = True
    return _of_bytes(matrix[is_used], sizes + 1, numbers)


def pack_words(words: Any, like: Any) -> Any:
    """The eight bytes of each unsigned word, the first one first."""
    return _of_matrix(words.astype(">u8").view("u1").reshape(-1, 8), like)


def pack_booleans(array: Any) -> Any:
    values = compute.fill_null(array, False).to_numpy(zero_copy_only=False)
    return _of_matrix(values.astype("u1").reshape(-1, 1), array)


def pack_presence(arrays: Sequence[Any], count: int) -> Any:
    """The presence bits of records, of which each array is an optional field; None is absent."""
    matrix = numpy.zeros((count, (len(arrays) + 7) // 8), "u1")
    for bit, array in enumerate(arrays):
        if array is not None:
            is_there = array.is_valid().to_numpy(zero_copy_only=False)
            matrix[:, bit // 8] |= is_there.astype("u1") << (bit % 8)
    return _of_matrix(matrix, None)


def pack_sized(raw: Any) -> list[Any]:
    """The pieces of length-prefixed bytes."""
    return [pack_varints(compute.binary_length(raw).cast(pyarrow.int64())), raw]


def parse_uuids(texts: Any) -> Any:
    """Canonical texts of UUIDs as their bytes; the array itself if it holds anything else."""
    if not types.is_string(texts.type) and not types.is_large_string(texts.type):
        return texts
    filled = compute.fill_null(texts, NO_UUID).cast(pyarrow.string())
    sizes = compute.min_max(compute.binary_length(filled)).as_py()
    if not len(texts) or (sizes["min"], sizes["max"]) != (len(NO_UUID), len(NO_UUID)):
        return texts
    start = filled.offset * len(NO_UUID)
    chars = numpy.frombuffer(filled.buffers()[2], "u1")[start : start + len(texts) * len(NO_UUID)]
    chars = chars.reshape(-1, len(NO_UUID))
    digits = _DIGITS[chars[:, _DIGIT_PLACES]]
    if (digits > 15).any() or (chars[:, _DASH_PLACES] != ord("-")).any():
        return texts
    return _of_matrix(digits[:, 0::2] << 4 | digits[:, 1::2], texts)


def size_max(raw: Any) -> int:
    """The size of the longest item."""
    return compute.max(compute.binary_length(raw)).as_py() or 0


def has_zero_byte(raw: Any) -> bool:
    return bool(compute.any(compute.match_substring(raw, b"\0")).as_py())


def inverted(raw: Any) -> Any:
    """All bits of an array without nulls turned over."""
    _, offsets, data = raw.buffers()
    turned = pyarrow.py_buffer(~numpy.frombuffer(data or b"", "u1"))
    return pyarrow.Array.from_buffers(
        raw.type, len(raw), [None, offsets, turned], 0, offset=raw.offset
    )


def words_of(array: Any, kind: str) -> Any:
    """The items of an array of eight or sixteen bytes as numpy has them; a null is anything."""
    held = numpy.frombuffer(array.buffers()[1] or b"", kind)
    per_item = array.type.bit_width // 64
    return held[array.offset * per_item : (array.offset + len(array)) * per_item]


def _of_matrix(matrix: Any, like: Any) -> Any:
    """An array of the rows of a matrix of bytes; null where `like` is."""
    count, width = matrix.shape
    offsets = numpy.arange(0, (count + 1) * width, width, dtype="i4")
    if not width:
        offsets = numpy.zeros(count + 1, "i4")
    return _with_nulls(offsets, matrix, like)


def _of_bytes(data: Any, sizes: Any, like: Any) -> Any:
    offsets = numpy.zeros(len(sizes) + 1, "i4")
    numpy.cumsum(sizes, out=offsets[1:])
    return _with_nulls(offsets, data, like)


def _with_nulls(offsets: Any, data: Any, like: Any) -> Any:
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(numpy.ascontiguousarray(data))]
    made = pyarrow.Array.from_buffers(pyarrow.binary(), len(offsets) - 1, buffers)
    if like is None or not like.null_count:
        return made
    return compute.if_else(like.is_valid(), made, pyarrow.scalar(None, pyarrow.binary()))
