"""What decides whether the rows of a mirror's table are still those of the table: its shape."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.schema import TableSchema, canonical_bytes


def shape_of(table: TableSchema) -> str:
    """Digest of a table's fields, types and key. Its indexes and constraints leave rows alone."""
    bare = replace(table, indexes=(), checks=(), foreign_keys=(), archived=())
    return hashlib.sha256(canonical_bytes(bare)).hexdigest()[:16]


def list_mirrored(catalog: TenantCatalog) -> dict[int, TableDescriptor]:
    """The tables whose changes are in the change log, by number."""
    return {d.schema.number: d for d in catalog.tables.values() if d.logs_changes}
