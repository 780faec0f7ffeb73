"""Repairing a history store: damaged files are made anew where that is understood, else named."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet

from tests.contract.stored_pasts import begin, check_store, flush, read_manifest
from tests.contract.tables import ITEMS
from tests.contract.test_history_erased import (
    ANOTHER,
    all_names,
    kill_at_each_step,
    make_people,
)
from tests.support import Workspace
from zapdb.catalog.cluster.leases import Owner
from zapdb.past.files.cleaning import delete_retired
from zapdb.past.files.history_file import SCHEMA_KEY
from zapdb.past.files.stores import hold_store


@pytest.mark.long_on("sqlite")
def test_h10_each_file_is_made_anew_from_the_log(workspace: Workspace, tmp_path: Path) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db.table("people").update(ANOTHER, name="Last")
    store = flush(db)
    before = all_names(db, store.begins)
    assert db.history.repair() == db.history.repair(dry_run=True)
    _, _, files = read_manifest(db)
    kinds = {file.kind for file in files}
    assert kinds >= {"checkpoint", "segment", "moments"}
    db.close()
    ways = set()
    for victim in files:
        path = victim.place_in(place)
        db = workspace.open()
        live = {file.id for file in read_manifest(db)[2]}
        if victim.id not in live:  # it was made anew with its era
            db.close()
            continue
        path.write_bytes(path.read_bytes()[:-9])
        planned = db.history.repair(dry_run=True)
        assert [one.path for one in planned.repaired] == [str(path)]
        assert db.history.repair() == planned
        ways.add(planned.repaired[0].way)
        assert db.history.verify(sample=2).problems == ()
        db.close()
    assert ways == {"log", "era"}
    db = workspace.open()
    assert all_names(db, store.begins) == before
    assert db.history.verify(sample=99).problems == ()
    flush(db)
    check_store(db)


def test_h3_the_first_segment_of_an_era_is_made_anew_and_no_later_one(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begins = begin(db, tmp_path / "store").begins
    for keys in (range(10), [10]):  # the second is too small to be joined with the first
        db.table("items").insert_many([{"id": key, "title": "t"} for key in keys])
        flush(db)
    first, _ = (file for file in read_manifest(db)[2] if file.kind == "segment")
    assert first.first_moment == begins + 1
    first.place_in(tmp_path / "store").unlink()
    assert [one.way for one in db.history.repair().repaired] == ["log"]
    check_store(db)


def test_h10_a_damaged_schema_of_a_file_is_damage_of_the_file(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begin(db, tmp_path / "store")
    db.table("items").insert(id=1, title="t")
    flush(db)
    (file,) = (file for file in read_manifest(db)[2] if file.kind == "segment")
    path = file.place_in(tmp_path / "store")
    packed = parquet.read_metadata(path).metadata[SCHEMA_KEY]
    path.write_bytes(path.read_bytes().replace(packed, b"\xff" + packed[1:]))
    problems = db.history.verify(sample=9).problems
    assert len(problems) > 1
    assert all(str(path) in problem for problem in problems), problems
    assert db.history.repair().left == ()
    assert db.history.verify(sample=9).problems == ()


def test_a_value_that_is_not_equal_to_itself_is_no_problem(
    workspace: Workspace, tmp_path: Path
) -> None:
    fields = "{name: id, type: integer}, {name: weight, type: float}"
    workspace.write(1, f"create_table: {{table: goods, key: [id], fields: [{fields}]}}")
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begin(db, tmp_path / "store")
    db.table("goods").insert(id=1, weight=float("nan"))
    flush(db)
    assert db.history.verify(sample=9).problems == ()


@pytest.mark.long_on("sqlite")
def test_h3_killed_at_each_step_of_a_repair_all_is_as_it_was(
    workspace: Workspace, tmp_path: Path
) -> None:
    """By all ways: from the log, with an era, from a copy, and of a row."""
    place, cold = tmp_path / "store", tmp_path / "cold"
    db = make_people(workspace, place)
    db.table("people").update(ANOTHER, name="Last")
    store = flush(db)
    before = all_names(db, store.begins)
    db.history.move(store.ends, cold)
    _, eras, files = read_manifest(db)
    moved = next(file for file in files if file.directory is not None)
    newest = next(f for f in files if f.era == eras[-1].era and f.kind == "checkpoint")
    moments, other, *_ = (file for file in files if file.kind == "moments")
    for victim in (moved, newest, moments):
        victim.place_in(place).unlink()
    workspace.execute("UPDATE zapdb_history_files SET rows = rows + 1 WHERE id = ?", [other.id])
    db.close()
    db = workspace.open()
    planned = db.history.repair(dry_run=True)
    assert {one.way for one in planned.repaired} == {"copy", "era", "log", "row"}
    assert kill_at_each_step(workspace, "repair") > 5
    assert db.history.verify(sample=99).problems == ()
    assert all_names(db, store.begins) == before
    db.table("people").update(ANOTHER, name="PendingRows")
    flush(db)
    check_store(db)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_h10_a_copy_is_taken_and_what_is_not_understood_is_named(
    workspace: Workspace, tmp_path: Path
) -> None:
    place, cold = tmp_path / "store", tmp_path / "cold"
    db = make_people(workspace, place)
    store, _, _ = read_manifest(db)
    db.history.move(store.ends, cold)
    moved = next(file for file in read_manifest(db)[2] if file.directory is not None)
    whole = moved.place_in(place).read_bytes()
    moved.place_in(place).unlink()
    found = db.history.repair()
    assert [(one.problem, one.way) for one in found.repaired] == [("it is not there", "copy")]
    assert db.history.verify(sample=99).problems == ()
    assert {f.directory for f in read_manifest(db)[2] if f.sha256 == moved.sha256} == {str(cold)}
    workspace.execute("UPDATE zapdb_history_files SET rows = rows + 1 WHERE kind = 'moments'")
    assert {one.way for one in db.history.repair().repaired} == {"row"}
    assert db.history.verify(sample=0).problems == ()
    # Without the log nothing leads back.
    db.admin.set_setting("history_grace_seconds", "0")
    retired = "SELECT count(*) FROM zapdb_history_files WHERE state = 'retired'"
    place.rename(tmp_path / "away")
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_retired(working) < workspace.execute(retired)[0][0]
        (tmp_path / "away").rename(place)
        assert delete_retired(working) > 0
    assert workspace.execute(retired) == [(0,)]
    db.change_log.prune(db.change_log.end())
    victim = next(file for file in read_manifest(db)[2] if file.sha256 == moved.sha256)
    victim.place_in(place).unlink()
    found = db.history.repair()
    assert found.repaired == ()
    assert [text.partition(": ")[0] for text in found.left] == [str(victim.place_in(place))]
    assert len(db.history.verify(sample=0).problems) == 1
    victim.place_in(place).write_bytes(whole)
    assert db.history.verify(sample=0).problems == ()
