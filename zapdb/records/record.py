"""Records as objects: a class with slots, made for each table schema.

A blob is loaded when its field is first read. Until then the field's slot is empty, and `_deferred`
has what to load, so other fields and records without blobs have no cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from zapdb.errors import UsageError
from zapdb.records.attachments import Attachments, Load
from zapdb.values.blob import Blob
from zapdb.values.immutable import delete_attribute, no_part, set_attribute
from zapdb.values.struct_value import StructValue, is_equal, struct_class


class RecordType(type):
    """The metaclass of records' classes; made in Python, so that another class can be assigned."""


class Record(StructValue, metaclass=RecordType):
    """Base of the generated classes; records are equal if table and all fields are equal."""

    __slots__ = ("_deferred", "_included")
    _included: dict[str, Record | None]
    _deferred: dict[str, tuple[Attachments, Blob]]

    def follow(self, path: str) -> Any:
        """Return the record that a reference, or several joined by dots, refers to: see
        `follow`."""
        return follow(self, path)

    def __reduce__(self) -> tuple[Any, ...]:
        included = _included_in(self)
        made = super().__reduce__()
        return (*made, included) if included else made

    def __setstate__(self, included: dict[str, Record | None]) -> None:
        """Restore the included records; called by `pickle`."""
        include(self, included)

    def __getattr__(self, name: str) -> Any:
        """Load the blob of an empty slot. Raises `BlobMissing`, `CorruptRecord`, `UnknownField`."""
        found = _late_of(self).get(name)
        if found is None:
            if name.startswith("_"):
                raise AttributeError(f"{self._name} has no attribute {name!r}", name=name, obj=self)
            raise no_part(self._name, name, self._fields)
        attachments, blob = found
        value = blob.value_of(attachments.load(blob))
        set_attribute(self, name, value)
        return value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        if (self._name, self._fields) != (other._name, other._fields):
            return False
        return all(_is_same(self, other, name) for name in self._fields)

    __hash__ = None

    def __replace__(self, /, **changes: Any) -> Self:
        made = super().__replace__(**changes)
        if included := _included_in(self):
            # The target of a changed key is not loaded.
            include(made, {n: r for n, r in included.items() if n not in changes})
        return made

    def _with(self, change: Callable[[Any], Any]) -> Self:
        """Return a copy with `change` applied to each field; blobs that are not loaded stay
        unloaded."""
        made = type(self).__new__(type(self))
        late = _late_of(self)
        for name in self._fields:
            value, attachments = raw_value(self, name)
            if attachments is None:
                set_attribute(made, name, change(value))
        if late:
            set_attribute(made, "_deferred", late)
        if included := _included_in(self):
            include(made, included)
        return made

    def _defer(self, attachments: Attachments) -> Self:
        """Do `defer_large_values`; called by the accelerator."""
        defer_large_values(self, attachments)
        return self

    def _show(self, name: str) -> str:
        value = raw_value(self, name)[0]
        if isinstance(value, Blob):
            return f"<{value.type.name} of {value.size:,} bytes, not loaded>"
        return super()._show(name)


def record_class(table: str, fields: tuple[str, ...]) -> type[Record]:
    """Return the class for records with these fields."""
    return struct_class(Record, table, fields)


def defer_large_values(record: Record, attachments: Attachments) -> Record:
    """Return the record with its blobs to be loaded when their fields are first read."""
    late = {}
    for name in record._fields:
        value = getattr(record, name)
        if isinstance(value, Blob):
            late[name] = (attachments, value)
            delete_attribute(record, name)
    set_attribute(record, "_deferred", late)
    return record


def include(record: Record, included: dict[str, Record | None]) -> None:
    """Attach to a record the records that it refers to, by the names of its references."""
    set_attribute(record, "_included", included)


def load_through(record: Record, wrap: Callable[[Load], Load]) -> None:
    """Wrap the function that loads the blobs of a record that are not loaded yet."""
    late = _late_of(record)
    if late:
        through = {
            name: (attachments.through(wrap), blob) for name, (attachments, blob) in late.items()
        }
        set_attribute(record, "_deferred", through)


def load_all(record: Record) -> int:
    """Load the blobs of a record and of its included records that are not loaded yet; returns their
    size in bytes. Raises `BlobMissing`, `CorruptRecord`."""
    loaded = 0
    for name in _late_of(record):
        value, attachments = raw_value(record, name)
        if attachments is not None:
            loaded += value.size
            getattr(record, name)
    for other in _included_in(record).values():
        if other is not None:
            loaded += load_all(other)
    return loaded


def held(record: Record) -> dict[str, Any]:
    """Return the fields by name as the record holds them; blobs that are not loaded stay blobs."""
    values = {}
    for name in record._fields:
        try:
            values[name] = object.__getattribute__(record, name)
        except AttributeError:
            values[name] = raw_value(record, name)[0]
    return values


def raw_value(record: Record, name: str) -> tuple[Any, Attachments | None]:
    """Return a field as the record holds it, and its attachments if it is a blob that is not
    loaded."""
    try:
        return object.__getattribute__(record, name), None
    except AttributeError:
        attachments, blob = _late_of(record)[name]
        return blob, attachments


def follow(record: Record, path: str) -> Any:
    """Return the record that a reference refers to, which the record's query has included.

    `post.follow("author")` needs `posts.where(…).include("author")`; with dots, such as
    `post.follow("author.city")`, it follows several references. None if a reference is null, or its
    target is missing. Never reads: raises `UsageError` for a reference that the query did not
    include.

    The field itself, `post.author`, stays the target's key, so included records don't change how a
    record compares, pickles and is written. It is also a function for tables with a field `follow`.
    """
    found: Record | None = record
    for name in path.split("."):
        if found is None:
            return None
        included = _included_in(found)
        if name not in found._fields:
            raise no_part(found._name, name, found._fields)
        if name not in included:
            raise UsageError(
                "the query did not include this reference",
                table=found._name,
                reference=name,
                included=", ".join(included) or "(none)",
                hint=f"add .include({path!r}) to the query",
            )
        found = included[name]
    return found


def _included_in(record: Record) -> dict[str, Record | None]:
    try:
        found: dict[str, Record | None] = object.__getattribute__(record, "_included")
    except AttributeError:  # it has no included records
        return {}
    return found


def new_blobs(record: Record, attachments: Attachments) -> dict[bytes, bytes]:
    """Return the new blobs that a record's fields refer to; others are not stored."""
    if not attachments.blobs:
        return {}
    ids = [value.id for value in held(record).values() if isinstance(value, Blob)]
    return {made: attachments.blobs[made] for made in ids if made in attachments.blobs}


def _is_same(left: Record, right: Record, name: str) -> bool:
    mine, theirs = raw_value(left, name)[0], raw_value(right, name)[0]
    if is_equal(mine, theirs):
        return True  # blobs never change, so a shared one needs no loading
    is_late = isinstance(mine, Blob) or isinstance(theirs, Blob)
    return is_late and bool(getattr(left, name) == getattr(right, name))


def _late_of(record: Record) -> dict[str, tuple[Attachments, Blob]]:
    try:
        late: dict[str, tuple[Attachments, Blob]] = object.__getattribute__(record, "_deferred")
    except AttributeError:  # a record without blobs has none set
        return {}
    return late
