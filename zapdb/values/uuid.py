"""UUIDs: their 16 bytes, as value and as key."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from zapdb.errors import CorruptRecord
from zapdb.values.generated_source import Namespace
from zapdb.values.immutable import open_class
from zapdb.values.value_type import ValueType
from zapdb.values.varint import FROM_BYTES

# A UUID's constructor parses five forms, and its `__setattr__` raises an error. So its two slots
# are set directly, as in Python's own `UUID._from_int` (3.14).
OPEN_UUID = open_class(uuid.UUID)
_UNKNOWN = uuid.SafeUUID.unknown


@dataclass(frozen=True)
class Uuid(ValueType):
    name = "uuid"
    expected = "a UUID"
    text_form = "a UUID, such as 0190163d-8694-739b-aea5-966c26f8ad90"
    held_as = "uuid.UUID"
    plain_kind = "uuid"
    has_python_order = True
    fixed_size_bytes = 16

    def neutral(self) -> uuid.UUID:
        return uuid.UUID(int=0)

    def check(self, value: Any, path: str) -> uuid.UUID:
        if not isinstance(value, uuid.UUID):
            raise self.refuse(value, path)
        return value

    def encode(self, value: uuid.UUID) -> bytes:
        return value.int.to_bytes(16, "big")

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        check, kind = names.bind(self.check, "check_uuid"), names.bind(uuid.UUID, "UUID")
        return [
            f"if type({value}) is not {kind}:",
            f"    {value} = {check}({value}, {names.bind(path, 'path')})",
        ], f"{value}.int.to_bytes(16, 'big')"

    def decode(self, data: bytes, position: int) -> tuple[uuid.UUID, int]:
        after = position + 16
        if after > len(data):
            raise CorruptRecord.at("uuid", data, position)
        return uuid.UUID(int=int.from_bytes(data[position:after], "big")), after

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        corrupt, kind = names.bind(CorruptRecord.at, "corrupt"), names.bind(uuid.UUID, "UUID")
        number = f"{names.bind(FROM_BYTES, 'from_bytes')}(b[p:q])"
        return [
            "q = p + 16",
            f"if q > n: raise {corrupt}('uuid', b, p)",
            f"{target} = {names.bind(OPEN_UUID, 'OpenUUID')}()",
            f"{target}.int = {number}",
            f"{target}.is_safe = {names.bind(_UNKNOWN, 'UNKNOWN')}",
            f"{target}.__class__ = {kind}",
            "p = q",
        ]

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
