"""Schemas as values: the frozen model, its canonical bytes and its fingerprint."""

from zapdb.schema.canonical import fingerprint, read_snapshot, shape, shape_of, snapshot
from zapdb.schema.model import (
    NO_DEFAULT,
    ArchivedField,
    ArchivedTable,
    Check,
    Field,
    ForeignKey,
    Index,
    IndexComponent,
    OnDelete,
    Schema,
    Table,
    types_in,
)

__all__ = [
    "NO_DEFAULT",
    "ArchivedField",
    "ArchivedTable",
    "Check",
    "Field",
    "ForeignKey",
    "Index",
    "IndexComponent",
    "OnDelete",
    "Schema",
    "Table",
    "fingerprint",
    "read_snapshot",
    "shape",
    "shape_of",
    "snapshot",
    "types_in",
]
