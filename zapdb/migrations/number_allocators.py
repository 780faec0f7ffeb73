"""The numbers that a migration's operations draw: noted when it is resolved, and given out again
when it is replayed."""

from __future__ import annotations

from typing import Any

from zapdb.migrations.operations import NumberAllocator


class RecordingAllocator(NumberAllocator):
    """Draws from other numbers, and notes by kind what was drawn."""

    def __init__(self, inner: NumberAllocator, migration: int) -> None:
        super().__init__(migration=migration)
        self.inner = inner
        self.drawn: dict[str, list[int]] = {}

    def allocate(self, kind: Any) -> int:
        number = self.inner.allocate(kind)
        self.drawn.setdefault(kind, []).append(number)
        return number


class ReplayAllocator(NumberAllocator):
    """Returns the numbers again that were allocated when the migration was stored."""

    def __init__(self, drawn: dict[str, list[int]], migration: int) -> None:
        super().__init__(migration=migration)
        self.rest = {kind: iter(numbers) for kind, numbers in drawn.items()}

    def allocate(self, kind: str) -> int:
        number = next(self.rest[kind], None)
        if number is None:
            raise ValueError(f"too few {kind} numbers are stored")
        return number
