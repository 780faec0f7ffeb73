"""Whole tenants as directories of files, and back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from msgspec import structs
from pyarrow import parquet

import zapdb
from tests.contract.every_type import make_shop
from tests.contract.tables import ADD_COLOR, DROP_NOTE, INDEX_TITLE, ITEMS
from tests.support import PostgresServer, Workspace, error_of
from zapdb.activation.rollback import roll_back
from zapdb.database import Database, RecordChange
from zapdb.errors import (
    CorruptExport,
    IncompatibleVersion,
    RecordExists,
    UsageError,
    ZapdbError,
)
from zapdb.records import asdict
from zapdb.storage import connect
from zapdb.transfer.export import (
    export_loading,
)
from zapdb.transfer.export.all_tenants_export import export_all_tenants, load_all_tenants
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.export_loading import load_export
from zapdb.transfer.export.manifest import Form, read_manifest


def records_of(db: Database) -> dict[str, list[dict[str, Any]]]:
    return {name: [asdict(record) for record in db.table(name).scan()] for name in db.tables}


@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson"])
def test_a_loaded_export_is_the_tenant_on_the_other_engine(
    workspace: Workspace, form: Form, tmp_path: Path, postgres: PostgresServer
) -> None:
    db = make_shop(workspace)
    made = export_directory(db, tmp_path / "out", form=form)
    assert {t.name: t.records for t in made.tables} == {"customers": 10, "orders": 120}
    with postgres.fresh_database() as address:
        other = address if workspace.engine == "sqlite" else f"sqlite:///{tmp_path}/other.db"
        loaded = load_export(tmp_path / "out", other)
        assert (loaded.inserted, loaded.position) == (130, 3)
        with zapdb.open(other) as copy:
            assert repr(records_of(copy)) == repr(records_of(db))
            assert [report.problem_count for report in copy.admin.verify()] == [0, 0]
            assert copy.table("orders").using("by_token").where().count() == 120
            again = export_directory(copy, tmp_path / "again", form=form)
    assert [(t.records, t.digest) for t in again.tables] == [
        (t.records, t.digest) for t in made.tables
    ]
    for path in sorted((tmp_path / "out" / "migrations").iterdir()):
        assert (tmp_path / "again" / "migrations" / path.name).read_bytes() == path.read_bytes()


def test_authored_files_are_copied_if_they_are_the_same(
    workspace: Workspace, tmp_path: Path
) -> None:
    path = workspace.write(1, ITEMS)
    path.write_text(path.read_text() + "# why it is so\n")
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    workspace.write(2, ADD_COLOR.replace("red", "blue"))
    export_directory(db, tmp_path / "out", migrations=workspace.directory)
    copied = (tmp_path / "out" / "migrations" / path.name).read_text()
    assert copied == path.read_text()
    assert "red" in (tmp_path / "out" / "migrations" / "0002_test.yaml").read_text()


@pytest.mark.on_each_engine
def test_a_load_that_was_interrupted_goes_on(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = make_shop(workspace, orders=300)
    export_directory(db, tmp_path / "out")
    monkeypatch.setattr(export_loading, "INSERT_BATCH_RECORDS", 50)
    other, done = f"sqlite:///{tmp_path}/other.db", 0

    def progress(count: int) -> None:
        nonlocal done
        done += count
        if done > 160:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_export(tmp_path / "out", other, progress=progress)
    done = -1_000
    loaded = load_export(tmp_path / "out", other, progress=progress)
    assert 0 < loaded.inserted < 310
    assert loaded.records == {"customers": 10, "orders": 300}


def test_other_records_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=1, title="a")
    export_directory(db, tmp_path / "out")
    db.table("items").update(1, title="b")
    error = error_of(lambda: load_export(tmp_path / "out", workspace.address))
    assert isinstance(error, UsageError)
    assert error.context["field"] == "title"
    db.table("items").update(1, title="a", note="n")
    error = error_of(lambda: load_export(tmp_path / "out", workspace.address))
    assert isinstance(error, UsageError)
    assert error.context["field"] == "note"
    db.table("items").delete(1)
    db.table("items").insert(id=2, title="a")
    error = error_of(lambda: load_export(tmp_path / "out", workspace.address))
    assert isinstance(error, CorruptExport)
    assert error.context["found"].startswith("2 records")
    db.close()
    workspace.write(2, ADD_COLOR)
    workspace.open().close()
    error = error_of(lambda: load_export(tmp_path / "out", workspace.address))
    assert isinstance(error, UsageError)
    assert error.message == "the database has more migrations than the export"


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_reference_to_a_record_that_was_left_out_is_found(
    workspace: Workspace, tmp_path: Path
) -> None:
    """By the verification: counts and digests are those of the manifest."""
    workspace.write(
        1,
        "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}",
        "create_table: {table: items, key: [id], fields: [{name: id, type: integer},"
        " {name: tag, type: reference, to: tags}]}",
        "create_index: {table: items, index: by_tag, fields: [{field: tag}]}",
        "add_reference: {table: items, field: tag, on_delete: cascade}",
    )
    db, out, empty = workspace.open(), tmp_path / "out", tmp_path / "empty"
    db.table("tags").insert(name="dairy")
    db.table("items").insert(id=1, tag="dairy")
    made = export_directory(db, out)
    db.table("tags").delete("dairy")
    none = {table.name: table for table in export_directory(db, empty).tables}
    shutil.copy(empty / none["tags"].file, out / none["tags"].file)
    tables = tuple(none["tags"] if one.name == "tags" else one for one in made.tables)
    structs.replace(made, tables=tables).write(out)
    error = error_of(lambda: load_export(out, f"sqlite:///{tmp_path}/other.db"))
    assert isinstance(error, CorruptExport)
    assert error.message.startswith("verification found a problem")


def test_a_tenant_is_loaded_as_another(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=1, title="a")
    export_directory(db, tmp_path / "out")
    load_export(tmp_path / "out", workspace.address, tenant="second")
    assert db.for_tenant("second").table("items").get(1).title == "a"


@pytest.mark.parametrize("engine", ["sqlite"])
def test_what_is_damaged_is_named(workspace: Workspace, tmp_path: Path) -> None:
    db = make_shop(workspace, orders=10, long=False)
    whole = tmp_path / "whole"
    export_directory(db, whole, form="ndjson")
    error = error_of(lambda: export_directory(db, whole))
    assert isinstance(error, UsageError)
    assert error.message == "the directory is not empty"

    def load(change: Any) -> Any:
        damaged = tmp_path / "damaged"
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(whole, damaged)
        change(damaged)
        (tmp_path / "other.db").unlink(missing_ok=True)
        return error_of(lambda: load_export(damaged, f"sqlite:///{tmp_path}/other.db"))

    def edit(path: Path, old: str, new: str) -> None:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    cases = {
        "the directory has no manifest": lambda d: (d / "manifest.json").unlink(),
        "a file of the export is missing": lambda d: (d / "tables/orders.ndjson").unlink(),
        "the migrations of the export are missing": lambda d: shutil.rmtree(d / "migrations"),
        "the migrations of the export were changed": lambda d: edit(
            d / "migrations/0003_later.yaml", "red", "blue"
        ),
        "a table does not have the records that were exported": lambda d: edit(
            d / "tables/orders.ndjson", '"color":"red"', '"color":"tan"'
        ),
        "the manifest of an export can't be read": lambda d: edit(d / "manifest.json", "{", "["),
        "the manifest of an export names a file outside": lambda d: edit(
            d / "manifest.json", "tables/orders.ndjson", "../whole/tables/orders.ndjson"
        ),
    }
    for message, change in cases.items():
        error = load(change)
        assert isinstance(error, CorruptExport | UsageError), (message, error)
        assert error.message.startswith(message)
    secret, file = tmp_path / "secret.yaml", "migrations/0009_secret.yaml"
    secret.write_text("password: hunter2\n")

    def link(d: Path, name: str, to: Path) -> None:
        (d / name).unlink(missing_ok=True)
        (d / name).symlink_to(to)

    def manifest(d: Path, change: Callable[[dict[str, Any]], object]) -> None:
        found = json.loads((d / "manifest.json").read_text())
        change(found)
        (d / "manifest.json").write_text(json.dumps(found))

    refused: dict[str, Callable[[Path], object]] = {
        "no tables": lambda d: manifest(d, lambda m: m.update(tables=[])),
        "a table less": lambda d: manifest(d, lambda m: m["tables"].pop()),
        "a table twice": lambda d: manifest(d, lambda m: m["tables"].append(m["tables"][0])),
        "another table": lambda d: manifest(d, lambda m: m["tables"][0].update(name="others")),
        "another sequence": lambda d: manifest(
            d, lambda m: m["tables"][0].update(sequences={"none": 7})
        ),
        "another text": lambda d: manifest(d, lambda m: m["tables"][0].update(as_text=["none"])),
        "another setting": lambda d: manifest(
            d,
            lambda m: m.update(
                settings=[{"name": "convert", "value": "x", "scope": "tenant", "table": "none"}]
            ),
        ),
        "a position": lambda d: manifest(d, lambda m: m.update(position=m["position"] - 1)),
        "a link to a migration": lambda d: link(d, file, secret),
        "a link to the lock": lambda d: link(d, "migrations/zapdb.lock", secret),
        "a link to the manifest": lambda d: link(d, "manifest.json", secret),
        "a link to records": lambda d: link(d, "tables/orders.ndjson", secret),
        "a link to itself": lambda d: link(d, "tables/orders.ndjson", Path("orders.ndjson")),
    }
    for what, change in refused.items():
        error = load(change)
        assert isinstance(error, CorruptExport), (what, error)
        assert "hunter2" not in f"{error!r} {error} {error.context}"
        assert not (tmp_path / "other.db").exists(), what
    newer = load(lambda d: edit(d / "manifest.json", '"format": 1', '"format": 2'))
    assert isinstance(newer, IncompatibleVersion)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_hostile_parquet_is_refused_before_anything_is_loaded(
    workspace: Workspace, tmp_path: Path
) -> None:
    """More records than the export, or another schema; the right file is loaded then."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert_many([{"id": number, "title": "a"} for number in range(9)])
    whole, url = tmp_path / "whole", f"sqlite:///{tmp_path / 'other.db'}"
    export_directory(db, whole)
    path = whole / "tables/items.parquet"
    raw, rows = path.read_bytes(), parquet.read_table(path)

    def write(table: Any, **form: Any) -> ZapdbError:
        parquet.write_table(table, path, **form)
        error = error_of(lambda: load_export(whole, url))
        assert error is not None
        assert str(error.context["file"]) == str(path)
        return error

    error = write(pyarrow.concat_tables([rows] * 3))
    assert (error.code, error.context["problem"]) == (
        "corruption.export",
        "it has 27 records instead of 9",
    )
    deep = pyarrow.int8()
    for _ in range(60):
        deep = pyarrow.struct([("a", deep)])
    nested = write(rows.append_column("deep", pyarrow.nulls(9, deep)))
    assert "nested too deeply" in str(nested.context["problem"])
    assert not (tmp_path / "other.db").exists()
    for table in (
        rows.drop_columns("title"),
        rows.append_column("title", pyarrow.nulls(9)),
        rows.set_column(1, "title", pyarrow.array([[{"a": [1]}]] * 9)),
    ):
        assert isinstance(write(table), CorruptExport)
    with zapdb.open(url) as other:
        assert other.table("items").count() == 0
    path.write_bytes(raw)
    assert load_export(whole, url).inserted == 9


