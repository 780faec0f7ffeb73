"""The file of rows that an import skipped: a JSON object on each line, with the error of the row.

A row is in the file before the batch is committed that leaves it out. What an interrupted batch has
added is taken away by the next run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

from zapdb.database.imports import SkippedRow


class SkippedFile:
    """An open file of skipped rows."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @classmethod
    @contextmanager
    def opened(cls, path: Path | None) -> Iterator[Self | None]:
        """Open a file, which is made if it is missing; None without a path."""
        if path is None:
            yield None
            return
        with path.open("ab") as file:
            yield cls(file)

    def add(self, row: SkippedRow) -> None:
        error = row.error.to_json()
        location = error["location"] or {}
        line = {
            "source": row.source,
            "row": row.number,
            **({"line": location["line"]} if location.get("line") else {}),
            "error": error["message"],
            **{name: str(value) for name, value in error["context"].items() if name != "row"},
            "given": _plain(row.given),
        }
        self._file.write(json.dumps(line, ensure_ascii=True).encode() + b"\n")

    def position(self) -> int:
        """How many bytes it has; they are on the disk then."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def go_back(self, position: int) -> None:
        self._file.flush()
        if self._file.seek(0, os.SEEK_END) > position:
            self._file.truncate(position)
            self._file.seek(position)


def _plain(given: Any) -> Any:
    """A row as JSON, so far as it is: what is not is its text."""
    if isinstance(given, dict):
        return {str(name): _plain(value) for name, value in given.items()}
    if isinstance(given, list | tuple):
        return [_plain(value) for value in given]
    return given if isinstance(given, str | int | float | bool | None) else str(given)
