"""Instants: microseconds since 1970-01-01 UTC plus 2⁶³ in 8 big-endian bytes, also as key."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from zapdb.errors import CorruptRecord
from zapdb.values.base import ValueType

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
BIAS = 1 << 63


@dataclass(frozen=True)
class Timestamp(ValueType):
    name = "timestamp"
    expected = "a datetime with a time zone"
    fixed_size_bytes = 8

    def check(self, value: Any, path: str) -> datetime.datetime:
        if not isinstance(value, datetime.datetime) or value.utcoffset() is None:
            raise self.refuse(value, path)
        try:
            return value.astimezone(datetime.UTC).replace(fold=0)
        except OverflowError:
            raise self.refuse(value, path) from None

    def encode(self, value: datetime.datetime) -> bytes:
        return ((value - EPOCH) // MICROSECOND + BIAS).to_bytes(8, "big")

    def decode(self, data: bytes, position: int) -> tuple[datetime.datetime, int]:
        after = position + 8
        if after > len(data):
            raise CorruptRecord.at("timestamp", data, position)
        microseconds = int.from_bytes(data[position:after], "big") - BIAS
        try:
            return EPOCH + datetime.timedelta(microseconds=microseconds), after
        except OverflowError:
            raise CorruptRecord.at("timestamp", data, position) from None

    def skip(self, data: bytes, position: int) -> int:
        return position + 8

    def from_document(self, plain: Any, path: str) -> datetime.datetime:
        if isinstance(plain, str):
            try:
                plain = datetime.datetime.fromisoformat(plain)
            except ValueError:
                raise self.refuse(plain, path) from None
        return self.check(plain, path)

    def to_document(self, value: datetime.datetime) -> str:
        return value.isoformat()
