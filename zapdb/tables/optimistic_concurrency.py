"""Optimistic concurrency: a record is changed only if it still has the values that were read.

Values are compared, never bytes or revisions: a record that was converted in the meantime is still
the same record. A caller that no longer has the record, such as a form that was sent to a browser
and back, gives its etag (`zapdb.etag(record)`), which stands for all its values.
"""

from __future__ import annotations

from typing import Any

from zapdb.errors import BlobMissing, InvalidValue, UpdateConflict, UsageError
from zapdb.records import Record, etag, held, raw_value
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.violations import show_key
from zapdb.values import Blob, ValueType
from zapdb.values.struct_value import ETAG


def check_unchanged(bound: BoundTable, key: bytes, stored: bytes, seen: Any) -> None:
    """Raise `UpdateConflict` unless every field of `seen`, a record or its etag, has the value that
    is stored now.

    Raises `UsageError` if `seen` is not a record of the table or has another key, and
    `InvalidValue` for a text that is no etag.
    """
    if isinstance(seen, str):
        _check_etag(bound, key, stored, seen)
        return
    table = bound.adapter.schema
    if _key_of(bound, seen) != key:
        raise UsageError(
            "if_unchanged must be the record with this key, as it was read",
            table=table.name,
            key=show_key(bound, key),
            given=repr(type(seen).__name__),
            hint="pass the record that get() returned for the same key",
        )
    now = bound.adapter.reader.read(key, stored)
    types = {f.name: f.type for f in table.fields}
    changed = [
        name
        for name in seen._fields
        if name not in types or not _is_same(types[name], seen, now, name)
    ]
    if changed:
        raise UpdateConflict(
            "the record changed since it was read",
            table=table.name,
            key=show_key(bound, key),
            changed=", ".join(changed),
            hint="nothing was written; read the record again and decide again",
        )


def encode_seen(bound: BoundTable, key: bytes, seen: object) -> bytes | None:
    """Return the bytes that the record has if it is unchanged since it was read and was written
    under the active revision. Return None if `seen` does not determine these bytes."""
    names = tuple(field.name for field in bound.schema.fields)
    if not (bound.adapter.is_current and isinstance(seen, Record) and seen._fields == names):
        return None
    if _key_of(bound, seen) != key:
        return None
    attachments = bound.make_attachments()
    try:
        value = bound.codec.encode(bound.prefix, held(seen), attachments)
    except InvalidValue:  # another table's
        return None
    return None if attachments.blobs else value  # a value that was loaded has lost its blob id


def _check_etag(bound: BoundTable, key: bytes, stored: bytes, seen: str) -> None:
    if not ETAG.fullmatch(seen):
        raise InvalidValue.of("if_unchanged", "a record, or its etag", seen)
    if etag(bound.adapter.reader.read(key, stored)) != seen:
        raise UpdateConflict(
            "the record changed since it was read",
            table=bound.adapter.schema.name,
            key=show_key(bound, key),
            hint="nothing was written; read the record again and decide again",
        )


def _key_of(bound: BoundTable, seen: object) -> bytes | None:
    """The key of a record of the table; None for anything else."""
    names = bound.adapter.key_names
    if not isinstance(seen, Record) or not set(names) <= set(seen._fields):
        return None
    try:
        return bound.adapter.codec.encode_key({name: getattr(seen, name) for name in names})
    except InvalidValue:  # another table's
        return None


def _is_same(kind: ValueType, seen: Record, now: Record, name: str) -> bool:
    before, after = raw_value(seen, name)[0], raw_value(now, name)[0]
    if isinstance(before, Blob) or isinstance(after, Blob):
        if before == after:
            return True  # blobs never change: one id is one value
        try:
            before, after = getattr(seen, name), getattr(now, name)
        except BlobMissing:  # the blob that was read is deleted
            return False
    return _is_same_value(kind, before, after)


def _is_same_value(kind: ValueType, before: Any, after: Any) -> bool:
    if before is None or after is None:
        return before is after
    return kind.is_same(before, after)
