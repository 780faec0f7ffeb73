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
from zapdb.schema.table_diff import Difference, compare_tables

__all__ = [
    "NO_DEFAULT",
    "ArchivedField",
    "ArchivedTable",
    "Check",
    "Difference",
    "Field",
    "ForeignKey",
    "Index",
    "IndexComponent",
    "OnDelete",
    "Schema",
    "Table",
    "compare_tables",
    "fingerprint",
    "read_snapshot",
    "shape",
    "shape_of",
    "snapshot",
    "types_in",
]
