"""Parquet files that somebody else may have written: read within bounds, whatever they say.

A few bytes of such a file can stand for any number of values: one that is repeated, a dictionary
whose entry each row names, prefixes that grow from value to value, pages that are compressed. So
before a value is decoded, the footer and the headers of all pages are read here and compared with
bounds and with each other, and each row group is read in batches that fit in memory.

What is wrong raises `pyarrow.ArrowInvalid`, as the reader of Arrow does for what it finds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow
from pyarrow import parquet

from zapdb.limits import (
    BINARY_SIZE_BYTES_MAX,
    PARQUET_BATCH_SIZE_BYTES,
    PARQUET_COLUMNS_MAX,
    PARQUET_DEPTH_MAX,
    PARQUET_FOOTER_SIZE_BYTES_MAX,
    PARQUET_HELD_SIZE_BYTES_MAX,
    PARQUET_LIST_VALUES_MAX,
    PARQUET_PAGE_SIZE_BYTES_MAX,
)
from zapdb.records.arrow.compact_thrift import ThriftStruct, parse_struct

MAGIC: Final = b"PAR1"
_HEADER_SIZE_BYTES: Final = 1 << 10
"""The first look for the header of a page, which seldom has more; the next looks are longer."""
_WIDTHS: Final = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}
"""Bytes of a value by its physical type; others have them themselves."""
_BYTE_ARRAY, _FIXED_BYTES = 6, 7
_REPEATED: Final = 2
_DICTIONARY_PAGE: Final = 2
_DATA_PAGES: Final = {0: 5, 3: 8}
"""By the type of a page, the number of its own header in that of the page."""
_PLAIN: Final = 0
_ENCODED_BY_PREFIXES: Final = 7
_COMPRESSION_MAX: Final = 100
"""How much smaller large pages may be in the file."""
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


class BoundedFile:
    """A Parquet file that was looked through; raises `pyarrow.ArrowInvalid` and `OSError`."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("rb") as file, _read_by_arrow():
            footer = _read_footer(file)
            leaves = _list_leaves(footer.of_structs(2))
            groups = [_Group(file, group, leaves) for group in footer.of_structs(4)]
        if sum(group.rows for group in groups) != footer.number(3):
            raise _invalid("its row groups have other rows together than it says")
        self._groups = groups
        with _read_by_arrow():
            self._file = parquet.ParquetFile(path)
            self.schema = self._file.schema_arrow
        self.rows = footer.number(3)

    @property
    def row_groups(self) -> list[int]:
        """How many rows each row group has."""
        return [group.rows for group in self._groups]

    def read(self, batch_rows: int, row_groups: Sequence[int] | None = None) -> Iterator[Any]:
        """Yield the record batches of some row groups, or of all: of so many rows, or fewer if
        these may be large."""
        numbers = range(len(self._groups)) if row_groups is None else row_groups
        for number in numbers:
            fitting = self._groups[number].count_fitting(batch_rows)
            with _read_by_arrow():
                batches = self._file.iter_batches(fitting, row_groups=[number])
            while True:
                with _read_by_arrow():
                    batch = next(batches, None)
                if batch is None:
                    break
                yield batch

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> BoundedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def require_bounded(path: str | Path) -> None:
    """Raise `pyarrow.ArrowInvalid` for a file that can't be read within bounds, and `OSError`."""
    BoundedFile(path).close()


