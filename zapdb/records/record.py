"""Records as objects: a class with slots, made for each table shape.

Blobs are loaded when their field is looked at. Until then its slot is empty, and `_late` says what
to load: so the other fields, and records without blobs, cost nothing for it.
"""

from __future__ import annotations

from typing import Any

from zapdb.records.beside import Beside
from zapdb.values.blob import Blob
from zapdb.values.product import Product, product_class


class Record(Product):
    """Base of the generated classes; equal when of the same table and equal in every field."""

    __slots__ = ("_late",)
    _late: dict[str, tuple[Beside, Blob]]

    def __getattr__(self, name: str) -> Any:
        """Called for an empty slot: load its blob. Raises `BlobMissing`, `CorruptRecord`."""
        # Where there is no blob the slot of `_late` is empty itself.
        late = None if name == "_late" else self._late
        if late is None or name not in late:
            raise AttributeError(f"{self._name} has no field {name!r}")
        beside, blob = late[name]
        value = blob.value_of(beside.load(blob))
        setattr(self, name, value)
        return value


def record_class(table: str, fields: tuple[str, ...]) -> type[Record]:
    """The class for records of this shape."""
    return product_class(Record, table, fields)


def defer(record: Record, beside: Beside) -> Record:
    """The record with its blobs left to be loaded when they are looked at."""
    late = {}
    for name in record._fields:
        value = getattr(record, name)
        if isinstance(value, Blob):
            late[name] = (beside, value)
            delattr(record, name)
    record._late = late
    return record


def held(record: Record) -> dict[str, Any]:
    """The fields by name as the record holds them: blobs that were not looked at stay blobs."""
    late: dict[str, tuple[Beside, Blob]] = getattr(record, "_late", None) or {}
    values = {}
    for name in record._fields:
        try:
            values[name] = object.__getattribute__(record, name)
        except AttributeError:
            values[name] = late[name][1]
    return values