def test_an_export_is_as_of_one_moment(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    db, writer = workspace.open(), workspace.open()
    db.table("items").insert_many({"id": at, "title": "a"} for at in range(2_500))
    seen = 0

    def progress(count: int) -> None:
        nonlocal seen
        seen += count
        writer.table("items").insert(id=10**6 + seen, title="later")

    made = export_directory(db, tmp_path / "out", progress=progress)
    assert seen == made.tables[0].records == 2_500
    assert read_manifest(tmp_path / "out") == made
    assert json.loads((tmp_path / "out/manifest.json").read_text())["form"] == "parquet"
    with pytest.raises(RecordExists):
        writer.table("items").insert(id=1, title="")


def test_archives_settings_and_sequences_are_exported(
    workspace: Workspace, tmp_path: Path, postgres: PostgresServer
) -> None:
    """A rollback in the copy brings the archived values back."""
    key = "{name: id, type: integer, generated: sequence}"
    workspace.write(1, ITEMS.replace("{name: id, type: integer}", key), INDEX_TITLE)
    db = workspace.open()
    notes = ["converted", "x" * 10_000, None, "stale"]
    for number, note in enumerate(notes, 1):
        db.table("items").insert(id=number, title="a", note=note)
    last = max(db.table("items").insert(title="b").id for _ in range(3))
    for number in range(len(notes) + 1, last + 1):
        db.table("items").delete(number)
    workspace.write(
        2, DROP_NOTE.replace("{value: dropped}", "{archive: true, otherwise: {value: x}}")
    )
    db.close()
    db = workspace.open()
    db.table("items").update(1, title="written by the newer schema")
    db.admin.set_setting("on_dataset_change", "scan", table="items", index="by_title")
    db.admin.set_setting("change_log", "on", table="items", tenant="default")
    db.admin.set_setting("profile", "production")
    made = export_directory(db, tmp_path / "out")
    assert made.tables[0].archive is not None
    assert made.tables[0].archive.values == len(notes)
    with postgres.fresh_database() as address:
        other = address if workspace.engine == "sqlite" else f"sqlite:///{tmp_path}/other.db"
        load_export(tmp_path / "out", other)
        with zapdb.open(other) as copy:
            again = export_directory(copy, tmp_path / "again")
            assert structs.replace(again, made_at="") == structs.replace(made, made_at="")
            assert (
                copy.admin.setting("on_dataset_change", table="items", index="by_title") == "scan"
            )
            assert list(copy.change_log.read()) != []
            assert all(not isinstance(c, RecordChange) for c in copy.change_log.read())
            assert copy.table("items").insert(title="c").id > last
        with closing(connect(other)) as storage:
            roll_back(storage)
        with zapdb.open(other) as copy:
            assert [copy.table("items").get(n).note for n in range(1, 5)] == notes


def test_sequences_go_on_behind_what_was_loaded(workspace: Workspace, tmp_path: Path) -> None:
    key = "{name: id, type: integer, generated: sequence}"
    workspace.write(1, ITEMS.replace("{name: id, type: integer}", key))
    db = workspace.open()
    last = [db.table("items").insert(title="a").id for _ in range(3)][-1]
    export_directory(db, tmp_path / "out")
    load_export(tmp_path / "out", f"sqlite:///{tmp_path}/other.db")
    with zapdb.open(f"sqlite:///{tmp_path}/other.db") as copy:
        assert copy.table("items").insert(title="b").id > last


def test_all_tenants_are_exported_and_loaded(
    workspace: Workspace, tmp_path: Path, postgres: PostgresServer
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    names = ["default", "acme", "b@x-4"]
    for number, name in enumerate(names):
        if number:
            db.admin.create_tenant(name)
        db.for_tenant(name).table("items").insert(id=number, title=name)
    db.admin.set_setting("on_read", "write_back", tenant="acme")
    made = export_all_tenants(db, tmp_path / "out")
    assert sorted(made) == sorted(names)
    with postgres.fresh_database() as address:
        other = address if workspace.engine == "sqlite" else f"sqlite:///{tmp_path}/other.db"
        for _ in range(2):
            loaded = load_all_tenants(tmp_path / "out", other)
            assert sorted(loaded) == sorted(names)
        with zapdb.open(other) as copy:
            for number, name in enumerate(names):
                assert copy.for_tenant(name).table("items").get(number).title == name
            assert copy.for_tenant("acme").admin.setting("on_read") == "write_back"
            assert copy.admin.setting("on_read") == "leave"
    (tmp_path / "out" / "tenants.json").unlink()
    error = error_of(lambda: load_all_tenants(tmp_path / "out", f"sqlite:///{tmp_path}/x.db"))
    assert isinstance(error, UsageError)
    assert error.message.startswith("the directory has no list of tenants")


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_list_of_tenants_leads_nowhere_else(workspace: Workspace, tmp_path: Path) -> None:
    """And nothing is loaded of an export in which that of one tenant is damaged."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.create_tenant("acme")
    with db.for_tenant("acme") as other:
        other.table("items").insert(id=1, title="a")
    whole, outside = tmp_path / "whole", tmp_path / "outside"
    export_all_tenants(db, whole, form="csv")
    export_directory(db, outside, form="csv")
    listed = json.loads((whole / "tenants.json").read_text())
    first, second = listed["tenants"]
    (whole / "tenants/0003").symlink_to(outside)
    for tenants in (
        [first, {**second, "directory": "../outside"}],
        [first, {**second, "directory": str(outside)}],
        [first, {**second, "directory": "tenants/0003"}],
        [first, {**second, "directory": first["directory"]}],
        [first, {**second, "name": first["name"]}],
        [],
    ):
        (whole / "tenants.json").write_text(json.dumps({**listed, "tenants": tenants}))
        error = error_of(lambda: load_all_tenants(whole, f"sqlite:///{tmp_path}/other.db"))
        assert isinstance(error, CorruptExport), tenants
        assert not (tmp_path / "other.db").exists()
    (whole / "tenants.json").write_text(json.dumps(listed))
    (whole / second["directory"] / "tables/items.csv").unlink()
    error = error_of(lambda: load_all_tenants(whole, f"sqlite:///{tmp_path}/other.db"))
    assert isinstance(error, CorruptExport)
    assert not (tmp_path / "other.db").exists()
