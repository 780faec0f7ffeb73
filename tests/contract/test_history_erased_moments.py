"""Erasing a record from the past: no moment counts a change of it any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet

from tests.contract.stored_pasts import begin, check_store, flush, read_manifest
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.past.files import erasing
from zapdb.records import codec_for
from zapdb.storage import Connection

DOUBLE = (
    "transform: {table: items, from: {title: string}, into: {title: {type: string, default: ''}},"
    " up: {title: \"join('', title, title)\"}, down: {title: title}, reversibility: lossy,"
    " because: a test}"
)


def change_in_a_gap(workspace: Workspace, directory: Path) -> Database:
    """Three records that are changed in a gap: nothing tells what they were behind a rollback."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many([{"id": number, "title": "a"} for number in range(3)])
    begin(db, directory)
    db.close()
    workspace.write(2, DOUBLE)
    db = workspace.open()
    db.admin.run_jobs()
    db.close()
    roll_back(workspace.connect())
    workspace.remove(2)
    with workspace.open() as db, db.transaction() as tx:
        for number in range(3):
            tx.table("items").update(number, size=7)
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    flush(db)
    return db


@pytest.mark.on_each_engine
@pytest.mark.parametrize("is_pruned", [False, True])
def test_no_moment_counts_what_was_done_to_an_erased_record_in_a_gap(
    workspace: Workspace, tmp_path: Path, is_pruned: bool
) -> None:
    """No file has a row of that change, which belongs to no era; files of moments have its key,
    until it is erased."""
    db = change_in_a_gap(workspace, tmp_path / "store")
    db.table("items").delete(1)
    flush(db)
    (rolled_back,) = (m for m in db.moments() if [one.updated for one in m.changes] == [3])
    assert len(list_unfiled(tmp_path)) >= 3
    if is_pruned:
        db.change_log.prune(db.change_log.end())

    assert db.history.erase("items", 1).changes == (0 if is_pruned else 3)
    if not is_pruned:
        check_store(db)
    assert db.history.verify().problems == ()
    (found,) = (m for m in db.moments() if m.number == rolled_back.number)
    assert [one.updated for one in found.changes] == [2]
    assert {one.deleted for m in db.moments() for one in m.changes} == {0}
    erased = codec_for(db._catalog.table("items").schema).encode_key({"id": 1})
    left = list_unfiled(tmp_path)
    assert left
    assert erased not in left
    live = {file.place_in(tmp_path / "store") for file in read_manifest(db)[2]}
    assert set((tmp_path / "store/1/0").glob("*.parquet")) <= live


@pytest.mark.parametrize("engine", ["sqlite"])
def test_no_moment_counts_a_change_that_only_the_log_tells(
    workspace: Workspace, tmp_path: Path
) -> None:
    """An exact purge leaves rows of its first moment that say no more who was changed at it."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many([{"id": number, "title": "a"} for number in range(3)])
    begin(db, tmp_path / "store")
    db.table("items").update(1, title="b")
    db.table("items").update(1, title="c")
    kept = flush(db).ends
    db.table("items").update(2, title="d")
    flush(db)
    db.history.purge(kept, exact=True)
    db.table("items").delete(1)
    flush(db)
    db.history.erase("items", 1)
    flush(db)
    db.change_log.prune(db.change_log.end())
    updated = [m.number - kept for m in db.moments() if any(one.updated for one in m.changes)]
    assert updated == [1]


def list_unfiled(directory: Path) -> list[bytes]:
    """The keys in all files of moments, the retired ones too."""
    return [
        key
        for path in directory.rglob("moments-*.parquet")
        for unfiled in parquet.read_table(path).column("unfiled").to_pylist()
        for one in unfiled
        for key in one["keys"]
    ]


def test_a_file_of_moments_that_is_repaired_has_the_keys_of_a_gap(
    workspace: Workspace, tmp_path: Path
) -> None:
    db = change_in_a_gap(workspace, tmp_path / "store")
    wanted = sorted(list_unfiled(tmp_path))
    assert len(wanted) >= 3
    for path in tmp_path.rglob("moments-*.parquet"):
        path.unlink()
    assert db.history.repair().left == ()
    assert sorted(list_unfiled(tmp_path)) == wanted
    check_store(db)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_h2_an_erasure_is_a_moment_of_its_own_behind_the_stamp_that_it_adds(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that began later has ended already, as those of others do all the time. The
    server then does not name the one that asks among those that are running."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    items = db.table("items")
    items.insert_many([{"id": number, "title": "a"} for number in range(3)])
    begin(db, tmp_path / "store")
    items.delete(1)
    add_stamp = erasing.add_stamp

    def add_behind_another(connection: Connection, tenant: int) -> None:
        connection.fetch_one("SELECT pg_current_xact_id()")
        workspace.execute("SELECT pg_current_xact_id()")
        add_stamp(connection, tenant)

    monkeypatch.setattr(erasing, "add_stamp", add_behind_another)
    db.history.erase("items", 1)
    items.update(2, title="b")
    items.update(2, title="c")
    store = flush(db)
    assert store.ends == next(db.moments()).number
    assert db.at(store.ends - 1).table("items").get(2).title == "b"
    check_store(db)
