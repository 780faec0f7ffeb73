"""What becomes of an index whose collation or time zone data changed: three policies (rule 26).

Most tests change the data by changing what an index says that it was built with, and some of its
entries; those at the end have two releases of the tz database.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
import subprocess
import threading
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from tests import processes
from tests.contract.tables import INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.contract.test_datasets import (  # noqa: F401 - the fixture is used by its name
    TITLES,
    found,
    have_other_data,
    held_back,
    row_of,
)
from tests.contract.test_zones import INDEX_ID, INDEX_MET, MET, VISITS, in_order, local
from tests.lookups import between, find
from tests.support import GUARD_SECONDS, ROOT, Workspace, dump
from tests.timezones import release
from zapdb.activation.datasets import datasets_in_use, needs_rebuilding, restart_indexes
from zapdb.activation.tenant_catalog import load_tenant_catalog
from zapdb.catalog.stored_settings import read_settings, write_setting
from zapdb.database import Database
from zapdb.datasets import Collation, sort_keys
from zapdb.errors import (
    DatasetMismatch,
    JobError,
    TransactionConflict,
    UniqueViolation,
    UnknownName,
    UsageError,
)
from zapdb.jobs import plan_jobs
from zapdb.jobs.job_run import run_job, run_locally
from zapdb.logs import EVENT, FIELDS
from zapdb.storage import TransactionMode

UNIQUE_TITLE = """\
create_index: {table: items, index: one_title, unique: true, fields: [
      {field: title, collation: {locale: und}}]}"""

RIGHT = ["a", "ä", "Ä", "ae", "b"]
"""What lies from a to c."""

OLD = "0" * 64


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_TITLE, INDEX_SIZE)
    db = workspace.open()
    fill(db)
    return db


def fill(db: Database) -> None:
    db.table("items").insert_many(
        {"id": at, "title": title, "size": at} for at, title in enumerate(TITLES)
    )


def change_data(workspace: Workspace, every: int, fingerprint: str = OLD) -> None:
    """As if the index on titles had been built by another ICU, whose keys are the same but for
    those of every n-th record."""
    row = row_of(workspace, 1)
    (name,) = row["built_with"]
    row["built_with"][name] = {"version": "ICU 1.0", "fingerprint": fingerprint}
    workspace.execute(
        "UPDATE zapdb_catalog SET value = ? WHERE kind = 'index' AND key = '1/1'",
        (json.dumps(row),),
    )
    table = f"zapdb_entries_{row['entry_table']}"
    records = workspace.execute(f"SELECT DISTINCT record FROM {table} ORDER BY record")
    for (record,) in records[::every]:
        is_sqlite = workspace.engine == "sqlite"
        longer = "CAST(x'ff' || key AS BLOB)" if is_sqlite else "'\\xff'::bytea || key"
        workspace.execute(f"UPDATE {table} SET key = {longer} WHERE record = ?", (record,))
    workspace.execute("UPDATE zapdb_catalog_versions SET version = version + 1")


def watch_entries(workspace: Workspace, table: str) -> None:
    """From now on, note each entry that is written or deleted, in a table `touched`."""
    workspace.execute(
        "CREATE TABLE touched (what TEXT, record "
        + ("BLOB)" if workspace.engine == "sqlite" else "BYTEA)")
    )
    if workspace.engine == "sqlite":
        for what, row in (("insert", "NEW"), ("delete", "OLD"), ("update", "OLD")):
            workspace.execute(
                f"CREATE TRIGGER note_{what} AFTER {what} ON {table} BEGIN"
                f" INSERT INTO touched VALUES ('{what}', {row}.record); END"
            )
        return
    workspace.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO touched"
        " VALUES (lower(TG_OP), coalesce(NEW.record, OLD.record)); RETURN NULL; END $$"
    )
    workspace.execute(
        f"CREATE TRIGGER note AFTER INSERT OR DELETE OR UPDATE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION note()"
    )


def touched(workspace: Workspace) -> list[tuple[str, bytes]]:
    rows = workspace.execute("SELECT what, record FROM touched")
    return sorted((str(what), bytes(record)) for what, record in rows)


def state_of(db: Database, name: str = "by_title") -> str:
    """Of an index, as everybody sees it now."""
    with db._storage.transaction(TransactionMode.READ) as connection:
        states = load_tenant_catalog(connection, db._catalog.tenant).tables["items"].indexes
    return next(state.state for state in states if state.index.name == name)


def check_whole(db: Database) -> None:
    """Every index holds exactly the entries of the records, and finds them."""
    (report,) = db.admin.verify()
    assert (report.problems, report.building) == ((), ())
    items = db.table("items")
    assert sorted(r.id for r in items.using("by_title")) == [r.id for r in items.scan()]


# --- rebuild --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("held_back")
def test_rule_26_rebuilding_builds_another_table_of_entries_and_scans_meanwhile(
    workspace: Workspace, db: Database
) -> None:
    assert db.admin.setting("on_dataset_change", table="items", index="by_title") == "rebuild"
    before = row_of(workspace, 1)
    db.close()
    change_data(workspace, 2)
    db = workspace.open()
    row = row_of(workspace, 1)
    assert (row["state"], row["built_with"]) == ("building", before["built_with"])
    assert row["entry_table"] != before["entry_table"]
    assert (
        db._storage.connection().fetch_all(f"SELECT * FROM zapdb_entries_{row['entry_table']}")
        == []
    )
    assert found(db) == RIGHT
    assert [r.id for r in find(db.table("items"), "by_title", "Ä")] == [2]
    (report,) = db.admin.run_jobs()
    assert report.progress.written == len(TITLES)
    assert found(db) == RIGHT
    check_whole(db)


# --- background -----------------------------------------------------------------------------------


def test_rule_26_background_leaves_entries_alone_whose_key_is_unchanged(
    workspace: Workspace, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.admin.set_setting("on_dataset_change", "rewrite")
    before, key_of = row_of(workspace, 1), db.table("items")._bound.codec.encode_key
    db.close()
    change_data(workspace, 3)
    with caplog.at_level(logging.WARNING, "zapdb.datasets"):
        db = workspace.open()
    assert "index 'by_title' of table 'items' gets its entries rewritten" in caplog.text
    assert state_of(db) == "rewriting"
    row = row_of(workspace, 1)
    assert (row["state"], row["entry_table"]) == ("rewriting", before["entry_table"])
    (name,) = before["built_with"]
    assert row["built_with"] == before["built_with"]
    assert row["rewritten_from"] == {name: {"version": "ICU 1.0", "fingerprint": OLD}}
    assert "by_title" not in db.table("items").readable_indexes()
    assert found(db) == RIGHT
    watch_entries(workspace, f"zapdb_entries_{row['entry_table']}")
    (report,) = db.admin.run_jobs()
    changed = [key_of({"id": at}) for at in (0, 3, 6)]
    assert touched(workspace) == sorted(
        (what, record) for what in ("delete", "insert") for record in changed
    )
    assert (report.progress.read, report.progress.written) == (len(TITLES), 3)
    assert row_of(workspace, 1) == before | {"build": row["build"], "former": {name: [OLD]}}
    assert "by_title" in db.table("items").readable_indexes()
    assert found(db) == RIGHT
    check_whole(db)
    assert db.admin.run_jobs() == []


def test_rule_26_background_warns_on_every_query_that_needs_the_index(
    workspace: Workspace, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.admin.set_setting("on_dataset_change", "rewrite", table="items", index="by_title")
    db.close()
    change_data(workspace, 2)
    db = workspace.open()
    items = db.table("items")
    here = datasets_in_use(db._catalog).popitem()[1][0]
    title = items.f.title.collated("und")
    affected = (
        lambda: list(find(items, "by_title", "Ä")),
        lambda: found(db),
        lambda: list(items.where(title.matches("Ä"))),
        lambda: items.where(title.between("a", "c")).count(),
        lambda: items.where().order_by(title).first(),
    )
    others = (
        lambda: items.get(1),
        lambda: list(find(items, "by_size", 3)),
        lambda: list(items.where(items.f.size == 3)),
        lambda: items.where(items.f.id == 3).count(),
        lambda: list(items.scan()),
    )

    def warnings(asked: Any) -> list[dict[str, Any]]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "zapdb.datasets"):
            asked()
        assert all(getattr(record, EVENT) == "query.scanned" for record in caplog.records)
        return [getattr(record, FIELDS) for record in caplog.records]

    wanted = {
        "table": "items",
        "index": "by_title",
        "built_with": "ICU 1.0",
        "rewritten_for": here,
    }
    for _ in range(2):
        assert [warnings(asked) for asked in affected] == [[wanted]] * len(affected)
    assert [warnings(asked) for asked in others] == [[]] * len(others)
    explained = items.where(items.f.size == 3).explain()
    assert explained.warnings == (
        f"the entries of the index by_title are being rewritten, of ICU 1.0 to {here}",
    )
    assert f"warning: {explained.warnings[0]}" in str(explained)
    db.admin.run_jobs()
    assert [warnings(asked) for asked in affected] == [[]] * len(affected)
    assert items.where(items.f.size == 3).explain().warnings == ()


@pytest.mark.on_each_engine
def test_rule_26_writers_beside_a_rewriting_leave_nothing_behind(
    workspace: Workspace, db: Database
) -> None:
    """They can't compute the old keys of what they change and delete."""
    db.admin.set_setting("on_dataset_change", "rewrite")
    db.close()
    change_data(workspace, 1)
    db = workspace.open()
    items = db.table("items")
    items.delete(0)
    items.delete(1)
    items.insert(id=1, title="another")  # its old entry names a record again
    items.update(2, title="z")
    items.update(3, size=9)
    items.insert(id=20, title="new")
    (entries,) = db._storage.connection().fetch_one(
        f"SELECT count(*) FROM zapdb_entries_{row_of(workspace, 1)['entry_table']}"
    )
    assert entries == len(TITLES) + 3  # an old one each, and those of 1, 2 and 20
    db.admin.run_jobs()
    assert found(db) == ["ä", "ae", "another", "b"]
    check_whole(db)


