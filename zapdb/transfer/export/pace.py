"""How an export tells of records that it has written: its caller, and its job, which may wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from zapdb.jobs.exclusive import ProgressReporter

Progress = Callable[[int], object]
"""Is called with how many more records are done."""
LINES_AT_ONCE: Final = 200
"""After how many lines it is told of them, unless the job's rate asks for fewer."""


def ignore_progress(_: int) -> None: ...


@dataclass
class ExportReporter:
    """Tells of records in batches; those of lines are counted first."""

    progress: Progress
    work: ProgressReporter
    _lines: int = 0
    _size_bytes: int = 0

    def note(self, records: int, size_bytes: int) -> None:
        """So many more records are written, which have about so many bytes; may wait, and raises
        `JobError` if the job was cancelled."""
        self.progress(records)
        self.work.note(records, 0, size_bytes)

    def note_line(self, size: int) -> None:
        """One more record is written, which has so many characters."""
        self._lines += 1
        self._size_bytes += size
        bound = self.work.batch_records_max
        if self._lines >= LINES_AT_ONCE or (bound is not None and self._lines >= bound):
            self.flush()

    def flush(self) -> None:
        """Tell of the last lines."""
        lines, size_bytes, self._lines, self._size_bytes = self._lines, self._size_bytes, 0, 0
        if lines:
            self.note(lines, size_bytes)
