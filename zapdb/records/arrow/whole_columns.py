"""Whole columns of stored records: all records of a page are read together, field by field.

What can't be read so raises `NeedsRows` (see `positions`), and `decoder` reads row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from zapdb.limits import RECORD_KEY_SIZE_BYTES_MAX
from zapdb.records.arrow.columns import Column, ColumnPlace, make_column
from zapdb.records.arrow.positions import Bytes, NeedsRows, Positions
from zapdb.records.layout import Layout
from zapdb.schema import Field, TableSchema

StoredRow = tuple[bytes, bytes]
"""A record key and a record, as they are stored."""

Begin = Callable[[bytes, bytes], tuple[bytes, int, Any]]
"""(key, record) → the record in the current layout, the position after its prefix, and more."""


class PackedRows:
    """The keys and records of a page."""

    def __init__(
        self, keys: Bytes, values: Bytes, given: Sequence[StoredRow] | None = None
    ) -> None:
        self.keys = keys
        self.values = values
        self._given = given
        """The rows that it was made of, which may hold more than bytes."""

    @classmethod
    def of(cls, rows: Sequence[StoredRow]) -> PackedRows:
        """Raises `TypeError` for what is not bytes."""
        return cls(Bytes.of([key for key, _ in rows]), Bytes.of([value for _, value in rows]), rows)

    @classmethod
    def of_columns(cls, keys: Sequence[bytes], values: Sequence[bytes]) -> PackedRows:
        """Raises `TypeError` for what is not bytes."""
        return cls(Bytes.of(keys), Bytes.of(values))

    @classmethod
    def joined(cls, keys: bytes, key_sizes: bytes, values: bytes, value_sizes: bytes) -> PackedRows:
        """Of keys and records that are joined already; each size is four bytes, big-endian."""
        return cls(
            Bytes.sized(keys, numpy.frombuffer(key_sizes, ">i4")),
            Bytes.sized(values, numpy.frombuffer(value_sizes, ">i4")),
        )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def last_key(self) -> bytes:
        start, end = self.keys.bounds[-2:].tolist()
        return self.keys.joined[start:end]

    @property
    def first_value(self) -> bytes:
        start, end = self.values.bounds[:2].tolist()
        return self.values.joined[start:end]

    def rows(self) -> Iterator[StoredRow]:
        if self._given is not None:
            return iter(self._given)
        return zip(self.keys.pieces(), self.values.pieces(), strict=True)


@dataclass(frozen=True, slots=True)
class _Step:
    """A field that is read, or stepped over on the way to another one."""

    number: int
    column: Column
    is_read: bool
    """Whether its values are looked at: those of a key are, since a key is read whole."""
    bit: int | None


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Which fields are read of each record, and which are stepped over."""

    key: tuple[_Step, ...]
    stored: tuple[_Step, ...]
    optional: int
    """How many presence bits a record has."""
    reaches_end: bool

    @classmethod
    def of(cls, table: TableSchema, columns: Mapping[int, Column]) -> ColumnPlan:
        """For the fields with these columns, by their numbers; types know their zones."""
        layout = Layout.of(table)

        def step(f: Field) -> _Step:
            place: ColumnPlace = "key" if f.number in table.key else "field"
            column = columns.get(f.number) or make_column(f.type, f.name, int, place=place)
            bit = layout.bit(f.number) if f.optional and place == "field" else None
            is_read = f.number in columns or place == "key"
            return _Step(f.number, column, is_read, bit)

        stored = list(table.value_fields)
        while stored and stored[-1].number not in columns:
            stored.pop()
        is_key_read = any(number in columns for number in table.key)
        return cls(
            tuple(map(step, table.key_fields)) if is_key_read else (),
            tuple(map(step, stored)),
            len(layout.optional),
            len(stored) == len(table.value_fields),
        )

    def read(self, page: PackedRows, prefix: bytes, begin: Begin) -> dict[int, Any]:
        """The arrays of all fields that are read, by number; raises `NeedsRows`, and `IndexError`,
        `KeyError` or `ValueError` for bytes that are not right."""
        arrays = dict[int, Any]()
        if self.key:
            if (page.keys.ends - page.keys.starts > RECORD_KEY_SIZE_BYTES_MAX).any():
                raise NeedsRows
            positions = Positions(page.keys, page.keys.starts)
            _take(self.key, None, positions, arrays)
            positions.require_ends(page.keys.ends)
        if not len(page):
            return arrays
        values, starts = _begin(page, prefix, begin)
        positions = Positions(values, starts)
        present = positions.take_presence(self.optional)
        _take(self.stored, present, positions, arrays)
        if self.reaches_end:
            positions.require_ends(values.ends)
        elif (positions.at > values.ends).any():
            raise NeedsRows
        return arrays


def _take(
    steps: Sequence[_Step], present: Any, positions: Positions, arrays: dict[int, Any]
) -> None:
    for step in steps:
        column = step.column
        if step.bit is None:
            taken = column.step(positions), None
        else:
            taken = column.step_present(positions, present[:, step.bit])
        if step.is_read:
            arrays[step.number] = column.fill_present(positions.source, *taken)


def _begin(page: PackedRows, prefix: bytes, begin: Begin) -> tuple[Bytes, Any]:
    """The records in the current layout, and where their fields begin. With an empty prefix, none
    of them is in it before it is converted."""
    values = page.values
    starts, size = values.starts, len(prefix)
    is_current = values.begin_with(prefix) if prefix else numpy.zeros(len(page), bool)
    if is_current.all():
        return values, starts + size
    rows = list(page.rows())
    pieces = [value for _, value in rows]
    sizes = numpy.full(len(rows), size, "i8")
    for row in numpy.flatnonzero(~is_current).tolist():
        pieces[row], sizes[row], _ = begin(*rows[row])
    converted = Bytes.of(pieces)
    return converted, converted.starts + sizes
