"""The base class of columns, those with a single list, and those whose values have eight bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import numpy
import pyarrow
from pyarrow import types

from zapdb.errors import InvalidValue
from zapdb.records.arrow.positions import Bytes, NeedsRows, Positions
from zapdb.values import ValueType
from zapdb.values.generated_source import Namespace, indent

ColumnPlace = Literal["field", "inside", "key"]
"""Where a value stands: strings and binaries are encoded differently in each."""

Lists = Sequence[list[Any]]

IsType = Callable[[Any], bool]
"""Whether an Arrow type is of a kind."""

STRINGS: tuple[IsType, ...] = (types.is_string, types.is_large_string, types.is_string_view)
BINARIES: tuple[IsType, ...] = (
    types.is_binary,
    types.is_large_binary,
    types.is_binary_view,
    types.is_fixed_size_binary,
)


class NumberTooLarge(Exception):
    """A number that the column at `path` has no room for."""

    def __init__(self, path: str, expected: str) -> None:
        super().__init__(path)
        self.path = path
        self.expected = expected


class Column(ABC):
    """How values of one type become an Arrow array, and back; `path` names it in errors."""

    arrow: Any
    """The Arrow type."""

    def __init__(self, path: str, at: int) -> None:
        self.path = path
        self.at = at
        """The number of its list, which has one item per value. In generated source the list is
        `l<at>`, and `a<at>` appends to it."""

    def decode_source(self, names: Namespace, present: str | None = None) -> list[str]:
        """Statements that append the value of `b` at `p` and advance `p`.

        Or a null, if there is a condition for the value to be `present` and it does not hold.
        """
        if present is None:
            return self.append_source(names)
        value = [*self.append_source(names), *self.null_check_source()]
        return [f"if {present}:", *indent(value), "else:", *indent(self.null_source())]

    @abstractmethod
    def append_source(self, names: Namespace) -> list[str]:
        """Statements that append the value of `b` at `p` and advance `p`."""

    @abstractmethod
    def null_source(self) -> list[str]:
        """Statements that append a null."""

    def null_check_source(self) -> list[str]:
        """Statements that refuse what was just appended if it is a value that means null."""
        return []

    @abstractmethod
    def to_array(self, lists: Lists) -> Any:
        """The array of what was appended; raises `NumberTooLarge`, `ValueError` for bad bytes."""

    def step(self, positions: Positions) -> Any:
        """Step over the values at many positions; returns what `fill` makes an array of.

        Raises `NeedsRows` for values that have no such way, and for bytes that are not right.
        """
        raise NeedsRows

    def fill(self, source: Bytes, taken: Any) -> Any:
        """The array of values that a step took; raises `NeedsRows`, `ValueError` for bad bytes."""
        raise NeedsRows

    def step_present(self, positions: Positions, is_there: Any) -> tuple[Any, Any]:
        """The same for optional values: a step at the positions where there is one."""
        if is_there.all():
            return self.step_not_null(positions), None
        rows = numpy.flatnonzero(is_there)
        some = positions.only(rows)
        taken = self.step_not_null(some)
        at = positions.at.copy()
        at[rows] = some.at
        positions.at = at
        return taken, is_there

    def step_not_null(self, positions: Positions) -> Any:
        """A step over values that may not mean null."""
        return self.step(positions)

    def fill_present(self, source: Bytes, taken: Any, is_there: Any) -> Any:
        """The array of what `step_present` returned: null where there is no value."""
        if is_there is None:
            return self.fill(source, taken)
        if not is_there.any():
            return pyarrow.nulls(len(is_there), self.arrow)
        places = pyarrow.array(numpy.cumsum(is_there) - 1, mask=~is_there)
        return self.fill(source, taken).take(places)

    def to_values(self, array: Any) -> list[Any]:
        """What an array holds, as the type's `check` takes it; raises `InvalidValue`."""
        if isinstance(array, pyarrow.ExtensionArray):
            array = array.storage
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if types.is_null(array.type):
            return [None] * len(array)
        if not self.accepts(array.type):
            raise self.refuse(str(array.type))
        try:
            return self.convert(array)
        except InvalidValue:
            raise
        except (ValueError, OverflowError, RecursionError) as error:
            raise self.refuse(f"a {array.type} that can't be converted") from error

    def to_pieces(self, array: Any) -> list[Any] | None:
        """The encodings of an array's values at the column's place, as pieces for `join`; None if
        each value has to be looked at, because they may not fit or have no vector form."""
        if isinstance(array, pyarrow.ExtensionArray):
            array = array.storage
        if types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if not self.accepts(array.type):
            return None
        try:
            return self.pack(array)
        except (ValueError, OverflowError, pyarrow.ArrowException):
            return None

    def pack(self, array: Any) -> list[Any] | None:
        """The same for an array of an accepted type; raises `ValueError` for None, too."""
        return None

    @abstractmethod
    def accepts(self, kind: Any) -> bool:
        """Whether arrays of this Arrow type can be converted without guessing."""

    @abstractmethod
    def convert(self, array: Any) -> list[Any]:
        """The values of an array of an accepted type; `ValueError` for one that does not fit."""

    def refuse(self, got: str) -> InvalidValue:
        return InvalidValue(
            "a value does not fit its field", field=self.path, expected=str(self.arrow), got=got
        )


class Leaf(Column):
    """A column with one list, of raw values."""

    raw: ValueType
    """The type whose own source reads a raw value; or there is another `take_source`."""
    accepted: tuple[IsType, ...] = ()

    def take_source(self, target: str, names: Namespace) -> list[str]:
        """Statements that set `target` to the raw value of `b` at `p` and advance `p`."""
        return self.raw.decode_source(target, names)

    def append_source(self, names: Namespace) -> list[str]:
        return [*self.take_source(f"v{self.at}", names), f"a{self.at}(v{self.at})"]

    def null_source(self) -> list[str]:
        return [f"a{self.at}(None)"]

    def to_array(self, lists: Lists) -> Any:
        return self.make(lists[self.at])

    def make(self, raw: list[Any]) -> Any:
        return pyarrow.array(raw, self.arrow)

    def accepts(self, kind: Any) -> bool:
        return is_any_of(self.accepted, kind)

    def convert(self, array: Any) -> list[Any]:
        values: list[Any] = array.to_pylist()
        return values


def is_any_of(kinds: tuple[IsType, ...], kind: Any) -> bool:
    return any(is_kind(kind) for is_kind in kinds)


def each(values: list[Any], change: Callable[[Any], Any]) -> list[Any]:
    """The values with the change made to all but nulls."""
    return [None if value is None else change(value) for value in values]


def take_fixed_source(target: str, size_bytes: int) -> list[str]:
    """Return statements that set `target` to `size_bytes` bytes of `b` at `p` and advance `p`."""
    # Missing bytes are detected at the end of the record: `p` is beyond it then.
    return [f"{target} = b[p:p + {size_bytes}]", f"p += {size_bytes}"]


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
