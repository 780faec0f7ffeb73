"""Columns over other columns: what is stored in one piece is shredded into lists of its parts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import compute, types

from zapdb.limits import RECORD_KEY_SIZE_BYTES_MAX
from zapdb.records.arrow.columns.column import Column, Lists, each
from zapdb.records.arrow.positions import Bytes, NeedsRows, Positions
from zapdb.values.generated_source import Namespace, indent
from zapdb.values.length_prefixed import read_length_prefixed_source

TURNS_MAX: Final = 64
"""Lists are taken together item by item, if none of them has more."""


@dataclass(frozen=True, slots=True)
class Part:
    """A member of a struct, or a field of a composite key."""

    name: str
    column: Column
    optional: bool = False


class ProductColumn(Column):
    """A column of columns; its own list says of each value whether it is null."""

    def __init__(self, path: str, at: int, parts: Sequence[Part]) -> None:
        super().__init__(path, at)
        self.parts = parts
        # All parts are nullable, since they are null where the whole is: Spark refuses to convert
        # a null struct whose parts are not.
        self.arrow = pyarrow.struct([(part.name, part.column.arrow) for part in parts])

    def null_source(self) -> list[str]:
        nulls = [line for part in self.parts for line in part.column.null_source()]
        return [f"a{self.at}(True)", *nulls]

    def to_array(self, lists: Lists) -> Any:
        arrays = [part.column.to_array(lists) for part in self.parts]
        nulls = pyarrow.array(lists[self.at], pyarrow.bool_())
        return pyarrow.StructArray.from_arrays(arrays, fields=list(self.arrow), mask=nulls)

    def fill(self, source: Bytes, taken: Any) -> Any:
        filled = {name: column.fill_present(source, *values) for name, column, values in taken}
        arrays = [filled[part.name] for part in self.parts]
        return pyarrow.StructArray.from_arrays(arrays, fields=list(self.arrow))

    def accepts(self, kind: Any) -> bool:
        if not types.is_struct(kind):
            return False
        names = [field.name for field in kind]
        return len(names) == len(set(names)) and {part.name for part in self.parts} >= set(names)

    def convert(self, array: Any) -> list[Any]:
        given = {field.name for field in array.type}
        parts = [part for part in self.parts if part.name in given]
        columns = []
        for part in parts:
            values = array.field(part.name)
            if not part.optional and self._has_null(array, values):
                raise part.column.refuse("null")
            columns.append(part.column.to_values(values))
        names = tuple(part.name for part in parts)
        rows = zip(*columns, strict=True) if columns else [()] * len(array)
        is_there = array.is_valid().to_pylist()
        return [
            self.make_value(names, row) if there else None
            for there, row in zip(is_there, rows, strict=True)
        ]

    @staticmethod
    def _has_null(array: Any, values: Any) -> bool:
        """Whether a part is null where the whole is not."""
        nulls = compute.and_(values.is_null(), array.is_valid())
        return bool(values.null_count) and compute.any(nulls).as_py() is True

    @abstractmethod
    def make_value(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        """A value of its parts; one that is not given is missing."""


class StructColumn(ProductColumn):
    def __init__(self, path: str, at: int, parts: Sequence[Part], encoded: Sequence[Part]) -> None:
        """`parts` in the order of the Arrow type, and in that of the encoding."""
        super().__init__(path, at, parts)
        self.encoded = encoded

    def append_source(self, names: Namespace) -> list[str]:
        end, present = f"e{self.at}", f"m{self.at}"
        lines = [*read_length_prefixed_source(names), f"{end} = p", "p = q", f"a{self.at}(False)"]
        optional = [part for part in self.encoded if part.optional]
        if optional:
            size = (len(optional) + 7) // 8
            lines += [
                f"{present} = int.from_bytes(b[p:p + {size}], 'little')",
                f"if {present} >> {len(optional)}: raise IndexError",
                f"p += {size}",
            ]
        for part in self.encoded:
            is_present = f"{present} & {1 << optional.index(part)}" if part.optional else None
            lines += part.column.decode_source(names, is_present)
        return [*lines, f"if p != {end}: raise IndexError"]

    def step(self, positions: Positions) -> Any:
        inside = Positions(positions.source, positions.take_extents().starts)
        taken = step_parts(self.encoded, inside)
        inside.require_ends(positions.at)
        return taken

    def make_value(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        return dict(zip(names, values, strict=True))


class CompositeKeyColumn(ProductColumn):
    """References to a table whose key has several fields: `key_0`, `key_1`, …"""

    def append_source(self, names: Namespace) -> list[str]:
        start = f"k{self.at}"
        reads = [line for part in self.parts for line in part.column.append_source(names)]
        too_long = f"if p - {start} > {RECORD_KEY_SIZE_BYTES_MAX}: raise IndexError"
        return [f"a{self.at}(False)", f"{start} = p", *reads, too_long]

    def step(self, positions: Positions) -> Any:
        starts = positions.at
        taken = step_parts(self.parts, positions)
        if (positions.at - starts > RECORD_KEY_SIZE_BYTES_MAX).any():
            raise NeedsRows
        return taken

    def make_value(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        return values


def step_parts(parts: Sequence[Part], positions: Positions) -> list[Any]:
    """Step over the values of parts, behind the presence bits of optional ones; returns what
    `fill_present` of each part's column takes, with its name and column."""
    optional = [part for part in parts if part.optional]
    taken = list[Any]()
    present = positions.take_presence(len(optional))
    for part in parts:
        if part.optional:
            values = part.column.step_present(positions, present[:, optional.index(part)])
        else:
            values = part.column.step(positions), None
        taken.append((part.name, part.column, values))
    return taken


