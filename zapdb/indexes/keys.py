"""Index keys: what entries sort by.

    key = component | component | …
    component    01 and the value's index encoding, or 00 for null; all bytes inverted if descending

Nulls sort first, or last when descending. No component is a prefix of another, so concatenation
keeps the order, and the keys of all records with one leading value are the range from its encoding
to the encoding's successor. A key that would reach 1,024 bytes is cut there: a key is cut exactly
when it is that long. Cutting never reverses an order, but makes ties, which readers resolve by the
uncut key (rule 24).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from zapdb.datasets import Collation, encode_collation_key
from zapdb.errors import UsageError
from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX
from zapdb.records import Record
from zapdb.schema import Field, Index, IndexComponent, Table
from zapdb.values.source import Namespace, compile_function, indent

NULL: Final = b"\x00"
PRESENT: Final = b"\x01"
INVERTED: Final = bytes(255 - byte for byte in range(256))


@dataclass(frozen=True, slots=True)
class KeyBuilder:
    """The compiled key function of one index, and the encoding of lookup values."""

    index: Index
    fields: tuple[Field, ...]
    build: Callable[[Record], bytes]
    """record → the full key, not cut."""
    source: str

    def is_same_as(self, other: KeyBuilder) -> bool:
        """Whether both make the same keys; the fields may have other names."""
        return self.index.components == other.index.components and all(
            mine.type == theirs.type and mine.number == theirs.number
            for mine, theirs in zip(self.fields, other.fields, strict=True)
        )

    def encode_prefix(self, values: Sequence[Any]) -> bytes:
        """The full encoding of values for the leading components; raises `InvalidValue`."""
        components = zip(self.check(values), self.fields, self.index.components, strict=False)
        return b"".join(
            encode_component(field, component, value) for value, field, component in components
        )

    def check(self, values: Sequence[Any]) -> list[Any]:
        """The values for the leading components in their normal form; raises `InvalidValue`."""
        if len(values) > len(self.fields):
            raise UsageError(
                "more values than the index has fields",
                index=self.index.name,
                fields=", ".join(field.name for field in self.fields),
            )
        return [
            None if value is None else field.type.check(value, field.name)
            for value, field in zip(values, self.fields, strict=False)
        ]


def cut(key: bytes) -> bytes:
    """The key as an entry holds it."""
    return key[:INDEX_KEY_SIZE_BYTES_MAX]


def is_cut(key: bytes) -> bool:
    """Whether a key of an entry may stand for several full keys."""
    return len(key) >= INDEX_KEY_SIZE_BYTES_MAX


def successor(prefix: bytes) -> bytes | None:
    """The first key after all that begin with `prefix`; None if there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))


def encode_component(field: Field, component: IndexComponent, value: Any) -> bytes:
    """One component of a checked value, or of None."""
    encoded = NULL if value is None else PRESENT + _encoder(field, component)(value)
    return encoded.translate(INVERTED) if component.descending else encoded


def _encoder(field: Field, component: IndexComponent) -> Callable[[Any], bytes]:
    if component.collation is None:
        return field.type.encode_index_key
    return partial(_encode_collated, component.collation)


def _encode_collated(collation: Collation, value: str) -> bytes:
    return encode_collation_key(collation, value)


def build_keys(table: Table, index: Index) -> KeyBuilder:
    """Compile the key builder of an index."""
    names = Namespace()
    fields = tuple(table.field_numbered(c.field) for c in index.components)
    lines: list[str] = []
    parts: list[str] = []
    for field, component in zip(fields, index.components, strict=True):
        encode = names.bind(_encoder(field, component), f"encode_{field.type.name}")
        encoded = f"{names.bind(PRESENT, 'PRESENT')} + {encode}(v)"
        lines.append(f"v = record.{field.name}")
        if field.optional:
            encoded = f"({encoded} if v is not None else {names.bind(NULL, 'NULL')})"
        else:
            encoded = f"({encoded})"
        if component.descending:
            encoded += f".translate({names.bind(INVERTED, 'INVERTED')})"
        lines.append(f"k{len(parts)} = {encoded}")
        parts.append(f"k{len(parts)}")
    body = ["def build(record):", *indent([*lines, f"return {' + '.join(parts)}"])]
    build, source = compile_function("build", body, names, f"index {table.name}.{index.name}")
    return KeyBuilder(index, fields, build, source)
