"""Structs: the named members of a declared type, laid out as a record's fields are.

    length prefix | presence bits of the optional members | value encodings of present members

Bits and encodings are ordered by member id. An id is never used again, so a renamed member is the
same member. In an index, members are in declared order, each after its null marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zapdb.errors import CorruptRecord, InvalidValue
from zapdb.values.generated_source import Namespace
from zapdb.values.length_prefixed import (
    encode_limited_length_prefixed,
    read_length_prefixed,
    skip_length_prefixed_source,
)
from zapdb.values.struct_value import StructValue, struct_class
from zapdb.values.value_type import ValueType

if TYPE_CHECKING:
    from zapdb.values.zones import Zones

NULL, PRESENT = b"\x00", b"\x01"


@dataclass(frozen=True, slots=True)
class Member:
    number: int
    name: str
    type: ValueType
    optional: bool = False


@dataclass(frozen=True)
class Struct(ValueType):
    """`members` in declared order; `number` identifies the type and is never used again."""

    declared_name: str
    number: int
    members: tuple[Member, ...]

    name = "struct"
    text_form = "a JSON object with its members"
    text_is_json = True
    keyable = False
    ordered = False

    def __str__(self) -> str:
        return self.declared_name

    @cached_property
    def expected(self) -> str:  # type: ignore[override]  # it depends on the members
        return f"a mapping or object with {', '.join(member.name for member in self.members)}"

    @property
    def value_class(self) -> type[StructValue]:
        return struct_class(StructValue, self.declared_name, tuple(m.name for m in self.members))

    @property
    def indexable(self) -> bool:  # type: ignore[override]  # it depends on the members
        return all(member.type.indexable for member in self.members)

    @property
    def index_key_is_exact(self) -> bool:  # type: ignore[override]  # it depends on the members
        return all(member.type.index_key_is_exact for member in self.members)

    @property
    def comparable(self) -> bool:  # type: ignore[override]  # it depends on the members
        return all(member.type.comparable for member in self.members)

    @property
    def depth(self) -> int:
        return 1 + max(member.type.depth for member in self.members)

    @property
    def encoding_id(self) -> Any:
        slots = ((m.number, m.type.encoding_id, m.optional) for m in self._by_number)
        return (self.name, tuple(slots))

    @property
    def index_encoding_id(self) -> Any:
        return (self.name, tuple(member.type.index_encoding_id for member in self.members))

    @property
    def depends_on_zones(self) -> bool:
        return any(member.type.depends_on_zones for member in self.members)

    def bind(self, zones: Zones) -> Struct:
        bound = tuple(replace(m, type=m.type.bind(zones)) for m in self.members)
        if all(mine.type is theirs.type for mine, theirs in zip(bound, self.members, strict=True)):
            return self
        return replace(self, members=bound)

    @cached_property
    def _by_number(self) -> tuple[Member, ...]:
        return tuple(sorted(self.members, key=lambda member: member.number))

    @cached_property
    def _bits(self) -> dict[int, int]:
        """The mask of each optional member's presence bit, by member id."""
        optional = (member.number for member in self._by_number if member.optional)
        return {number: 1 << at for at, number in enumerate(optional)}

    @property
    def _presence_size_bytes(self) -> int:
        return (len(self._bits) + 7) // 8

    def neutral(self) -> StructValue:
        values = {m.name: None if m.optional else m.type.neutral() for m in self.members}
        return self.check(values, "value")

    def check(self, value: Any, path: str) -> StructValue:
        return self._make(value, path, plain=False)

    def _make(self, value: Any, path: str, *, plain: bool) -> StructValue:
        if isinstance(value, StructValue):
            given: Mapping[Any, Any] = {name: getattr(value, name) for name in value._fields}
        elif isinstance(value, Mapping):
            given = value
        else:
            raise self.refuse(value, path)
        names = {member.name for member in self.members}
        for name in given:
            if name not in names:
                raise InvalidValue(
                    "the struct has no such member",
                    field=f"{path}.{name}",
                    expected=self.expected,
                    got=str(name),
                )
        return self.value_class(*(self._take(m, given, path, plain) for m in self.members))

    def _take(self, member: Member, given: Mapping[Any, Any], path: str, plain: bool) -> Any:
        value, where = given.get(member.name), f"{path}.{member.name}"
        if value is None and (member.optional or member.name not in given):
            if member.optional:
                return None
            raise InvalidValue("a required member is missing", field=where, expected=self.expected)
        return (member.type.from_document if plain else member.type.check)(value, where)

    def encode(self, value: StructValue, path: str = "struct") -> bytes:
        present, parts = 0, [b""]
        for member in self._by_number:
            part = getattr(value, member.name)
            if part is not None or not member.optional:
                present |= self._bits.get(member.number, 0)
                parts.append(member.type.encode(part))
        parts[0] = present.to_bytes(self._presence_size_bytes, "little")
        return encode_limited_length_prefixed(b"".join(parts), path)

    def encode_source(self, value: str, path: str, names: Namespace) -> tuple[list[str], str]:
        statements, _ = super().encode_source(value, path, names)
        encode = names.bind(self.encode, "encode_struct")
        return statements, f"{encode}({value}, {names.bind(path, 'path')})"

    def decode(self, data: bytes, position: int) -> tuple[StructValue, int]:
        start, end = read_length_prefixed(data, position)
        at = start + self._presence_size_bytes
        present = int.from_bytes(data[start:at], "little")
        if at > end or present >> len(self._bits):
            raise CorruptRecord.at(f"presence bits of {self}", data, position)
        values: dict[str, Any] = {}
        for member in self._by_number:
            if member.optional and not present & self._bits[member.number]:
                values[member.name] = None
                continue
            value, at = member.type.decode(data, at)
            if value is None and member.optional:
                raise CorruptRecord.at("null that is present", data, position)
            values[member.name] = value
        if at != end:
            raise CorruptRecord.at(str(self), data, position)
        return self.value_class(*(values[member.name] for member in self.members)), end

    def skip(self, data: bytes, position: int) -> int:
        return read_length_prefixed(data, position)[1]

    def skip_source(self, names: Namespace) -> list[str]:
        return skip_length_prefixed_source(names)

    def encode_index_key(self, value: StructValue) -> bytes:
        parts = []
        for member in self.members:
            part = getattr(value, member.name)
            is_null = part is None and member.optional
            parts.append(NULL if is_null else PRESENT + member.type.encode_index_key(part))
        return b"".join(parts)

    def is_same(self, left: StructValue, right: StructValue) -> bool:
        return self.is_same_under(left, self, right)

    def is_same_under(self, left: StructValue, other: ValueType, right: StructValue) -> bool:
        if not isinstance(other, Struct) or self.number != other.number:
            return False
        if len(self.members) != len(other.members):
            return False
        for member, same in zip(self._by_number, other._by_number, strict=True):
            if member.number != same.number:
                return False
            mine, theirs = getattr(left, member.name), getattr(right, same.name)
            if mine is None or theirs is None:
                if mine is not theirs:
                    return False
            elif not member.type.is_same_under(mine, same.type, theirs):
                return False
        return True

    def from_document(self, plain: Any, path: str) -> StructValue:
        return self._make(plain, path, plain=True)

    def to_document(self, value: StructValue) -> dict[str, Any]:
        document = {}
        for member in self.members:
            part = getattr(value, member.name)
            is_null = part is None and member.optional
            document[member.name] = None if is_null else member.type.to_document(part)
        return document
