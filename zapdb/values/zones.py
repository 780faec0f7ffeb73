"""Zone numbers: which number stands for which time zone name in one database.

The numbers come from a stored table that is only ever appended to, so a name keeps its number for
ever, whatever becomes of the zone in later data; a link has a number of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Zones:
    """The numbers known so far; a number that is not among them is looked for once more."""

    def __init__(
        self,
        names: Mapping[int, str],
        reload: Callable[[], Mapping[int, str]] | None = None,
    ) -> None:
        self._reload = reload
        self._learn(names)

    def _learn(self, names: Mapping[int, str]) -> None:
        self._names = dict(names)
        self._numbers = {name: number for number, name in names.items()}

    def number_of(self, name: str) -> int:
        """Raises `KeyError` for a name without a number."""
        return self._numbers[name]

    def name_of(self, number: int) -> str:
        """Raises `KeyError` for a number that the database does not have, even read again."""
        if number not in self._names and self._reload is not None:
            self._learn(self._reload())
        return self._names[number]
