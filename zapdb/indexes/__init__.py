"""Indexes: building keys, keeping entries, looking records up."""

from zapdb.indexes.checks import LiveCheck
from zapdb.indexes.keys import KeyBuilder, build_keys, cut, is_cut, successor
from zapdb.indexes.live import LiveTable, make_reader
from zapdb.indexes.maintenance import Collision, LiveIndex, find_collision, open_index
from zapdb.indexes.references import LiveReference, Referrer, search_by_key, search_referrers

__all__ = [
    "Collision",
    "KeyBuilder",
    "LiveCheck",
    "LiveIndex",
    "LiveReference",
    "LiveTable",
    "Referrer",
    "build_keys",
    "cut",
    "find_collision",
    "is_cut",
    "make_reader",
    "open_index",
    "search_by_key",
    "search_referrers",
    "successor",
]
