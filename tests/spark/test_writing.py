"""Frames written into tables: once, whatever Spark retries, by the ordinary way."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException

from tests.support import Workspace
from zapdb.errors import LeaseLost, UsageError
from zapdb.spark.marks import WHOLE_JOB, PartitionMarks, digest_row, finish_job
from zapdb.spark.writing import WriteOptions
from zapdb.storage import TransactionMode

TOWNS = "create_table: {table: towns, key: [name], fields: [{name: name, type: string}]}"
VISITS = """\
create_table: {table: visits, key: [id], fields: [
      {name: id, type: uuid, generated: true},
      {name: number, type: integer},
      {name: town, type: reference, to: towns},
      {name: price, type: decimal, scale: 2, default: "0.00"}]}"""
MORE = (
    "create_index: {table: visits, index: by_town, fields: [{field: town}]}",
    "add_reference: {table: visits, field: town, on_delete: restrict}",
    "create_index: {table: visits, index: by_number, fields: [{field: number}], unique: true}",
    "add_check: {table: visits, check: positive, expression: number >= 0}",
)
ROWS = 12_000
KILLED_AFTER, RAISED_AFTER = 5_000, 2_500

Rows = Iterator[pyarrow.RecordBatch]


def prepare(place: Workspace, *, log: bool = True) -> Any:
    place.write(1, TOWNS, VISITS, *MORE)
    db = place.open()
    if log:
        db.admin.set_setting("change_log", "on")
    db.table("towns").insert(name="Bern")
    return db


# Functions of Spark's tasks are made here by functions, so that they are sent as a whole.


def make_failing() -> Callable[[Rows], Rows]:
    """Rows of a range: the first attempt of a partition dies in the middle, by an error or by a
    signal, and the next one has the rows in another order, as after a shuffle."""

    def failing(batches: Rows) -> Rows:
        task = TaskContext.get()
        assert task is not None
        attempt = task.attemptNumber()
        numbers = [n for batch in batches for n in batch.column("id").to_pylist()]
        if attempt % 2:
            numbers.reverse()
        given = 0
        for start in range(0, len(numbers), 500):
            if attempt == 0 and task.partitionId() == 0 and given >= RAISED_AFTER:
                raise RuntimeError("on purpose")
            if attempt == 0 and task.partitionId() == 1 and given >= KILLED_AFTER:
                os.kill(os.getpid(), signal.SIGKILL)
            some = numbers[start : start + 500]
            given += len(some)
            columns = {"number": some, "town": ["Bern"] * len(some)}
            yield pyarrow.RecordBatch.from_pydict(columns)

    return failing


def make_steady(stranger: int) -> Callable[[Rows], Rows]:
    """The same rows each time; one of them refers to a town that is missing at first."""

    def steady(batches: Rows) -> Rows:
        for batch in batches:
            numbers = batch.column("id").to_pylist()
            towns = ["Wien" if n == stranger else "Bern" for n in numbers]
            yield pyarrow.RecordBatch.from_pydict({"number": numbers, "town": towns})

    return steady


def frame_of(spark: Any, rows: int, function: Callable[[Rows], Rows], partitions: int = 2) -> Any:
    made = spark.range(0, rows, numPartitions=partitions)
    return made.mapInArrow(function, "number long, town string")


def save(frame: Any, place: Workspace, table: str = "visits", **options: Any) -> None:
    writer = frame.write.format("zapdb").mode("append").options(database=place.address)
    writer.option("table", table).options(**options).save()


def check(db: Any, rows: int) -> None:
    """Each row is a record, with entries and one change, and the database is as it should be."""
    visits = db.table("visits")
    assert sorted(record.number for record in visits) == list(range(rows))
    assert visits.where(number=7).one().town == "Bern"
    changes = [c for c in db.change_log.read() if getattr(c, "operation", "") == "insert"]
    assert sorted(c.after.number for c in changes if c.table == "visits") == list(range(rows))
    assert all(report.problems == () for report in db.admin.verify())


@pytest.mark.long_on("sqlite")
def test_rows_are_written_once_though_tasks_fail_and_die(workspace, spark):
    db = prepare(workspace)
    save(frame_of(spark, ROWS, make_failing()), workspace)
    check(db, ROWS)
    left = 'SELECT "range", state FROM zapdb_ranges WHERE job LIKE ?'
    assert workspace.execute(left, ["spark/%"]) == [(WHOLE_JOB, "done")]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_write_goes_on_after_what_it_was_refused_for(workspace, spark):
    """A reference without its target stops the write; rows before it stay. Run again under the name
    that the error says, the write leaves these out, and a third run writes nothing."""
    db = prepare(workspace)
    frame = frame_of(spark, 4_000, make_steady(3_500), partitions=1)
    with pytest.raises(PySparkException, match="ReferenceViolation") as refused:
        save(frame, workspace)
    name = re.search(r"option\('job', '(\w+)'\)", str(refused.value))[1]
    written = db.table("visits").count()
    assert 0 < written < 4_000
    db.table("towns").insert(name="Wien")
    save(frame, workspace, job=name)
    assert db.table("visits").count() == 4_000
    save(frame, workspace, job=name)
    check(db, 4_000)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_upsert_updates_by_key_and_mistakes_are_named_before_anything_is_written(workspace, spark):
    prepare(workspace, log=False)
    workspace.write(
        2,
        "create_table: {table: stock, key: [id], fields: ["
        "{name: id, type: integer}, {name: kept, type: string, default: yes_it_is},"
        " {name: count, type: integer}]}",
    )
    db = workspace.open()
    db.table("stock").insert(id=1, count=1, kept="as it was")
    rows = spark.createDataFrame([(1, 10), (2, 20)], "id int, count long")
    save(rows, workspace, "stock", upsert="true")
    found = [(r.id, r.kept, r.count) for r in db.table("stock")]
    assert found == [(1, "as it was", 10), (2, "yes_it_is", 20)]

    with pytest.raises(PySparkException, match=r"a record with this key already exists|same key"):
        save(rows, workspace, "stock")
    with pytest.raises(PySparkException, match=r"cast the column.*option\('job'"):
        save(rows.selectExpr("id + 5 as id", "cast(null as long) as count"), workspace, "stock")
    # What a column's type can't hold is refused where the query is planned, before any task.
    for wrong in ("double", "timestamp", "array<int>"):
        with pytest.raises(AnalysisException, match=r"field: stock\.count[^;]*cast the column"):
            save(rows.selectExpr("id", f"cast(null as {wrong}) as count"), workspace, "stock")
    with pytest.raises(AnalysisException, match="a column has no field"):
        save(rows.withColumnRenamed("count", "amount"), workspace, "stock")
    with pytest.raises(AnalysisException, match="fields have no column, no default"):
        save(rows.select("id"), workspace, "stock")
    with pytest.raises(AnalysisException, match="a table is not overwritten as a whole"):
        rows.write.format("zapdb").mode("overwrite").options(
            database=workspace.address, table="stock"
        ).save()
    assert db.table("stock").count() == 2


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_record_that_can_not_be_read_is_named_and_nothing_beside_it_is_written(workspace, spark):
    workspace.write(
        1,
        "create_table: {table: stock, key: [id], fields: ["
        "{name: id, type: integer}, {name: count, type: integer}]}",
        "create_index: {table: stock, index: by_count, fields: [{field: count}]}",
    )
    stock = workspace.open().table("stock")
    stock.insert_many({"id": at, "count": at} for at in range(4))
    key = stock._bound.codec.encode_key({"id": 2})
    workspace.execute("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", (b"\x81\xc0", key))
    there = [workspace.execute(f"SELECT * FROM zapdb_{name}_1") for name in ("records", "entries")]
    named = r"can't be decoded(.|\n)*table: stock\W+key: 2\W"
    options = {"database": workspace.address, "table": "stock"}
    frame = spark.read.format("zapdb").options(**options).load()
    with pytest.raises(PySparkException, match=named):
        frame.collect()
    rows = spark.createDataFrame([(at, 9) for at in range(6)], "id int, count int").coalesce(1)
    with pytest.raises(PySparkException, match=named):
        save(rows, workspace, "stock", upsert="true")
    now = [workspace.execute(f"SELECT * FROM zapdb_{name}_1") for name in ("records", "entries")]
    assert now == there


def test_marks_know_rows_by_what_they_hold_and_fence_earlier_attempts(workspace):
    db = prepare(workspace, log=False)
    storage = db._storage
    one, two, three = (digest_row([n, "x"]) for n in range(3))
    first = PartitionMarks.claim(storage, "j", 4)
    assert first.take(one)
    with storage.transaction(TransactionMode.CATALOG) as connection:
        first.save(connection, [one, two, two])
    first.committed(3)

    second = PartitionMarks.claim(storage, "j", 4)
    assert second.written == 3
    assert [second.take(d) for d in (two, three, two, two, one)] == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert not second.known
    with pytest.raises(LeaseLost), storage.transaction(TransactionMode.CATALOG) as connection:
        first.save(connection, [three])
    with storage.transaction(TransactionMode.CATALOG) as connection:
        second.save(connection, [three, two])
    second.committed(2)
    second.finish()
    third = PartitionMarks.claim(storage, "j", 4)
    assert (third.is_done, third.written) == (True, 5)
    assert not PartitionMarks.claim(storage, "j", 5).is_done


@pytest.mark.parametrize("is_named", [True, False])
def test_an_attempt_that_begins_after_the_job_writes_nothing(workspace, is_named):
    """Of an executor that was lost sight of, and comes back."""
    storage = prepare(workspace, log=False)._storage
    late = PartitionMarks.claim(storage, "j", 1)
    PartitionMarks.claim(storage, "j", 0).finish()
    finish_job(storage, "j", is_named=is_named)
    assert PartitionMarks.claim(storage, "j", 0).is_done
    with pytest.raises(LeaseLost), storage.transaction(TransactionMode.CATALOG) as connection:
        late.save(connection, [digest_row([1])])


def test_digests_tell_values_and_types_apart():
    values = [[1], ["1"], [1.0], [True], [None], [b"1"], [1, None], [{"a": 1}], ["\ud800"]]
    assert len({digest_row(one) for one in values}) == len(values)
    assert digest_row(["a", 1]) == digest_row(["a", 1])


def test_options_of_writing():
    given = {"database": "x", "table": "t"}
    assert WriteOptions.parse({**given, "upsert": "TRUE"}).upsert
    with pytest.raises(UsageError, match="give true or false"):
        WriteOptions.parse({**given, "upsert": "perhaps"})
    with pytest.raises(UsageError, match="did you mean 'upsert'"):
        WriteOptions.parse({**given, "upser": "true"})
