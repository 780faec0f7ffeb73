"""What is wrong with a file, a record or a target is said where it is, and by the job, too."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import Workspace, error_of
from zapdb.catalog.row_kinds import Job
from zapdb.database import Database
from zapdb.errors import CorruptExport, CorruptRecord, InvalidValue, JobError, UsageError
from zapdb.jobs import plan_jobs
from zapdb.jobs.job_run import run_job, run_locally
from zapdb.storage import Storage
from zapdb.transfer.export import manifest
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.export_loading import load_export
from zapdb.transfer.export.sql_script import export_sql
from zapdb.transfer.mirror.keeping import keep_mirror


@pytest.fixture
def db(workspace: Workspace) -> Iterator[Database]:
    workspace.write(1, ITEMS)
    with workspace.open() as opened:
        yield opened


def test_a_job_says_what_has_ended_its_last_run(db: Database, tmp_path: Path) -> None:
    table, path = db.table("items"), tmp_path / "items.csv"
    path.write_text("id,title\n1,a\nx,b\n")
    with pytest.raises(InvalidValue):
        table.import_file(path)
    (job,) = db.jobs.list()
    assert job.state == "planned"
    assert job.error == f"{path}:3: a value does not fit its field (field items.id)"
    waits = db.jobs.get("import").waits
    assert waits[0] == f"the last run has ended with an error: {job.error}"
    assert waits[1].startswith("no process works on it")
    path.write_text('id,title\n1,"a"b\n')
    with pytest.raises(UsageError, match="not CSV from here on") as refused:
        table.import_file(path)
    assert "a quote inside it is written twice" in refused.value.hint
    path.write_text("id,title\n1,a\n")
    table.import_file(path)
    assert [(job.state, job.error) for job in db.jobs.list()] == [("done", "")]


def test_a_parquet_file_that_is_damaged_is_named(db: Database, tmp_path: Path) -> None:
    path, rows = tmp_path / "items.parquet", 3_000
    titles = [f"title {number}" for number in range(rows)]
    table = pyarrow.table({"id": range(rows), "title": titles})
    parquet.write_table(table, path, row_group_size=2_000)
    raw = path.read_bytes()
    path.write_bytes(raw[:6_000] + bytes(64) + raw[6_064:])
    with pytest.raises(UsageError, match="the file is damaged") as refused:
        db.table("items").import_file(path)
    assert refused.value.context["source"] == str(path)
    assert db.table("items").count() == 0
    path.write_bytes(raw)
    assert db.table("items").import_file(path).written == rows


def test_a_record_that_does_not_decode_is_named_by_its_table(
    workspace: Workspace, db: Database, tmp_path: Path
) -> None:
    table, upsert = db.table("items"), tmp_path / "upsert.csv"
    table.insert_many({"id": n, "title": "a"} for n in range(3))
    ((key, _), *_) = workspace.execute("SELECT key, value FROM zapdb_records_1 ORDER BY key DESC")
    workspace.execute("UPDATE zapdb_records_1 SET value = ? WHERE key = ?", (b"\x81\xff\xff", key))
    upsert.write_text("id,title\n1,b\n2,b\n")
    target = f"sqlite:///{tmp_path / 'mirror.db'}"
    for work in (
        lambda: export_directory(db, tmp_path / "parquet"),
        lambda: export_directory(db, tmp_path / "csv", form="csv"),
        lambda: export_sql(db, tmp_path / "out.sql", "sqlite"),
        lambda: keep_mirror(db, target, once=True),
        lambda: table.import_file(upsert, mode="upsert"),
        lambda: table.get(2),
        lambda: list(table.where()),
        lambda: table.to_arrow().read_all(),
        lambda: table.update(2, title="b"),
    ):
        error = error_of(work)
        assert isinstance(error, CorruptRecord)
        assert (error.context["table"], error.context["key"]) == ("items", "2")
        assert "`zapdb verify`" in error.hint
    errors = {job.kind: job.error for job in db.jobs.list()}
    assert errors == dict.fromkeys(errors, "stored bytes can't be decoded (table items)")
    assert not (tmp_path / "out.sql").exists()


def test_a_job_says_what_has_ended_its_runner(workspace: Workspace, db: Database) -> None:
    db.table("items").insert(id=1, title="a")
    workspace.write(2, ADD_COLOR)
    db.close()

    def refuse(_: Storage, job: Job) -> None:
        raise JobError("Spark gave up on the job", job=job.id, cause="no zapdb")

    with workspace.open() as opened:
        (job,) = plan_jobs(opened._storage, 1)
        with pytest.raises(JobError):
            run_job(opened._storage, job, refuse)
        (reason, way) = opened.jobs.get(job.id).waits
        assert reason.endswith("with an error: Spark gave up on the job (cause no zapdb)")
        assert way.startswith("no process works on it")
        assert run_job(opened._storage, job, run_locally) is not None
        assert opened.jobs.get(job.id).job.error == ""


def test_a_target_with_foreign_tables_is_refused_before_anything_is_begun(
    db: Database, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY)")
    with pytest.raises(UsageError, match="tables that are no mirror's") as refused:
        keep_mirror(db, f"sqlite:///{tmp_path / 'foreign.db'}", once=True)
    assert refused.value.context["tables"] == "people"
    assert db.admin.setting("change_log") == "off"
    assert db.jobs.list() == []


def test_a_job_of_a_table_that_was_dropped_is_not_needed_any_more(
    workspace: Workspace, db: Database, tmp_path: Path
) -> None:
    db.table("items").insert(id=1, title="a")
    (tmp_path / "items.csv").write_text("id,title\nx,a\n")
    with pytest.raises(InvalidValue):
        db.table("items").import_file(tmp_path / "items.csv")
    db.close()
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    with workspace.follow() as opened:
        (job,) = plan_jobs(opened._storage, 1)
        workspace.write(3, "drop_table: {table: items, records: discard}")
        workspace.open().close()
        (reason,) = opened.jobs.get(job.id).waits
        assert reason == "its table items was dropped: the next `zapdb convert run` removes it"
        assert run_job(opened._storage, job, run_locally) is None
        assert opened.jobs.get(job.id).job.state == "superseded"
        with pytest.raises(UsageError, match="the job is superseded") as refused:
            opened.jobs.cancel(job.id)
        assert "not needed any more" in refused.value.hint
        status = opened.jobs.get("import")
        assert status.waits == (
            f"its table items was dropped: `zapdb jobs cancel {status.job.id}`",
        )
        opened.jobs.cancel("import")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.ndjson", '{"id": 1, "title": "a"}\n{"id": 2, "title": "%s"}\n'),
        ("a.csv", "id,title\n1,a\n2,%s\n"),
        ("b.csv", 'id,title\n1,a\n2,"%s'),
        ("a.json", '[{"id": 1, "title": "a"},\n{"id": 2, "title": "%s"}]'),
    ],
)
def test_a_row_of_text_is_bounded(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    for module in ("records.record_lines", "imports.json_rows"):
        monkeypatch.setattr(f"zapdb.{module}.TEXT_ROW_CHARS_MAX", 1_000)
    long = ("long\n" if name == "b.csv" else "long ") * 40_000
    (tmp_path / name).write_text(text % long)
    with pytest.raises(UsageError, match="too long") as refused:
        db.table("items").import_file(tmp_path / name)
    assert refused.value.context["limit"] == "1,000 characters"
    assert refused.value.context["line"] == (3 if name.endswith("csv") else 2)
    assert str(tmp_path / name) in refused.value.context["source"]


def test_the_manifest_of_an_export_is_bounded(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_directory(db, tmp_path / "out")
    path = tmp_path / "out" / "manifest.json"
    for text, problem in (('{"format": ' + "[" * 100_000, "read"), ('{"a": "\xff"}', "read")):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(CorruptExport, match=problem):
            load_export(tmp_path / "out", f"sqlite:///{tmp_path / 'new.db'}")
    monkeypatch.setattr(manifest, "EXPORT_MANIFEST_SIZE_BYTES_MAX", 1_000)
    path.write_bytes(b" " * 1_001)
    with pytest.raises(CorruptExport, match="too large") as refused:
        load_export(tmp_path / "out", f"sqlite:///{tmp_path / 'new.db'}")
    assert refused.value.context["limit"] == "1,000 bytes"
    assert refused.value.context["file"] == path
