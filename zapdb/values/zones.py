"""Zone numbers: which number stands for which time zone name in one database.

The numbers come from a stored table that is only ever appended to, so a name keeps its number for
ever, whatever becomes of the zone in later data; a link has a number of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from zapdb.limits import COMPILED_MAX
from zapdb.memo import Memo


class Zones:
    """The numbers known so far; what is not among them is looked for once more.

    Safe to share between threads: what is known is replaced as a whole.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        reload: Callable[[], Mapping[int, str]] | None = None,
    ) -> None:
        self.compiled = Memo[Any, Any](COMPILED_MAX)
        """Programs that were compiled with these numbers bound; they live as long as the
        numbers."""
        self._reload = reload
        self._lock = threading.Lock()
        self._learn(names)

    def _learn(self, names: Mapping[int, str]) -> None:
        with self._lock:
            self._names = dict(names)
            self._numbers = {name: number for number, name in names.items()}

    def reload(self) -> None:
        """Read the stored table again."""
        if self._reload is not None:
            self._learn(self._reload())

    def number_of(self, name: str) -> int:
        """Raises `KeyError` for a name that has no number, even read again."""
        number = self._numbers.get(name)
        if number is None:
            self.reload()
            return self._numbers[name]
        return number

    def name_of(self, number: int) -> str:
        """Raises `KeyError` for a number that the database does not have, even read again."""
        name = self._names.get(number)
        if name is None:
            self.reload()
            return self._names[number]
        return name
