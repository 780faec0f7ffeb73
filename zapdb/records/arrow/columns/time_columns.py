"""Columns of dates and times."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Final, cast

import pyarrow
from pyarrow import compute, types

from zapdb.datasets import zone, zone_version
from zapdb.errors import UnknownZone
from zapdb.records.arrow.columns.column import MIDDLE, FixedWidthColumn, Leaf, each
from zapdb.records.arrow.columns.nested_columns import Part, ProductColumn
from zapdb.records.arrow.columns.number_columns import IntegerColumn
from zapdb.records.arrow.columns.string_columns import BytesColumn
from zapdb.records.arrow.packing import pack_varints, pack_words, words_of
from zapdb.records.arrow.positions import Bytes, Extents, Positions
from zapdb.values import Integer, String, ZonedTimestamp
from zapdb.values.date import EPOCH_ORDINAL
from zapdb.values.generated_source import Namespace
from zapdb.values.timestamp import EPOCH, MICROSECOND

DATE_RANGE: Final = (
    datetime.date.min.toordinal() - EPOCH_ORDINAL,
    datetime.date.max.toordinal() - EPOCH_ORDINAL,
)
TIMESTAMP_RANGE: Final = (
    (datetime.datetime.min.replace(tzinfo=datetime.UTC) - EPOCH) // MICROSECOND,
    (datetime.datetime.max.replace(tzinfo=datetime.UTC) - EPOCH) // MICROSECOND,
)


class DateColumn(Leaf):
    raw = Integer()
    arrow = pyarrow.date32()
    accepted = (types.is_date,)

    def make(self, raw: list[Any]) -> Any:
        days = pyarrow.array(raw, pyarrow.int32())
        _check_range(days, DATE_RANGE)
        return days.view(self.arrow)

    def step(self, positions: Positions) -> Any:
        return positions.take_varints()

    def fill(self, source: Bytes, taken: Any) -> Any:
        days = pyarrow.array(taken)
        _check_range(days, DATE_RANGE)
        return days.cast(pyarrow.int32()).view(self.arrow)

    def convert(self, array: Any) -> list[Any]:
        return super().convert(array.cast(self.arrow))

    def pack(self, array: Any) -> list[Any] | None:
        days = array.cast(self.arrow).view(pyarrow.int32())
        _check_range(days, DATE_RANGE)
        return [pack_varints(days.cast(pyarrow.int64()))]


class InstantColumn(FixedWidthColumn):
    """Instants, in microseconds since 1970; those of zoned timestamps may be no datetimes."""

    arrow = pyarrow.timestamp("us", "UTC")

    def convert_words(self, words: Any) -> Any:
        return words ^ MIDDLE

    def accepts(self, kind: Any) -> bool:
        return types.is_timestamp(kind) and kind.tz is not None

    def convert(self, array: Any) -> list[Any]:
        # What the clock showed is what was meant; the instant follows from it.
        return [None] * len(array)


class TimestampColumn(InstantColumn):
    def make(self, raw: list[Any]) -> Any:
        instants = super().make(raw)
        _check_range(instants.view(pyarrow.int64()), TIMESTAMP_RANGE)
        return instants

    def fill(self, source: Bytes, taken: Any) -> Any:
        instants = super().fill(source, taken)
        _check_range(instants.view(pyarrow.int64()), TIMESTAMP_RANGE)
        return instants

    def convert(self, array: Any) -> list[Any]:
        microseconds = array.cast(self.arrow).view(pyarrow.int64()).to_pylist()
        return each(microseconds, lambda count: EPOCH + datetime.timedelta(0, 0, count))

    def pack(self, array: Any) -> list[Any] | None:
        microseconds = array.cast(self.arrow).view(pyarrow.int64())
        _check_range(microseconds, TIMESTAMP_RANGE)
        return [pack_words(words_of(microseconds, "u8") ^ MIDDLE, microseconds)]


class LocalTimeColumn(TimestampColumn):
    arrow = pyarrow.timestamp("us")

    def accepts(self, kind: Any) -> bool:
        return types.is_timestamp(kind) and kind.tz is None

    def convert(self, array: Any) -> list[Any]:
        return [value and value.replace(tzinfo=None) for value in super().convert(array)]


def _check_range(array: Any, within: tuple[int, int]) -> None:
    found = compute.min_max(array).as_py()
    if found["min"] is not None and not within[0] <= found["min"] <= found["max"] <= within[1]:
        raise ValueError("outside of the years 1 to 9999")


class FoldColumn(IntegerColumn):
    arrow = pyarrow.int8()


class ZonedColumn(ProductColumn):
    """Local time, fold and zone, which are the value, and the instant that they are now."""

    def __init__(
        self, kind: ZonedTimestamp, path: str, at: int, allocate: Callable[[], int]
    ) -> None:
        parts = (
            Part("local", LocalTimeColumn(f"{path}.local", allocate())),
            Part("fold", FoldColumn(f"{path}.fold", allocate())),
            Part("zone", BytesColumn(String(), f"{path}.zone", allocate(), "inside")),
            Part("instant", InstantColumn(f"{path}.instant", allocate())),
        )
        super().__init__(path, at, parts)
        self.kind = kind

    def append_source(self, names: Namespace) -> list[str]:
        take = names.bind(self._take, "take_zoned")
        lists = [part.column.at for part in self.parts]
        targets = ", ".join(f"v{at}" for at in lists)
        appends = [f"a{at}(v{at})" for at in lists]
        return [f"{targets}, p = {take}(b, p)", f"a{self.at}(False)", *appends]

    def step(self, positions: Positions) -> Any:
        starts = positions.at
        positions.take_words()
        positions.take_bytes()
        positions.take_varints()
        return Extents(starts, positions.at - starts)

    def fill(self, source: Bytes, taken: Any) -> Any:
        """Value by value: the instant depends on the rules of the zone."""
        taken_apart = [self._take(raw, 0) for raw in source.cut(taken).to_pylist()]
        columns = list(zip(*taken_apart, strict=True))[:-1] or [()] * len(self.parts)
        arrays = [
            cast("Leaf", part.column).make(list(values))
            for part, values in zip(self.parts, columns, strict=True)
        ]
        return pyarrow.StructArray.from_arrays(arrays, fields=list(self.arrow))

    def _take(self, data: bytes, position: int) -> tuple[bytes, int, str, bytes, int]:
        value, after = self.kind.decode(data, position)
        at = position + 8
        instant = self.kind.encode_index_key(value)
        return data[position:at], data[at], str(value.tzinfo), instant, after

    def accepts(self, kind: Any) -> bool:
        return super().accepts(kind) and {"local", "zone"} <= {field.name for field in kind}

    def make_value(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Any:
        given = dict(zip(names, values, strict=True))
        try:
            tzinfo = zone(given["zone"])
        except UnknownZone:
            raise self.refuse(f"a zone that {zone_version()} lacks") from None
        return given["local"].replace(tzinfo=tzinfo, fold=given.get("fold", 0))
