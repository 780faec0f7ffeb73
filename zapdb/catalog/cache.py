"""A process's own copy of the catalog: all rows as of one seq, immutable.

It is loaded whole once, and then follows the feed: each step reads the changed rows, in one
snapshot, and makes a new cache. Two caches with the same seq have the same bytes. A cache never
decides what a transaction may do: transactions read the rows themselves (rules 7 and 8).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from zapdb.catalog.feed import read_horizon, read_rows, read_seq
from zapdb.catalog.kinds import row_key
from zapdb.catalog.row_values import R, load_row
from zapdb.storage import Connection


@dataclass(frozen=True, slots=True)
class CatalogCache:
    """The stored texts by (kind, key), as of `seq`."""

    seq: int
    texts: Mapping[tuple[str, str], str]

    def __repr__(self) -> str:
        return f"<catalog rows at seq {self.seq}: {len(self.texts)} rows>"

    def get(self, kind: type[R], *key: object) -> R | None:
        """The row; raises `CorruptCatalog` for one that its kind does not allow."""
        name = row_key(*key)
        text = self.texts.get((kind.KIND, name))
        return None if text is None else load_row(kind, name, text)

    def list(self, kind: type[R], *within: object) -> list[R]:
        """All rows of a kind in the order of their keys; `within` are the first parts of it."""
        prefix = row_key(*within, "")
        return [
            load_row(kind, key, text)
            for (of, key), text in sorted(self.texts.items())
            if of == kind.KIND and key.startswith(prefix)
        ]

    def to_bytes(self) -> bytes:
        """The same for equal caches, in every process."""
        entries = [[*name, text] for name, text in sorted(self.texts.items())]
        return json.dumps([self.seq, entries], separators=(",", ":")).encode()

    def changed_since(self, older: CatalogCache) -> set[tuple[str, str]]:
        """The (kind, key) pairs whose values are not those of another cache."""
        names = self.texts.keys() | older.texts.keys()
        return {name for name in names if self.texts.get(name) != older.texts.get(name)}


def load_cache(connection: Connection) -> CatalogCache:
    """The whole catalog, inside a transaction that reads one snapshot."""
    return _advance(connection, CatalogCache(0, {}))


def refresh_cache(connection: Connection, cache: CatalogCache) -> CatalogCache:
    """The cache as of now, from one that is older, inside a transaction that reads one snapshot."""
    if read_seq(connection) == cache.seq:
        return cache
    if cache.seq < read_horizon(connection):
        return load_cache(connection)
    return _advance(connection, cache)


def _advance(connection: Connection, cache: CatalogCache) -> CatalogCache:
    texts = dict(cache.texts)
    for row in read_rows(connection, cache.seq):
        if row.text is None:
            texts.pop((row.kind, row.key), None)
        else:
            texts[row.kind, row.key] = row.text
    return CatalogCache(read_seq(connection), MappingProxyType(texts))
