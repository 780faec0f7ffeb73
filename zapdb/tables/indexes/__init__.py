"""Indexes: building keys, keeping entries, looking records up."""

from zapdb.tables.indexes.bound_table import BoundTable, make_reader
from zapdb.tables.indexes.checks import CompiledCheck
from zapdb.tables.indexes.keys import KeyBuilder, build_keys, is_truncated, prefix_end, truncate_key
from zapdb.tables.indexes.maintenance import (
    Collision,
    IndexMaintainer,
    find_collision,
    open_maintainer,
)
from zapdb.tables.indexes.references import (
    IncomingReference,
    ReferenceCheck,
    incoming_reference_ranges,
    key_prefix_ranges,
)

__all__ = [
    "BoundTable",
    "Collision",
    "CompiledCheck",
    "IncomingReference",
    "IndexMaintainer",
    "KeyBuilder",
    "ReferenceCheck",
    "build_keys",
    "find_collision",
    "incoming_reference_ranges",
    "is_truncated",
    "key_prefix_ranges",
    "make_reader",
    "open_maintainer",
    "prefix_end",
    "truncate_key",
]
