"""Indexes: building keys, keeping entries, looking records up."""

from zapdb.indexes.keys import KeyBuilder, build_keys, cut, is_cut, successor
from zapdb.indexes.live import LiveTable, make_reader
from zapdb.indexes.maintenance import LiveIndex, open_index
from zapdb.indexes.search import Entry, Search, search_equal, search_prefix, search_range

__all__ = [
    "Entry",
    "KeyBuilder",
    "LiveIndex",
    "LiveTable",
    "Search",
    "build_keys",
    "cut",
    "is_cut",
    "make_reader",
    "open_index",
    "search_equal",
    "search_prefix",
    "search_range",
    "successor",
]
