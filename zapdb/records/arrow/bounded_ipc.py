"""Untrusted Arrow files and streams, read within bounds, whatever they say.

Arrow takes what is in such a file as it is: buffers that say how long they are without compression,
offsets that may lead anywhere, rows that need no bytes. So before a batch is read, what the file
says of it is compared with bounds and with the file here; after that, all of it is validated. Where
rows share a value (dictionaries, views, runs), the batch is given in parts that fit in memory with
all values written out.

What is wrong raises `pyarrow.ArrowInvalid`, as the reader of Arrow does for what it finds.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy
import pyarrow
from pyarrow import compute, ipc, types

from zapdb.limits import (
    ARROW_BODY_SIZE_BYTES_MAX,
    ARROW_VALUES_MAX,
    PARQUET_BATCH_SIZE_BYTES,
    PARQUET_COLUMNS_MAX,
    PARQUET_DEPTH_MAX,
    PARQUET_FOOTER_SIZE_BYTES_MAX,
)

MAGIC: Final = b"ARROW1"
_CONTINUES: Final = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_ORDINARY: Final = frozenset({_SCHEMA, _DICTIONARY, _BATCH})


class BoundedIpc:
    """An Arrow file or stream that was looked through; raises `pyarrow.ArrowInvalid` and
    `OSError`."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("rb") as file:
            if file.seek(0, 2) < 8:
                raise _invalid("it is too short for an Arrow file")
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        with data:
            self._is_file = data[: len(MAGIC)] == MAGIC
            look = _Look(data)
            try:
                look.through_file() if self._is_file else look.through_stream()
            except (struct.error, IndexError, ValueError) as error:
                if isinstance(error, pyarrow.ArrowInvalid):
                    raise
                raise _invalid("what it says of its batches is damaged") from None
        opened = pyarrow.memory_map(str(path))
        self._reader = ipc.open_file(opened) if self._is_file else ipc.open_stream(opened)
        self.schema = self._reader.schema
        _require_plain([field.type for field in self.schema])

    def read(self) -> Iterator[Any]:
        """Yield the record batches, or parts of them."""
        for batch in self._batches():
            batch.validate(full=True)
            size, start = measure_written_out(batch), 0
            if batch.num_rows and size // batch.num_rows > ARROW_BODY_SIZE_BYTES_MAX:
                raise _invalid(
                    f"a row has {size // batch.num_rows:,} bytes with all values written out "
                    f"(limit: {ARROW_BODY_SIZE_BYTES_MAX:,})"
                )
            step = max(1, batch.num_rows * PARQUET_BATCH_SIZE_BYTES // max(size, 1))
            while start < batch.num_rows:
                yield batch.slice(start, step)
                start += step

    def _batches(self) -> Iterator[Any]:
        if not self._is_file:
            return iter(self._reader)
        reader = self._reader
        return (reader.get_batch(at) for at in range(reader.num_record_batches))


def _invalid(problem: str) -> Exception:
    error: Exception = pyarrow.ArrowInvalid(problem)
    return error


def _require_plain(kinds: list[Any]) -> None:
    """Raise `pyarrow.ArrowInvalid` for too many or too deeply nested columns."""
    count, level, depth = 0, kinds, 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > PARQUET_COLUMNS_MAX:
            raise _invalid(f"it has more columns than {PARQUET_COLUMNS_MAX:,}")
        if depth > PARQUET_DEPTH_MAX:
            raise _invalid(f"its columns are nested too deeply (limit: {PARQUET_DEPTH_MAX})")
        level = [inner for kind in level for inner in _list_inner(kind)]


def _list_inner(kind: Any) -> list[Any]:
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return [kind.value_type]
    return [kind.field(at).type for at in range(kind.num_fields)]


# --- what is said of batches ---------------------------------------------------------------------


class _Table:
    """A table of Flatbuffers: its fields by their numbers. Raises `struct.error` outside of its
    bytes."""

    def __init__(self, raw: bytes, at: int | None = None) -> None:
        self._raw = raw
        self._at = struct.unpack_from("<I", raw)[0] if at is None else at
        self._fields = self._at - struct.unpack_from("<i", raw, self._at)[0]
        if self._fields < 0:
            raise _invalid("what it says of its batches is damaged")

    def number(self, field: int, form: str) -> int:
        place = self._find(field)
        return 0 if place is None else int(struct.unpack_from(form, self._raw, place)[0])

    def table(self, field: int) -> _Table | None:
        place = self._find(field)
        if place is None:
            return None
        return _Table(self._raw, place + struct.unpack_from("<I", self._raw, place)[0])

    def structs(self, field: int, form: str) -> list[tuple[int, ...]]:
        place = self._find(field)
        if place is None:
            return []
        at = place + struct.unpack_from("<I", self._raw, place)[0]
        size = struct.unpack_from("<I", self._raw, at)[0] * struct.calcsize(form)
        if at + 4 + size > len(self._raw):
            raise _invalid("what it says of its batches is damaged")
        return list(struct.iter_unpack(form, self._raw[at + 4 : at + 4 + size]))

    def _find(self, field: int) -> int | None:
        slot = 4 + 2 * field
        if slot >= struct.unpack_from("<H", self._raw, self._fields)[0]:
            return None
        offset = struct.unpack_from("<H", self._raw, self._fields + slot)[0]
        return self._at + offset if offset else None


class _Look:
    """A look through the messages of a file or stream."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._dictionaries = dict[int, int]()
        """The bytes of each dictionary as it is now, without compression."""

    def through_file(self) -> None:
        data = self._data
        length = struct.unpack_from("<i", data, len(data) - len(MAGIC) - 4)[0]
        began = len(data) - len(MAGIC) - 4 - length
        if data[-len(MAGIC) :] != MAGIC or length <= 0 or began < 8:
            raise _invalid("it does not end as an Arrow file does")
        _require_short(length)
        footer = _Table(data[began : began + length])
        for field in (2, 3):
            for offset, metadata, body in footer.structs(field, "<qi4xq"):
                if offset + metadata + body != self._at(offset):
                    raise _invalid("a batch has another size than the file says at its end")

    def through_stream(self) -> None:
        at = 0
        while at + 4 <= len(self._data):
            at = self._at(at)

    def _at(self, at: int) -> int:
        """Look at a message; return where the next one is, or the end of the data for the last."""
        data = self._data
        if at < 0:
            raise _invalid("a batch is not within the file")
        (length,) = struct.unpack_from("<I", data, at)
        at += 4
        if length == _CONTINUES:
            (length,) = struct.unpack_from("<I", data, at)
            at += 4
        if not length:
            return len(data)
        _require_short(length)
        if at + length > len(data):
            raise _invalid("a batch is not within the file")
        message = _Table(data[at : at + length])
        began, size = at + length, message.number(3, "<q")
        if size < 0 or began + size > len(data):
            raise _invalid("a batch is not within the file")
        kind, header = message.number(1, "<B"), message.table(2)
        if kind not in _ORDINARY or header is None:
            raise _invalid("it has something else than batches of rows")
        if kind == _DICTIONARY:
            self._note_dictionary(header, began, size)
        elif kind == _BATCH:
            _look_at_batch(data, header, began, size)
        return int(began + size)

    def _note_dictionary(self, header: _Table, began: int, size: int) -> None:
        """Dictionaries are all held at once; one is added to another, or takes its place."""
        number, batch = header.number(0, "<q"), header.table(1)
        more = 0 if batch is None else _look_at_batch(self._data, batch, began, size)
        if header.number(2, "<B"):
            more += self._dictionaries.get(number, 0)
        self._dictionaries[number] = more
        _require_small(sum(self._dictionaries.values()), "the dictionaries have")


def _require_short(length: int) -> None:
    if length > PARQUET_FOOTER_SIZE_BYTES_MAX:
        raise _invalid(
            f"what it says of its batches has {length:,} bytes "
            f"(limit: {PARQUET_FOOTER_SIZE_BYTES_MAX:,})"
        )


def _look_at_batch(data: mmap.mmap, header: _Table, began: int, size: int) -> int:
    """Look at what is said of a batch, and return its bytes without compression."""
    is_compressed = header.table(3) is not None
    written_out: int = 0
    for offset, length in header.structs(2, "<qq"):
        if offset < 0 or length < 0 or offset + length > size:
            raise _invalid("a column is not within its batch")
        if is_compressed and length:
            declared = struct.unpack_from("<q", data, began + offset)[0] if length >= 8 else -2
            if int(declared) < -1:
                raise _invalid("a column is damaged")
            written_out += max(int(declared), 0)
    _require_small(written_out, "a batch has")
    rows, most = header.number(0, "<q"), max(ARROW_VALUES_MAX, 8 * max(size, written_out))
    for values in (rows, *(count for count, _ in header.structs(1, "<qq"))):
        if not 0 <= values <= most:
            raise _invalid(f"a batch has {values:,} values (limit: {most:,})")
    return written_out


def _require_small(size_bytes: int, what: str) -> None:
    if size_bytes > ARROW_BODY_SIZE_BYTES_MAX:
        raise _invalid(
            f"{what} {size_bytes:,} bytes without compression "
            f"(limit: {ARROW_BODY_SIZE_BYTES_MAX:,})"
        )


# --- values that rows share ----------------------------------------------------------------------


def measure_written_out(batch: Any) -> int:
    """Return the bytes that a batch has at most if each row has its own values."""
    sizes = [_measure(c)[0] if _is_shared(c.type) else int(c.nbytes) for c in batch]
    return sum(sizes)


def _is_shared(kind: Any) -> bool:
    is_view = types.is_string_view(kind) or types.is_binary_view(kind)
    is_list_view = types.is_list_view(kind) or types.is_large_list_view(kind)
    if is_view or is_list_view or types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return True
    return any(map(_is_shared, _list_inner(kind)))


def _measure(array: Any) -> tuple[int, int]:
    """Return the bytes of all values, written out, and those of the largest one, or bounds."""
    kind, count = array.type, len(array)
    if isinstance(array, pyarrow.ExtensionArray):
        return _measure(array.storage)
    if types.is_dictionary(kind):
        _, largest = _measure(array.dictionary)
        return count * largest, largest
    if types.is_run_end_encoded(kind):
        _, largest = _measure(array.values)
        return count * largest, largest
    if types.is_string_view(kind) or types.is_binary_view(kind):
        views = array.buffers()[1]
        if not count or views is None:
            return 0, 0
        lengths = numpy.frombuffer(views, "<i4")[4 * array.offset :: 4][:count].astype("i8")
        return int(lengths.sum()) + 16 * count, int(lengths.max())
    if types.is_struct(kind):
        parts = [_measure(array.field(at)) for at in range(kind.num_fields)]
        return sum(total for total, _ in parts), sum(largest for _, largest in parts)
    if types.is_nested(kind):
        return _measure_list(array)
    if types.is_binary(kind) or types.is_string(kind) or _is_large(kind):
        return array.nbytes, int(compute.max(compute.binary_length(array)).as_py() or 0)
    return array.nbytes, array.nbytes // max(count, 1) + 1


def _is_large(kind: Any) -> bool:
    return bool(types.is_large_binary(kind) or types.is_large_string(kind))


def _measure_list(array: Any) -> tuple[int, int]:
    if types.is_union(array.type):
        raise _invalid("it has a column of a type that no field has: a union")
    total, largest = _measure(array.values)
    if types.is_fixed_size_list(array.type):
        return total, array.type.list_size * largest
    lengths = compute.list_value_length(array) if not types.is_map(array.type) else None
    if lengths is None:
        return total, total
    longest = int(compute.max(lengths).as_py() or 0)
    return int(compute.sum(lengths).as_py() or 0) * largest + array.nbytes, longest * largest
