"""The past in Spark: the same answers as DuckDB, over all types, by files and by rewinding."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

import zapdb.spark
from tests.contract.every_type import fill, make_shop
from tests.contract.stored_pasts import begin, flush, read_manifest
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.contract.test_history_beside import GONE, KEPT, act_beside, make_replaced, then
from tests.contract.test_history_columns import ODD, PEOPLE, SWAP
from tests.spark.cluster import running_cluster
from tests.spark.test_source import load
from tests.support import Workspace
from zapdb.errors import HistoryErased, HistoryNotStored, InvalidValue, MomentInFuture, UnknownName
from zapdb.past.files import rewriting, states
from zapdb.past.reading.stored_columns import StoredColumns
from zapdb.spark import (
    past_frames as spark_past,
)


def in_order(table: Any) -> list[str]:
    """Rows whose values can be compared: no NaN, and no datetime, which not all instants are."""
    return sorted(map(repr, _plain(table.combine_chunks().to_batches()[0]).to_pylist()))


def _plain(batch: Any) -> Any:
    arrays = [_plain_array(batch.column(at)) for at in range(batch.num_columns)]
    return pyarrow.RecordBatch.from_arrays(arrays, batch.schema.names)


def _plain_array(array: Any) -> Any:
    if pyarrow.types.is_timestamp(array.type):
        return array.cast(pyarrow.int64())
    if pyarrow.types.is_struct(array.type):
        parts = [_plain_array(array.field(at)) for at in range(array.type.num_fields)]
        names = [array.type.field(at).name for at in range(array.type.num_fields)]
        return pyarrow.StructArray.from_arrays(parts, names, mask=array.is_null())
    return array


@pytest.mark.parametrize("engine", ["sqlite"])  # what Spark reads does not depend on it
def test_duckdb_and_spark_answer_alike_over_all_types(
    workspace: Workspace, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "RANGE_ROWS", 20)
    monkeypatch.setattr(rewriting, "HISTORY_FILE_SIZE_BYTES", 1)
    db = make_shop(workspace, orders=60, long=False)
    db.admin.set_setting("change_log", "on")
    db.admin.set_setting("history_store_flush_changes", "30")
    begin(db, tmp_path / "store")
    orders, merged = db.table("orders"), []
    for color in ("blue", "green", "black"):  # in one era, then in another
        orders.where(orders.f.id < 20).update(color=color)
        flush(db)
        merged.append(next(db.moments()))
    orders.where(orders.f.id == 20).update(color="white")
    flush(db)
    stored = next(db.moments())
    kinds = Counter((f.era, f.kind) for f in read_manifest(db)[2] if f.table_number > 0)
    assert max(kinds.values()) > 1  # some relations have several files
    assert len({era for era, _ in kinds}) > 1
    assert {kind for _, kind in kinds} == {"checkpoint", "ended", "segment"}
    fill(db, range(60, 90), long=False)
    db.table("orders").delete(59)
    tail = next(db.moments())
    workspace.write(4, "add_field: {table: orders, field: {name: late, type: string, default: x}}")
    workspace.open().close()
    asked = [(moment, "orders") for moment in (merged[0], stored, tail)]
    for moment, table in (*asked, (tail, "customers")):
        frame = zapdb.spark.read_past(db, moment, table, spark=spark)
        assert "FileScan parquet" in frame._jdf.queryExecution().toString()
        wanted = in_order(db.at(moment).table(table).to_arrow().read_all())
        assert in_order(frame.toArrow()) == wanted, (moment, table)
    count = "SELECT count(*), min(amount), max(price), count(DISTINCT day) FROM orders"
    told = db.at(tail).sql(count).fetchone()
    frame = zapdb.spark.read_past(db, tail, "orders", spark=spark)
    frame.createOrReplaceTempView("orders")
    assert tuple(spark.sql(count).collect()[0]) == told
    ranges = load(spark, workspace, "orders", at=str(tail.bookmark), partitions=2)
    assert in_order(ranges.toArrow()) == in_order(frame.toArrow())
    kinds_of = [[f.dataType.simpleString() for f in one.schema] for one in (ranges, frame)]
    assert kinds_of[0] == kinds_of[1]
    assert [one.name for one in spark.catalog.listTables() if one.name.startswith("zapdb")] == []
    assert "late" in load(spark, workspace, "orders").columns
    assert "late" not in ranges.columns


@pytest.mark.parametrize("engine", ["sqlite"])
def test_h10_spark_reads_fields_by_their_numbers(
    workspace: Workspace, tmp_path: Path, spark: Any
) -> None:
    """Two fields swapped their names inside an era; others are called as files' own columns are in
    engines, and in memory."""
    fields = ", ".join(f"{{name: {name}, type: string}}" for name in ODD)
    workspace.write(1, PEOPLE, f"create_table: {{table: odd, key: [key], fields: [{fields}]}}")
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begin(db, tmp_path / "store")
    db.table("odd").insert(**{name: f"the {name}" for name in ODD})
    db.table("people").insert(id=1, first="Ada", last="Lovelace")
    flush(db)
    db.close()
    workspace.write(2, *SWAP)
    db = workspace.open()
    db.table("people").insert(id=2, first="Turing", last="Alan")
    db.table("odd").insert(**{name: f"a {name}" for name in ODD})
    db.table("people").delete(1)
    flush(db)
    moment = next(db.moments()).number
    db.change_log.prune(db.change_log.end())
    for table in ("people", "odd"):
        for number in (moment - 4, moment - 1):  # before the renames, and after
            frame = zapdb.spark.read_past(db, number, table, spark=spark)
            rows = [zapdb.asdict(one) for one in db.at(number).table(table).scan()]
            assert sorted((row.asDict() for row in frame.collect()), key=repr) == rows


@pytest.mark.parametrize("engine", ["postgresql"])
def test_what_spark_reads_is_rewound_where_there_are_no_files(
    workspace: Workspace, tmp_path: Path, spark: Any
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    items = db.table("items")
    items.insert_many({"id": at, "title": f"t{at}", "size": at} for at in range(3_000))
    moment = next(db.moments())
    items.where(items.f.id < 1_000).delete()
    items.insert(id=5_000, title="later", size=2**70)
    frame = zapdb.spark.read_past(db, moment.number, "items", partitions=4, spark=spark)
    assert frame.rdd.getNumPartitions() == 4
    assert in_order(frame.toArrow()) == in_order(db.at(moment).table("items").to_arrow().read_all())
    few = load(spark, workspace, "items", at=f"#{moment.number}", where="size < 5", fields="id")
    assert sorted(tuple(row) for row in few.collect()) == [(at,) for at in range(5)]

    behind, read = next(db.moments()), zapdb.spark.read_past
    text = read(db, behind, "items", as_text=["size"], spark=spark)
    assert text.where(F.col("id") == 5_000).collect()[0]["size"] == str(2**70)
    with pytest.raises(UnknownName, match="did you mean 'items'"):
        read(db, behind, "itmes", spark=spark)
    db.admin.create_tenant("other")
    other = db.for_tenant("other")
    other.table("items").insert(id=7, title="of the other")
    seen = read(other, next(other.moments()), "items", spark=spark)
    assert [row.id for row in seen.collect()] == [7]
    db.close()
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    with pytest.raises(HistoryNotStored):  # by this process, not by one of Spark
        read(db, behind, "items", spark=spark)

    begin(db, tmp_path / "store")
    behind = next(db.moments())
    with pytest.raises(InvalidValue, match="fields: size") as refused:
        read(db, behind, "items", spark=spark)
    assert "as_text=['size']" in str(refused.value.hint)
    text = read(db, behind, "items", as_text=["size"], spark=spark)
    assert text.where(F.col("id") == 5_000).collect()[0]["size"] == str(2**70)
    with pytest.raises(UnknownName, match="did you mean 'items'"):
        read(db, moment, "itmes", spark=spark)
    with pytest.raises(MomentInFuture):
        read(db, behind.number + 1, "items", spark=spark)
    with pytest.raises(AnalysisException, match="no such moment yet"):
        load(spark, workspace, "items", at=f"#{behind.number + 1}")
    with pytest.raises(AnalysisException, match="a time with its UTC offset"):
        load(spark, workspace, "items", at="yesterday")


@pytest.mark.parametrize("engine", ["sqlite"])
def test_h13_spark_misses_no_row_beside_an_erasure(
    workspace: Workspace, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, moment = make_replaced(workspace, tmp_path / "store")

    def read() -> Any:
        return zapdb.spark.read_past(db, moment, "items", spark=spark).select("id", "title")

    def erase(key: int, **fields: Any) -> Callable[[], None]:
        return lambda: act_beside(
            workspace, lambda _, other: other.history.erase("items", key, **fields)
        )

    planned = read()
    erase(GONE)()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Py4JJavaError, match="FILE_NOT_EXIST"):
            planned.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")
    assert sorted(map(tuple, read().collect())) == KEPT
    db.table("items").delete(KEPT[2][0])
    db.history.flush()
    for step in ("offer", "_offer"):  # in the snapshot, and behind it
        owner: Any = StoredColumns if step == "offer" else spark_past
        key = 5 if step == "offer" else KEPT[2][0]
        with monkeypatch.context() as patched:
            patched.setattr(owner, step, then(getattr(owner, step), erase(key)))
            assert key not in [row.id for row in read().collect()]
    with db.snapshot():
        assert db.table("items").count() > 0
        erase(KEPT[1][0], fields=["title"])()
        with pytest.raises(HistoryErased):
            read()
    assert sorted(map(tuple, read().collect())) == [KEPT[0], (KEPT[1][0], "")]


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_standalone_cluster_reads_the_past(workspace: Workspace, tmp_path: Path) -> None:
    """From files and from the log behind them; files have no need of zapdb on the workers."""
    db = make_shop(workspace, orders=60, long=False)
    db.admin.set_setting("change_log", "on")
    db.admin.set_setting("history_store_flush_changes", "30")
    begin(db, tmp_path / "store")
    orders = db.table("orders")
    orders.where(orders.f.id < 20).update(color="blue")
    flush(db)
    orders.delete(59)
    moment = next(db.moments())
    orders.where().update(color="later")
    program = tmp_path / "read.py"
    program.write_text(
        "import json, zapdb, zapdb.spark\n"
        "spark = zapdb.spark.start_session()\n"
        f"with zapdb.open({workspace.address!r}) as db:\n"
        f"    frame = zapdb.spark.read_past(db, {moment.number}, 'orders', spark=spark)\n"
        "    assert 'FileScan parquet' in frame._jdf.queryExecution().toString()\n"
        "    rows = frame.groupBy('color').agg({'*': 'count', 'amount': 'max'}).collect()\n"
        "    print(json.dumps(['rows', *sorted(map(list, rows))]))\n"
    )
    with running_cluster(tmp_path) as cluster:
        ran = cluster.submit(str(program))
    assert ran.returncode == 0, ran.stderr
    sql = "SELECT color, count(*), max(amount) FROM orders GROUP BY color ORDER BY color"
    wanted = [sorted(map(str, row)) for row in db.at(moment).sql(sql).fetchall()]
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith('["rows"')]
    assert [sorted(map(str, row)) for row in json.loads(line)[1:]] == wanted
