"""Rows of a text file, which is gone on with at the byte where an earlier run has stopped.

A mark is where the rows begin that were not read yet. It goes with a checksum of all bytes before
it: if the file has another size or time than then, they are read again, which is a hundred times as
fast as to import them, and what has changed among them is noticed.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import IO, ClassVar, Final
from zlib import crc32

import msgspec

from zapdb.imports.given_file import GivenFile
from zapdb.imports.row import RowSource, SourceChanged, SourceRow
from zapdb.imports.text import opened_text
from zapdb.records.record_lines import BoundedLines
from zapdb.schema import TableSchema

CHUNK_SIZE_BYTES: Final = 1 << 20
_BYTE: Final = (1 << 64) - 1
"""What of a place, as `TextIOBase.tell` gives it, is a number of bytes; the rest is the state of
the decoder there."""
_ASCII: Final = bytes(range(128))


class TextMark(msgspec.Struct, frozen=True):
    """The place of a row, as `TextIOBase.tell` gives it, in digits, and its line; the file as it
    was then."""

    at: str
    line: int
    crc: int
    size: int
    changed_ns: int
    encoding: str

    @property
    def byte(self) -> int:
        """How many bytes are before it; a few less in an encoding whose letters depend on those
        before them."""
        return int(self.at) & _BYTE


class Lines(BoundedLines):
    """The lines of a text, one after the other, from a place that may be gone to."""

    @property
    def encoding(self) -> str:
        return self._stream.encoding

    def tell(self) -> int:
        return self._stream.tell()

    def go_to(self, mark: TextMark) -> None:
        self._stream.seek(int(mark.at))
        self.count = mark.line - 1


class _Prefix:
    """The bytes of a file up to a place that only moves on, as a checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self.crc = 0
        self.is_ascii = True
        self._file = file
        self.byte = 0

    def move_on(self, byte: int) -> bool:
        """Return whether the file is so long."""
        self._file.seek(self.byte)
        while self.byte < byte:
            found = self._file.read(min(CHUNK_SIZE_BYTES, byte - self.byte))
            if not found:
                return False
            self.crc = crc32(found, self.crc)
            self.is_ascii = self.is_ascii and found.isascii()
            self.byte += len(found)
        return True

    def look(self) -> os.stat_result:
        """The file's size and time, among others."""
        return os.fstat(self._file.fileno())

    def trust(self, mark: TextMark) -> None:
        """Take over what was found before."""
        self.crc, self.byte = mark.crc, mark.byte


class TextSource(RowSource):
    """Rows of a text file whose rows end with their lines."""

    counts_lines = True
    newline: ClassVar[str]
    """What lines end with, as `open` has it."""

    def __init__(self, given: GivenFile, target: TableSchema) -> None:
        self.name = given.shown
        self.identity = given.identity
        self.seeks = bool(self.identity)
        self._given = given
        self._table = target
        self._lines: Lines | None = None
        self._prefix: _Prefix | None = None
        self._end: TextMark | None = None
        """The end of the file, once it is reached."""

    def rows(self, after: str = "") -> Iterator[SourceRow]:
        """Raises `SourceChanged` while its first row is read."""
        with opened_text(self._given, newline=self.newline) as stream:
            self._lines = Lines(stream, self.name)
            if not self.seeks:
                yield from self._read(self._lines, None)
                return
            with Path(self._given.path).open("rb") as file:
                self._prefix = _Prefix(file)
                mark = msgspec.json.decode(after, type=TextMark) if after else None
                if mark is not None:
                    self._require_same(mark)
                yield from self._read(self._lines, mark)
                self._end = self._make_mark()

    @abstractmethod
    def _read(self, lines: Lines, mark: TextMark | None) -> Iterator[SourceRow]:
        """The rows, from a mark on."""

    def estimate_rows(self, read: int) -> int | None:
        if not self.seeks or self._prefix is None or not self._prefix.byte:
            return None
        if self._end is not None:
            return read
        return read * self._prefix.look().st_size // self._prefix.byte

    def position_of(self, row: SourceRow) -> str:
        """The mark behind the row that was given last."""
        return msgspec.json.encode(self._end or self._make_mark()).decode()

    def _make_mark(self) -> TextMark:
        assert self._lines is not None
        assert self._prefix is not None
        found, at = self._prefix.look(), self._lines.tell()
        self._prefix.move_on(at & _BYTE)
        return TextMark(
            str(at),
            self._lines.count + 1,
            self._prefix.crc,
            found.st_size,
            found.st_mtime_ns,
            self._lines.encoding,
        )

    def _require_same(self, mark: TextMark) -> None:
        assert self._lines is not None
        assert self._prefix is not None
        found, encoding = self._prefix.look(), self._lines.encoding
        is_touched = (found.st_size, found.st_mtime_ns) != (mark.size, mark.changed_ns)
        if not is_touched and encoding == mark.encoding:
            self._prefix.trust(mark)
            return
        is_same = self._prefix.move_on(mark.byte) and self._prefix.crc == mark.crc
        if is_same and encoding != mark.encoding:
            names = (encoding, mark.encoding)
            is_plain = all(_ASCII.decode(name, "replace") == _ASCII.decode() for name in names)
            is_same = is_plain and self._prefix.is_ascii and int(mark.at) == mark.byte
        if not is_same:
            raise SourceChanged
