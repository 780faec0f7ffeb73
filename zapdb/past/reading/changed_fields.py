"""What a change made of a record, and which fields differ: they are compared by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zapdb.records import Attachments, Record, raw_value
from zapdb.schema import Field, TableSchema
from zapdb.tables.change_decoding import Operation
from zapdb.values import Blob


class Sides(NamedTuple):
    """A record before and after a change, each with its schema, and its archived values of dropped
    fields, if one of these was changed."""

    schema_before: TableSchema | None
    before: Record | None
    schema_after: TableSchema | None
    after: Record | None
    archived_before: Mapping[str, Any] = {}
    archived_after: Mapping[str, Any] = {}

    @property
    def operation(self) -> Operation:
        if self.after is None:
            return "delete"
        return "insert" if self.before is None else "update"

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that differ, also of dropped ones."""
        was, has, absent = self.archived_before, self.archived_after, object()
        names = [n for n in {**was, **has} if was.get(n, absent) != has.get(n, absent)]
        return (*list_changed(*self[:4]), *names)


def list_changed(
    schema_before: TableSchema | None,
    before: Record | None,
    schema: TableSchema | None,
    after: Record | None,
) -> tuple[str, ...]:
    """Return the names of the fields whose values differ, which are compared by number; of all
    fields of a record that has no counterpart. The names are those of the record afterwards, or of
    the one that is gone."""
    if schema is None or schema_before is None or before is None or after is None:
        one = schema_before if after is None else schema
        return () if one is None else tuple(field.name for field in one.fields)
    earlier = {one.number: one for one in schema_before.fields}
    return tuple(
        one.name
        for one in schema.fields
        if one.number not in earlier or not _is_same_field(earlier[one.number], before, one, after)
    )


def _is_same_field(earlier: Field, before: Record, later: Field, after: Record) -> bool:
    left, mine = raw_value(before, earlier.name)
    right, theirs = raw_value(after, later.name)
    if left is None or right is None:
        return left is right
    both_large = isinstance(left, Blob) and isinstance(right, Blob)
    if both_large and (left == right or left.size != right.size):
        return bool(left == right)  # what a blob has never changes
    # The files of a store give a large value to a blob of their own, and so does a write of the
    # same value again.
    return earlier.type.is_same_under(_load(left, mine), later.type, _load(right, theirs))


def _load(value: Any, attachments: Attachments | None) -> Any:
    if attachments is None or not isinstance(value, Blob):
        return value
    return attachments.load_value(value)
