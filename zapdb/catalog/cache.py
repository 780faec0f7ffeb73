"""A process's own copy of the catalog: all rows as of one seq, immutable.

A process loads all rows once, and then follows the feed: each step reads the changed rows in one
snapshot and makes a new cache. Two caches with the same seq have the same bytes. A transaction that
sees the seq of a cache sees the cache's rows, so it need not read them. A cache
that is behind never decides what a transaction may do (rules 7 and 8).

Where a backup was restored, the rows since are others, and the feed does not lead on from a cache.
Then the newest row that both should have is not the same: seqs are identities. (Rows of other
histories have other seqs, above all that they have in common; so if any row differs, one that is
newer than those does.) The cache is loaded anew.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from types import MappingProxyType
from typing import Final

from zapdb.catalog import rows
from zapdb.catalog.feed import FeedRow, read_changed_rows, read_horizon, read_newest_up_to, read_seq
from zapdb.catalog.row_kinds import CatalogRow, row_key
from zapdb.catalog.rows import R, load_row
from zapdb.errors import CatalogChangesPurged, CorruptCatalog
from zapdb.storage import Connection


class LoadedRows:
    """Rows that were read together: the stored texts by (kind, key)."""

    texts: Mapping[tuple[str, str], str]

    def get(self, kind: type[R], *key: object) -> R | None:
        """Return the row; raises `CorruptCatalog` if its kind does not allow it."""
        name = row_key(*key)
        text = self.texts.get((kind.KIND, name))
        return None if text is None else load_row(kind, name, text)

    def list(self, kind: type[R], *within: object) -> list[R]:
        """Return all rows of a kind in the order of keys; `within` are the first key parts."""
        prefix, keys, found = row_key(*within, ""), self._keys.get(kind.KIND, ()), []
        for key in islice(keys, bisect_left(keys, prefix), None):
            if not key.startswith(prefix):
                break
            found.append(load_row(kind, key, self.texts[kind.KIND, key]))
        return found

    @cached_property
    def _keys(self) -> Mapping[str, tuple[str, ...]]:
        """Return the keys of each kind, in order."""
        found = defaultdict(list)
        for kind, key in sorted(self.texts):
            found[kind].append(key)
        return {kind: tuple(keys) for kind, keys in found.items()}


@dataclass(frozen=True)
class SomeRows(LoadedRows):
    """The rows that a statement has read, and no others."""

    texts: Mapping[tuple[str, str], str]

    @classmethod
    def read(
        cls, connection: Connection, kinds: Iterable[type[CatalogRow]], *within: object
    ) -> SomeRows:
        """Read the rows of some kinds whose keys begin with one of `within`."""
        return cls(rows.read_texts(connection, kinds, within))


@dataclass(frozen=True)
class CatalogCache(LoadedRows):
    """All rows, as of `seq`."""

    seq: int
    texts: Mapping[tuple[str, str], str]
    seqs: Mapping[tuple[str, str], int] = field(default_factory=dict, repr=False, compare=False)
    """The seq of each row, in their order; also of tombstones that are not purged."""

    def __repr__(self) -> str:
        return f"<catalog rows at seq {self.seq}: {len(self.texts)} rows>"

    def to_bytes(self) -> bytes:
        """Return the seq and the rows as bytes, equal for equal caches in every process."""
        entries = [[*name, text] for name, text in sorted(self.texts.items())]
        return json.dumps([self.seq, entries], separators=(",", ":")).encode()

    def changed_since(self, older: CatalogCache) -> set[tuple[str, str]]:
        """Return the (kind, key) pairs whose values differ from those of another cache."""
        names = self.texts.keys() | older.texts.keys()
        return {name for name in names if self.texts.get(name) != older.texts.get(name)}


def load_cache(connection: Connection) -> CatalogCache:
    """Load the whole catalog, inside a transaction that reads one snapshot; raises `CorruptCatalog`
    for a row before the first change."""
    loaded = _advance(connection, NOTHING_CACHED, read_changed_rows(connection, 0), 0)
    if loaded is None:
        raise CorruptCatalog(
            "a row of the catalog has a seq below 1",
            table="zapdb_catalog",
            hint="restore the row from a backup",
        )
    return loaded


def refresh_cache(connection: Connection, cache: CatalogCache) -> CatalogCache:
    """Return the present cache, made of an older one, inside a transaction that reads one
    snapshot."""
    if read_seq(connection) == cache.seq:
        return cache
    with suppress(CatalogChangesPurged):
        changed = read_changed_rows(connection, cache.seq)
        refreshed = _advance(connection, cache, changed, read_horizon(connection))
        if refreshed is not None:
            return refreshed
    if connection.storage.zones is not None:
        connection.storage.zones.reload()  # they may be of another history, too
    return load_cache(connection)


def _advance(
    connection: Connection, cache: CatalogCache, changed: list[FeedRow], horizon: int
) -> CatalogCache | None:
    """Return the cache with the rows that changed since; None if it is of another history."""
    names = {(row.kind, row.key) for row in changed}
    texts, seqs = dict(cache.texts), dict[tuple[str, str], int]()
    for name, seq in cache.seqs.items():
        if name not in names and (seq > horizon or name in texts):
            seqs[name] = seq
    if next(reversed(seqs.values()), None) != read_newest_up_to(connection, cache.seq):
        return None
    for row in changed:
        name = row.kind, row.key
        seqs[name] = row.seq
        if row.text is None:
            texts.pop(name, None)
        else:
            texts[name] = row.text
    return CatalogCache(read_seq(connection), MappingProxyType(texts), MappingProxyType(seqs))


NOTHING_CACHED: Final = CatalogCache(0, {})