class ListColumn(Column):
    """A column over another; its own list says where the items of each value begin."""

    def __init__(self, path: str, at: int, items: Column) -> None:
        super().__init__(path, at)
        self.items = items
        self.arrow = pyarrow.list_(pyarrow.field("item", items.arrow, nullable=False))

    def append_source(self, names: Namespace) -> list[str]:
        end = f"e{self.at}"
        return [
            *read_length_prefixed_source(names),
            f"{end} = p",
            "p = q",
            f"a{self.at}(len(l{self.items.at}))",
            f"while p < {end}:",
            *indent(self.items.append_source(names)),
            f"if p != {end}: raise IndexError",
        ]

    def null_source(self) -> list[str]:
        return [f"a{self.at}(None)"]

    def step(self, positions: Positions) -> Any:
        """The first items of all lists, then the second ones, and so on; and whose they are."""
        inside = Positions(positions.source, positions.take_extents().starts)
        turns, rows = list[Any](), numpy.flatnonzero(inside.at < positions.at)
        while len(rows):
            if len(turns) == TURNS_MAX:
                raise NeedsRows
            some = inside.only(rows)
            turns.append((rows, self.items.step(some)))
            inside.at[rows] = some.at
            rows = rows[some.at < positions.at[rows]]
        inside.require_ends(positions.at)
        return len(positions), turns

    def fill(self, source: Bytes, taken: Any) -> Any:
        count, turns = taken
        whose = numpy.concatenate([rows for rows, _ in turns] or [numpy.empty(0, "i8")])
        items = pyarrow.concat_arrays(
            [self.items.fill(source, values) for _, values in turns]
            or [pyarrow.array([], self.items.arrow)]
        )
        offsets = numpy.zeros(count + 1, "i4")
        numpy.cumsum(numpy.bincount(whose, minlength=count), out=offsets[1:])
        ordered = items.take(pyarrow.array(numpy.argsort(whose, kind="stable")))
        return pyarrow.ListArray.from_arrays(pyarrow.array(offsets), ordered, type=self.arrow)

    def to_array(self, lists: Lists) -> Any:
        items = self.items.to_array(lists)
        starts = pyarrow.array([*lists[self.at], len(items)], pyarrow.int32())
        return pyarrow.ListArray.from_arrays(starts, items, type=self.arrow)

    def accepts(self, kind: Any) -> bool:
        return bool(
            types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        )

    def convert(self, array: Any) -> list[Any]:
        items = array.flatten()
        if items.null_count:
            raise self.items.refuse("null")
        rest = iter(self.items.to_values(items))
        sizes = compute.list_value_length(array).to_pylist()
        return each(sizes, lambda size: list(islice(rest, size)))
