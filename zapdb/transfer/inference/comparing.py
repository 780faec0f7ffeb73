"""A source's table compared with the records here, by key and by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from zapdb.database import Table
from zapdb.imports import SourceRow
from zapdb.records import asdict
from zapdb.schema import Field
from zapdb.transfer.inference.table_rows import TableRows

COMPARED_ROWS: Final = 500
"""Rows that are compared at a time."""


@dataclass(slots=True)
class ComparedTable:
    """The rows of a source's table, in the order of their keys, and the digests of their values and
    of those of the records with the same keys. `differing` rows have another record here, or
    none. There are `records` here: more than rows, if some have no row."""

    table: str
    rows: int = 0
    records: int = 0
    digest: str = ""
    digest_here: str = ""
    differing: list[SourceRow] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether each row has an equal record, and each record a row."""
        return self.digest == self.digest_here and self.rows == self.records


def compare_table(
    rows: TableRows, table: Table, progress: Callable[[int], object]
) -> ComparedTable:
    """Raises the error of a row that can't be read."""
    bound = table._current()
    fields = [bound.adapter.schema.field_named(name) for name in rows.field_names]
    encode = _Encoder([f for f in fields if f is not None])
    found = ComparedTable(bound.schema.name)
    source, here = hashlib.sha256(), hashlib.sha256()
    stream = rows.rows()
    while page := list(islice(stream, COMPARED_ROWS)):
        for row in page:
            if row.error is not None:
                raise rows.place(row.error, row.number)
        keys = [tuple(row.values[name] for name in bound.adapter.key_names) for row in page]
        records = table.get_many([key if len(key) > 1 else key[0] for key in keys])
        for row, record in zip(page, records, strict=True):
            expected = encode(row.values)
            stored = b"" if record is None else encode(asdict(record))
            source.update(expected)
            here.update(stored)
            if expected != stored:
                found.differing.append(row)
        found.rows += len(page)
        progress(found.rows)
    found.digest, found.digest_here = source.hexdigest(), here.hexdigest()
    found.records = table.count()
    return found


class _Encoder:
    """The values of a record as bytes that are equal where the values are."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = fields

    def __call__(self, values: Mapping[str, Any]) -> bytes:
        return b"".join(self._encode(field, values[field.name]) for field in self._fields)

    def _encode(self, field: Field, value: Any) -> bytes:
        if value is None and not (field.type.holds_null and not field.optional):
            return b"\0"
        return b"\1" + field.type.encode(field.type.check(value, field.name))
