"""Schemas as values: the frozen model, its canonical bytes and its fingerprint."""

from zapdb.schema.canonical import fingerprint, read_snapshot, shape, shape_of, snapshot
from zapdb.schema.model import (
    NO_DEFAULT,
    Field,
    Index,
    IndexComponent,
    Schema,
    Table,
)

__all__ = [
    "NO_DEFAULT",
    "Field",
    "Index",
    "IndexComponent",
    "Schema",
    "Table",
    "fingerprint",
    "read_snapshot",
    "shape",
    "shape_of",
    "snapshot",
]
