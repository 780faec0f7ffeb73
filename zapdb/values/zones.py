"""Zone numbers: which number stands for which time zone name in one database.

The numbers are from an append-only stored table, so a name keeps its number for ever, even if later
time zone data change or drop the zone. A link has its own number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from zapdb.limits import COMPILED_MAX
from zapdb.memo import Memo


class Zones:
    """The numbers that this process has read; a missing one is read again once.

    Safe to share between threads: the known numbers are replaced as a whole.
    """

    def __init__(
        self,
        names: Mapping[int, str],
        reload: Callable[[], Mapping[int, str]] | None = None,
    ) -> None:
        self.compiled = Memo[Any, Any](COMPILED_MAX)
        """Programs that were compiled with these numbers; dropped together with them."""
        self._reload = reload
        self._lock = threading.Lock()
        self._learn(names)

    def _learn(self, names: Mapping[int, str]) -> None:
        with self._lock:
            self._names = dict(names)
            self._numbers = {name: number for number, name in names.items()}

    @property
    def names(self) -> Mapping[int, str]:
        """The names that this process has read, by number."""
        return self._names

    def reload(self) -> None:
        """Read the stored table again."""
        if self._reload is not None:
            self._learn(self._reload())

    def number_of(self, name: str) -> int:
        """Return the number of a name; raises `KeyError` if there is none, after reading again."""
        number = self._numbers.get(name)
        if number is None:
            self.reload()
            return self._numbers[name]
        return number

    def name_of(self, number: int) -> str:
        """Return the name of a number; raises `KeyError` if there is none, after reading again."""
        name = self._names.get(number)
        if name is None:
            self.reload()
            return self._names[number]
        return name
