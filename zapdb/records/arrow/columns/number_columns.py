"""Columns of numbers and booleans."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import types

from zapdb.records.arrow.columns.column import (
    MIDDLE,
    STRINGS,
    FixedWidthColumn,
    Leaf,
    NumberTooLarge,
    each,
    is_any_of,
    with_nulls_of,
    without_nulls,
)
from zapdb.records.arrow.packing import pack_booleans, pack_varints, pack_words, words_of
from zapdb.records.arrow.positions import Bytes, NeedsRows, Positions
from zapdb.values import Boolean, Decimal, Integer
from zapdb.values.decimal import with_scale
from zapdb.values.float import MINUS_ZERO, NAN
from zapdb.values.generated_source import Namespace
from zapdb.values.plain_kinds import DECIMAL_DIGITS_MAX

FLOAT_NAN: Final = numpy.uint64(int.from_bytes(NAN, "big"))
FLOAT_MINUS_ZERO: Final = numpy.uint64(int.from_bytes(MINUS_ZERO, "big"))


class NumberColumn(Leaf):
    """Numbers that are stored as integers of any length."""

    raw = Integer()

    def step(self, positions: Positions) -> Any:
        return positions.take_varints()

    @abstractmethod
    def to_text(self, raw: int) -> str:
        """The number as it is written in text."""

    @abstractmethod
    def from_text(self, text: str) -> Any:
        """The number that is written so; raises `ValueError`, `InvalidValue`."""

    def convert(self, array: Any) -> list[Any]:
        values = super().convert(array)
        return each(values, self.from_text) if is_any_of(STRINGS, array.type) else values


class IntegerColumn(NumberColumn):
    arrow = pyarrow.int64()
    accepted = (types.is_integer, *STRINGS)

    def make(self, raw: list[Any]) -> Any:
        try:
            return super().make(raw)
        except (OverflowError, pyarrow.ArrowInvalid):
            raise NumberTooLarge(self.path, "an integer of 64 bits") from None

    def fill(self, source: Bytes, taken: Any) -> Any:
        return pyarrow.array(taken, self.arrow)

    def pack(self, array: Any) -> list[Any] | None:
        if not types.is_integer(array.type):
            return None
        return [pack_varints(array.cast(self.arrow))]

    def to_text(self, raw: int) -> str:
        return str(raw)

    def from_text(self, text: str) -> int:
        number = int(text)
        if str(number) != text:
            raise ValueError("an integer in another form")
        return number


class DecimalColumn(NumberColumn):
    accepted = (types.is_decimal, types.is_integer, *STRINGS)

    def __init__(self, kind: Decimal, path: str, at: int) -> None:
        super().__init__(path, at)
        self.kind = kind
        self.arrow = pyarrow.decimal128(DECIMAL_DIGITS_MAX, kind.scale)

    def make(self, raw: list[Any]) -> Any:
        try:
            held = pyarrow.array(raw, pyarrow.int64())
        except (OverflowError, pyarrow.ArrowInvalid):
            held = pyarrow.array(each(raw, self._to_bytes), pyarrow.binary(16))
            return with_nulls_of(held, self.arrow, held.buffers()[1])
        # Nearly always all of them fit a machine word: the upper half is its sign.
        low = numpy.frombuffer(held.buffers()[1], "<i8")
        return with_nulls_of(held, self.arrow, pyarrow.py_buffer(_widen(low)))

    def fill(self, source: Bytes, taken: Any) -> Any:
        return without_nulls(self.arrow, _widen(taken))

    def _to_bytes(self, raw: int) -> bytes:
        if abs(raw) >= 10**DECIMAL_DIGITS_MAX:
            raise NumberTooLarge(self.path, f"a decimal of {DECIMAL_DIGITS_MAX} digits")
        return raw.to_bytes(16, "little", signed=True)

    def pack(self, array: Any) -> list[Any] | None:
        if not (types.is_decimal(array.type) or types.is_integer(array.type)):
            return None
        held = array.cast(self.arrow)
        pairs = words_of(held, "<i8").reshape(-1, 2)
        low = pairs[:, 0]
        if ((low >> 63 != pairs[:, 1]) & held.is_valid().to_numpy(zero_copy_only=False)).any():
            return None  # one has more than 64 bits
        is_null = held.is_null().to_numpy(zero_copy_only=False) if held.null_count else None
        return [pack_varints(pyarrow.array(numpy.ascontiguousarray(low), mask=is_null))]

    def to_text(self, raw: int) -> str:
        return self.kind.to_document(with_scale(raw, self.kind.scale))

    def from_text(self, text: str) -> Any:
        return self.kind.from_document(text, self.path)


def _widen(words: Any) -> Any:
    """Numbers of 64 bits as pairs of words, the lower one first."""
    return numpy.stack((words, words >> 63), axis=1)


class TextColumn(Leaf):
    """Numbers as strings, and so of any length."""

    arrow = pyarrow.string()

    def __init__(self, numbers: NumberColumn) -> None:
        super().__init__(numbers.path, numbers.at)
        self.numbers = numbers
        self.accepted = numbers.accepted

    def take_source(self, target: str, names: Namespace) -> list[str]:
        text = names.bind(self.numbers.to_text, "to_text")
        return [*self.numbers.take_source(target, names), f"{target} = {text}({target})"]

    def step(self, positions: Positions) -> Any:
        return self.numbers.step(positions)

    def fill(self, source: Bytes, taken: Any) -> Any:
        return pyarrow.array(map(self.numbers.to_text, taken.tolist()), self.arrow)

    def convert(self, array: Any) -> list[Any]:
        return self.numbers.convert(array)


class FloatColumn(FixedWidthColumn):
    arrow = pyarrow.float64()
    accepted = (types.is_floating, types.is_integer)

    def convert_words(self, words: Any) -> Any:
        floats = numpy.where(words >= MIDDLE, words ^ MIDDLE, ~words).view("f8")
        is_wrong = (numpy.isnan(floats) & (words != FLOAT_NAN)) | (words == FLOAT_MINUS_ZERO)
        if is_wrong.any():
            raise ValueError("floats that no encoder wrote")
        return floats

    def convert(self, array: Any) -> list[Any]:
        return super().convert(array.cast(self.arrow))

    def pack(self, array: Any) -> list[Any] | None:
        floats = array.cast(self.arrow)
        words = (words_of(floats, "f8") + 0.0).view("u8")  # −0.0 + 0.0 is 0.0
        packed = numpy.where(words >= MIDDLE, ~words, words | MIDDLE)
        packed[numpy.isnan(words.view("f8"))] = FLOAT_NAN
        return [pack_words(packed, floats)]


class BooleanColumn(Leaf):
    raw = Boolean()
    arrow = pyarrow.bool_()
    accepted = (types.is_boolean,)

    def step(self, positions: Positions) -> Any:
        taken = positions.take_bytes()
        if (taken > 1).any():
            raise NeedsRows
        return taken

    def fill(self, source: Bytes, taken: Any) -> Any:
        return pyarrow.array(taken.view("?"))

    def pack(self, array: Any) -> list[Any] | None:
        return [pack_booleans(array)]
