"""Reading many values at once: the positions of all records step forward together, field by field.

    the bytes of all records, one after the other      … 8341 6461 a4 … | 8242 6f a5 … |
    a position in each                                    ^                ^
    a step takes a value at every position             "Ada"            "Bo"
    and moves every position behind it                          ^               ^

Each step is a few operations on whole arrays, whatever the number of records. What has no such
form, and all bytes that no encoder wrote, raise `NeedsRows`: the records are read one by one then,
which can read everything and says what is wrong. So a step may be wrong about damaged bytes as long
as some check fails by the end of the record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import numpy
import pyarrow

from zapdb.limits import VALUE_SIZE_BYTES_MAX
from zapdb.values.length_prefixed import ESCAPED_END
from zapdb.values.varint import LEAST, SIZES

PADDING: Final = bytes(16)
"""Bytes after the last record, so that a word can be read at each position."""
_WORD_BYTES: Final = 8
_TOO_LONG: Final = _WORD_BYTES + 1
_PAYLOADS: Final = numpy.array(
    [size - 1 if 0 < size <= _TOO_LONG else _TOO_LONG for size in SIZES], "u1"
)
"""How many bytes follow a first byte; `_TOO_LONG` for more than a word has, and reserved ones."""
_LEAST: Final = numpy.array([min(least, 2**64 - 1) for least in LEAST], "u8")
_POWERS: Final = numpy.array([256**size % 2**64 for size in range(_TOO_LONG)], "u8")
_SMALL_MIN, _SMALL_END = 0x40, 0xC0
"""First bytes of the varints of one byte."""


class NeedsRows(Exception):
    """Some of the records can't be read together: see the module."""


class Bytes:
    """Pieces of bytes, one after the other in one piece of memory."""

    def __init__(self, joined: bytes, bounds: Any) -> None:
        """`joined` ends in `PADDING`; piece i is between bounds i and i + 1."""
        self.joined = joined
        self.bounds = bounds
        self.data = numpy.frombuffer(joined, "u1")
        self.words: Any = numpy.ndarray(len(joined) - 7, ">u8", joined, strides=(1,))
        """The eight bytes from each position on, as a number."""

    @classmethod
    def of(cls, pieces: Sequence[bytes]) -> Bytes:
        """Raises `TypeError` for a piece that is not bytes."""
        sizes = numpy.fromiter(map(len, pieces), "i8", len(pieces))
        return cls(b"".join([*pieces, PADDING]), _bounds(sizes))

    @classmethod
    def sized(cls, joined: bytes, sizes: Any) -> Bytes:
        """Pieces that are joined already, of these sizes."""
        return cls(joined + PADDING, _bounds(sizes))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def starts(self) -> Any:
        return self.bounds[:-1]

    @property
    def ends(self) -> Any:
        return self.bounds[1:]

    def pieces(self) -> list[bytes]:
        bounds = self.bounds.tolist()
        return [self.joined[a:b] for a, b in pairwise(bounds)]

    def to_array(self) -> Any:
        """A `pyarrow.BinaryArray` of the pieces."""
        bounds = pyarrow.py_buffer(self.bounds.astype("i4"))
        buffers = [None, bounds, pyarrow.py_buffer(self.joined)]
        return pyarrow.Array.from_buffers(pyarrow.binary(), len(self), buffers)

    @cached_property
    def zeros(self) -> Any:
        """The positions of all bytes that are 0."""
        return numpy.flatnonzero(self.data == 0)

    def begin_with(self, prefix: bytes) -> Any:
        """Which pieces begin with some bytes: a numpy array of booleans."""
        starts = self.starts
        found = self.ends - starts >= len(prefix)
        for at, byte in enumerate(prefix):
            found &= self.data[starts + at] == byte
        return found

    def cut(self, extents: Extents) -> Any:
        """A `pyarrow.BinaryArray` of what is at rising extents."""
        starts, sizes = extents.starts, extents.sizes
        if not len(starts):
            return pyarrow.array([], pyarrow.binary())
        # Every other item is what is between two extents.
        offsets = numpy.empty(2 * len(starts), "i4")
        offsets[0::2] = starts
        offsets[1::2] = starts + sizes
        buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(self.joined)]
        both = pyarrow.Array.from_buffers(pyarrow.binary(), len(offsets) - 1, buffers)
        return both.take(pyarrow.array(numpy.arange(0, len(offsets), 2)))


