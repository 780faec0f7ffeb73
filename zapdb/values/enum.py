"""Enums: one of the named members of a declared type. A record holds the member's id.

An id is given once, so a renamed member is the same member. Record keys hold the id, too; index
entries hold the member's place in the declared order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from zapdb.errors import CorruptRecord
from zapdb.values.value_type import ValueType
from zapdb.values.varint import decode_varint, encode_varint, skip_varint

_SHOWN_MAX = 8


@dataclass(frozen=True)
class Enum(ValueType):
    """`members` are (id, name) in declared order; `number` identifies the type and is never used
    again."""

    declared_name: str
    number: int
    members: tuple[tuple[int, str], ...]

    name = "enum"
    held_as = "str"
    plain_kind = "text"
    ordered = False

    def __str__(self) -> str:
        return self.declared_name

    @cached_property
    def expected(self) -> str:  # type: ignore[override]  # it depends on the members
        shown = [name for _, name in self.members[:_SHOWN_MAX]]
        more = len(self.members) - len(shown)
        return f"one of {', '.join(shown)}" + (f" and {more} more" if more else "")

    @property
    def encoding_id(self) -> Any:
        return (self.name, self.number)

    @property
    def index_encoding_id(self) -> Any:
        return (*self.encoding_id, tuple(number for number, _ in self.members))

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {name: number for number, name in self.members}

    @cached_property
    def _names(self) -> dict[int, str]:
        return dict(self.members)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, (_, name) in enumerate(self.members)}

    @property
    def text_form(self) -> str:  # type: ignore[override]  # it depends on the members
        return self.expected

    def neutral(self) -> str:
        return self.members[0][1]

    def check(self, value: Any, path: str) -> str:
        if not isinstance(value, str) or value not in self._ids:
            raise self.refuse(value, path)
        return str(value)

    def encode(self, value: str) -> bytes:
        return encode_varint(self._ids[value])

    def decode(self, data: bytes, position: int) -> tuple[str, int]:
        number, after = decode_varint(data, position)
        try:
            return self._names[number], after
        except KeyError:
            raise CorruptRecord.at(f"member of {self}", data, position) from None

    def skip(self, data: bytes, position: int) -> int:
        return skip_varint(data, position)

    def is_same_under(self, left: str, other: ValueType, right: str) -> bool:
        if not isinstance(other, Enum) or self.number != other.number:
            return False
        return self._ids[left] == other._ids[right]

    def encode_index_key(self, value: str) -> bytes:
        return encode_varint(self._places[value])
