"""The Spark runner on real executors: the same work on ranges, and its refusals."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from msgspec import structs
from pyspark.errors import AnalysisException

from tests import forms
from tests.contract.rollbacks import begin_with_three
from tests.contract.tables import ADD_COLOR
from tests.contract.test_blobs import DOUBLE_TITLE, HALF, LARGE, PHOTOS, ids, sweep
from tests.documents import PEOPLE
from tests.support import GUARD_SECONDS, ROOT, Workspace, wait_until
from zapdb import release
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT, rows
from zapdb.cli.program import run_program
from zapdb.database import Database
from zapdb.errors import ExecutorMismatch, JobError, UsageError
from zapdb.jobs import plan_jobs
from zapdb.jobs.job_run import run_job
from zapdb.jobs.tenant_verification import verify_blobs
from zapdb.jobs.work import HeldBack
from zapdb.spark import TaskReport, run_on_spark, start_session
from zapdb.spark.task import RangeTask
from zapdb.storage import TransactionMode

MIGRATIONS = ROOT / "examples" / "cities" / "migrations"
CITIES = 40_000 if forms.is_long else 8_000
TAGS = """\
create_table: {table: tags, key: [id], fields: [
      {name: id, type: integer}, {name: name, type: string}]}"""
BY_NAME = "create_index: {table: tags, index: by_name, fields: [{field: name}], unique: true}"
COLORS = {0: "red", 1: "blue", 2: "red"}
SHARED = 40_000 if forms.is_long else 20_000
"""Of one range: with fewer, its first task is done before another one has come."""


def city(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"City {number}",
        "local_name": f"市{number}",
        "country": "JP",
        "region": "01",
        "location": f"{number % 90}.5,{number % 180}.25",
        "people": number,
        "zone": "Asia/Tokyo",
        "other_names": ["a", "b"],
        "source": "test",
    }


def load(place: Workspace, count: int = CITIES) -> Database:
    """A database with all its cities at migration 1, and all migrations in force."""
    for file in sorted(MIGRATIONS.glob("*.yaml"))[:1]:
        shutil.copy(file, place.directory)
    with place.open() as db:
        db.table("cities").insert_many(city(number) for number in range(count))
    for file in MIGRATIONS.glob("*.yaml"):
        shutil.copy(file, place.directory)
    return place.open()


def check(db: Database, count: int = CITIES) -> None:
    """Every city is there, in the newest layout, with the values that it had."""
    assert db.admin.count_by_revision("cities") == {8: count}
    for number, found in enumerate(db.table("cities").scan()):
        wanted = city(number)
        latitude, longitude = wanted["location"].split(",")
        assert found.id == number
        assert found.population == number
        assert str(found.latitude) == f"{latitude}0000"
        assert str(found.longitude) == f"{longitude}000"
        assert found.other_names == ["a", "b"]
    (report,) = db.admin.verify()
    assert report.problems == ()


def test_rule_19_spark_stores_the_large_values_that_it_makes(workspace, spark):
    workspace.write(1, PHOTOS)
    with workspace.open() as db:
        db.table("photos").insert_many(
            {"id": at, "title": f"{at} {HALF}", "data": LARGE if at % 10 == 0 else None}
            for at in range(100)
        )
    workspace.write(2, DOUBLE_TITLE)
    db = workspace.open()
    before = ids(workspace)
    db.admin.run_jobs(run_on_spark)
    assert db.admin.count_by_revision("photos") == {2: 100}
    assert before < ids(workspace)
    assert len(ids(workspace) - before) == 100
    for at, record in enumerate(db.table("photos").scan()):
        assert record.titles == f"{at} {HALF}|{at} {HALF}"
        assert record.data == (LARGE if at % 10 == 0 else None)
    (report,) = db.admin.verify()
    assert (verify_blobs(db._storage).blobs, report.problems) == (110, ())
    assert sweep(db).unowned == 0


def test_rule_17_spark_runs_the_range_tasks_on_executors(workspace, spark, monkeypatch):
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", CITIES // 5)
    db = load(workspace)
    tasks: list[TaskReport] = []
    reports = db.admin.run_jobs(partial(run_on_spark, on_tasks=tasks.extend))
    assert {report.progress.ranges for report in reports} == {5}
    assert [report.job.kind for report in reports] == ["index", "index", "convert"]
    assert os.getpid() not in {task.process for task in tasks}
    assert sum(task.written for task in tasks) == 3 * CITIES
    check(db)


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_17_executors_share_a_table_that_is_one_range(workspace, spark, monkeypatch):
    """One task has all the records; the others take the rest of its range, again and again. It is
    slow until another one has come."""
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", SHARED)
    db = load(workspace, SHARED)
    tasks: list[TaskReport] = []
    run = partial(run_on_spark, on_tasks=tasks.extend, batch_records_max=512)
    (job,) = plan_jobs(db._storage, 1, ["convert"])
    db.jobs.throttle(job.id, records_per_second=150)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(db.admin.run_jobs, run, ["convert"])
        wait_until(
            lambda: db.jobs.get(job.id).progress.ranges > 1 or running.done(),
            "another task has its share",
        )
        db.jobs.throttle(job.id)
        (report,) = running.result(GUARD_SECONDS)
    assert report.progress.ranges == report.progress.ranges_done > 1
    assert (report.progress.read, report.progress.written) == (SHARED, SHARED)
    written = Counter[int]()
    for task in tasks:
        written[task.process] += task.written
    assert written.total() == SHARED
    assert max(written.values()) < SHARED - 2048
    assert len({task.process for task in tasks}) > 1
    assert db.admin.count_by_revision("cities") == {8: SHARED}


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("are_few", [True, False])
def test_a_task_takes_a_free_range_only_where_all_tasks_have_begun(workspace, monkeypatch, are_few):
    """Otherwise it belongs to another task, which may need the place of this one."""
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 50)
    db = load(workspace, 100)
    (job,) = (job for job in plan_jobs(db._storage, 1) if job.kind == "convert")
    done = list(RangeTask(workspace.address, job.id, 4_096, are_few)([1]))
    assert [(one.number, one.written) for one in done] == [(1, 50), (0, 50)][: 1 + are_few]
    assert list(RangeTask(workspace.address, job.id, 4_096, are_few)([])) == []


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_task_that_refuses_ends(workspace, monkeypatch):
    """The range is free again, and would be refused again."""
    monkeypatch.setattr("zapdb.jobs.job.RANGE_RECORDS", 50)
    db = load(workspace, 100)
    (job,) = (job for job in plan_jobs(db._storage, 1) if job.kind == "convert")
    db.jobs.pause(job.id)
    (refusal,) = RangeTask(workspace.address, job.id, 4_096, are_few=True)([0])
    assert isinstance(refusal, HeldBack)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_executor_that_would_convert_by_another_chain_refuses(workspace, spark):
    db = load(workspace)
    job = next(job for job in plan_jobs(db._storage, 1) if job.kind == "convert")
    with db._storage.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, structs.replace(job, migration=job.migration + 1))
    with pytest.raises(ExecutorMismatch, match="this process has another chain"):
        run_job(db._storage, job, run_on_spark)
    assert db.admin.count_by_revision("cities") == {1: CITIES}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_executor_of_another_release_refuses(workspace, spark, monkeypatch):
    db = load(workspace)
    monkeypatch.setattr(release, "__version__", "9.9.9")
    with pytest.raises(ExecutorMismatch, match="has another release of zapdb than the driver"):
        db.admin.run_jobs(run_on_spark)
    assert db.admin.count_by_revision("cities") == {1: CITIES}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_executors_without_the_package_are_told_of_the_archive(workspace, spark):
    """As Python says it where the package is not found, in a task of the job."""
    db = load(workspace)
    with pytest.raises(JobError, match="Spark gave up on the job") as refused:
        db.admin.run_jobs(partial(run_on_spark, batch_records_max=NotThere()))
    assert "zapdb spark package" in refused.value.hint


class NotThere:
    """Is unpickled by a module that no process has."""

    def __reduce__(self) -> Any:
        return __import__, ("zapdb_that_is_not_there",)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_26_an_executor_with_other_collation_data_refuses(workspace, spark):
    db = load(workspace)
    jobs = plan_jobs(db._storage, 1)
    job = next(job for job in jobs if job.datasets)
    other = dict.fromkeys(job.datasets, "0" * 64)
    with db._storage.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, structs.replace(job, datasets=other))
    with pytest.raises(ExecutorMismatch, match="other collation or time zone data"):
        run_job(db._storage, job, run_on_spark)
    assert "by_local_name" not in db.table("cities").readable_indexes()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_session_with_speculation_is_refused(workspace, spark):
    db = load(workspace)
    conf = spark.sparkContext._conf
    conf.set("spark.speculation", "true")
    try:
        with pytest.raises(UsageError, match="speculation"):
            db.admin.run_jobs(run_on_spark)
    finally:
        conf.set("spark.speculation", "false")
    assert db.admin.count_by_revision("cities") == {1: CITIES}


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_session_on_another_master_is_refused(workspace, spark):
    db = load(workspace)
    other = "local[7]"
    with pytest.raises(UsageError, match="is on another master") as refused:
        db.admin.run_jobs(partial(run_on_spark, master=other))
    assert refused.value.context == {"master": other, "running": spark.sparkContext.master}
    assert db.admin.count_by_revision("cities") == {1: CITIES}
    with pytest.raises(UsageError, match="is on another master"):
        start_session(other)
    assert start_session() is start_session(spark.sparkContext.master) is spark


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_master_that_is_not_there_is_told(workspace, monkeypatch, capsys):
    monkeypatch.setattr("zapdb.spark.spark_session.find_session", lambda: None)
    workspace.write(1, PEOPLE)
    with workspace.open() as db:
        db.table("people").insert(id=0, name="Eve", extra=None)
    workspace.write(2, "drop_field: {table: people, field: extra, restore: {value: 7}}")
    with workspace.open() as db:
        words = ("--engine", "spark", "--master", "spark://127.0.0.1:1")
        assert run_program(["convert", "run", "-d", workspace.address, *words]) == 1
        assert "the Spark master can't be reached" in capsys.readouterr().err
        db.table("people").insert(id=1, name="Ada")


def test_rule_13_records_come_back_on_spark(workspace, spark, capsys):
    workspace.write(1, PEOPLE)
    with workspace.open() as db:
        db.table("people").insert_many({"id": at, "name": "Ada", "extra": at} for at in range(20))
    workspace.write(2, "drop_field: {table: people, field: extra, restore: {value: 7}}")
    with workspace.open() as db:
        db.admin.run_jobs()
    workspace.remove(2)
    assert run_program(["migrate", "rollback", "--yes", "-d", workspace.address]) == 0
    words = ("--engine", "spark", "--master", spark.sparkContext.master)
    assert run_program(["convert", "run", "-d", workspace.address, *words]) == 0
    assert "converted people to revision 3: 20 records" in capsys.readouterr().out
    with workspace.open() as db:
        assert db.admin.count_by_revision("people") == {3: 20}
        assert {person.extra for person in db.table("people").scan()} == {7}
        assert [report.problems for report in db.admin.verify()] == [()]


def test_what_processes_go_on_with_behind_a_rollback(workspace, spark):
    """Executors archive what a rolled-back migration made, build indexes of kept tables, take the
    values from there when it is applied again, and frames have what is active."""
    plain = begin_with_three(workspace)
    workspace.write(2, ADD_COLOR, TAGS, BY_NAME)
    new = workspace.open()
    new.table("items").update(1, color="blue")
    new.table("tags").insert(id=1, name="one")
    new.admin.run_jobs(run_on_spark)
    roll_back(workspace.connect())
    given = {"database": workspace.address, "table": "items"}
    for _ in range(2):
        frame = spark.read.format("zapdb").options(**given).load()
        assert "color" not in frame.columns
        assert sorted(row.size for row in frame.collect()) == [0, 1, 2]
        plain.admin.run_jobs(run_on_spark)
    assert {one.id: one.color for one in new.table("items").scan()} == COLORS
    with pytest.raises(AnalysisException, match="no such table"):
        spark.read.format("zapdb").options(**given | {"table": "tags"}).load()
    new.table("items").update(2, size=20)
    again = MigrationChoice(again=True)
    migrate_up(workspace.connect(), DEFAULT_TENANT, workspace.directory, again)
    for _ in range(2):
        frame = spark.read.format("zapdb").options(**given).load()
        assert {row.id: row.color for row in frame.collect()} == COLORS
        plain.admin.run_jobs(run_on_spark)
    tags = spark.read.format("zapdb").options(**given | {"table": "tags"}).load()
    assert [row.name for row in tags.collect()] == ["one"]
    assert not [report for report in plain.admin.verify() if report.problems]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_rule_32_a_cluster_is_refused_for_a_file(workspace, spark):
    db = load(workspace)
    conf = spark.sparkContext._conf
    master = conf.get("spark.master")
    conf.set("spark.master", "spark://127.0.0.1:7077")
    try:
        with pytest.raises(UsageError, match="cannot reach a SQLite file"):
            db.admin.run_jobs(run_on_spark)
    finally:
        conf.set("spark.master", master)
