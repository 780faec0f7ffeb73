"""Booleans: one byte, 00 or 01, as value and as key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zapdb.errors import CorruptRecord
from zapdb.values.generated_source import Namespace
from zapdb.values.value_type import ValueType


@dataclass(frozen=True)
class Boolean(ValueType):
    name = "boolean"
    expected = "True or False"
    text_form = "true or false"
    held_as = "bool"
    plain_kind = "boolean"
    has_python_order = True
    fixed_size_bytes = 1

    def neutral(self) -> bool:
        return False

    def check(self, value: Any, path: str) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(value, path)
        return value

    def encode(self, value: bool) -> bytes:
        return b"\x01" if value else b"\x00"

    def decode(self, data: bytes, position: int) -> tuple[bool, int]:
        if position >= len(data) or data[position] > 1:
            raise CorruptRecord.at("boolean", data, position)
        return data[position] == 1, position + 1

    def skip(self, data: bytes, position: int) -> int:
        return position + 1

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        check = names.bind(self.check, "check_boolean")
        return [
            f"if {value} is True: {value}_b = b'\\x01'",
            f"elif {value} is False: {value}_b = b'\\x00'",
            f"else: {check}({value}, {names.bind(path, 'path')})",
        ], f"{value}_b"

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        corrupt = names.bind(CorruptRecord.at, "corrupt")
        return [
            "c = b[p]",
            f"if c > 1: raise {corrupt}('boolean', b, p)",
            f"{target} = c == 1",
            "p += 1",
        ]
