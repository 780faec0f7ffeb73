"""Indexes: building keys, keeping entries, looking records up."""

from zapdb.indexes.keys import KeyBuilder, build_keys, cut, is_cut, successor
from zapdb.indexes.live import LiveTable, make_reader
from zapdb.indexes.maintenance import LiveIndex, open_index

__all__ = [
    "KeyBuilder",
    "LiveIndex",
    "LiveTable",
    "build_keys",
    "cut",
    "is_cut",
    "make_reader",
    "open_index",
    "successor",
]
