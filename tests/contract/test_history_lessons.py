"""What goes wrong with the past in other systems, by the reports of their users: each is a test."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import zapdb
from tests import processes
from tests.contract.stored_pasts import begin, check_store, digests, flush, read_manifest
from tests.contract.tables import ADD_COLOR, DROP_NOTE, ITEMS, RENAME_SIZE
from tests.support import ROOT, Workspace
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import HistoryPurged
from zapdb.past.files.cleaning import delete_orphans, delete_retired
from zapdb.past.files.stores import hold_store

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])  # files are the same on both
COUNT = 12


@pytest.fixture
def db(workspace: Workspace, tmp_path: Path) -> Iterator[Database]:
    """A store that has items from its beginning on."""
    workspace.write(1, ITEMS)
    with workspace.open() as opened:
        opened.admin.set_setting("change_log", "on")
        opened.table("items").insert_many(
            {"id": at, "title": f"t{at}", "size": at, "note": "n"} for at in range(COUNT)
        )
        begin(opened, tmp_path / "store")
        yield opened


def newest(db: Database) -> int:
    return next(db.moments()).number


def tidy(db: Database) -> None:
    """All that maintenance may delete goes at once."""
    db.admin.set_setting("history_grace_seconds", "0")
    with hold_store(db._storage, db._catalog.tenant, Owner.here()) as working:
        delete_retired(working)
        delete_orphans(working, age_seconds=-1)


def migrate(workspace: Workspace, db: Database, *changes: str) -> Database:
    number = len(list(workspace.directory.glob("*.yaml"))) + 1
    workspace.write(number, *changes)
    db.close()
    return workspace.open()


def test_a_past_has_the_columns_of_then_though_no_row_changed_since(
    workspace: Workspace, db: Database
) -> None:
    """prestodb/presto#23553, apache/iceberg#1508: time travel with today's schema."""
    before = newest(db)
    db = migrate(workspace, db, RENAME_SIZE)  # no snapshot of data is made by it
    renamed = newest(db)
    db = migrate(workspace, db, ADD_COLOR, DROP_NOTE)
    flush(db)
    for moment, names in (
        (before, ("id", "title", "size", "note")),
        (renamed, ("id", "title", "extent", "note")),
        (newest(db), ("id", "title", "extent", "color")),
    ):
        assert db.at(moment).sql("SELECT * FROM items LIMIT 1").columns == names
        assert tuple(zapdb.asdict(db.at(moment).table("items").get(1))) == names
    db.close()


def test_times_and_numbers_agree_when_earlier_moments_are_gone(
    workspace: Workspace, db: Database
) -> None:
    """apache/iceberg#8565: after one snapshot has expired, its time answers with another one."""
    for title in ("a", "b", "c"):
        db.table("items").update(1, title=title)
        db.change_log.end()
        time.sleep(0.005)  # a time of its own, by a clock of milliseconds
    flush(db)
    moments = list(db.moments())[:3]
    for moment in moments:
        assert moment.visible_at is not None
        just_after = moment.visible_at + timedelta(microseconds=1)
        assert db.at(just_after).moment == db.at(moment.number).moment
    gone, kept = moments[2], moments[1]
    assert gone.visible_at is not None
    assert kept.visible_at is not None
    db.history.purge(kept.number)
    db = migrate(workspace, db, ADD_COLOR)  # nothing can be rewound over it
    for when in (gone.number, gone.visible_at + timedelta(microseconds=1)):
        with pytest.raises(HistoryPurged, match=f"kept_from: {kept.number}"):
            db.at(when).table("items")
    for when in (kept.number, kept.visible_at + timedelta(microseconds=1)):
        assert db.at(when).table("items").get(1).title == "b"
    db.close()


def test_a_renamed_table_keeps_its_data_when_old_files_are_deleted(
    workspace: Workspace, db: Database
) -> None:
    """duckdb/ducklake#527: live data lost when snapshots expire after a renaming."""
    before = newest(db)
    db = migrate(workspace, db, "rename_table: {table: items, to: goods}")
    db.table("goods").update(1, title="renamed")
    flush(db)
    tidy(db)
    assert db.at(newest(db)).sql("SELECT count(*) FROM goods").fetchone() == (COUNT,)
    assert db.at(newest(db)).table("goods").get(1).title == "renamed"
    assert db.at(before).sql("SELECT title FROM items WHERE id = 1").fetchone() == ("t1",)
    check_store(db)
    db.close()


