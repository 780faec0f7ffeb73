"""Arrow files of others: what they say is compared with bounds and with the file first."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import ipc

from zapdb.records.arrow import bounded_ipc
from zapdb.records.arrow.bounded_ipc import BoundedIpc

ROWS = 1_000
TITLES = [f"t{number}" for number in range(ROWS)]
GOOD = pyarrow.table({"id": range(ROWS), "title": TITLES})
CODES = pyarrow.table({"id": range(ROWS), "title": pyarrow.array(TITLES).dictionary_encode()})
Change = Callable[[bytes], bytes]


def write(path: Path, table: Any, codec: str | None = None, *, is_file: bool = False) -> bytes:
    make, options = (
        (ipc.new_file if is_file else ipc.new_stream),
        ipc.IpcWriteOptions(compression=codec),
    )
    with make(str(path), table.schema, options=options) as writer:
        writer.write_table(table)
    return path.read_bytes()


def put(old: int, new: int, form: str = "<q") -> Change:
    return lambda raw: raw.replace(struct.pack(form, old), struct.pack(form, new))


def put_offset(raw: bytes) -> bytes:
    at = raw.index(struct.pack("<3i", 0, 2, 4)) + 400
    return raw[:at] + struct.pack("<i", 0x7FFFFF00) + raw[at + 4 :]


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
@pytest.mark.parametrize("is_file", [False, True])
def test_what_arrow_writes_is_read(tmp_path: Path, codec: str | None, is_file: bool) -> None:
    views = GOOD.set_column(1, "title", GOOD["title"].cast(pyarrow.string_view()))
    for table in (GOOD, CODES, views, GOOD.slice(0, 0)):
        write(tmp_path / "a", table, codec, is_file=is_file)
        held = BoundedIpc(tmp_path / "a")
        found = pyarrow.Table.from_batches(held.read(), held.schema)
        assert found.to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    ("table", "codec", "change", "problem"),
    [
        (GOOD, None, put(ROWS, 1 << 40), "values .limit"),
        (GOOD, None, put(ROWS, -5), "-5 values"),
        (pyarrow.table({"a": pyarrow.nulls(ROWS)}), None, put(ROWS, 1 << 60), "values .limit"),
        (GOOD, "zstd", put(8 * ROWS, 1 << 45), "without compression .limit"),
        (GOOD, "zstd", put(8 * ROWS, -7), "a column is damaged"),
        (GOOD, None, put_offset, "offset"),
        (GOOD, None, lambda raw: raw[: len(raw) // 2], "not within the file"),
        (GOOD, None, lambda raw: raw[:4] + b"\xff\xff\xff\x7f" + raw[8:], "bytes .limit"),
        (GOOD, None, lambda raw: raw[:8] + b"\xff" * 64 + raw[72:], "damaged"),
        (CODES, None, put(10 + (11 << 32), 5_000), "out of bounds"),
        (pyarrow.table({f"c{at}": [1] for at in range(10_001)}), None, None, "more columns"),
    ],
)
def test_what_a_file_says_is_bounded(
    tmp_path: Path, table: Any, codec: str | None, change: Change | None, problem: str
) -> None:
    raw, path = write(tmp_path / "a", table, codec), tmp_path / "b"
    path.write_bytes(raw if change is None else change(raw))
    with pytest.raises(pyarrow.ArrowException, match=problem):
        list(BoundedIpc(path).read())


def test_values_that_rows_share_come_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_ipc, "PARQUET_BATCH_SIZE_BYTES", 1 << 20)
    big, count = "x" * (1 << 16), 100
    shared = pyarrow.array([big]).cast(pyarrow.string_view()).buffers()
    columns = [
        pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * count, "int8"), [big]),
        pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([count], "int32"), [big]),
        pyarrow.Array.from_buffers(
            pyarrow.string_view(),
            count,
            [None, pyarrow.py_buffer(shared[1].to_pybytes()[:16] * count), *shared[2:]],
        ),
        pyarrow.ListViewArray.from_arrays([0] * count, [1 << 13] * count, range(1 << 13)),
    ]
    for column in columns:
        write(tmp_path / "a", pyarrow.table({"a": column}), "zstd", is_file=True)
        parts = list(BoundedIpc(tmp_path / "a").read())
        assert 4 <= len(parts) <= 15
        assert sum(part.num_rows for part in parts) == count
