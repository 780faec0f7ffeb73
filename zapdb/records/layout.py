"""The places of a record's fields in its bytes (docs/format/record.md). This is record format 1.

    record = prefix | presence | fields
    prefix      the revision that the record was written under, an orderable varint
    presence    one bit per optional field, by number, least significant bit first; whole bytes,
                unused bits are zero; no byte where no field is optional
    fields      value encodings by field number; an absent field takes no bytes

The key's fields are not repeated in the record; the key holds their key encodings in key order.
The prefix sorts as the revision does, so `value < prefix` compares revisions (rule 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from zapdb.errors import CorruptRecord
from zapdb.schema import Field, TableSchema
from zapdb.values import ValueType, Zones
from zapdb.values.varint import decode_varint, encode_varint

encode_prefix = encode_varint
decode_prefix = decode_varint

NO_REVISION: Final = 0
"""Stands for the revision of records whose prefix can't be read; no revision is so low."""


def group_by_revision(counts: Iterable[tuple[bytes, int]]) -> dict[int, int]:
    """How many records have each revision, from how many have each prefix, or what may be one."""
    found: dict[int, int] = {}
    for prefix, count in counts:
        try:
            revision, end = decode_prefix(prefix, 0)
        except CorruptRecord:
            revision, end = NO_REVISION, len(prefix)
        if end != len(prefix) or revision < 1:
            revision = NO_REVISION
        found[revision] = found.get(revision, 0) + count
    return found


@dataclass(frozen=True, slots=True)
class Slot:
    """A field's place. Slots compare by what the bytes depend on: not by names within types."""

    number: int
    type: ValueType = field(compare=False)
    optional: bool = False
    encoding_id: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding_id", self.type.encoding_id)

    @classmethod
    def of(cls, field: Field) -> Slot:
        return cls(field.number, field.type, field.optional)

    def numbered(self, number: int) -> Slot:
        return Slot(number, self.type, self.optional)


@dataclass(frozen=True, slots=True)
class Layout:
    """`key` in key order, `slots` by number. Equal layouts mean equal bytes for equal values."""

    key: tuple[Slot, ...]
    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, table: TableSchema, zones: Zones | None = None) -> Layout:
        """The table's layout; without a database's zones it can be compared, but not run."""

        def bound(kind: ValueType) -> ValueType:
            return kind if zones is None else kind.bind(zones)

        return cls(
            tuple(Slot(f.number, bound(f.type)) for f in table.key_fields),
            tuple(Slot(f.number, bound(f.type), f.optional) for f in table.value_fields),
        )

    @property
    def optional(self) -> tuple[Slot, ...]:
        """The optional slots; a slot's place here is its bit."""
        return tuple(slot for slot in self.slots if slot.optional)

    @property
    def presence_size_bytes(self) -> int:
        return (len(self.optional) + 7) // 8

    def bit(self, number: int) -> int:
        return next(at for at, slot in enumerate(self.optional) if slot.number == number)

    def slot(self, number: int) -> Slot | None:
        return next((s for s in (*self.slots, *self.key) if s.number == number), None)