def test_rule_26_entries_of_records_that_are_gone_are_deleted_at_the_end_only(
    workspace: Workspace, db: Database
) -> None:
    """Its key may be the right one of a record that is being inserted: nobody could tell."""
    db.admin.set_setting("on_dataset_change", "rewrite")
    db.close()
    change_data(workspace, 2)
    db = workspace.open()
    items = db.table("items")
    items.delete(0)
    items.delete(2)
    seen = []

    def runner(storage: Any, job: Any) -> None:
        run_locally(storage, job)
        seen.extend(
            storage.connection().fetch_all(
                f"SELECT record FROM zapdb_entries_{row_of(workspace, 1)['entry_table']}"
                " WHERE record NOT IN (SELECT key FROM zapdb_records_1)"
            )
        )
        items.insert(id=2, title="b")  # one of them names a record again

    (report,) = db.admin.run_jobs(runner)
    assert len(seen) == 2
    assert report.progress.written == 2  # the others are those two
    assert report.job.state == "done"
    assert found(db) == ["a", "ä", "ae", "b", "b"]
    check_whole(db)


@pytest.mark.parametrize("seed", [1, 2])
def test_rule_26_any_writes_between_the_batches_of_a_rewriting(
    workspace: Workspace, db: Database, seed: int
) -> None:
    db.admin.set_setting("on_dataset_change", "rewrite")
    items, chance = db.table("items"), random.Random(seed)
    items.insert_many({"id": at, "title": f"t{at % 7}", "size": 0} for at in range(10, 60))
    db.close()
    change_data(workspace, 2)
    db = workspace.open()
    items = db.table("items")

    def write() -> bool:
        key, title = chance.randrange(64), f"t{chance.randrange(9)}"
        if chance.random() < 0.4:
            items.delete_many([key])
        else:
            items.upsert(id=key, title=title)
        assert [r.title for r in find(items, "by_title", title)] == [
            r.title for r in items.scan() if r.title == title
        ]
        return chance.random() < 0.1  # the runner stops, and another one goes on

    (job,) = plan_jobs(db._storage, 1, ["index"])
    runner = partial(run_locally, batch_records_max=3, workers=1, should_stop=write)
    report = None
    while report is None:
        with suppress(JobError):  # the runner stopped before it was done
            report = run_job(db._storage, job, runner)
    check_whole(db)
    keys = [sort_keys(Collation("und")).get(r.title) for r in items.using("by_title")]
    assert keys == sorted(keys)


