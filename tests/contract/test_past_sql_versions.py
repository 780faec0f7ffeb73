"""`zapdb_moments` and `zapdb_versions_TABLE`: what SQL sees of a past beside its tables."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.contract.stored_pasts import begin, flush, read_manifest
from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.support import Workspace
from zapdb.catalog.cluster.leases import Owner, list_leases
from zapdb.database import Database
from zapdb.errors import HistoryBehind, HistoryNotStored, UsageError
from zapdb.past.files.cleaning import PIN_PREFIX, delete_retired
from zapdb.past.files.stores import hold_store

CATALOG = {
    "zapdb_migrations": "SELECT * FROM zapdb_migrations ORDER BY number",
    "zapdb_indexes": "SELECT table_name, name, number, fields, is_unique FROM zapdb_indexes",
    "zapdb_schema_history": "SELECT * FROM zapdb_schema_history ORDER BY table_number, revision",
}
VERSIONS = (
    "SELECT id, title, _from, _until, _operation FROM zapdb_versions_items ORDER BY id, _from"
)


class Model:
    """Every version of each record, as the test makes it."""

    def __init__(self, db: Database) -> None:
        self.versions: dict[int, list[list[Any]]] = {}
        self.begin(db)

    def begin(self, db: Database) -> None:
        """Forget what was, and begin with the records of now."""
        moment = newest(db)
        self.versions = {
            one.id: [[one.id, one.title, moment, None, "baseline"]]
            for one in db.table("items").scan()
        }

    def add(self, moment: int, key: int, title: str | None) -> None:
        mine = self.versions.setdefault(key, [])
        is_there = bool(mine) and mine[-1][4] != "delete"
        if title is None and not is_there:
            return
        if mine:
            mine[-1][3] = moment
        operation = "delete" if title is None else "update" if is_there else "insert"
        mine.append([key, title, moment, None, operation])

    def list_at(self, moment: int) -> list[tuple[Any, ...]]:
        return [
            (key, title, since, None if until is None or until > moment else until, operation)
            for key in sorted(self.versions)
            for key, title, since, until, operation in self.versions[key]
            if since <= moment
        ]


def newest(db: Database) -> int:
    return next(db.moments()).number


def write(db: Database, model: Model, rnd: random.Random) -> int:
    made: dict[int, str | None] = {}
    with db.transaction() as tx:
        items = tx.table("items")
        for key in rnd.sample(range(8), 3):
            made[key] = None if rnd.random() < 0.3 else f"t{rnd.random()}"
            if made[key] is None:
                items.where(items.f.id == key).delete()
            else:
                items.upsert(id=key, title=made[key])
    moment = newest(db)
    for key, title in made.items():
        model.add(moment, key, title)
    return moment


def test_all_versions_up_to_a_moment(workspace: Workspace, tmp_path: Path) -> None:
    rnd = random.Random(2)
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many([{"id": key, "title": "first"} for key in range(4)])
    with pytest.raises(HistoryNotStored, match="read from a history store"):
        db.at(newest(db)).sql(VERSIONS)
    begin(db, tmp_path / "store")
    db.admin.set_setting("history_store_flush_changes", "12")  # merged, and new eras
    model, moments = Model(db), []
    for at in range(14):
        moments.append(write(db, model, rnd))
        if at % 3 == 2:
            flush(db)
    assert len(read_manifest(db)[1]) > 1
    began = {name: db.sql(query).fetchall() for name, query in CATALOG.items()}
    workspace.write(2, RENAME_SIZE, INDEX_SIZE.replace("size", "extent"))
    db.close()
    db = workspace.open()
    moments += [write(db, model, rnd), write(db, model, rnd)]
    later = {name: db.sql(query).fetchall() for name, query in CATALOG.items()}
    told = {moment: db.at(moment).sql(VERSIONS).fetchall() for moment in moments}
    for moment in moments:
        assert told[moment] == model.list_at(moment), moment
    flush(db)
    past = db.at(moments[-1])
    assert past.sql(VERSIONS).fetchall() == told[moments[-1]]
    assert past.sql(
        "SELECT m.principal IS NOT NULL, m.updated + m.inserted + m.deleted, count(*)"
        " FROM zapdb_versions_items v JOIN zapdb_moments m ON m.moment = v._from"
        " WHERE m.moment = ? GROUP BY ALL",
        [moments[3]],
    ).fetchall() == [(True, *[sum(v[2] == moments[3] for v in told[moments[3]])] * 2)]
    listed = past.sql("SELECT moment, visible_at, principal FROM zapdb_moments").fetchall()
    assert listed == [
        (one.number, one.visible_at, one.principal) for one in db.moments(until=moments[-1])
    ]
    names = {name for (name,) in past.sql("SHOW TABLES").fetchall()}
    relations = {"zapdb_moments", "zapdb_tables", "zapdb_fields", "zapdb_versions_items", *CATALOG}
    assert names == {"items", *relations}
    fields = "SELECT name FROM zapdb_fields WHERE number = 3"
    sizes = [db.at(moment).sql(fields).fetchone() for moment in (moments[0], moments[-1])]
    assert sizes == [("size",), ("extent",)]
    workspace.write(3, ADD_COLOR)
    db.close()
    db = workspace.open()
    with pytest.raises(HistoryBehind, match="not come to yet"):
        db.at(newest(db)).sql(VERSIONS)
    flush(db)
    model.begin(db)
    last = write(db, model, rnd)
    for _ in range(2):
        assert db.at(last).sql(VERSIONS).fetchall() == model.list_at(last)
        flush(db)
    assert db.at(moments[-1]).sql(VERSIONS).fetchall() == told[moments[-1]]
    for name, query in CATALOG.items():
        assert db.at(moments[-3]).sql(query).fetchall() == began[name], name
        assert db.at(moments[-1]).sql(query).fetchall() == later[name], name
        assert db.sql(query).fetchall() != began[name], name


def test_files_of_a_past_in_use_are_kept(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    with db.at(newest(db)):  # without a store there is nothing to keep
        assert not list(pins(db))
    begin(db, tmp_path / "store")
    db.admin.set_setting("history_store_flush_changes", "3")
    db.admin.set_setting("history_grace_seconds", "0")
    rnd, model = random.Random(3), Model(db)
    with db.at(newest(db)) as past:
        assert len(pins(db)) == 1
        with past, pytest.raises(UsageError, match="can't be pinned"), db.snapshot():
            past.__enter__()
        for _ in range(5):
            write(db, model, rnd)
            flush(db)
        with hold_store(db._storage, 1, Owner.here()) as working:
            assert delete_retired(working) == 0
    assert not pins(db)
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_retired(working) > 0


def pins(db: Database) -> list[Any]:
    return list_leases(db._storage.connection(), PIN_PREFIX)
