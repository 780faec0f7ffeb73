"""Plans insertions of many records by their columns: what `WritePlan.insert_many` plans by rows.

Records and entries are made by whole arrays. Where something reads a record's values, as checks do,
the fields that it reads are decoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, NamedTuple

import pyarrow
from pyarrow import compute, types

from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX
from zapdb.records import Attachments
from zapdb.records.arrow import GivenColumn, column_encoder, make_column
from zapdb.records.arrow.encoder import ColumnEncoder
from zapdb.records.arrow.packing import concatenate, constant, inverted, repeated, size_max
from zapdb.schema import Field, IndexComponent
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.keys import NULL, PRESENT, component_encoder, encode_component
from zapdb.tables.indexes.maintenance import EntryRow, IndexMaintainer, UniqueIndexMaintainer
from zapdb.tables.writes.write_plan import (
    WritePlan,
    decode_new,
    find_check_violations,
    require_none,
)
from zapdb.values import String, ValueType

# Index keys of many records at once, by whole arrays (see `records.arrow.encoder`).
#
# The bytes are the same as from `keys`. If a key would be truncated, this module makes no keys
# for the index; they are then made record by record.


def list_column_entries(
    index: IndexMaintainer, given: Mapping[str, GivenColumn], record_keys: Any
) -> list[EntryRow] | None:
    """Return the entries of new records in the order of their keys; None if the keys must be made
    record by record. Raises `DatasetMismatch` and `InvalidValue`."""
    if type(index) not in (IndexMaintainer, UniqueIndexMaintainer):
        return None
    if not index.matches_datasets:
        index.refuse_other_datasets()
    made = [
        _Component(field, component).encode(given.get(field.name), len(record_keys))
        for field, component in zip(index.keys.fields, index.keys.index.components, strict=True)
    ]
    pieces = [repeated(b"", len(record_keys))]
    for parts, _ in made:
        pieces += parts
    is_null = [nulls for _, nulls in made if nulls is not None]
    if isinstance(index, UniqueIndexMaintainer) and is_null:
        has_null = reduce(compute.or_, is_null)
        pieces.append(compute.if_else(has_null, record_keys, constant(b"")))
    keys = concatenate(pieces)
    if size_max(keys) >= INDEX_KEY_SIZE_BYTES_MAX:
        return None
    order = compute.array_sort_indices(keys)
    rows = zip(keys.take(order).to_pylist(), record_keys.take(order).to_pylist(), strict=True)
    return list(rows)


class _Component(NamedTuple):
    field: Field
    component: IndexComponent

    def encode(self, given: GivenColumn | None, count: int) -> tuple[list[Any], Any]:
        """Return the components' bytes, and which of them are null; None if no component is
        null."""
        if given is None:
            value = self.field.default if self.field.has_constant else None
            if value is not None:
                value = self.field.type.check(value, self.field.name)
            encoded = encode_component(self.field, self.component, value)
            return [constant(encoded)], pyarrow.repeat(True, count) if value is None else None
        pieces = self._encode_all(given)
        head, is_null = constant(PRESENT), None
        if pieces[0].null_count:
            is_null = pieces[0].is_null()
            head = compute.if_else(is_null, constant(NULL), head)
        pieces = [head, *pieces]
        return [inverted(concatenate(pieces))] if self.component.descending else pieces, is_null

    def _encode_all(self, given: GivenColumn) -> list[Any]:
        kind, path = self.field.type, self.field.name
        if self.field.optional or not given.array.null_count:
            is_key = type(kind).encode_index_key is ValueType.encode_index_key
            if is_key and self.component.collation is None:
                pieces = make_column(kind, path, int, place="key").to_pieces(given.array)
                if pieces is not None:
                    return pieces
            if isinstance(kind, String) and types.is_string(given.array.type):
                held = given.array.dictionary_encode()
                return [self._encode_each(held.dictionary.to_pylist()).take(held.indices)]
        return [self._encode_each(given.read())]

    def _encode_each(self, values: Iterable[Any]) -> Any:
        encode, check = component_encoder(self.field, self.component), self.field.type.check
        encoded = [None if v is None else encode(check(v, self.field.name)) for v in values]
        return pyarrow.array(encoded, pyarrow.binary())


def plan_column_inserts(
    bound: BoundTable, given: Mapping[str, GivenColumn], count: int
) -> WritePlan:
    """New records of these values by field, in the active schema. Raises `InvalidValue`,
    `CheckViolation`, `DatasetMismatch`."""
    attachments = bound.make_attachments()
    encoder = column_encoder(bound.schema, bound.catalog.zones)
    keys = encoder.encode_keys(given, count, attachments)
    records = encoder.encode_records(bound.prefix, given, count, attachments)
    rows = [
        (key, None, value) for key, value in zip(keys.to_pylist(), records.to_pylist(), strict=True)
    ]
    entries = [list_column_entries(index, given, keys) for index in bound.indexes]
    if bound.checks or None in entries:
        keyed = decode_new(bound, rows, attachments)
        require_none(find_check_violations(bound, keyed))
        entries = [
            index.list_entries(keyed) if found is None else found
            for index, found in zip(bound.indexes, entries, strict=True)
        ]
    plan = WritePlan(bound)
    plan.added = {at: found for at, found in enumerate(entries) if found}
    for at, reference in enumerate(bound.references):
        targets = _find_targets(encoder, reference.field.number, given, attachments)
        if targets:
            plan.targets[at] = targets
    plan.blobs = attachments.blobs
    plan.add_new(rows)
    return plan


def _find_targets(
    encoder: ColumnEncoder, number: int, given: Mapping[str, GivenColumn], attachments: Attachments
) -> set[bytes]:
    """The different keys that the values of a reference are."""
    (field,) = (f for f in (*encoder.key, *encoder.values) if f.field.number == number)
    column = given.get(field.field.name)
    if column is None and field.field.optional and not field.field.has_constant:
        return set()
    pieces: list[Any] = field.encode(column, attachments)
    if column is None:
        return {concatenate([piece]).as_py() for piece in pieces}
    return {key for key in concatenate(pieces).unique().to_pylist() if key}