@pytest.mark.on_each_engine
def test_rule_26_writers_at_the_same_moment_as_a_rewriting(
    workspace: Workspace, db: Database
) -> None:
    db.admin.set_setting("on_dataset_change", "rewrite")
    db.table("items").insert_many(
        {"id": at, "title": f"t{at % 7}", "size": 0} for at in range(10, 200)
    )
    db.close()
    change_data(workspace, 2)
    db = workspace.open()
    stop = threading.Event()

    def write(seed: int) -> None:
        chance, items = random.Random(seed), db.table("items")
        while not stop.is_set():
            key = chance.randrange(200)
            try:
                if chance.random() < 0.4:
                    items.delete_many([key])
                else:
                    items.upsert(id=key, title=f"t{chance.randrange(9)}")
            except TransactionConflict:
                pass

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for writer in writers:
        writer.start()
    try:
        (report,) = db.admin.run_jobs(partial(run_locally, batch_records_max=8))
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert report.job.state == "done"
    check_whole(db)


def test_rule_26_data_that_change_again_while_entries_are_rewritten(
    workspace: Workspace, db: Database
) -> None:
    db.admin.set_setting("on_dataset_change", "rewrite")
    db.close()
    change_data(workspace, 2)
    db = workspace.open()
    db.table("items").update(0, title="ab")
    before = row_of(workspace, 1)
    db.close()
    change_data(workspace, 3, "1" * 64)  # as if those of now had been others
    db = workspace.open()
    row = row_of(workspace, 1)
    assert row["build"] != before["build"]
    assert row["entry_table"] == before["entry_table"]
    assert found(db) == ["a", "ä", "Ä", "ab", "ae", "b"]
    assert [report.job.target for report in db.admin.run_jobs()] == [row["build"]]
    assert found(db) == ["a", "ä", "Ä", "ab", "ae", "b"]
    check_whole(db)


