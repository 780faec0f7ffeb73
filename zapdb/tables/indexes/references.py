"""References at run time: whether a record's targets exist, and which records refer to it.

A target is found by one search by its key, in the transaction that writes the referencing record.
On PostgreSQL that transaction is SERIALIZABLE. So a search that found a record, and the deletion of
that record, which searched for referencing records, can't both commit (rule 15).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from zapdb.activation import TenantCatalog
from zapdb.activation.preview import has_no_table
from zapdb.errors import CorruptCatalog
from zapdb.records import Record
from zapdb.schema import Field, ForeignKey, TableSchema
from zapdb.storage import Connection, RecordStatements
from zapdb.tables.indexes.keys import KeyBuilder, prefix_end
from zapdb.tables.indexes.spans import Span
from zapdb.values import Reference


@dataclass(frozen=True, slots=True)
class ReferenceCheck:
    """The check of a field's reference; `targets` are the records that it may name."""

    field: Field
    target: str
    targets: RecordStatements

    def key_of(self, record: Record) -> bytes | None:
        """Return the key of the record that a record refers to, or None."""
        value = getattr(record, self.field.name)
        return None if value is None else self.field.type.encode(value)

    def find_missing(self, connection: Connection, records: Iterable[Record]) -> list[int]:
        """Return the positions, from 0, of the records whose target is missing."""
        keys = [self.key_of(record) for record in records]
        wanted = list({key for key in keys if key is not None})
        there = self.targets.find_keys(connection, wanted)
        if len(there) == len(wanted):
            return []
        return [at for at, key in enumerate(keys) if key is not None and key not in there]


@dataclass(frozen=True, slots=True)
class IncomingReference:
    """A table with a reference to another one, or to itself."""

    table: str
    number: int
    key: ForeignKey


def open_reference(
    catalog: TenantCatalog, table: TableSchema, key: ForeignKey, records: RecordStatements
) -> ReferenceCheck:
    field = table.field_numbered(key.field)
    target = target_of(catalog, field)
    has_none = has_no_table(catalog, target.number)
    make = RecordStatements.of_no_table if has_none else RecordStatements
    targets = make(records.storage, target.number, records.tenant)
    return ReferenceCheck(field, target.name, targets)


def target_of(catalog: TenantCatalog, field: Field) -> TableSchema:
    """Return the table that a reference leads to."""
    reference = cast("Reference", field.type)
    found = catalog.find_numbered(reference.number)
    if found is not None:
        return found.schema
    raise CorruptCatalog(
        "a reference leads to a table that is not active",
        field=field.name,
        table=reference.table,
    )


def list_incoming_references(
    catalog: TenantCatalog, target: TableSchema
) -> tuple[IncomingReference, ...]:
    """Return the references to a table's records, first the ones that may prevent a deletion; those
    of tables included that are kept for processes that use them."""
    order = ("restrict", "set_null", "cascade")
    found = (
        IncomingReference(descriptor.schema.name, descriptor.schema.number, key)
        for descriptor in catalog.all_tables
        for key in descriptor.schema.foreign_keys
        if target_of(catalog, descriptor.schema.field_numbered(key.field)).number == target.number
    )
    return tuple(sorted(found, key=lambda incoming: order.index(incoming.key.on_delete)))


def incoming_reference_ranges(
    keys: KeyBuilder, targets: Iterable[tuple[Any, ...]]
) -> list[tuple[bytes, bytes]]:
    """Return the ranges, in an index that begins with a reference, of the entries of records that
    refer to one of these keys. They are disjoint and in order, low ≤ entry key < high.

    If keys are truncated, the ranges may contain other entries, too.
    """
    ranges = list[tuple[bytes, bytes]]()
    for target in targets:
        key = keys.encode([target if len(target) > 1 else target[0]])
        low, high = Span(key, prefix_end(key)).entry_bounds(unique=keys.index.unique)
        assert low is not None
        assert high is not None  # a value's component does not begin with FF
        ranges.append((low, high))
    return merge_ranges(ranges)


def key_prefix_ranges(targets: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the ranges of the record keys that begin with a reference to one of these records, as
    `incoming_reference_ranges` does for entries. They contain no other keys, because the parts of a
    key mark their own ends."""
    ranges = list[tuple[bytes, bytes]]()
    for target in targets:
        high = prefix_end(target)
        assert high is not None  # no encoding of a key begins with FF
        ranges.append((target, high))
    return merge_ranges(ranges)


def merge_ranges(ranges: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the ranges in order, with overlapping or touching ones merged."""
    merged = list[tuple[bytes, bytes]]()
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged
