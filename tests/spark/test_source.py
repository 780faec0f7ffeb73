"""Tables of zapdb as frames of Spark: types, ranges, conditions, moments."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import sysconfig
import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.serializers import CPickleSerializer
from pyspark.sql import functions as F

import zapdb.spark
from tests.documents import PEOPLE
from tests.support import Workspace
from zapdb import release
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import UsageError, ZapdbError
from zapdb.spark.change_stream import ZapdbChangesSource
from zapdb.spark.driver import DriverContext
from zapdb.spark.options import ReadOptions
from zapdb.spark.reading import read_spark_schema

TYPES = """\
create_type: {type: colour, enum: [red, green, blue]}"""
PLACE = """\
create_type: {type: place, struct: [
      {name: street, type: string, optional: true}, {name: number, type: integer}]}"""
TOWNS = """\
create_table: {table: towns, key: [name], fields: [{name: name, type: string}]}"""
THINGS = """\
create_table: {table: things, key: [country, id], fields: [
      {name: country, type: string},
      {name: id, type: integer},
      {name: price, type: decimal, scale: 2},
      {name: fine, type: boolean},
      {name: day, type: date},
      {name: at, type: timestamp, optional: true},
      {name: meeting, type: zoned_timestamp, optional: true},
      {name: token, type: uuid},
      {name: size, type: float},
      {name: extra, type: json},
      {name: photo, type: binary, optional: true},
      {name: colour, type: colour},
      {name: place, type: place},
      {name: places, type: list, of: place},
      {name: town, type: reference, to: towns}]}"""
NAMES = """\
create_table: {table: people, key: [id], fields: [
      {name: id, type: integer}, {name: name, type: string}]}"""
INDEXES = (
    "create_index: {table: things, index: by_at, fields: [{field: at}]}",
    "create_index: {table: things, index: by_token, fields: [{field: token}]}",
)
THINGS_COUNT = 600


def thing(number: int) -> dict[str, Any]:
    return {
        "country": ("CH", "DE", "JP")[number % 3],
        "id": number,
        "price": Decimal(number) / 4,
        "fine": number % 2 == 0,
        "day": datetime.date(2024, 1, 1) + datetime.timedelta(number),
        "at": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(hours=number)
        if number % 5
        else None,
        "meeting": datetime.datetime(2022, 10, 30, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
        if number % 7 == 0
        else None,
        "token": uuid.UUID(int=number),
        "size": number / 8,
        "extra": {"n": number, "list": [None, True]},
        "photo": bytes([number % 256]) * 9_000 if number % 50 == 0 else None,
        "colour": ("red", "green", "blue")[number % 3],
        "place": {"street": "Weg" if number % 2 else None, "number": number},
        "places": [{"street": None, "number": at} for at in range(number % 4)],
        "town": "Bern",
    }


@pytest.fixture
def things(workspace: Workspace) -> Database:
    workspace.write(1, TYPES, PLACE, TOWNS, THINGS, *INDEXES)
    with workspace.open() as db:
        db.table("towns").insert(name="Bern")
        db.table("things").insert_many(thing(number) for number in range(THINGS_COUNT // 2))
    workspace.write(
        2,
        "rename_field: {table: things, field: fine, to: good}",
        "add_field: {table: things, field: {name: note, type: string, default: none}}",
    )
    db = workspace.open()
    db.table("things").insert_many(
        renamed(thing(number)) for number in range(THINGS_COUNT // 2, THINGS_COUNT)
    )
    return db


def load(spark: Any, place: Workspace, table: str, **options: Any) -> Any:
    reader = spark.read.format("zapdb").option("database", place.address).option("table", table)
    return reader.options(**options).load()


def by_key(frame: Any) -> Any:
    return frame.orderBy("country", "id").toArrow().combine_chunks()


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_32_records_of_all_revisions_come_with_sparks_types(workspace, things, spark):
    db = things
    db.table("things").insert(**{**renamed(thing(5_001)), "country": "ZZ", "id": 2**70})
    frame = load(spark, workspace, "things", partitions=5)
    assert dict(frame.dtypes) == {
        "country": "string",
        "id": "bigint",
        "price": "decimal(38,2)",
        "good": "boolean",
        "day": "date",
        "at": "timestamp",
        "meeting": "struct<local:timestamp_ntz,fold:tinyint,zone:string,instant:timestamp>",
        "token": "binary",
        "size": "double",
        "extra": "string",
        "photo": "binary",
        "colour": "string",
        "place": "struct<street:string,number:bigint>",
        "places": "array<struct<street:string,number:bigint>>",
        "town": "string",
        "note": "string",
    }
    # What the conditions exclude is not read: a record has a number that no column has room for.
    with pytest.raises(PythonException, match=r"too large for its Arrow column"):
        frame.count()
    found = load(spark, workspace, "things", partitions=5, where="country < 'ZZ'")
    assert found.rdd.getNumPartitions() == 5
    wanted = db.table("things").where(db.table("things").f.country < "ZZ").to_arrow().read_all()
    assert by_key(found).to_pylist() == wanted.to_pylist()
    # Spark's own conditions, and an index, find the same.
    moment = thing(9)["at"]
    first, second = found.where(F.col("at") == F.lit(moment)), found.where("id = 10")
    assert sorted(row.id for row in first.union(second).collect()) == [9, 10]
    by_index = load(spark, workspace, "things", where=f"at == '{moment:%Y-%m-%dT%H:%M:%SZ}'")
    assert by_index.rdd.getNumPartitions() == 1
    assert [row.id for row in by_index.collect()] == [9]


def renamed(values: dict[str, Any]) -> dict[str, Any]:
    return {("good" if name == "fine" else name): value for name, value in values.items()}


@pytest.mark.parametrize("engine", ["postgresql"])
def test_fields_limits_tenants_and_mistakes(workspace, spark):
    workspace.write(1, PEOPLE)
    db = workspace.open()
    db.admin.create_tenant("other")
    db.for_tenant("other").table("people").insert_many(
        {"id": at, "name": f"p{at}", "extra": None} for at in range(20)
    )
    given = spark.read.format("zapdb").schema("name string, id bigint")
    frame = given.options(database=workspace.address, table="people", tenant="other", limit=7)
    assert [tuple(row) for row in frame.load().collect()] == [(f"p{at}", at) for at in range(7)]
    for message, options in (
        ("did you mean 'people'", {"table": "peopel"}),
        ("did you mean 'database'", {"databse": "x"}),
    ):
        with pytest.raises(AnalysisException, match=message):
            load(spark, workspace, **{"table": "people", **options})
    wrong = spark.read.format("zapdb").schema("name int")
    with pytest.raises(AnalysisException, match="another column than the table has"):
        wrong.options(database=workspace.address, table="people").load().count()


@pytest.mark.parametrize(
    ("message", "options"),
    [
        ("option: table", {"database": "x"}),
        ("did you mean 'partitions'", {"database": "x", "table": "t", "partition": "3"}),
        ("2026", {"database": "x", "table": "t", "at": "2026-01-01T12:00"}),
        ("give a whole number, at least 1", {"database": "x", "table": "t", "partitions": "0"}),
        ("give a whole number, at least 0", {"database": "x", "table": "t", "limit": "few"}),
    ],
)
def test_options_that_cannot_be_used_are_named(message: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=message):
        ReadOptions.parse(options)


def test_a_file_that_another_process_does_not_find_is_explained(tmp_path, monkeypatch):
    """Spark's processes may work in another directory than the program that gave a path."""
    monkeypatch.chdir(tmp_path)
    options = ReadOptions.parse({"database": "sqlite:///shop.db", "table": "items"})
    with pytest.raises(ZapdbError) as refused:
        read_spark_schema(DriverContext(), options)
    assert "give the whole path of the file" in str(refused.value.hint)


