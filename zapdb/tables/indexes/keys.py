"""Index keys: entries are ordered by them (rule 24). This is key format 1.

    key = component | component | …
    component    01 and the value's index encoding, or 00 for null; all bytes inverted if descending

The index encoding is the type's, or under a collation the sort key of the string. Nulls sort first,
or last when descending. No component is a prefix of another, so concatenation keeps the order, and
the keys of all records with one leading value are the range from its encoding to the end of
that prefix.

    entry key = key, if it has at most 1,023 bytes
              | its first 1,024 bytes

So a key is truncated exactly when it is 1,024 bytes long. Truncation never reverses an order, but
makes ties, which readers resolve by the full key. In a unique index, equal entry keys are a
violation. There, keys that may be equal are first told apart by the record key:

    told   = key | record key, if a component is null (nulls never collide)
           | key
    entry key = told, if it has at most 1,023 bytes
              | its first 992 bytes | SHA-256 of told

Again a key is truncated exactly when it is 1,024 bytes long. Entry keys of two records are equal
exactly when their full keys are equal and hold no null. Up to 992 bytes, the order is that of the
full keys; readers sort entries that agree in these bytes by the full key, truncated or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zapdb.datasets import sort_keys
from zapdb.errors import UsageError
from zapdb.limits import COMPILED_MAX, INDEX_KEY_SIZE_BYTES_MAX
from zapdb.memo import Memo
from zapdb.records import Record
from zapdb.records.native import accelerate_build
from zapdb.schema import Field, Index, IndexComponent, TableSchema
from zapdb.tables.indexes.prefixes import encode_sort_key_prefix
from zapdb.values import ValueType
from zapdb.values.generated_source import Namespace, compile_function, indent
from zapdb.values.length_prefixed import ESCAPED_END
from zapdb.values.struct_value import part_source

Interval = tuple[bytes, bytes | None]
"""lower ≤ component bytes < upper; None is no bound."""
NULL: Final = b"\x00"
PRESENT: Final = b"\x01"
INVERTED: Final = bytes(range(255, -1, -1))
UNIQUE_ORDERED_SIZE_BYTES: Final = INDEX_KEY_SIZE_BYTES_MAX - hashlib.sha256().digest_size
"""The size of the part of a unique index's entry keys that is in the order of full keys."""


@dataclass(frozen=True, slots=True)
class KeyBuilder:
    """The compiled key function of one index, and the encoding of lookup values."""

    index: Index
    fields: tuple[Field, ...]
    build: Callable[[Record], bytes]
    """record → the full key, not truncated."""
    source: str

    def is_same_as(self, other: KeyBuilder) -> bool:
        """Return whether both make the same keys; the fields may have other names."""
        if self is other:
            return True
        return self.index.components == other.index.components and all(
            mine.type.index_encoding_id == theirs.type.index_encoding_id
            and mine.number == theirs.number
            for mine, theirs in zip(self.fields, other.fields, strict=True)
        )

    def check(self, values: Sequence[Any]) -> list[Any]:
        """Return the values of leading fields in their normal form, or None; raises
        `InvalidValue`."""
        if len(values) > len(self.fields):
            raise UsageError(
                "there are more values than fields of the index",
                index=self.index.name,
                fields=", ".join(field.name for field in self.fields),
            )
        return [
            None if value is None else field.type.check(value, field.name)
            for value, field in zip(values, self.fields, strict=False)
        ]

    def encode(self, checked: Sequence[Any]) -> bytes:
        """Return the components of checked values for the leading fields, not truncated."""
        return b"".join(self.encoder(at)(value) for at, value in enumerate(checked))

    def encoder(self, at: int) -> Callable[[Any], bytes]:
        """Return the function from a value, which it checks, or None to a component."""
        return compile_encoder(self.fields[at], self.index.components[at])

    def encode_component_prefix(self, at: int, prefix: str) -> bytes:
        """Return the bytes that the components of all strings with the prefix `prefix` begin
        with."""
        return encode_component_prefix(self.fields[at], self.index.components[at], prefix)

    def present(self, at: int) -> Interval:
        """All values of a component that are not null."""
        if self.index.components[at].descending:
            return PRESENT.translate(INVERTED), NULL.translate(INVERTED)
        return PRESENT, prefix_end(PRESENT)


def truncate_key(key: bytes) -> bytes:
    """Return a key as an entry holds it."""
    return key[:INDEX_KEY_SIZE_BYTES_MAX]


def truncate_unique_key(key: bytes, record_key: bytes, *, has_null: bool) -> bytes:
    """Return a key as an entry of a unique index holds it; with `has_null`, one of its components
    is null."""
    told = key + record_key if has_null else key
    if not is_truncated(told):
        return told
    return told[:UNIQUE_ORDERED_SIZE_BYTES] + hashlib.sha256(told).digest()


