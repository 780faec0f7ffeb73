"""Instants: microseconds since 1970-01-01 UTC plus 2⁶³ in 8 big-endian bytes, also as key."""

from __future__ import annotations

import datetime
import re
import struct
from dataclasses import dataclass
from typing import Any

from zapdb.errors import CorruptRecord
from zapdb.values.generated_source import Namespace
from zapdb.values.value_type import ValueType

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)
BIAS = 1 << 63
_BEYOND_MICROSECONDS = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]", re.ASCII)
PACK, UNPACK = struct.Struct(">Q").pack, struct.Struct(">Q").unpack_from


@dataclass(frozen=True)
class Timestamp(ValueType):
    name = "timestamp"
    expected = "a datetime with a time zone"
    text_form = "an instant with its offset, such as 2024-05-31T10:00:00+00:00"
    held_as = "datetime.datetime"
    plain_kind = "instant"
    has_python_order = True
    fixed_size_bytes = 8

    def neutral(self) -> datetime.datetime:
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)

    def check(self, value: Any, path: str) -> datetime.datetime:
        if not isinstance(value, datetime.datetime):
            raise self.refuse(value, path)
        moment = as_datetime(value, self, path)
        if moment.utcoffset() is None:
            raise self.refuse(value, path)
        try:
            return moment.astimezone(datetime.UTC).replace(fold=0)
        except OverflowError:
            raise self.refuse(value, path) from None

    def encode(self, value: datetime.datetime) -> bytes:
        return ((value - EPOCH) // MICROSECOND + BIAS).to_bytes(8, "big")

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        check, kind = names.bind(self.check, "check_timestamp"), names.bind(datetime.datetime, "dt")
        utc, epoch = names.bind(datetime.UTC, "UTC"), names.bind(EPOCH, "EPOCH")
        microseconds = f"({value} - {epoch}) // {names.bind(MICROSECOND, 'MICROSECOND')}"
        return [
            f"if type({value}) is not {kind} or {value}.tzinfo is not {utc}:",
            f"    {value} = {check}({value}, {names.bind(path, 'path')})",
        ], f"{names.bind(PACK, 'pack')}({microseconds} + {BIAS})"

    def decode(self, data: bytes, position: int) -> tuple[datetime.datetime, int]:
        after = position + 8
        if after > len(data):
            raise CorruptRecord.at("timestamp", data, position)
        microseconds = int.from_bytes(data[position:after], "big") - BIAS
        try:
            return EPOCH + datetime.timedelta(microseconds=microseconds), after
        except OverflowError:
            raise CorruptRecord.at("timestamp", data, position) from None

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        corrupt, epoch = names.bind(CorruptRecord.at, "corrupt"), names.bind(EPOCH, "EPOCH")
        microsecond = names.bind(MICROSECOND, "MICROSECOND")
        return [
            "q = p + 8",
            f"if q > n: raise {corrupt}('timestamp', b, p)",
            f"(c,) = {names.bind(UNPACK, 'unpack')}(b, p)",
            # A product, because `timedelta(microseconds=…)` takes longer.
            f"try: {target} = {epoch} + {microsecond} * (c - {BIAS})",
            f"except OverflowError: raise {corrupt}('timestamp', b, p) from None",
            "p = q",
        ]

    def skip(self, data: bytes, position: int) -> int:
        return position + 8

    def from_document(self, plain: Any, path: str) -> datetime.datetime:
        if isinstance(plain, str):
            try:
                plain = read_iso_time(plain)
            except ValueError:
                raise self.refuse(plain, path) from None
        return self.check(plain, path)

    def to_document(self, value: datetime.datetime) -> str:
        return value.isoformat()


def read_iso_time(text: str) -> datetime.datetime:
    """Return the time of an ISO 8601 text; raises `ValueError`, also for more digits than
    microseconds have, which Python leaves out."""
    if _BEYOND_MICROSECONDS.search(text):
        raise ValueError("a time with nanoseconds")
    return datetime.datetime.fromisoformat(text)


def as_datetime(value: datetime.datetime, kind: ValueType, path: str) -> datetime.datetime:
    """Return the time of a subclass of `datetime` as one of Python's own.

    Raises `InvalidValue` for pandas' NaT, which is one, and for nanoseconds.
    """
    if type(value) is datetime.datetime:
        return value
    if getattr(value, "nanosecond", 0):  # NaN for NaT
        raise kind.refuse(value, path)
    return datetime.datetime.combine(value.date(), value.timetz()).replace(fold=value.fold)
