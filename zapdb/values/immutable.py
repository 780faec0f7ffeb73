"""Objects of immutable classes, such as records and structs: made fast, and what their errors say.

The object is made in a subclass with the same slots, whose attributes can be set. When all are set,
its `__class__` becomes the immutable one. For eight attributes, that takes less than a tenth of the
time of `object.__setattr__`. What other libraries' records can do, errors answer with the call to
use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from zapdb.errors import UnknownField, UnsupportedOperation

T = TypeVar("T")

set_attribute: Final = object.__setattr__
"""Sets an attribute of an object that no other code has yet, or one outside its value."""
delete_attribute: Final = object.__delattr__

OPEN: Final[dict[str, Any]] = {
    "__slots__": (),
    "__init__": object.__init__,
    "__setattr__": object.__setattr__,
    "__delattr__": object.__delattr__,
}


def open_class(immutable: type[T]) -> type[T]:
    """Return the subclass whose objects are made without arguments and have settable attributes.

    `immutable` must be a Python class with slots only.
    """
    return type(immutable.__name__, (immutable,), OPEN)


_AS_DICT: Final = "zapdb.asdict(record) is a dict, zapdb.to_json(record) one for JSON"
_STORE: Final = "items.update(record.id, title=…) stores a change, by the table and the key"
_HABITS: Final = {
    "as_dict": _AS_DICT,
    "commit": _STORE,
    "copy": "zapdb.replace(record, title=…) makes a copy with other values",
    "delete": "items.delete(record.id) deletes a record, by the table and the key",
    "dict": _AS_DICT,
    "get": "a field is an attribute: record.title, or getattr(record, name)",
    "items": _AS_DICT,
    "json": _AS_DICT,
    "keys": _AS_DICT,
    "model_dump": _AS_DICT,
    "pk": "the key is the value of its fields, such as record.id",
    "put": _STORE,
    "refresh": "items.get(record.id) reads the record again",
    "refresh_from_db": "items.get(record.id) reads the record again",
    "remove": "items.delete(record.id) deletes a record, by the table and the key",
    "replace": "zapdb.replace(record, title=…) makes a copy with other values",
    "save": _STORE,
    "to_dict": _AS_DICT,
    "to_json": _AS_DICT,
    "update": _STORE,
    "values": _AS_DICT,
}


def no_part(name: str, wanted: str, fields: Sequence[str]) -> UnknownField:
    """The error for an attribute that a record or struct does not have."""
    error = UnknownField.named(name, wanted, fields)
    reference = wanted.removesuffix("_id")
    if wanted in _HABITS:
        error.hint = _HABITS[wanted]
    elif reference in fields:
        error.hint = f"record.{reference} is the key of the record that it refers to"
    return error


def no_item(name: str, wanted: object, fields: Sequence[str]) -> UnsupportedOperation:
    """The error for `record["title"]`, and for what Python does by numbers: `list(record)`."""
    hint = _AS_DICT
    if isinstance(wanted, str):
        shown = wanted if wanted in fields else "title"
        hint = f"write record.{shown}, or getattr(record, name)"
    return UnsupportedOperation(
        "the fields of a record are attributes, not items", record=name, hint=hint
    )