def _bounds(sizes: Any) -> Any:
    bounds = numpy.zeros(len(sizes) + 1, "i8")
    numpy.cumsum(sizes, out=bounds[1:])
    return bounds


@dataclass(frozen=True, slots=True)
class Extents:
    """Where some bytes begin, and how many they are: two arrays of int64."""

    starts: Any
    sizes: Any

    @property
    def ends(self) -> Any:
        return self.starts + self.sizes


class Positions:
    """A position in each of some pieces; `take_…` returns the values there, and steps behind them.

    Positions beyond all bytes raise `IndexError`.
    """

    def __init__(self, source: Bytes, at: Any) -> None:
        self.source = source
        self.at = at

    def __len__(self) -> int:
        return len(self.at)

    def take_bytes(self) -> Any:
        """One byte each, as uint8."""
        taken = self.source.data[self.at]
        self.at = self.at + 1
        return taken

    def take_words(self) -> Any:
        """Eight bytes each, as uint64, the first byte highest."""
        taken = self.source.words[self.at].astype("u8")
        self.at = self.at + _WORD_BYTES
        return taken

    def take_fixed(self, size_bytes: int) -> Extents:
        starts = self.at
        self.at = starts + size_bytes
        return Extents(starts, numpy.full(len(starts), size_bytes, "i8"))

    def take_varints(self) -> Any:
        """Numbers as int64; raises `NeedsRows` for a longer one."""
        first = self.source.data[self.at]
        is_small = (first >= _SMALL_MIN) & (first < _SMALL_END)
        if is_small.all():
            self.at = self.at + 1
            return first.astype("i8") - 0x80
        sizes = _PAYLOADS[first]
        if sizes.max() > _WORD_BYTES:
            raise NeedsRows
        after = self.at + 1
        words = self.source.words[after].astype("u8")
        # A word of which no byte is used is not looked at, so it may be shifted by anything.
        payloads = words >> ((_WORD_BYTES - sizes.astype("u8")) * 8 & 63)
        is_negative = first < _SMALL_MIN
        values = numpy.where(is_negative, payloads - _POWERS[sizes], payloads).view("i8")
        values[is_small] = first[is_small].astype("i8") - 0x80
        self._check_shortest(first, sizes, words, payloads, values)
        self.at = after + sizes
        return values

    @staticmethod
    def _check_shortest(first: Any, sizes: Any, words: Any, payloads: Any, values: Any) -> None:
        is_large, is_negative = first >= _SMALL_END, first < _SMALL_MIN
        wrong = is_large & ((payloads < _LEAST[first]) | (values < 0))
        is_padded = (sizes > 1) & (words >> 56 == 0xFF)
        wrong |= is_negative & ((values >= -64) | is_padded)
        if wrong.any():
            raise NeedsRows

    def take_extents(self, size_bytes_max: int = VALUE_SIZE_BYTES_MAX) -> Extents:
        """Bytes behind their length."""
        sizes = self.take_varints()
        if len(sizes) and (sizes.min() < 0 or sizes.max() > size_bytes_max):
            raise NeedsRows
        starts = self.at
        self.at = starts + sizes
        return Extents(starts, sizes)

    def take_escaped(self, size_bytes_max: int) -> Extents:
        """Bytes up to their end mark; raises `NeedsRows` if one holds an escaped byte."""
        zeros = self.source.zeros
        ends = zeros[numpy.searchsorted(zeros, self.at)]
        if (self.source.data[ends + 1] != ESCAPED_END[1]).any():
            raise NeedsRows
        starts = self.at
        self.at = ends + len(ESCAPED_END)
        if (self.at - starts > size_bytes_max).any():
            raise NeedsRows
        return Extents(starts, ends - starts)

    def take_presence(self, count: int) -> Any:
        """Whether each of `count` optional values is there: a row of booleans for each position."""
        size = (count + 7) // 8
        if not size:
            return numpy.empty((len(self), 0), "?")
        raw = self.source.data[self.at[:, None] + numpy.arange(size)]
        self.at = self.at + size
        bits = numpy.unpackbits(raw, axis=1, bitorder="little").view("?")
        if bits[:, count:].any():
            raise NeedsRows
        return bits[:, :count]

    def only(self, rows: Any) -> Positions:
        """The positions at some rows; they move apart from these."""
        return Positions(self.source, self.at[rows])

    def require_ends(self, ends: Any) -> None:
        """Raise `NeedsRows` unless every position is at its end."""
        if (self.at != ends).any():
            raise NeedsRows
