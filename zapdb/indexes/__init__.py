"""Indexes: building keys, keeping entries, looking records up."""

from zapdb.indexes.bound_table import BoundTable, make_reader
from zapdb.indexes.checks import CompiledCheck
from zapdb.indexes.keys import KeyBuilder, build_keys, is_truncated, prefix_end, truncate_key
from zapdb.indexes.maintenance import Collision, IndexMaintainer, find_collision, open_maintainer
from zapdb.indexes.references import (
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