@pytest.mark.long_on("sqlite")
def test_rule_32_partitions_of_all_tables_are_as_of_one_moment(workspace, things, spark):
    """Writers go on, and a migration; in the block, Spark sees nothing of it."""
    with zapdb.spark.snapshot(things, spark=spark) as snap:
        frame = load(spark, workspace, "things", partitions=4)
        assert frame.rdd.getNumPartitions() == 4
        with ThreadPoolExecutor(1) as other:
            other.submit(change_all, workspace, things).result()
        assert frame.where("good").count() == THINGS_COUNT // 2
        assert load(spark, workspace, "towns").count() == 1
        assert snap.table("towns").count() == 1
        assert "note" in snap.table("things").field_names
    with pytest.raises(PySparkException, match=r"the snapshot that this is read in is over"):
        frame.count()
    after = load(spark, workspace, "things")
    assert "note" not in after.columns
    # On SQLite one partition is as of one moment; on PostgreSQL each of several is.
    assert after.where("good").count() == 0


def change_all(place: Workspace, db: Database) -> None:
    db.table("things").where().update(good=False)
    db.table("towns").insert(name="Wien")
    place.write(3, "drop_field: {table: things, field: note, restore: {value: none}}")
    place.open().close()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_32_a_file_is_refused_on_a_cluster_and_other_releases_everywhere(
    workspace, spark, monkeypatch
):
    workspace.write(1, PEOPLE)
    workspace.open()
    conf = spark.sparkContext._conf
    master = conf.get("spark.master")
    try:
        conf.set("spark.master", "spark://127.0.0.1:7077")
        zapdb.spark.register(spark)
        with pytest.raises(AnalysisException, match="cannot reach a SQLite file"):
            load(spark, workspace, "people")
        conf.set("spark.master", master)
        monkeypatch.setattr(release, "LEVEL", release.LEVEL + 1)
        zapdb.spark.register(spark)
        with pytest.raises(AnalysisException, match=r"has another release of zapdb than the driv"):
            load(spark, workspace, "people")
    finally:
        conf.set("spark.master", master)
        monkeypatch.undo()
        zapdb.spark.register(spark)
    assert load(spark, workspace, "people").count() == 0


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_session_that_knows_nothing_of_zapdb_finds_its_sources(workspace, spark):
    """Spark imports each installed module whose name begins with `pyspark_`."""
    workspace.write(1, PEOPLE)
    workspace.open()
    other = spark.newSession()  # with sources of its own
    assert load(other, workspace, "people").count() == 0
    changes = other.readStream.format("zapdb_changes")
    changes = changes.options(database=workspace.address, table="people").load()
    assert {"operation", "bookmark"} <= set(changes.columns)


