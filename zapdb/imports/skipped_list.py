"""Skipped rows in a list of the caller's."""

from __future__ import annotations

from zapdb.imports.importer import SkippedRow


class SkippedList:
    """Skipped rows, as the caller of `import_from` gets them: those of this call."""

    def __init__(self, rows: list[SkippedRow]) -> None:
        self._rows = rows

    def add(self, row: SkippedRow) -> None:
        self._rows.append(row)

    def position(self) -> int:
        return len(self._rows)

    def go_back(self, position: int) -> None:
        del self._rows[position:]
