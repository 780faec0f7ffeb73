"""A process's own picture of the catalog: all rows as of one seq, immutable.

It is loaded whole once, and then follows the changelog: each step reads what changed, in one
snapshot, and makes a new view. Two processes whose views have one seq have the same bytes.
Nothing of it decides what a transaction may do: those read the rows themselves (rules 7 and 8).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from zapdb.catalog.changelog import read_horizon, read_rows, read_seq
from zapdb.catalog.kinds import row_key
from zapdb.catalog.row_values import R, load_row
from zapdb.storage import Connection


@dataclass(frozen=True, slots=True)
class LocalView:
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
        """The same for equal views, in every process."""
        entries = [[*name, text] for name, text in sorted(self.texts.items())]
        return json.dumps([self.seq, entries], separators=(",", ":")).encode()

    def changed_since(self, older: LocalView) -> set[tuple[str, str]]:
        """The (kind, key) pairs whose values are not those of another view."""
        names = self.texts.keys() | older.texts.keys()
        return {name for name in names if self.texts.get(name) != older.texts.get(name)}


def load_cache(connection: Connection) -> LocalView:
    """The whole catalog, inside a transaction that reads one snapshot."""
    return _advance(connection, LocalView(0, {}))


def refresh_cache(connection: Connection, view: LocalView) -> LocalView:
    """The view as of now, from one that is older, inside a transaction that reads one snapshot."""
    if read_seq(connection) == view.seq:
        return view
    if view.seq < read_horizon(connection):
        return load_cache(connection)
    return _advance(connection, view)


def _advance(connection: Connection, view: LocalView) -> LocalView:
    texts = dict(view.texts)
    for row in read_rows(connection, view.seq):
        if row.text is None:
            texts.pop((row.kind, row.key), None)
        else:
            texts[row.kind, row.key] = row.text
    return LocalView(read_seq(connection), MappingProxyType(texts))
