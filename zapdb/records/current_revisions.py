"""Which revisions of a table have the layout of now: all others are of stale records (rule 1).

Nearly always these are the revisions from one on. But a table may return to a layout that it had,
such as when a dropped field is restored: records that were written before are current again, and
those between are stale. So what decides is the prefix of a record, by one comparison of bytes or a
few, in SQL as in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from zapdb.records.layout import encode_prefix


@dataclass(frozen=True)
class CurrentRevisions:
    """The revisions from `first` on, but for `others`: (from, up to but not including)."""

    first: int
    others: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, first: int, layouts: Iterable[tuple[int, int]]) -> CurrentRevisions:
        """Those with the layout of revision `first`, given the layout revision of each later
        revision, as (revision, its layout revision), in order."""
        others = list[tuple[int, int]]()
        begun: int | None = None
        for revision, layout in layouts:
            if layout == first and begun is not None:
                others.append((begun, revision))
                begun = None
            elif layout != first and begun is None:
                begun = revision
        return cls(first, tuple(others))

    @property
    def since(self) -> int:
        """The revision from which on all have the layout."""
        return self.others[-1][1] if self.others else self.first

    def has(self, revision: int) -> bool:
        return revision >= self.first and not any(a <= revision < b for a, b in self.others)

    @cached_property
    def _prefixes(self) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
        others = ((encode_prefix(a), encode_prefix(b)) for a, b in self.others)
        return encode_prefix(self.first), tuple(others)

    def is_stale(self, value: bytes) -> bool:
        """Whether a record is stale, by its bytes."""
        first, others = self._prefixes
        return value < first or any(a <= value < b for a, b in others)

    def stale_sql(self, mark: str) -> tuple[str, list[bytes]]:
        """The condition for stale records, with its parameters."""
        first, others = self._prefixes
        parts = [f"value < {mark}", *[f"(value >= {mark} AND value < {mark})"] * len(others)]
        parameters = [first, *(bound for pair in others for bound in pair)]
        return (parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"), parameters
