"""UUIDs: their 16 bytes, as value and as key."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from zapdb.errors import CorruptRecord
from zapdb.values.base import ValueType


@dataclass(frozen=True)
class Uuid(ValueType):
    name = "uuid"
    expected = "a UUID"
    fixed_size_bytes = 16

    def check(self, value: Any, path: str) -> uuid.UUID:
        if not isinstance(value, uuid.UUID):
            raise self.refuse(value, path)
        return value

    def encode(self, value: uuid.UUID) -> bytes:
        return value.bytes

    def decode(self, data: bytes, position: int) -> tuple[uuid.UUID, int]:
        after = position + 16
        if after > len(data):
            raise CorruptRecord.at("uuid", data, position)
        return uuid.UUID(int=int.from_bytes(data[position:after], "big")), after

    def skip(self, data: bytes, position: int) -> int:
        return position + 16

    def from_document(self, plain: Any, path: str) -> uuid.UUID:
        if isinstance(plain, str):
            try:
                plain = uuid.UUID(plain)
            except ValueError:
                raise self.refuse(plain, path) from None
        return self.check(plain, path)

    def to_document(self, value: uuid.UUID) -> str:
        return str(value)
