"""Integers: the orderable varint, as value and as key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zapdb.values.base import ValueType
from zapdb.values.source import Namespace
from zapdb.values.varint import (
    INTEGER_MAX,
    INTEGER_MIN,
    SIZES,
    decode_varint,
    encode_varint,
    skip_varint,
)


@dataclass(frozen=True)
class Integer(ValueType):
    name = "integer"
    expected = "an integer of at most 63 bytes"

    def check(self, value: Any, path: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(value, path)
        if not INTEGER_MIN <= value <= INTEGER_MAX:
            raise self.refuse(value, path)
        return int(value)

    def encode(self, value: int) -> bytes:
        return encode_varint(value)

    def decode(self, data: bytes, position: int) -> tuple[int, int]:
        return decode_varint(data, position)

    def skip(self, data: bytes, position: int) -> int:
        return skip_varint(data, position)

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        check = names.bind(self.check, "check_integer")
        # A machine word needs no range check: only what is not exactly an int, or is longer, does.
        return [
            f"if type({value}) is not int or {value}.bit_length() > 63:",
            f"    {value} = {check}({value}, {names.bind(path, 'path')})",
        ], f"{names.bind(encode_varint, 'encode_varint')}({value})"

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        return [
            "c = b[p]",
            "if 0x40 <= c < 0xC0:",
            f"    {target} = c - 0x80",
            "    p += 1",
            "else:",
            f"    {target}, p = {names.bind(decode_varint, 'decode_varint')}(b, p)",
        ]

    def skip_source(self, names: Namespace) -> list[str]:
        # A reserved first byte has size 0; decoding the result finds it, splicing copies it.
        return [f"p += {names.bind(SIZES, 'SIZES')}[b[p]]"]