@contextmanager
def _read_by_arrow() -> Iterator[None]:
    """Whatever the reader of Arrow raises for the bytes of a file is `pyarrow.ArrowInvalid`."""
    try:
        yield
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise _invalid(str(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise _invalid(str(error)) from error  # of bytes that can't be decompressed or decoded


def _invalid(problem: str) -> Exception:
    error: Exception = pyarrow.ArrowInvalid(problem)
    return error


# --- the footer ----------------------------------------------------------------------------------


def _read_footer(file: BinaryIO) -> ThriftStruct:
    size = file.seek(0, 2)
    if size < 12:
        raise _invalid("it is too short for a Parquet file")
    file.seek(size - 8)
    length, magic = struct.unpack("<I4s", file.read(8))
    if magic != MAGIC:
        raise _invalid("it does not end as a Parquet file does, or is encrypted")
    if length > size - 12:
        raise _invalid("its footer is longer than the file")
    if length > PARQUET_FOOTER_SIZE_BYTES_MAX:
        raise _invalid(
            f"its footer has {length:,} bytes (limit: {PARQUET_FOOTER_SIZE_BYTES_MAX:,})"
        )
    file.seek(size - 8 - length)
    try:
        return parse_struct(file.read(length))[0]
    except IndexError:
        raise _invalid("its footer is damaged") from None


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of values: the bytes of each, 0 if that differs, and whether a row may have many."""

    width: int
    is_repeated: bool


def _list_leaves(elements: Sequence[ThriftStruct]) -> list[_Leaf]:
    """Return the columns of a schema, which is a tree in the order of its nodes."""
    if len(elements) > PARQUET_COLUMNS_MAX:
        raise _invalid(f"it has {len(elements):,} columns (limit: {PARQUET_COLUMNS_MAX:,})")
    found, above = list[_Leaf](), [_Node(1, is_repeated=False)]
    for element in elements:
        while above and not above[-1].left:
            above.pop()
        children = element.get(5) or 0
        if not above or type(children) is not int or children < 0:
            raise _invalid("its schema is damaged")
        above[-1].left -= 1
        is_repeated = above[-1].is_repeated or element.get(3) == _REPEATED
        if children or element is elements[0]:
            above.append(_Node(children, is_repeated))
        else:
            found.append(_Leaf(_find_width(element), is_repeated))
        if len(above) > PARQUET_DEPTH_MAX:
            raise _invalid(f"its columns are nested too deeply (limit: {PARQUET_DEPTH_MAX})")
    if any(node.left for node in above):
        raise _invalid("its schema is damaged")
    return found


@dataclass(slots=True)
class _Node:
    """A group of columns, with how many of its children are left to come."""

    left: int
    is_repeated: bool


def _find_width(element: ThriftStruct) -> int:
    kind = element.number(1)
    if kind == _BYTE_ARRAY:
        return 0
    width = element.number(2) if kind == _FIXED_BYTES else _WIDTHS.get(kind, -1)
    if not 0 <= width <= BINARY_SIZE_BYTES_MAX:
        raise _invalid("a column has values of an unknown or too large type")
    return width


# --- row groups and pages ------------------------------------------------------------------------


class _Group:
    """A row group, whose pages are as its footer says."""

    def __init__(self, file: BinaryIO, group: ThriftStruct, leaves: Sequence[_Leaf]) -> None:
        self.rows = group.number(3)
        if self.rows < 0:
            raise _invalid("a row group has fewer rows than none")
        columns = group.of_structs(1)
        if len(columns) != len(leaves):
            raise _invalid("a row group has other columns than the schema")
        self._row_size_bytes = 1.0
        held = packed = 0
        for column, leaf in zip(columns, leaves, strict=True):
            if column.get(1):
                raise _invalid("a column is in another file")
            chunk = _Chunk(file, column.of_struct(3), leaf)
            if not leaf.is_repeated and chunk.values != self.rows:
                raise _invalid("a column has another number of values than its row group has rows")
            self._row_size_bytes += chunk.measure_row(self.rows)
            held, packed = held + chunk.held, packed + chunk.size
        if held > max(PARQUET_HELD_SIZE_BYTES_MAX, packed * _COMPRESSION_MAX):
            raise _invalid(
                f"a row group has pages of {held:,} bytes in {packed:,} "
                f"(limit: {PARQUET_HELD_SIZE_BYTES_MAX:,})"
            )

    def count_fitting(self, batch_rows: int) -> int:
        """Return how many rows can be read at a time: so many, or fewer."""
        return int(max(1, min(batch_rows, PARQUET_BATCH_SIZE_BYTES / self._row_size_bytes)))


class _Chunk:
    """A column of a row group: its number of values, how large one of them may be, and the bytes
    of its pages that are `held` in memory at once."""

    def __init__(self, file: BinaryIO, column: ThriftStruct, leaf: _Leaf) -> None:
        self.values, self._leaf = column.number(5), leaf
        self._largest = self._plain = self._dictionary = self._page = 0
        self.size, self._codec = column.number(7), column.number(4)
        if not self.values:
            return  # no page of it is read
        start, dictionary = column.number(9), column.get(11)
        if isinstance(dictionary, int) and 0 < dictionary < start:
            start = dictionary
        if start < len(MAGIC) or self.size < 0 or start + self.size > file.seek(0, 2):
            raise _invalid("a column is not within the file")
        counted = sum(self._read_pages(file, start, start + self.size))
        if counted != self.values:
            raise _invalid("the pages of a column have another number of values than it says")
        if leaf.is_repeated and counted > max(PARQUET_LIST_VALUES_MAX, self._plain):
            raise _invalid(
                f"a row group has lists of {counted:,} values (limit: {PARQUET_LIST_VALUES_MAX:,})"
            )

    def _read_pages(self, file: BinaryIO, at: int, end: int) -> Iterator[int]:
        """Yield how many values each page has."""
        while at < end:
            header, began = _read_header(file, at, end)
            size, packed = header.number(2), header.number(3)
            if not 0 <= size <= PARQUET_PAGE_SIZE_BYTES_MAX:
                raise _invalid(
                    f"a page has {size:,} bytes (limit: {PARQUET_PAGE_SIZE_BYTES_MAX:,})"
                )
            at = began + packed
            if packed < 0 or at > end:
                raise _invalid("a page is not within its column")
            kind = header.number(1)
            if kind == _DICTIONARY_PAGE:
                own = header.of_struct(7)
                if not 0 <= own.number(1) <= max(size, 1):
                    raise _invalid("a dictionary has more values than bytes")
                self._dictionary = size
                file.seek(began)
                self._largest = max(self._largest, self._measure_dictionary(file, packed, size))
            elif kind in _DATA_PAGES:
                own = header.of_struct(_DATA_PAGES[kind])
                if own.number(1) < 0:
                    raise _invalid("a page has fewer values than none")
                self._plain += size
                self._page = max(self._page, size)
                if own.number(2 if kind == 0 else 4) == _ENCODED_BY_PREFIXES:
                    self._largest = max(self._largest, self._plain)
                yield own.number(1)

    def _measure_dictionary(self, file: BinaryIO, packed: int, size: int) -> int:
        """Return the size of the largest value of a dictionary, or a bound of it."""
        if self._leaf.width:
            return self._leaf.width
        if self._codec not in _CODECS and self._codec:
            return size
        raw: Any = file.read(packed)
        if self._codec:
            raw = pyarrow.Codec(_CODECS[self._codec]).decompress(raw, size)
        largest = at = 0
        view = memoryview(raw)
        while at + 4 <= len(view):
            (length,) = struct.unpack_from("<I", view, at)
            largest, at = max(largest, length), at + 4 + length
        if largest > BINARY_SIZE_BYTES_MAX or at > len(view):
            raise _invalid("a dictionary is damaged, or has a value that is too large")
        return largest

    @property
    def held(self) -> int:
        return self._dictionary + self._page

    def measure_row(self, rows: int) -> float:
        """Return the bytes that a row may have, of all its values."""
        values = max(1.0, self.values / max(rows, 1))
        return values * max(self._leaf.width, self._largest) + self._plain / max(rows, 1)


def _read_header(file: BinaryIO, at: int, end: int) -> tuple[ThriftStruct, int]:
    """Return the header of a page, and where that begins."""
    wanted = _HEADER_SIZE_BYTES
    while True:
        file.seek(at)
        raw = file.read(min(wanted, end - at))
        try:
            found, length = parse_struct(raw)
        except IndexError:
            if len(raw) < wanted or wanted > BINARY_SIZE_BYTES_MAX:
                raise _invalid("the header of a page is not whole") from None
            wanted *= 16
            continue
        return found, at + length
