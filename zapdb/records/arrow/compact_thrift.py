"""Thrift's compact protocol, in which Parquet describes itself: structs by the numbers of their
fields. Nothing is known of what they mean here."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import pyarrow

DEPTH_MAX: Final = 16
"""Structs and lists in each other; Parquet has a few."""
VARINT_BITS_MAX: Final = 70


T = TypeVar("T")


class ThriftStruct(dict[int, Any]):
    """Values by the numbers of their fields. Raises `pyarrow.ArrowInvalid` for one that is wanted
    and is not there, or of another type."""

    def number(self, field: int) -> int:
        return self._find(field, int)

    def of_struct(self, field: int) -> ThriftStruct:
        return self._find(field, ThriftStruct)

    def of_structs(self, field: int) -> list[ThriftStruct]:
        found: list[Any] = self._find(field, list)
        if any(type(one) is not ThriftStruct for one in found):
            raise pyarrow.ArrowInvalid("its description is damaged")
        return found

    def _find(self, field: int, kind: type[T]) -> T:
        found = self.get(field)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise pyarrow.ArrowInvalid("its description is damaged")
        return found


def parse_struct(raw: bytes) -> tuple[ThriftStruct, int]:
    """Return the struct that bytes begin with, and how many bytes it has.

    Raises `IndexError` if they end within it, and `pyarrow.ArrowInvalid`.
    """
    reader = _Reader(raw)
    return reader.read_struct(0), reader.at


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self._raw, self.at = raw, 0

    def read_struct(self, depth: int) -> ThriftStruct:
        if depth > DEPTH_MAX:
            raise pyarrow.ArrowInvalid("its description is nested too deeply")
        found, number = ThriftStruct(), 0
        while head := self._read_byte():
            number = number + (head >> 4) if head >> 4 else self._read_number()
            found[number] = self._read(head & 15, depth, is_field=True)
        return found

    def _read(self, kind: int, depth: int, *, is_field: bool = False) -> Any:
        if kind in (1, 2):
            return kind == 1 if is_field else self._read_byte() == 1
        if kind == 3:
            return self._read_byte()
        if kind in (4, 5, 6):
            return self._read_number()
        if kind in (7, 8):
            return self._read_bytes(8 if kind == 7 else self._read_varint())
        if kind in (9, 10):
            return self._read_list(depth)
        if kind == 12:
            return self.read_struct(depth + 1)
        raise pyarrow.ArrowInvalid("its description is damaged")

    def _read_list(self, depth: int) -> list[Any]:
        head = self._read_byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._read_varint()
        if count > len(self._raw) - self.at:  # each element has a byte at least
            raise IndexError
        if depth > DEPTH_MAX:
            raise pyarrow.ArrowInvalid("its description is nested too deeply")
        return [self._read(kind, depth + 1) for _ in range(count)]

    def _read_byte(self) -> int:
        self.at += 1
        return self._raw[self.at - 1]

    def _read_bytes(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self._raw):
            raise IndexError
        self.at = end
        return self._raw[end - size : end]

    def _read_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > VARINT_BITS_MAX:
                raise pyarrow.ArrowInvalid("its description is damaged")

    def _read_number(self) -> int:
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)