RECEIVING = """
import sys
from pyspark import SparkFiles
from pyspark.serializers import CPickleSerializer
SparkFiles._is_running_on_worker, SparkFiles._root_directory = True, sys.argv[1]
print(type(CPickleSerializer().loads(open(sys.argv[2], "rb").read())).__module__)
"""


def test_an_archive_that_was_shipped_is_found_by_the_process_that_plans_a_stream(tmp_path):
    """Spark has the archive beside that process's directory, and does not put it on its path."""
    archive, sent = tmp_path / "zapdb.zip", tmp_path / "sent"
    assert run_program(["spark", "package", str(archive)]) == 0
    (tmp_path / "streaming_job").mkdir()
    sent.write_bytes(CPickleSerializer().dumps(ZapdbChangesSource({"table": "people"})))
    packages = os.pathsep.join((sysconfig.get_path("platlib"), sysconfig.get_path("purelib")))
    command = [sys.executable, "-S", "-c", RECEIVING, str(tmp_path / "streaming_job"), str(sent)]

    def receive() -> subprocess.CompletedProcess[str]:
        environment = {"PYTHONPATH": packages}
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True
        )

    assert receive().stdout == "zapdb.spark.change_stream\n"
    archive.rename(tmp_path / "other")
    assert "Run `zapdb spark package zapdb.zip` where the driver runs" in receive().stderr


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.empty
def test_executors_find_the_schema_of_the_address(workspace: Workspace, spark: Any) -> None:
    """Also where a schema with the role's name came later, and the path leads to no tables."""
    workspace.write(1, NAMES)
    workspace.address += "&schema=shop"
    db = workspace.open()
    db.table("people").insert_many({"id": n, "name": f"name {n}"} for n in range(300))
    workspace.execute("CREATE SCHEMA postgres")
    given = {"database": workspace.address, "table": "people"}
    frame = spark.read.format("zapdb").options(**given, partitions=3).load()
    assert frame.count() == 300
    with zapdb.spark.snapshot(db, spark=spark):
        assert spark.read.format("zapdb").options(**given, partitions=3).load().count() == 300
    made = spark.range(1_000, 1_300).select("id", F.lit("made").alias("name"))
    made.write.format("zapdb").options(**given).mode("append").save()
    assert db.table("people").count() == 600
