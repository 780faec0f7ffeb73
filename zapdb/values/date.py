"""Dates: days since 1970-01-01 as an orderable varint, as value and as key."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from zapdb.errors import CorruptRecord
from zapdb.values.generated_source import Namespace
from zapdb.values.value_type import ValueType
from zapdb.values.varint import (
    SIZES,
    decode_varint,
    decode_varint_source,
    encode_varint,
    encode_varint_source,
    skip_varint,
)

FROM_ORDINAL = datetime.date.fromordinal
EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Date(ValueType):
    name = "date"
    expected = "a date"
    text_form = "a date, such as 2024-05-31"
    held_as = "datetime.date"
    plain_kind = "date"
    has_python_order = True

    def neutral(self) -> datetime.date:
        return datetime.date(1970, 1, 1)

    def check(self, value: Any, path: str) -> datetime.date:
        # To Python a datetime is a date, but its time of day would be lost silently.
        if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
            raise self.refuse(value, path)
        return value

    def encode(self, value: datetime.date) -> bytes:
        return encode_varint(value.toordinal() - EPOCH_ORDINAL)

    def decode(self, data: bytes, position: int) -> tuple[datetime.date, int]:
        days, after = decode_varint(data, position)
        try:
            return datetime.date.fromordinal(days + EPOCH_ORDINAL), after
        except (ValueError, OverflowError):
            raise CorruptRecord.at("date", data, position) from None

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        check, kind = names.bind(self.check, "check_date"), names.bind(datetime.date, "date")
        return [
            f"if type({value}) is not {kind}:",
            f"    {value} = {check}({value}, {names.bind(path, 'path')})",
            f"{value} = {value}.toordinal() - {EPOCH_ORDINAL}",
            *encode_varint_source(value, f"{value}_b", names),
        ], f"{value}_b"

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        corrupt = names.bind(CorruptRecord.at, "corrupt")
        from_ordinal = names.bind(FROM_ORDINAL, "from_ordinal")
        return [
            *decode_varint_source(target, names),
            f"try: {target} = {from_ordinal}({target} + {EPOCH_ORDINAL})",
            "except (ValueError, OverflowError):",
            f"    raise {corrupt}('date', b, p) from None",
            "p = q",
        ]

    def skip(self, data: bytes, position: int) -> int:
        return skip_varint(data, position)

    def skip_source(self, names: Namespace) -> list[str]:
        return [f"p += {names.bind(SIZES, 'SIZES')}[b[p]]"]

    def from_document(self, plain: Any, path: str) -> datetime.date:
        if isinstance(plain, str):
            try:
                plain = datetime.date.fromisoformat(plain)
            except ValueError:
                raise self.refuse(plain, path) from None
        return self.check(plain, path)

    def to_document(self, value: datetime.date) -> str:
        return value.isoformat()
