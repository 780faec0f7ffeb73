"""What was made once and is needed again: so much of it and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Generic, TypeVar

Key = TypeVar("Key")
Made = TypeVar("Made")


class Memo(Generic[Key, Made]):
    """Keeps up to `most` things by their keys; the one that was made first is given up first.

    Threads may share it: two may make the same thing at once, and one of both is kept.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._made: dict[Key, Made] = {}

    def __len__(self) -> int:
        return len(self._made)

    def find(self, key: Key) -> Made | None:
        """What is kept under the key, or None."""
        return self._made.get(key)

    def get(self, key: Key, make: Callable[[], Made]) -> Made:
        """What is kept under the key, or was made now. None is nothing to keep."""
        found = self._made.get(key)
        if found is None:
            found = self.put(key, make())
        return found

    def put(self, key: Key, made: Made) -> Made:
        """Keep something under the key, in the place of what was kept there; returns it."""
        self._made[key] = made
        with suppress(RuntimeError, StopIteration):  # another thread does the same
            while len(self._made) > self.most:
                self._made.pop(next(iter(self._made)), None)
        return made


class MadeWhenRead(Mapping[Key, Made]):
    """A mapping that is made when something reads it, and once."""

    def __init__(self, make: Callable[[], Mapping[Key, Made]]) -> None:
        self._make = make

    @cached_property
    def _made(self) -> Mapping[Key, Made]:
        return self._make()

    def __getitem__(self, key: Key) -> Made:
        return self._made[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
