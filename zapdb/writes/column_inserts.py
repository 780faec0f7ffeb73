"""Plans insertions of many records by their columns: what `plan_inserts` plans by rows.

Records and entries are made by whole arrays. Where something reads a record's values, as checks do,
the fields that it reads are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zapdb.indexes import BoundTable
from zapdb.indexes.column_keys import list_column_entries
from zapdb.records import Attachments
from zapdb.records.arrow import GivenColumn, column_encoder
from zapdb.records.arrow.encoder import ColumnEncoder
from zapdb.records.arrow.packing import join
from zapdb.writes.planning import check_records
from zapdb.writes.write import NewRecords


def plan_column_inserts(
    bound: BoundTable, given: Mapping[str, GivenColumn], count: int
) -> NewRecords:
    """New records of these values by field, in the active schema. Raises `InvalidValue`,
    `CheckViolation`, `DatasetMismatch`."""
    attachments = bound.make_attachments()
    encoder = column_encoder(bound.schema, bound.catalog.zones)
    keys = encoder.encode_keys(given, count, attachments)
    records = encoder.encode_records(bound.prefix, given, count, attachments)
    rows = list(zip(keys.to_pylist(), records.to_pylist(), strict=True))
    entries = [list_column_entries(index, given, keys) for index in bound.indexes]
    if bound.checks or None in entries:
        keyed = bound.decode_rows(rows, attachments)
        check_records(bound, keyed)
        entries = [
            index.list_entries(keyed) if found is None else found
            for index, found in zip(bound.indexes, entries, strict=True)
        ]
    targets = [
        _list_targets(encoder, reference.field.number, given, attachments)
        for reference in bound.references
    ]
    return NewRecords(rows, [found or [] for found in entries], targets, attachments.blobs)


def _list_targets(
    encoder: ColumnEncoder, number: int, given: Mapping[str, GivenColumn], attachments: Attachments
) -> list[bytes]:
    """The different keys that the values of a reference are."""
    (field,) = (f for f in (*encoder.key, *encoder.values) if f.field.number == number)
    column = given.get(field.field.name)
    if column is None and field.field.optional and not field.field.has_constant:
        return []
    pieces: list[Any] = field.encode(column, attachments)
    if column is None:
        return [join([piece]).as_py() for piece in pieces]
    found = join(pieces).unique().to_pylist()
    return sorted(key for key in found if key)