@pytest.mark.usefixtures("held_back")
def test_rule_26_an_index_that_was_not_built_yet_is_built_as_a_whole(
    workspace: Workspace, db: Database
) -> None:
    db.admin.set_setting("on_dataset_change", "rewrite")
    db.close()
    storage = workspace.connect()
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, 1)
    restart_indexes(storage, catalog, lambda _, index: index.index.name == "by_title", None)
    change_data(workspace, 1)
    before = row_of(workspace, 1)
    db = workspace.open()
    assert state_of(db) == "building"
    assert row_of(workspace, 1)["entry_table"] != before["entry_table"]
    db.admin.run_jobs()
    check_whole(db)


def test_rule_26_background_is_refused_while_processes_have_other_data(
    workspace: Workspace, db: Database
) -> None:
    db.admin.set_setting("on_dataset_change", "rewrite")
    change_data(workspace, 2)
    have_other_data(workspace, db)
    before = dump(workspace)
    with pytest.raises(DatasetMismatch, match="other running processes use different"):
        workspace.open()
    assert dump(workspace) == before


def test_rule_26_background_is_refused_for_unique_indexes(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, INDEX_TITLE)
    workspace.write(2, UNIQUE_TITLE)
    db = workspace.open()
    before = dump(workspace)
    for scope in (
        {},
        {"table": "items"},
        {"table": "items", "index": "one_title"},
        {"table": "items", "field": "title"},
        {"tenant": "default"},
    ):
        with pytest.raises(UsageError, match="a unique index cannot be rewritten") as caught:
            db.admin.set_setting("on_dataset_change", "rewrite", **scope)
        assert caught.value.context["index"] == "one_title"
        assert "--table items --index one_title" in str(caught.value.hint)
    assert dump(workspace) == before
    command = re.search(
        r"zapdb settings set (\w+) (\w+) --table (\w+) --index (\w+)", str(caught.value.hint)
    )
    assert command is not None
    name, value, table, index = command.groups()
    db.admin.set_setting(name, value, table=table, index=index)  # what the hint says can be done
    db.admin.set_setting(name, None, table=table, index=index)
    db.admin.set_setting("on_dataset_change", "rewrite", table="items", index="by_title")
    db.admin.set_setting(
        "on_dataset_change", "rebuild"
    )  # what keeps the unique one out is not taken back, either
    db.admin.set_setting("on_dataset_change", "rebuild", table="items", index="one_title")
    db.admin.set_setting("on_dataset_change", "rewrite", table="items")
    with pytest.raises(UsageError, match="a unique index cannot be rewritten"):
        db.admin.set_setting("on_dataset_change", None, table="items", index="one_title")


