"""Schemas as values: the frozen model, its canonical bytes and its fingerprint."""

from zapdb.schema.canonical_schema import (
    bytes_without_numbers,
    canonical_bytes,
    fingerprint,
    read_canonical_bytes,
    type_bytes_without_numbers,
)
from zapdb.schema.model import (
    NO_DEFAULT,
    ArchivedField,
    ArchivedTable,
    Check,
    Field,
    ForeignKey,
    Generator,
    Index,
    IndexComponent,
    Now,
    OnDelete,
    Schema,
    TableSchema,
    find_now,
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
    "Generator",
    "Index",
    "IndexComponent",
    "Now",
    "OnDelete",
    "Schema",
    "TableSchema",
    "bytes_without_numbers",
    "canonical_bytes",
    "compare_tables",
    "find_now",
    "fingerprint",
    "read_canonical_bytes",
    "type_bytes_without_numbers",
    "types_in",
]
