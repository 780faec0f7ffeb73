"""Erasing a record from the past: no moment counts a change of it any more."""

from __future__ import annotations

from pathlib import Path

from tests.contract.stored_pasts import begin, check_store, flush
from tests.contract.tables import ITEMS
from tests.support import Workspace
from zapdb.jobs import roll_back_newest

DOUBLE = (
    "transform: {table: items, from: {title: string}, into: {title: {type: string, default: ''}},"
    " up: {title: \"join('', title, title)\"}, down: {title: title}, reversibility: lossy,"
    " because: a test}"
)


def test_no_moment_counts_what_a_roll_back_did_to_an_erased_record(
    workspace: Workspace, tmp_path: Path
) -> None:
    """No file has a row of that change: it belongs to no era."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many([{"id": number, "title": "a"} for number in range(3)])
    begin(db, tmp_path / "store")
    db.close()
    workspace.write(2, DOUBLE)
    db = workspace.open()
    db.admin.run_jobs()
    db.close()
    roll_back_newest(workspace.connect())
    workspace.remove(2)
    db = workspace.open()
    db.admin.run_jobs()
    db.table("items").delete(1)
    flush(db)
    assert any(one.updated == 3 for moment in db.moments() for one in moment.changes)

    assert db.history.erase("items", 1).changes == 3
    check_store(db)
    assert db.history.verify().problems == ()
