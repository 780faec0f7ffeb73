"""Integers: the orderable varint, as value and as key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zapdb.values.generated_source import Namespace
from zapdb.values.value_type import ValueType
from zapdb.values.varint import (
    INTEGER_MAX,
    INTEGER_MIN,
    SIZES,
    decode_varint,
    decode_varint_source,
    encode_varint,
    encode_varint_source,
    skip_varint,
)


@dataclass(frozen=True)
class Integer(ValueType):
    name = "integer"
    expected = "an integer of at most 63 bytes"
    text_form = "digits, such as -12"
    held_as = "int"
    plain_kind = "integer"
    has_python_order = True

    def neutral(self) -> int:
        return 0

    def check(self, value: Any, path: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.refuse(value, path)
        number = value if type(value) is int else int(value)
        if not INTEGER_MIN <= number <= INTEGER_MAX:
            raise self.refuse(value, path)
        return number

    def encode(self, value: int) -> bytes:
        return encode_varint(value)

    def decode(self, data: bytes, position: int) -> tuple[int, int]:
        return decode_varint(data, position)

    def skip(self, data: bytes, position: int) -> int:
        return skip_varint(data, position)

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        checked = f"{names.bind(self.check, 'check_integer')}({value}, {names.bind(path, 'path')})"
        encode = names.bind(encode_varint, "encode_varint")
        return [
            f"if type({value}) is not int: {value} = {checked}",
            *encode_varint_source(value, f"{value}_b", names, f"{encode}({checked})"),
        ], f"{value}_b"

    def decode_source(self, target: str, names: Namespace) -> list[str]:
        return decode_varint_source(target, names, advance=True)

    def skip_source(self, names: Namespace) -> list[str]:
        # A reserved first byte has size 0: decoding the result raises an error, splicing copies it.
        return [f"p += {names.bind(SIZES, 'SIZES')}[b[p]]"]