def test_files_in_use_are_no_orphans_whatever_the_path_to_them(
    workspace: Workspace, db: Database, tmp_path: Path
) -> None:
    """duckdb/ducklake#815: live files are taken for orphans."""
    db.table("items").delete(2)
    flush(db)
    kept = digests(db)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    store, _, _ = read_manifest(db)
    through = store.directory.replace("/store", "/link")
    workspace.execute("UPDATE zapdb_history_stores SET directory = ?", [through])
    tidy(db)
    assert digests(db) == kept
    assert db.at(newest(db)).sql("SELECT count(*) FROM items").fetchone() == (COUNT - 1,)


def test_nothing_is_counted_twice_after_merging(workspace: Workspace, db: Database) -> None:
    """duckdb/ducklake#1406: time travel doubled by maintenance."""
    items, told = db.table("items"), {}
    for at in range(COUNT * 2):
        items.upsert(id=at % (COUNT + 4), title=f"u{at}")
        flush(db)
        told[newest(db)] = items.count(), sorted(record.title for record in items.scan())
    tidy(db)
    asked = "SELECT count(*), list(title ORDER BY title) FROM items"
    for moment, state in list(told.items())[:: COUNT // 2]:
        assert db.at(moment).sql(asked).fetchone() == state
    check_store(db)


def test_small_commits_do_not_leave_as_many_files(workspace: Workspace, db: Database) -> None:
    """delta-io/delta-rs#1815, #2351: thousands of small files, and reading degrades."""
    for at in range(40):
        db.table("items").update(at % COUNT, title=f"u{at}")
        flush(db)
    _, eras, files = read_manifest(db)
    last = max(era.era for era in eras)
    mine = [file for file in files if file.kind != "moments" and file.era == last]
    assert len(mine) <= 8
    assert len([file for file in files if file.kind == "moments"]) <= 16
    # What is read for one moment is one era.
    state = db.at(newest(db))._session._open_stored(db.at(newest(db))._session.then.find("items"))
    assert state is not None
    assert len(state.files.files) <= 8


def test_others_read_while_one_writes(workspace: Workspace, db: Database) -> None:
    """duckdb/duckdb#13558, #1119: no reader in another process beside a writer."""
    moment = newest(db)
    with hold_store(db._storage, db._catalog.tenant, Owner.here()), db.transaction() as tx:
        tx.table("items").delete(1)
        program = (
            f"import zapdb; db = zapdb.open({workspace.address!r}, read_only=True)\n"
            f"print(db.at({moment}).sql('SELECT count(*), max(id) FROM items').fetchone())"
        )
        read = processes.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (read.stdout, read.stderr) == (f"({COUNT}, {COUNT - 1})\n", "")


def test_versioned_tables_are_altered_like_all_others(workspace: Workspace, db: Database) -> None:
    """xocolatl/periods#5, #24, MicrosoftDocs/sql-docs#9149: tables with a history can't be renamed
    or altered without switching it off, and a dropped column corrupts it."""
    moments = [newest(db)]
    changes = (
        DROP_NOTE,
        "rename_table: {table: items, to: goods}",
        "add_field: {table: goods, field: {name: note, type: integer, default: 5}}",
        "rename_table: {table: goods, to: items}",
    )
    for at, change in enumerate(changes):
        db = migrate(workspace, db, change)
        db.table(like_items(db)).update(at, title=f"after {at}")
        moments.append(newest(db))
    flush(db)
    assert db.history.status().state == "follows"
    notes = [
        tuple(zapdb.asdict(db.at(moment).table(like_items(db.at(moment))).get(0)).values())
        for moment in moments
    ]
    assert notes == [
        (0, "t0", 0, "n"),
        (0, "after 0", 0),
        (0, "after 0", 0),
        (0, "after 0", 0, 5),
        (0, "after 0", 0, 5),
    ]
    assert [db.at(moment).tables for moment in moments[1:4]] == [("items",), ("goods",), ("goods",)]
    db.close()


def like_items(source: zapdb.Database) -> str:
    (name,) = source.tables
    return name
