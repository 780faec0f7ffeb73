"""A job that is not one: it remembers what work tells it, and never waits."""

from __future__ import annotations

from zapdb.jobs.exclusive import ProgressReporter


class NotedPace(ProgressReporter):
    """`held` has what it might have waited at, `counted` the rest."""

    is_job = True

    def __init__(self) -> None:
        super().__init__()
        self.expected, self.held, self.counted = list[int | None](), list[int](), list[int]()
        self.is_open = False

    def expect(self, left: int | None) -> None:
        self.expected.append(left)

    def note(self, read: int, written: int = 0, size_bytes: int = 0) -> None:
        self.held.append(read)

    def count(self, read: int, written: int = 0) -> None:
        self.counted.append(read)

    def leave_open(self) -> None:
        self.is_open = True