def test_rule_26_a_unique_index_that_would_be_rewritten_is_refused_when_opening(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    fill(db)
    db.admin.set_setting("on_dataset_change", "rewrite")
    db.close()
    workspace.write(1, ITEMS)
    workspace.write(2, UNIQUE_TITLE)
    db = workspace.open()  # as long as the data stay, it does not matter
    db.admin.run_jobs()
    db.close()
    change_data(workspace, 2)
    before = dump(workspace)
    with pytest.raises(DatasetMismatch, match="a unique index cannot be rewritten") as caught:
        workspace.open()
    assert caught.value.context["index"] == "one_title"
    assert "settings set on_dataset_change rebuild --table items --index one_title" in str(
        caught.value.hint
    )
    assert dump(workspace) == before
    with workspace.connect().transaction(TransactionMode.CATALOG) as connection:
        write_setting(connection, "on_dataset_change", "rebuild")
    db = workspace.open()
    db.admin.run_jobs()
    with pytest.raises(UniqueViolation):
        db.table("items").insert(id=30, title="a")
    (report,) = db.admin.verify()
    assert (report.problems, report.building) == ((), ())


# --- scan -----------------------------------------------------------------------------------------


def test_rule_26_scan_keeps_an_index_out_of_use_until_an_operator_rebuilds_it(
    workspace: Workspace, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.admin.set_setting("on_dataset_change", "scan", table="items", field="title")
    before = row_of(workspace, 1)
    db.close()
    change_data(workspace, 2)
    with caplog.at_level(logging.WARNING, "zapdb.datasets"):
        db = workspace.open()
    assert "index 'by_title' of table 'items' is kept by nobody" in caplog.text
    assert state_of(db) == "disabled"
    items = db.table("items")
    for _ in range(2):
        assert found(db) == RIGHT
        assert "by_size" in items.readable_indexes()
        assert "by_title" not in items.readable_indexes()
        explained = items.where().explain()
        assert explained.warnings == ("nobody keeps the index by_title until `zapdb reindex run`",)
        assert db.admin.run_jobs() == []
        db.close()
        caplog.clear()
        db = workspace.open()  # nothing more becomes of it
        items = db.table("items")
        assert caplog.text == ""
    items.insert(id=20, title="abc")
    items.insert_many([{"id": 21, "title": "abd"}])
    items.delete(1)
    items.update(2, title="B")
    items.upsert(id=3, title="a")
    assert found(db) == ["a", "abc", "abd", "ae", "b", "B"]
    table = f"zapdb_entries_{row_of(workspace, 1)['entry_table']}"
    assert workspace.execute(f"SELECT * FROM {table}") == []
    (report,) = db.admin.verify()
    assert (report.problems, report.building) == ((), ("by_title",))
    storage = workspace.connect()
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, 1)
    ((state, index),) = restart_indexes(
        storage, catalog, lambda _, found: needs_rebuilding(found), None
    )
    assert (state.schema.name, index.index.name) == ("items", "by_title")
    items.insert(id=22, title="ad")
    assert [report.job.kind for report in db.admin.run_jobs()] == ["index"]
    assert found(db) == ["a", "abc", "abd", "ad", "ae", "b", "B"]
    check_whole(db)
    row = row_of(workspace, 1)
    assert (row["built_with"], row["state"]) == (before["built_with"], "readable")
    assert items.where().explain().warnings == ()


def test_rule_26_a_rewriting_ends_where_the_policy_is_scan_by_then(
    workspace: Workspace, db: Database
) -> None:
    db.admin.set_setting("on_dataset_change", "rewrite")
    db.close()
    change_data(workspace, 2)
    db = workspace.open()
    db.admin.set_setting("on_dataset_change", "scan")
    (job,) = plan_jobs(db._storage, 1)
    db.close()
    change_data(workspace, 3, "1" * 64)
    db = workspace.open()
    assert state_of(db) == "disabled"
    assert run_job(db._storage, job, run_locally) is None
    assert db.admin.run_jobs() == []
    assert found(db) == RIGHT


def test_rule_26_a_unique_index_that_nobody_keeps_lets_no_new_value_in(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS, UNIQUE_TITLE)
    db = workspace.open()
    fill(db)
    db.admin.set_setting("on_dataset_change", "scan")
    change_data(workspace, 2)
    have_other_data(workspace, db)
    with pytest.raises(DatasetMismatch, match="other running processes use different"):
        workspace.open()  # it would keep them from writing
    db.close()
    db = workspace.open()
    items = db.table("items")
    assert [r.title for r in between(items, "one_title", "a", "c")] == RIGHT
    for write in (
        lambda: items.insert(id=30, title="new"),
        lambda: items.insert_many([{"id": 30, "title": "new"}]),
        lambda: items.update(1, title="new"),
    ):
        with pytest.raises(DatasetMismatch, match="a unique index is disabled"):
            write()
    items.update(1, size=7)
    items.delete(0)
    storage = workspace.connect()
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, 1)
    restart_indexes(storage, catalog, lambda _, found: needs_rebuilding(found), None)
    db.admin.run_jobs()
    items.insert(id=30, title="new")
    with pytest.raises(UniqueViolation):
        items.insert(id=31, title="new")
    (report,) = db.admin.verify()
    assert (report.problems, report.building) == ((), ())


