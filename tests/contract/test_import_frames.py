"""`import_from` and files of Arrow: frames and tables become records, whatever their types are."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import uuid
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pytest
from pyarrow import feather, ipc, parquet

from tests.contract.test_import_files import ITEMS, Place
from tests.support import Workspace
from zapdb import aio
from zapdb.database import Database
from zapdb.errors import InvalidValue, UniqueViolation, UsageError
from zapdb.imports import SkippedRow, arrow_rows

UTC = datetime.UTC
THINGS = """create_table: {table: things, key: [id], fields: [
  {name: id, type: uuid, generated: true}, {name: count, type: integer, optional: true},
  {name: price, type: decimal, scale: 2, optional: true}, {name: size, type: float},
  {name: name, type: string, optional: true}, {name: at, type: timestamp, optional: true},
  {name: day, type: date, optional: true}, {name: is_new, type: boolean, optional: true},
  {name: raw, type: binary, optional: true}, {name: data, type: json, optional: true},
  {name: tags, type: list, of: integer, optional: true}]}"""


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, THINGS)
    return workspace.open()


def values(db: Database, *names: str) -> list[tuple[Any, ...]]:
    return sorted(
        (tuple(getattr(record, name) for name in names) for record in db.table("things")), key=repr
    )


def test_a_pandas_frame_with_gaps(db: Database) -> None:
    frame = pandas.DataFrame(
        {
            "Count": [1.0, None, 3.0],
            "price": [1.1, float("nan"), 7],
            "size": [1, 2, 3],
            "name": ["a", None, "c"],
            "at": pandas.to_datetime(
                ["2024-05-31 10:00:00.000000", None, "2024-05-31 12:00:00.000001"]
            ),
            "day": pandas.to_datetime(["2024-05-31", None, "2024-06-01"]),
            "Is New": [True, None, False],
            "data": [{"a": 1}, None, {"a": 2}],
            "tags": [[1, 2], None, []],
            "Notes": ["x", "y", "z"],
        },
        index=[7, 8, 9],
    )
    with pytest.raises(UsageError, match="a column has no field"):
        db.table("things").import_from(frame)
    with pytest.raises(InvalidValue, match="--time-zone"):
        db.table("things").import_from(frame, columns={"Notes": ""})
    report = db.table("things").import_from(frame, columns={"Notes": ""}, time_zone=UTC)
    assert (report.read, report.written, report.skipped) == (3, 3, 0)
    noon = datetime.datetime(2024, 5, 31, 12, 0, 0, 1, UTC)
    assert values(db, "size", "count", "price", "name", "at", "is_new") == [
        (
            1.0,
            1,
            decimal.Decimal("1.10"),
            "a",
            datetime.datetime(2024, 5, 31, 10, tzinfo=UTC),
            True,
        ),
        (2.0, None, None, None, None, None),
        (3.0, 3, decimal.Decimal("7.00"), "c", noon, False),
    ]
    assert values(db, "size", "day", "data", "tags") == [
        (1.0, datetime.date(2024, 5, 31), {"a": 1}, [1, 2]),
        (2.0, None, None, None),
        (3.0, datetime.date(2024, 6, 1), {"a": 2}, []),
    ]


def test_wrong_rows_of_a_table_are_named_or_skipped(db: Database) -> None:
    table = pyarrow.table(
        {
            "size": [1.0, None, 3.0, 4.0],
            "count": ["1", "2", "x", "4.0"],
            "at": pyarrow.array([0, 0, 0, 1], pyarrow.timestamp("ns", "UTC")),
        }
    )
    with pytest.raises(InvalidValue) as error:
        db.table("things").import_from(table)
    assert (error.value.context["row"], error.value.context["field"]) == (2, "things.size")
    assert str(error.value).startswith("the pyarrow Table: a value does not fit its field")
    assert db.table("things").count() == 0
    skipped = list[SkippedRow]()
    report = db.table("things").import_from(table, skipped=skipped)
    assert (report.written, report.skipped) == (1, 3)
    assert [row.number for row in skipped] == [2, 3, 4]
    assert skipped[1].given == {"size": 3.0, "count": "x", "at": "1970-01-01T00:00:00+00:00"}
    assert "1970-01-01 00:00:00.000000001" in str(skipped[2].error)
    for wrong in ([{"size": 1}], {"size": [1]}, "file.csv"):
        with pytest.raises(UsageError, match="no data frame"):
            db.table("things").import_from(wrong)


def test_inside_a_transaction_all_of_it_is_undone(db: Database) -> None:
    table = pyarrow.table({"size": [float(n) for n in range(5_000)]})

    def import_and_fail() -> None:
        with db.transaction() as tx:
            assert tx.table("things").import_from(table).written == 5_000
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        import_and_fail()
    assert db.table("things").count() == 0
    batches = table.to_reader(max_chunksize=700)
    with db.transaction() as tx:
        tx.table("things").import_from(batches)
    assert db.table("things").count() == 5_000


class Stream:
    """What polars, DuckDB and others give: data with the Arrow stream interface."""

    def __init__(self, table: Any) -> None:
        self.__arrow_c_stream__ = table.__arrow_c_stream__


def test_any_arrow_stream_and_an_upsert(db: Database) -> None:
    keys = [uuid.UUID(int=n).bytes for n in range(10)]
    things = db.table("things")
    ids = pyarrow.array(keys, pyarrow.binary(16))
    things.import_from(Stream(pyarrow.table({"id": ids, "size": [1] * 10, "count": [0] * 10})))
    with pytest.raises(Exception, match="already exists"):
        things.import_from(pyarrow.table({"id": ids[:1], "size": [2]}))
    changed = pyarrow.table({"id": ids[5:], "size": [2] * 5})
    assert things.import_from(changed, mode="upsert").written == 5
    assert values(db, "size", "count") == [(1.0, 0)] * 5 + [(2.0, 0)] * 5


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("form", ["stream", "parquet", "arrow"])
def test_views_are_what_they_are_views_of(db: Database, tmp_path: Path, form: str) -> None:
    """As polars has texts, also those of categories, and bytes."""
    text, part = pyarrow.string_view(), pyarrow.struct([("a", pyarrow.string_view())])
    names = pyarrow.array(["n" * 50, None], text)
    if form != "parquet":  # which has no such categories
        places = pyarrow.array([0, None], pyarrow.uint32())
        names = pyarrow.DictionaryArray.from_arrays(places, names[:1])
    table = pyarrow.table(
        {
            "size": [1.0, 2.0],
            "name": names,
            "day": pyarrow.array([None, "2024-05-31"], text),
            "raw": pyarrow.array([b"\0", None], pyarrow.binary_view()),
            "data": pyarrow.array([{"a": "x"}, None], part),
        }
    )
    things, path = db.table("things"), tmp_path / f"things.{form}"
    if form == "stream":
        report = things.import_from(Stream(table))
    else:
        write(path, table)
        report = things.import_file(path)
    assert report.written == 2
    assert values(db, "size", "name", "day", "raw", "data") == [
        (1.0, "n" * 50, None, b"\0", {"a": "x"}),
        (2.0, None, datetime.date(2024, 5, 31), None, None),
    ]


def test_from_an_event_loop(workspace: Workspace, db: Database) -> None:
    async def run() -> int:
        async with await aio.open(workspace.address) as other:
            report = await other.table("things").import_from(pyarrow.table({"size": [1.5]}))
            return report.written

    assert asyncio.run(run()) == 1
    assert values(db, "size") == [(1.5,)]


@pytest.mark.parametrize("form", ["parquet", "feather", "arrow", "arrows"])
def test_files_are_imported_and_gone_on_with(
    workspace: Workspace, tmp_path: Path, form: str
) -> None:
    workspace.write(1, *ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=4_500, title="there")
    place = Place(workspace, tmp_path)
    path = tmp_path / f"items.{form}"
    write(path, pyarrow.table({"ID": range(5_000), "title": [f"t{n}" for n in range(5_000)]}))
    result = place.run_again(str(path), "--batch", "1000")
    assert result.status == 1
    assert f"{path}: a record with this key already exists" in result.err
    assert "row: 4501" in result.err
    assert "imported: 4,000 rows" in result.err
    with workspace.follow() as db:
        db.table("items").delete(4_500)
    result = place.run_again(str(path), "--batch", "1000")
    assert (result.status, result.err) == (0, "went on after 4,000 rows of an earlier run\n")
    assert place.titles() == [f"t{n}" for n in range(5_000)]
    path.write_bytes(b"PAR1 no")
    assert "this is no Parquet or Arrow file" in place.run_again(str(path)).err


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_small_file_does_not_stand_for_a_large_table(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """A value that each row names, in one byte or none."""
    monkeypatch.setattr(arrow_rows, "IMPORT_EXPANDED_SIZE_BYTES", 1 << 20)
    places = pyarrow.array([0] * 20_000, pyarrow.int8())
    long = pyarrow.DictionaryArray.from_arrays(places, pyarrow.array(["x" * 4_000]))
    table = pyarrow.table({"size": pyarrow.array([1.0] * len(long)), "name": long})
    path = tmp_path / f"bomb.{form}"
    if form == "arrow":
        options = ipc.IpcWriteOptions(compression="zstd")
        with ipc.new_file(str(path), table.schema, options=options) as file:
            file.write_table(table, max_chunksize=10_000)
    else:
        parquet.write_table(table, path, compression="zstd")
    assert path.stat().st_size < 40_000
    with pytest.raises(UsageError, match="limit: 1,000 bytes for each of the file") as error:
        db.table("things").import_file(path)
    assert "import_from" in error.value.hint
    assert db.table("things").import_from(table.slice(0, 100)).written == 100


def write(path: Path, table: Any) -> None:
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=1_300)
    elif path.suffix == ".feather":
        feather.write_feather(table, path, chunksize=1_100)
    else:
        make = ipc.new_stream if path.suffix == ".arrows" else ipc.new_file
        with make(str(path), table.schema) as file:
            file.write_table(table, max_chunksize=900)


def test_a_unique_index_holds_within_a_frame(workspace: Workspace) -> None:
    workspace.write(1, *ITEMS)
    db = workspace.open()
    with pytest.raises(UniqueViolation) as error:
        db.table("items").import_from(pyarrow.table({"id": [1, 2, 3], "title": ["a", "b", "a"]}))
    assert error.value.context["row"] == 3
    assert db.table("items").count() == 0
