"""Columns whose values have eight bytes; and arrays of data that are there in Arrow's form."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import numpy
import pyarrow

from zapdb.records.arrow.columns.column import Leaf, take_fixed_source
from zapdb.records.arrow.positions import Bytes, Positions
from zapdb.values.generated_source import Namespace

MIDDLE: Final = numpy.uint64(1 << 63)
"""The placeholder of a null: as eight bytes both 0.0 and the first instant of 1970."""


class FixedWidthColumn(Leaf):
    """Values of eight bytes, which are converted as a whole list of unsigned integers."""

    def take_source(self, target: str, names: Namespace) -> list[str]:
        return take_fixed_source(target, 8)

    def make(self, raw: list[Any]) -> Any:
        held = pyarrow.array(raw, pyarrow.binary(8))
        words = numpy.frombuffer(held.buffers()[1], ">u8").astype("u8")
        if held.null_count:
            words[held.is_null().to_numpy(zero_copy_only=False)] = MIDDLE
        return with_nulls_of(held, self.arrow, pyarrow.py_buffer(self.convert_words(words)))

    def step(self, positions: Positions) -> Any:
        return positions.take_words()

    def fill(self, source: Bytes, taken: Any) -> Any:
        return without_nulls(self.arrow, self.convert_words(taken))

    @abstractmethod
    def convert_words(self, words: Any) -> Any:
        """What Arrow holds; raises `ValueError` for what no encoder wrote."""


def without_nulls(kind: Any, items: Any) -> Any:
    """An array of what a numpy array holds, one row for each value."""
    data = pyarrow.py_buffer(numpy.ascontiguousarray(items))
    return pyarrow.Array.from_buffers(kind, len(items), [None, data], 0)


def with_nulls_of(held: Any, kind: Any, data: Any) -> Any:
    """An array of the data that a buffer holds, with nulls where `held` has them."""
    return pyarrow.Array.from_buffers(kind, len(held), [held.buffers()[0], data], held.null_count)