def test_rule_26_a_rebuild_is_refused_while_processes_have_other_data(
    workspace: Workspace, db: Database
) -> None:
    db.admin.set_setting("on_dataset_change", "scan")
    change_data(workspace, 2)
    have_other_data(workspace, db)
    workspace.open()
    storage = workspace.connect()
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, 1)
    before = dump(workspace)
    with pytest.raises(DatasetMismatch, match="other running processes use different") as caught:
        restart_indexes(storage, catalog, lambda _, found: needs_rebuilding(found), None)
    assert db._node.id in caught.value.context["processes"]
    assert dump(workspace) == before


# --- the setting ----------------------------------------------------------------------------------


def test_rule_14_the_policy_of_an_index_comes_before_that_of_its_fields(
    workspace: Workspace,
) -> None:
    both = """create_index: {table: items, index: both, fields: [
        {field: size}, {field: note, collation: {locale: und}},
        {field: title, collation: {locale: und}}]}"""
    workspace.write(1, ITEMS, both)
    db = workspace.open()
    table = db._catalog.tables["items"].schema
    scopes: list[dict[str, str]] = [
        {},
        {"tenant": "default"},
        {"table": "items"},
        {"table": "items", "tenant": "default"},
        {"table": "items", "field": "title"},
        {"table": "items", "field": "note"},
        {"table": "items", "field": "note", "tenant": "default"},
        {"table": "items", "index": "both"},
        {"table": "items", "index": "both", "tenant": "default"},
    ]

    def policy() -> str:
        (index,) = table.indexes
        settings = read_settings(db._storage.connection(), 1)
        named = db.admin.setting("on_dataset_change", table="items", index="both")
        assert settings.dataset_policy(table, index) == named
        return named

    db.admin.set_setting(
        "on_dataset_change", "scan", table="items", field="size"
    )  # depends on no data
    values = ["rebuild", "scan", "rewrite"]
    for at, scope in enumerate(scopes):
        db.admin.set_setting("on_dataset_change", values[at % 3], **scope)
        assert policy() == values[at % 3]
    for at in reversed(range(len(scopes))):
        assert policy() == values[at % 3]
        db.admin.set_setting("on_dataset_change", None, **scopes[at])
    assert policy() == "rebuild"
    with pytest.raises(UsageError, match="for an index"):
        db.admin.set_setting("on_read", "leave", table="items", index="both")
    with pytest.raises(UsageError, match="give a field or an index, not both"):
        db.admin.set_setting(
            "on_dataset_change", "scan", table="items", index="both", field="title"
        )
    with pytest.raises(UnknownName, match="there is no such index"):
        db.admin.setting("on_dataset_change", table="items", index="none")


# --- two releases of the time zone data -----------------------------------------------------------


@pytest.fixture
def visits(workspace: Workspace) -> Database:
    workspace.write(1, VISITS, INDEX_MET, INDEX_ID)
    db = workspace.open()
    db.table("visits").insert_many({"id": at, "met": met} for at, met in reversed(MET.items()))
    return db


