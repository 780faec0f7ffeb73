"""Formats of a release that comes after this one: each stored format has a number more.

Keys of format 2 have another byte before each component. Records of format 2 and documents of
version 2 are those of before, under another number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zapdb import formats
from zapdb.records import Record
from zapdb.schema import Index, TableSchema
from zapdb.tables.indexes import keys

NEXT = 2


class NextKeys(keys.KeyBuilder):
    MARK = b"\x07"

    def encoder(self, at: int) -> Callable[[Any], bytes]:
        encode = super().encoder(at)
        return lambda value: self.MARK + encode(value)

    def encode_component_prefix(self, at: int, prefix: str) -> bytes:
        return self.MARK + super().encode_component_prefix(at, prefix)

    def present(self, at: int) -> keys.Interval:
        lower, upper = super().present(at)
        return self.MARK + lower, self.MARK + (upper or b"\xff")


def build_keys(table: TableSchema, index: Index) -> NextKeys:
    now = keys.build_keys(table, index)

    def build(record: Record) -> bytes:
        return made.encode(_values(record, now.fields))

    made = NextKeys(index, now.fields, build, now.source)
    return made


def _values(record: Record, fields: Sequence[Any]) -> list[Any]:
    return [getattr(record, field.name) for field in fields]


def install(level: int) -> None:
    """Make this process one of that release, which writes them from a level on."""
    for numbers in formats.LEVELS.values():
        numbers[NEXT] = level
    keys.FORMATS[NEXT] = build_keys
