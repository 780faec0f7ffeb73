"""Which tables and columns of a source are meant, by the names that they have there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from zapdb.errors import UsageError, suggest


@dataclass(frozen=True)
class TableChoice:
    """Which tables of a source are meant: those of these names, all if there are none, but not the
    ones that are excluded. `TABLE.COLUMN` excludes a column."""

    only: Collection[str] = ()
    exclude: Collection[str] = ()

    def has(self, name: str) -> bool:
        return (not self.only or name in self.only) and name not in self.exclude

    def has_column(self, table: str, column: str) -> bool:
        return f"{table}.{column}" not in self.exclude

    def require_known(self, tables: Mapping[str, sa.Table]) -> None:
        """Raise `UsageError` for a name that the source does not have."""
        columns = {f"{t.name}.{c.name}" for t in tables.values() for c in t.columns}
        for name in (*self.only, *self.exclude):
            known = {*tables} if name in self.only or "." not in name else columns
            if name not in known:
                raise UsageError(
                    "the source has no such table or column",
                    name=name,
                    hint=suggest(name, sorted(known)),
                )


ALL_TABLES: Final = TableChoice()
