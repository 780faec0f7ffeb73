"""Lists of values of one type: their value encodings in order, behind a length prefix.

Every encoding has at least one byte and delimits itself, so no count is needed. Not indexable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zapdb.errors import CorruptRecord
from zapdb.values.generated_source import Namespace
from zapdb.values.length_prefixed import (
    encode_limited_length_prefixed,
    read_length_prefixed,
    skip_length_prefixed_source,
)
from zapdb.values.value_type import ValueType

if TYPE_CHECKING:
    from zapdb.values.zones import Zones


@dataclass(frozen=True)
class List(ValueType):
    items: ValueType

    name = "list"
    expected = "a list"
    text_form = "a JSON list"
    text_is_json = True
    keyable = False
    indexable = False
    ordered = False

    @property
    def comparable(self) -> bool:  # type: ignore[override]  # it depends on the items
        return self.items.comparable

    @property
    def depth(self) -> int:
        return 1 + self.items.depth

    @property
    def encoding_id(self) -> Any:
        return (self.name, self.items.encoding_id)

    def bind(self, zones: Zones) -> List:
        bound = self.items.bind(zones)
        return self if bound is self.items else List(bound)

    def neutral(self) -> list[Any]:
        return []

    def check(self, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise self.refuse(value, path)
        check = self.items.check
        return [check(item, f"{path}[{at}]") for at, item in enumerate(value)]

    def encode(self, value: list[Any], path: str = "list") -> bytes:
        return encode_limited_length_prefixed(b"".join(map(self.items.encode, value)), path)

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        statements, _ = super().encode_source(value, path, names)
        encode = names.bind(self.encode, "encode_list")
        return statements, f"{encode}({value}, {names.bind(path, 'path')})"

    def decode(self, data: bytes, position: int) -> tuple[list[Any], int]:
        at, end = read_length_prefixed(data, position)
        items, decode = [], self.items.decode
        while at < end:
            item, at = decode(data, at)
            items.append(item)
        if at != end:
            raise CorruptRecord.at("list", data, position)
        return items, end

    def skip(self, data: bytes, position: int) -> int:
        return read_length_prefixed(data, position)[1]

    def skip_source(self, names: Namespace) -> list[str]:
        return skip_length_prefixed_source(names)

    def is_same(self, left: list[Any], right: list[Any]) -> bool:
        return self.is_same_under(left, self, right)

    def is_same_under(self, left: list[Any], other: ValueType, right: list[Any]) -> bool:
        if not isinstance(other, List) or len(left) != len(right):
            return False
        mine, theirs = self.items, other.items
        pairs = zip(left, right, strict=True)
        return all(mine.is_same_under(one, theirs, another) for one, another in pairs)

    def from_document(self, plain: Any, path: str) -> list[Any]:
        if not isinstance(plain, list):
            raise self.refuse(plain, path)
        return [self.items.from_document(item, f"{path}[{at}]") for at, item in enumerate(plain)]

    def to_document(self, value: list[Any]) -> list[Any]:
        return [self.items.to_document(item) for item in value]
