"""How many records are done by now, on standard error while a command works on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self

from zapdb.cli.output import format_count

SHOWN_EVERY_SECONDS: Final = 0.1


class ProgressCounter:
    """A line that counts; a context manager, which takes the line away at its end."""

    def __init__(self, what: str = "record") -> None:
        self.count = 0
        self._what = what
        self._is_shown = sys.stderr.isatty()
        self._due = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the line away until the next count, so that another one can be written."""
        if self._is_shown and self._due:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def add(self, count: int = 1) -> None:
        self.count += count
        if self._is_shown and (now := time.monotonic()) >= self._due:
            self._due = now + SHOWN_EVERY_SECONDS
            sys.stderr.write(f"\r{format_count(self.count, self._what)}{self._describe(now)}\x1b[K")
            sys.stderr.flush()

    def _describe(self, now: float) -> str:
        """What else there is to say at a time of the monotonic clock."""
        return ""
