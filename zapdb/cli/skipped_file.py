"""The file of rows that an import skipped: a JSON object on each line, with the error of the row.

A row is in the file before the batch is committed that leaves it out. What an interrupted batch has
added is taken away by the next run. An import that begins replaces the rows of an earlier one; any
other file is refused. A pipe or a device gets the rows of a batch when that is committed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from zapdb.errors import UsageError
from zapdb.files import is_written_into, open_to_write_into, require_no_database
from zapdb.imports import SkippedRow

_MARKS: Final = {"source", "row", "error", "given"}
"""What each line has."""


class SkippedFile:
    """An open file of skipped rows."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    @staticmethod
    @contextmanager
    def opened(path: Path | None, source: str, mode: int) -> Iterator[SkippedFile | None]:
        """Open a file, which is made if it is missing; None without a path. Raises `UsageError` for
        the source, a database, and a file that has anything but skipped rows."""
        if path is None:
            yield None
            return
        require_no_database(path, (source.removeprefix("sqlite:///"),))
        if is_written_into(path):
            with open_to_write_into(path) as file:
                written = _SkippedStream(file)
                yield written
                written.pass_on()
            return
        # A new file has the mode.
        with open(path, "a+b", opener=partial(os.open, mode=mode)) as file:
            _require_own(file, path)
            yield SkippedFile(file)

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
        self._write(json.dumps(line, ensure_ascii=True).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        self._file.write(line)

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


class _SkippedStream(SkippedFile):
    """A pipe or a device, from which nothing can be taken away: rows wait until the next batch
    begins behind them."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self._waiting = list[bytes]()
        self._passed_on: int | None = None
        """How many bytes went into it; those of an earlier run, before the first."""

    def _write(self, line: bytes) -> None:
        self._waiting.append(line)

    def position(self) -> int:
        return (self._passed_on or 0) + sum(map(len, self._waiting))

    def go_back(self, position: int) -> None:
        if self._passed_on is None:
            self._passed_on = position
        while self.position() > position:
            self._waiting.pop()
        self.pass_on()

    def pass_on(self) -> None:
        self._passed_on = self.position()
        self._file.write(b"".join(self._waiting))
        self._file.flush()
        self._waiting.clear()


def _require_own(file: IO[bytes], path: Path) -> None:
    """Raise `UsageError` for a file that has another first line than one of skipped rows."""
    file.seek(0)
    first = file.readline()
    try:
        is_own = not first or json.loads(first).keys() >= _MARKS
    except (ValueError, AttributeError, RecursionError):
        is_own = False
    if not is_own:
        raise UsageError(
            "the file already exists, and has no skipped rows",
            file=path,
            hint="give another name, or remove the file first",
        )
    file.seek(0, os.SEEK_END)


def _plain(given: Any) -> Any:
    """A row as JSON, so far as it is: what is not is its text."""
    if isinstance(given, dict):
        return {str(name): _plain(value) for name, value in given.items()}
    if isinstance(given, list | tuple):
        return [_plain(value) for value in given]
    return given if isinstance(given, str | int | float | bool | None) else str(given)
