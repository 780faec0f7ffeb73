"""The paths to the records of a table: the table itself, in the order of its keys, and its indexes.

The keys of a path consist of its components, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from zapdb.schema import Field, IndexComponent, TableSchema
from zapdb.tables.indexes.keys import (
    UNIQUE_ORDERED_SIZE_BYTES,
    Interval,
    KeyBuilder,
    is_truncated,
)
from zapdb.values import ValueType

KEY_NAME: Final = "(key)"


@dataclass(frozen=True, slots=True)
class Path:
    """A path to the records in an order: an index, or the table by its keys (`keys` is None)."""

    keys: KeyBuilder | None
    fields: tuple[Field, ...]
    components: tuple[IndexComponent, ...]

    @classmethod
    def by_key(cls, table: TableSchema) -> Path:
        fields = table.key_fields
        return cls(None, fields, tuple(IndexComponent(f.number) for f in fields))

    @classmethod
    def by_index(cls, keys: KeyBuilder) -> Path:
        return cls(keys, keys.fields, keys.index.components)

    @property
    def name(self) -> str:
        return KEY_NAME if self.keys is None else self.keys.index.name

    def has_order(self, at: int) -> bool:
        """Return whether a component has the order of its field; an enum's key bytes have not."""
        return self.keys is not None or keys_are_ordered(self.fields[at].type)

    def encoder(self, at: int) -> Callable[[Any], bytes | None]:
        """Return the function from a value, which it checks, or None to the bytes of a component;
        None if no record can have the value there."""
        if self.keys is not None:
            return self.keys.encoder(at)
        encode_key, check = self.fields[at].type.encode_key, self.fields[at].type.check
        name = self.fields[at].name
        return lambda value: None if value is None else encode_key(check(value, name))

    def present(self, at: int) -> Interval:
        """All values of a component that are not null."""
        return (b"", None) if self.keys is None else self.keys.present(at)

    def may_truncate(self, key: bytes | None) -> bool:
        if key is None or len(key) <= UNIQUE_ORDERED_SIZE_BYTES or self.keys is None:
            return False
        return self.keys.index.unique or is_truncated(key)


def list_paths(table: TableSchema, indexes: Iterable[KeyBuilder]) -> tuple[Path, ...]:
    """Return the path of the table by its keys, and the paths of some of its indexes."""
    return (Path.by_key(table), *map(Path.by_index, indexes))


def keys_are_ordered(kind: ValueType) -> bool:
    """Return whether record keys hold the type as index keys do."""
    return type(kind).encode_index_key is ValueType.encode_index_key
