"""Parquet that somebody else wrote: what it says is compared and bounded before a value is decoded,
and what a few bytes stand for comes in parts that fit in memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest
from pyarrow import parquet

from zapdb.limits import PARQUET_BATCH_SIZE_BYTES, PARQUET_COLUMNS_MAX, PARQUET_DEPTH_MAX
from zapdb.records.arrow import bounded_parquet
from zapdb.records.arrow.bounded_parquet import BoundedFile, require_bounded

ROWS = 3_000
MEGABYTE = 1 << 20
SAMPLE = pyarrow.table(
    {
        "number": numpy.arange(ROWS),
        "city": [f"c{at % 7}" for at in range(ROWS)],
        "tags": [[at, None] * (at % 3) if at % 5 else None for at in range(ROWS)],
        "pair": [{"a": at, "b": [str(at)]} if at % 4 else None for at in range(ROWS)],
        "raw": pyarrow.array([bytes([at % 256]) * 16 for at in range(ROWS)], pyarrow.binary(16)),
        "none": pyarrow.nulls(ROWS, pyarrow.int32()),
    }
)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
def test_usual_files_are_read_as_they_are(tmp_path: Path, version: str, compression: str) -> None:
    path, form = tmp_path / "usual.parquet", {"data_page_version": version}
    for table in (SAMPLE, SAMPLE.slice(0, 0)):
        parquet.write_table(
            table,
            path,
            compression=compression,
            row_group_size=1_001,
            write_statistics=True,
            **form,
        )
        with BoundedFile(path) as file:
            assert file.schema == table.schema
            assert file.rows == sum(file.row_groups) == len(table)
            batches = list(file.read(500))
        assert pyarrow.Table.from_batches(batches, table.schema) == table
        assert max((len(one) for one in batches), default=0) in (0, 500)


def repeated_value() -> Any:
    """A dictionary of one value, which each row names."""
    indices = pyarrow.array(numpy.zeros(100_000, "i4"))
    return pyarrow.table({"a": pyarrow.DictionaryArray.from_arrays(indices, ["x" * MEGABYTE])})


def growing_prefixes() -> Any:
    """Each value is the one before, and one byte more: together 1,000 times as many bytes."""
    return pyarrow.table({"a": ["x" * size for size in range(20_000)]})


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (repeated_value, {}),
        (growing_prefixes, {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}),
    ],
)
def test_what_few_bytes_stand_for_comes_in_parts(
    tmp_path: Path, make: Callable[[], Any], form: dict[str, Any]
) -> None:
    path = tmp_path / "bomb.parquet"
    parquet.write_table(make(), path, compression="zstd", store_schema=False, **form)
    assert path.stat().st_size < MEGABYTE
    with BoundedFile(path) as file:
        sizes = [batch.nbytes for batch, _ in zip(file.read(20_000), range(9), strict=False)]
    assert sizes
    assert max(sizes) < 2 * PARQUET_BATCH_SIZE_BYTES


def long_list() -> Any:
    values = pyarrow.array(numpy.zeros(17 * MEGABYTE, "i1"))
    return pyarrow.table({"a": pyarrow.ListArray.from_arrays([0, len(values)], values)})


def many_columns() -> Any:
    names = [f"c{at}" for at in range(PARQUET_COLUMNS_MAX)]
    return pyarrow.table({name: pyarrow.nulls(0, pyarrow.int8()) for name in names})


def nested() -> Any:
    kind = pyarrow.int8()
    for _ in range(PARQUET_DEPTH_MAX):
        kind = pyarrow.struct([("a", kind)])
    return pyarrow.table({"a": pyarrow.nulls(1, kind)})


def large_footer() -> Any:
    text = b"x" * (bounded_parquet.PARQUET_FOOTER_SIZE_BYTES_MAX + 1)
    return SAMPLE.replace_schema_metadata({b"a": text})


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (long_list, "lists of 17,825,792 values"),
        (many_columns, "10,001 columns"),
        (nested, "nested too deeply"),
        (large_footer, "its footer has"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, make: Callable[[], Any], problem: str
) -> None:
    path = tmp_path / "large.parquet"
    parquet.write_table(make(), path, store_schema=make is large_footer)
    with pytest.raises(pyarrow.ArrowInvalid, match=problem):
        require_bounded(path)


def test_a_page_that_becomes_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_parquet, "PARQUET_PAGE_SIZE_BYTES_MAX", MEGABYTE)
    path = tmp_path / "bomb.parquet"
    table = pyarrow.table({"a": ["x" * 2 * MEGABYTE]})
    parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    with pytest.raises(pyarrow.ArrowInvalid, match="a page has"):
        require_bounded(path)


def test_pages_that_few_bytes_stand_for_are_refused_where_all_columns_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them fits; what is in memory at once does not, unless the file has it, too."""
    monkeypatch.setattr(bounded_parquet, "PARQUET_HELD_SIZE_BYTES_MAX", 4 * MEGABYTE)
    path, rnd = tmp_path / "bomb.parquet", random.Random(7)
    for raw, is_refused in ((bytes(MEGABYTE), True), (rnd.randbytes(MEGABYTE), False)):
        table = pyarrow.table({f"c{at}": pyarrow.array([raw], pyarrow.binary()) for at in range(8)})
        parquet.write_table(table, path, compression="brotli", use_dictionary=False)
        if is_refused:
            assert path.stat().st_size < 10_000
            with pytest.raises(pyarrow.ArrowInvalid, match="a row group has pages of 8,38"):
                require_bounded(path)
        else:
            require_bounded(path)


def test_damaged_files_are_refused_or_read_and_nothing_else(tmp_path: Path) -> None:
    """Bytes of the footer, and of headers of pages, are others: also numbers of rows and values,
    places and sizes."""
    path, rnd = tmp_path / "damaged.parquet", random.Random(7)
    parquet.write_table(SAMPLE, path, compression="zstd", row_group_size=700, store_schema=False)
    whole, refused = path.read_bytes(), 0
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    for turn in range(600):
        raw = bytearray(whole)
        for _ in range(rnd.randint(1, 3)):
            at = rnd.randrange(len(raw) - footer, len(raw)) if turn % 3 else rnd.randrange(len(raw))
            raw[at] = rnd.choice((0, 1, raw[at] ^ (1 << rnd.randrange(8)), 0x7F, 0xFF))
        path.write_bytes(raw[: len(raw) if turn % 7 else rnd.randrange(len(raw))])
        try:
            with BoundedFile(path) as file:
                assert sum(len(batch) for batch in file.read(1_000)) == file.rows
        except pyarrow.ArrowInvalid:
            refused += 1
    assert refused > 200
