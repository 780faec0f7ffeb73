"""Local times in a time zone: the local time is stored, not the instant.

    value = local time | fold | zone number
    local time     microseconds since 1970-01-01 of the wall clock plus 2⁶³, 8 big-endian bytes
    fold           one byte, 00 or 01 (PEP 495), kept even if it makes no difference now
    zone number    orderable varint ≥ 1, from the database's append-only table

The index key is the instant, encoded as a timestamp: the local time minus its offset from UTC in
the time zone data in use. So new data change the key, but not the value.
"""

from __future__ import annotations

import datetime
import re
import zoneinfo
from dataclasses import dataclass, field, replace
from typing import Any

from zapdb.datasets import Zone, zone, zone_version
from zapdb.errors import CorruptRecord, InvalidValue, UnknownZone
from zapdb.values.timestamp import BIAS, MICROSECOND, as_datetime
from zapdb.values.value_type import ValueType
from zapdb.values.varint import decode_varint, encode_varint, skip_varint
from zapdb.values.zones import Zones

FOLDS = (b"\x00", b"\x01")
_TEXT = re.compile(r"(\S+) (\S+)( fold=1)?", re.ASCII)


@dataclass(frozen=True)
class ZonedTimestamp(ValueType):
    name = "zoned_timestamp"
    expected = "a datetime in a named time zone (such as tzinfo=ZoneInfo('Europe/Paris'))"
    text_form = "a local time and its zone, such as 2024-05-31T12:00:00 Europe/Vienna"
    expected_text = "local time and zone (2023-03-26T12:00:00 Asia/Beirut), and fold=1 or nothing"
    held_as = "datetime.datetime"
    keyable = False
    index_key_is_exact = False  # two zones, or both sides of a fold, may mean one instant
    comparable = False  # Python's == of two zones depends on the time zone data
    ordered = False

    zones: Zones | None = field(default=None, compare=False, repr=False)
    """The zone numbers of the database; bound later, and not a parameter of the type."""

    @property
    def depends_on_zones(self) -> bool:
        return True

    def parameters(self) -> dict[str, Any]:
        return {}

    def bind(self, zones: Zones) -> ZonedTimestamp:
        return replace(self, zones=zones)

    def neutral(self) -> datetime.datetime:
        return datetime.datetime(1970, 1, 1, tzinfo=zone("UTC"))

    def check(self, value: Any, path: str) -> datetime.datetime:
        """Return the same local time with the zone of the data in use."""
        if not isinstance(value, datetime.datetime):
            raise self.refuse(value, path)
        local = as_datetime(value, self, path)
        given = local.tzinfo
        name = given.key if isinstance(given, zoneinfo.ZoneInfo) else None
        if given is datetime.UTC:
            name = "UTC"
        if name is None:
            what = "no time zone" if given is None else "a time zone that has no name"
            raise self._refused(path, f"datetime with {what}")
        try:
            pinned = zone(name)
        except UnknownZone:
            raise self._refused(
                path, f"datetime in the zone {name!r}, which {zone_version()} lacks"
            ) from None
        return local if given is pinned else local.replace(tzinfo=pinned)

    def _refused(self, path: str, got: str) -> InvalidValue:
        return InvalidValue(
            "a value does not fit its field", field=path, expected=self.expected, got=got
        )

    def encode(self, value: datetime.datetime) -> bytes:
        assert self.zones is not None, "the type is not bound to a database's zones"
        assert isinstance(value.tzinfo, Zone), "the value is not checked"
        number = self.zones.number_of(value.tzinfo.key)
        local = (value - value.tzinfo.epoch) // MICROSECOND
        return (local + BIAS).to_bytes(8, "big") + FOLDS[value.fold] + encode_varint(number)

    def decode(self, data: bytes, position: int) -> tuple[datetime.datetime, int]:
        """Also raises `UnknownZone`, for a zone that the time zone data in use lack."""
        assert self.zones is not None, "the type is not bound to a database's zones"
        if position + 9 >= len(data):
            raise CorruptRecord.at("local time", data, position)
        number, after = decode_varint(data, position + 9)
        fold = data[position + 8]
        if fold > 1:
            raise CorruptRecord.at("fold of a local time", data, position + 8)
        try:
            if number < 1:
                raise KeyError(number)
            name = self.zones.name_of(number)
        except KeyError:
            raise CorruptRecord.at("time zone number", data, position + 9) from None
        microseconds = int.from_bytes(data[position : position + 8], "big") - BIAS
        epoch = zone(name).epoch
        try:
            local = epoch + datetime.timedelta(0, 0, microseconds)
        except OverflowError:
            raise CorruptRecord.at("local time", data, position) from None
        return local.replace(fold=1) if fold else local, after

    def skip(self, data: bytes, position: int) -> int:
        return skip_varint(data, position + 9)

    def encode_index_key(self, value: datetime.datetime) -> bytes:
        offset = value.utcoffset()
        assert isinstance(value.tzinfo, Zone), "the value is not checked"
        assert offset is not None
        # By time deltas, because the instants of the first and last local times are not datetimes.
        instant = (value - value.tzinfo.epoch - offset) // MICROSECOND
        return (instant + BIAS).to_bytes(8, "big")

    def is_same(self, left: Any, right: Any) -> bool:
        """Compare local time, zone and fold; Python's == ignores the fold within one zone."""
        return _meaning(left) == _meaning(right)

    def from_document(self, plain: Any, path: str) -> datetime.datetime:
        """Also raises `UnknownZone`, if the time zone data in use lack the zone."""
        match = _TEXT.fullmatch(plain) if isinstance(plain, str) else None
        try:
            if match is None:
                raise ValueError
            local = datetime.datetime.fromisoformat(match[1])
            if local.isoformat() != match[1] or local.tzinfo is not None:
                raise ValueError
        except ValueError:
            raise InvalidValue.of(path, self.expected_text, plain) from None
        return local.replace(tzinfo=zone(match[2]), fold=0 if match[3] is None else 1)

    def to_document(self, value: datetime.datetime) -> str:
        local = value.replace(tzinfo=None).isoformat()
        return f"{local} {value.tzinfo}" + (" fold=1" if value.fold else "")


def _meaning(value: datetime.datetime) -> tuple[datetime.datetime, int, str]:
    return value.replace(tzinfo=None), value.fold, str(value.tzinfo)