class Elsewhere:
    """Another process, with other data, that stays open meanwhile."""

    def __init__(self, command: list[str], **environment: str) -> None:
        self.process = processes.Popen(
            command,
            cwd=ROOT,
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @classmethod
    def with_release(cls, workspace: Workspace, version: str, *commands: str) -> Elsewhere:
        """One with another release of the time zone data."""
        return cls(workspace.command("zoned", *commands), ZAPDB_TZDATA=str(release(version)))

    def read(self) -> list[str]:
        """What it says until it waits, or ends."""
        assert self.process.stdout is not None
        said: list[str] = []
        for line in self.process.stdout:
            if line == "waiting\n":
                return said
            said.append(line.rstrip("\n"))
        assert self.process.wait(GUARD_SECONDS) == 0
        return said

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def go_on(self) -> list[str]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.read()


@pytest.mark.on_each_engine
def test_rule_26_two_processes_with_different_data_both_give_right_answers(
    workspace: Workspace, visits: Database
) -> None:
    """Beirut kept winter time until 20 April 2023, by the older data: 5 and 8 are an hour later."""
    visits.admin.set_setting("on_dataset_change", "scan")
    nine = ("2023-03-26T08:30:00", "2023-03-26T09:15:00")
    asked = ("order", "query", f"between {nine[0]} {nine[1]}")
    other = Elsewhere.with_release(
        workspace,
        "2023.2",
        *("wait", *asked, "wait", *asked),
        *("write 8 Asia/Beirut 2023-03-26T12:10:00", "delete 1", "write 2 UTC 2023-03-26T09:20:00"),
        *("wait", *asked),
    )
    here = visits.table("visits")

    def ask() -> list[str]:
        utc = [local("UTC", 2023, 3, 26, 8, 30), local("UTC", 2023, 3, 26, 9, 15)]
        ordered = in_order(visits), [r.id for r in here.where().order_by("met")]
        found = [r.id for r in between(here, "by_met", *utc)]
        return [" ".join(map(str, ids)) for ids in (*ordered, found)]

    try:
        assert other.read()[-1] == "reopened"
        assert "by_met" not in here.readable_indexes()
        assert "by_id" in here.readable_indexes()
        assert ask() == ["1 2 3 4 5 6 7"] * 2 + ["5"]
        assert other.go_on() == ["1 2 3 4 6 5 7"] * 2 + [""]
        here.insert(id=9, met=local("Asia/Beirut", 2023, 3, 26, 11, 5))
        here.delete(3)
        assert other.go_on() == ["1 2 4 9 6 5 7"] * 2 + ["9"]
        assert ask() == ["4 9 5 8 2 6 7"] * 2 + ["5 8"]
        assert other.go_on() == ["4 9 2 6 5 8 7"] * 2 + ["9"]
    finally:
        other.end()


def test_rule_26_background_rewrites_the_instants_that_moved(
    workspace: Workspace, visits: Database
) -> None:
    visits.admin.set_setting("on_dataset_change", "rewrite", table="visits", index="by_met")
    here = visits._catalog.tables["visits"].indexes[0].built_with["time zones"].version
    visits.close()
    other = Elsewhere.with_release(
        workspace, "2023.2", "readable", "query", "run", "readable", "order", "query", "verify"
    )
    said = other.read()
    other.end()
    assert said[0] == (
        "warned: the collation or time zone data changed: index 'by_met' of table 'visits' gets its"
        f" entries rewritten, and queries on it scan until then (built with {here}, here tz"
        " database 2023b)"
    )
    assert said[3].startswith("warned: a query scans, since the entries of its index are being")
    assert said[:3] + said[4:] == [
        said[0],
        "reopened",
        "by_met False, by_id True",
        "1 2 3 4 6 5 7",
        "ran index",
        "by_met True, by_id True",
        "1 2 3 4 6 5 7",
        "1 2 3 4 6 5 7",
        "ok by_met by_id",
    ]
    again = workspace.open()
    assert "by_met" not in again.table("visits").readable_indexes()
    assert in_order(again) == [*MET]
    (report,) = again.admin.run_jobs()
    assert report.progress.written == 1
    assert "by_met" in again.table("visits").readable_indexes()
    assert in_order(again) == [*MET]
    (verified,) = again.admin.verify()
    assert verified.problems == ()