def is_truncated(key: bytes) -> bool:
    """Return whether an entry's key is truncated, or a full key would be."""
    return len(key) >= INDEX_KEY_SIZE_BYTES_MAX


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the first key after all keys that begin with `prefix`; None if no such key exists."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + _NEXT_BYTES[stripped[-1]] if stripped else None


_NEXT_BYTES: Final = [bytes((byte + 1,)) for byte in range(255)]


def encode_component(field: Field, component: IndexComponent, value: Any) -> bytes:
    """One component of a checked value, or of None."""
    return compile_encoder(field, component)(value)


_encoders = Memo[Any, Callable[[Any], bytes]](COMPILED_MAX)


def compile_encoder(field: Field, component: IndexComponent) -> Callable[[Any], bytes]:
    """Return the function from a value, which it checks, or None to one component; compiled once.

    Any thread may call it. Raises `InvalidValue`, which names the field.
    """
    return _encoders.get(
        (field.type, field.name, component), lambda: _compile_encoder(field, component)
    )


def _compile_encoder(field: Field, component: IndexComponent) -> Callable[[Any], bytes]:
    kind, names = field.type, Namespace()
    is_key = type(kind).encode_index_key is ValueType.encode_index_key
    if is_key and component.collation is None:
        lines, encoded = kind.encode_key_source("v", field.name, names)
    else:
        check = names.bind(kind.check, f"check_{kind.name}")
        lines = [f"v = {check}(v, {names.bind(field.name, 'path')})"]
        encoded = _encode_source(field, component, names)
    null, present = names.bind(NULL, "NULL"), names.bind(PRESENT, "PRESENT")
    if component.descending:
        inverted = names.bind(INVERTED, "INVERTED")
        null, encoded = (
            f"{null}.translate({inverted})",
            f"({present} + {encoded}).translate({inverted})",
        )
    else:
        encoded = f"{present} + {encoded}"
    body = [f"if v is None: return {null}", *lines, f"return {encoded}"]
    label = f"component {field.name}"
    return compile_function("encode", ["def encode(v):", *indent(body)], names, label)[0]


def encode_component_prefix(field: Field, component: IndexComponent, prefix: str) -> bytes:
    """Return the bytes that the components of all strings with the prefix `prefix` begin with.

    Under a collation, the components of other strings may begin with them, too.
    """
    if component.collation is None:
        shared = field.type.encode_index_key(prefix).removesuffix(ESCAPED_END)
    else:
        shared = encode_sort_key_prefix(component.collation, prefix)
    encoded = PRESENT + shared
    return encoded.translate(INVERTED) if component.descending else encoded


def component_encoder(field: Field, component: IndexComponent) -> Callable[[Any], bytes]:
    """Return the function from a checked value to its index encoding, not inverted."""
    if component.collation is None:
        return field.type.encode_index_key
    return sort_keys(component.collation).get


def _encode_source(field: Field, component: IndexComponent, names: Namespace) -> str:
    """An expression for the index encoding of the variable `v`, in any thread."""
    if component.collation is None:
        return f"{names.bind(field.type.encode_index_key, f'encode_{field.type.name}')}(v)"
    return f"{names.bind(sort_keys(component.collation), 'sort_keys')}.get(v)"


def build_keys(table: TableSchema, index: Index, format: int = 1) -> KeyBuilder:
    """Compile the key builder of an index whose entries have this key format.

    The format does not matter for keys that are not stored and only sort records.
    """
    return FORMATS[format](table, index)


def _build_keys(table: TableSchema, index: Index) -> KeyBuilder:
    fields = tuple(table.field_numbered(c.field) for c in index.components)
    build, source = compile_build(table, index)
    if all(component.collation is None for component in index.components):
        descending = (component.descending for component in index.components)
        build = accelerate_build(list(zip(fields, descending, strict=True)), build)
    return KeyBuilder(index, fields, build, source)


def compile_build(table: TableSchema, index: Index) -> tuple[Callable[[Record], bytes], str]:
    """Return what builds an index's keys in Python, and its source."""
    names = Namespace()
    fields = tuple(table.field_numbered(c.field) for c in index.components)
    lines: list[str] = []
    parts: list[str] = []
    for field, component in zip(fields, index.components, strict=True):
        encoded = f"{names.bind(PRESENT, 'PRESENT')} + {_encode_source(field, component, names)}"
        lines.append(f"v = {part_source('record', field.name)}")
        if field.optional:
            encoded = f"({encoded} if v is not None else {names.bind(NULL, 'NULL')})"
        else:
            encoded = f"({encoded})"
        if component.descending:
            encoded += f".translate({names.bind(INVERTED, 'INVERTED')})"
        lines.append(f"k{len(parts)} = {encoded}")
        parts.append(f"k{len(parts)}")
    body = ["def build(record):", *indent([*lines, f"return {' + '.join(parts)}"])]
    return compile_function("build", body, names, f"index {table.name}.{index.name}")


FORMATS: Final[dict[int, Callable[[TableSchema, Index], KeyBuilder]]] = {1: _build_keys}
"""The function that makes key builders, by key format. `zapdb.formats` has the level of each."""
