"""Lines of untrusted text, each of which has to fit in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TextIO

from zapdb.errors import UsageError
from zapdb.limits import TEXT_ROW_CHARS_MAX


class BoundedLines:
    """The lines of a stream, with their ends; `count` were given so far. Raises `UsageError` for a
    line that is too long, before more of it is read."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.count = 0
        self._stream, self._name = stream, name

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(TEXT_ROW_CHARS_MAX + 1)  # iterating loses the stream's place
        if not line:
            raise StopIteration
        self.count += 1
        if len(line) > TEXT_ROW_CHARS_MAX:
            raise too_long(self._name, self.count)
        return line


class RowLines:
    """Lines of which some make a row; raises `UsageError` if those of one are too long together."""

    def __init__(self, lines: Iterable[str], name: str, first: int) -> None:
        self._lines, self._name = iter(lines), name
        self._chars, self._row = 0, first

    def begin_row(self, number: int) -> None:
        self._chars, self._row = 0, number

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._chars += len(line)
        if self._chars > TEXT_ROW_CHARS_MAX:
            raise too_long(self._name, self._row)
        return line


def too_long(name: str, line: int) -> UsageError:
    return UsageError(
        "a row of the text is too long",
        source=name,
        line=line,
        limit=f"{TEXT_ROW_CHARS_MAX:,} characters",
        hint="see that the format is the right one, and that no line end or quote is missing; "
        "larger values can be imported from Parquet, or written by the program's own code",
    )
