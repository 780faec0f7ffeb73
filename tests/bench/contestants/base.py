"""What a contestant does, with records of `tests.bench.people` and an index on `number`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

Values = dict[str, Any]

SQLITE_PRAGMAS: Final = {"journal_mode": "wal", "synchronous": "full"}
"""The durability that zapdb has."""


class Reader(ABC):
    """One library with a fresh database open, which takes many records in a transaction, and reads
    them; each call is what an application would write."""

    name: ClassVar[str]

    @abstractmethod
    def insert_many(self, people: Sequence[Values]) -> None: ...

    @abstractmethod
    def get(self, ids: Sequence[int]) -> None:
        """Read each as an object."""

    @abstractmethod
    def find_one(self, numbers: Sequence[int]) -> None:
        """Read the first one with each number as an object."""

    @abstractmethod
    def find(self, lows: Sequence[int], count: int) -> int:
        """How many there are in all of the first `count`, by number, from each number on."""

    @abstractmethod
    def scan(self) -> int:
        """Read all as objects, a page at a time; how many there were."""

    @abstractmethod
    def close(self) -> None: ...


class Contestant(Reader):
    """One that writes, too: what it writes is committed, one transaction for each record."""

    @abstractmethod
    def insert(self, people: Sequence[Values]) -> None: ...

    @abstractmethod
    def update(self, ids: Sequence[int], city: str) -> None:
        """Set one field of each, which is known by its key."""

    @abstractmethod
    def save(self, ids: Sequence[int], city: str) -> None:
        """Read each, set one field and write it, in one transaction."""

    @abstractmethod
    def delete(self, ids: Sequence[int]) -> None:
        """Read each and delete it, in one transaction."""

    @abstractmethod
    def insert_in_transaction(self, people: Sequence[Values]) -> None:
        """One by one, committed together."""
