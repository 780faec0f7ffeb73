"""What a history store does not take, and does not read; how far a query reads; and a clock that
jumps back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.stored_pasts import begin, flush, read_manifest
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import CorruptCatalog, IncompatibleVersion, MomentInFuture
from zapdb.past.reading.moment import open_moments
from zapdb.storage.cells import as_time
from zapdb.values.timestamp import MICROSECOND

RECORDS = 40
HOUR_US = 3_600_000_000


def make_items(workspace: Workspace, directory: Path) -> Database:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many({"id": at, "title": "t"} for at in range(RECORDS))
    begin(db, directory)
    return db


def newest(db: Database) -> int:
    return next(db.moments()).number


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_event_of_a_newer_release_is_not_passed(workspace: Workspace, tmp_path: Path) -> None:
    """Nor is anything told across it, since it may be of any change."""
    db = make_items(workspace, tmp_path / "store")
    db.table("items").update(1, title="before")
    workspace.write(2, INDEX_SIZE)
    db.close()
    db = workspace.open()
    event = next(m for m in db.moments() if any(one.events for one in m.changes)).number
    db.table("items").update(1, title="behind")
    moment = newest(db)
    event_of = "UPDATE zapdb_changes SET event = ? WHERE event = ?"
    workspace.execute(event_of, ["of_tomorrow", "change"])
    for _ in range(2):
        with pytest.raises(IncompatibleVersion, match="a word that this release does not know"):
            db.history.flush()
    assert db.history.status().ends == event - 1
    for at in (event - 1, event, moment):
        with pytest.raises(IncompatibleVersion, match="a word that this release does not know"):
            db.at(at).sql("SELECT title FROM items WHERE id = 1")
    workspace.execute(event_of, ["change", "of_tomorrow"])
    told = {at: db.at(at).sql("SELECT title FROM items WHERE id = 1") for at in (event, moment)}
    assert {at: one.fetchone() for at, one in told.items()} == {
        event: ("before",),
        moment: ("behind",),
    }
    assert flush(db).ends == moment
    assert db.history.verify(sample=9).problems == ()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_file_is_never_read_outside_of_the_store(workspace: Workspace, tmp_path: Path) -> None:
    """A row of the manifest that was tampered with; the file there is even the same one."""
    place = tmp_path / "store"
    db = make_items(workspace, place)
    (file,) = [one for one in read_manifest(db)[2] if one.table_number]
    (tmp_path / "outside.parquet").write_bytes(file.place_in(place).read_bytes())
    given = file.id
    for name in ("../outside", f"{tmp_path}/outside", f"../../{'f' * 26}"):
        workspace.execute("UPDATE zapdb_history_files SET id = ? WHERE id = ?", (name, given))
        with pytest.raises(CorruptCatalog):
            db.at(newest(db)).sql("SELECT count(*) FROM items")
        given = name


@pytest.mark.parametrize("engine", ["sqlite"])
def test_h8_a_query_reads_no_more_of_a_long_history(workspace: Workspace, tmp_path: Path) -> None:
    """At most one checkpoint, what ended since the era began, which is as much as the records and a
    batch, and of segments half of that."""
    batch = 10
    db = make_items(workspace, tmp_path / "store")
    db.admin.set_setting("history_store_flush_changes", str(batch))
    items = db.table("items")
    for turn in range(30):
        for at in range(batch):
            items.update((turn * 7 + at) % RECORDS, title=f"u{turn}")
        flush(db)
    store, eras, _ = read_manifest(db)
    assert len(eras) > 5
    most = dict[str, int]()
    for moment in range(store.begins, store.ends + 1, 7):
        past = db.at(moment)
        state = past._session.find_stored(past._session.then.find("items"))
        assert state is not None
        rows = dict[str, int]()
        for file in state.files:
            rows[file.kind] = rows.get(file.kind, 0) + file.rows
        most = {kind: max(most.get(kind, 0), rows.get(kind, 0)) for kind in most | rows}
    assert most["checkpoint"] == RECORDS
    assert most["ended"] <= RECORDS + batch
    assert most["segment"] <= RECORDS // 2 + batch


def test_h12_times_stand_still_while_the_clock_is_back(
    workspace: Workspace, tmp_path: Path
) -> None:
    """It was an hour ahead when the last change was made; and in files it is the same."""
    db = make_items(workspace, tmp_path / "store")
    ahead = (
        f"UPDATE zapdb_counters SET value = value + {HOUR_US} WHERE name = 'change_at'"
        if workspace.engine == "sqlite"
        else f"UPDATE zapdb_stamps SET stamped_at = stamped_at + {HOUR_US},"
        f" visible_at = visible_at + {HOUR_US}"
    )
    workspace.execute(ahead)
    states = dict[int, Any]()
    for turn in range(3):
        db.table("items").update(1, title=f"u{turn}")
        states[newest(db)] = f"u{turn}"

    def check() -> None:
        told = {m.number: m.visible_at for m in db.moments() if m.visible_at is not None}
        assert [told[number] for number in sorted(told)] == sorted(told.values())
        for moment, title in states.items():
            assert zapdb.asdict(db.at(moment).table("items").get(1))["title"] == title

    check()
    moments = open_moments(db._session)
    mark = as_time(moments.read_watermark(db._storage.connection()))
    assert db.at(mark).moment.number < newest(db)  # whatever else comes is not visible before it
    with pytest.raises(MomentInFuture):
        db.at(mark + MICROSECOND)
    flush(db)
    check()
    db.change_log.prune(db.change_log.end())
    check()
