"""Indexes: building keys, keeping entries, looking records up."""

from zapdb.indexes.checks import LiveCheck
from zapdb.indexes.keys import KeyBuilder, build_keys, cut, is_cut, successor
from zapdb.indexes.live import LiveTable, make_reader
from zapdb.indexes.maintenance import Collision, LiveIndex, find_collision, open_index
from zapdb.indexes.references import LiveReference, Referrer, search_by_key, search_referrers
from zapdb.indexes.search import Entry, Search, search_equal, search_prefix, search_range

__all__ = [
    "Collision",
    "Entry",
    "KeyBuilder",
    "LiveCheck",
    "LiveIndex",
    "LiveReference",
    "LiveTable",
    "Referrer",
    "Search",
    "build_keys",
    "cut",
    "find_collision",
    "is_cut",
    "make_reader",
    "open_index",
    "search_by_key",
    "search_equal",
    "search_prefix",
    "search_range",
    "search_referrers",
    "successor",
]
