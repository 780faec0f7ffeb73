"""A history store whose directory is not there: renamed, or on a disk that is not mounted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.stored_pasts import flush
from tests.contract.test_history_erased import KEY, make_people, names_at
from tests.support import Workspace
from zapdb.catalog.cluster.leases import Owner
from zapdb.errors import HistoryUnreachable
from zapdb.past.files.cleaning import delete_retired
from zapdb.past.files.stores import hold_store

COUNT = "SELECT count(*) FROM people"


@pytest.mark.on_each_engine
@pytest.mark.parametrize("is_empty", [False, True])
def test_h7_what_the_log_leads_back_to_is_read_without_the_files(
    workspace: Workspace, tmp_path: Path, is_empty: bool
) -> None:
    place, away = tmp_path / "store", tmp_path / "away"
    db = make_people(workspace, place)
    moment = next(db.moments()).number
    opened = db.at(moment)
    before, counted = names_at(db, moment), opened.sql(COUNT).fetchall()
    assert db.history.status().problem is None
    db.table("people").delete(KEY)
    place.rename(away)
    if is_empty:
        place.mkdir()
    assert names_at(db, moment) == before
    assert opened.sql(COUNT).fetchall() == db.at(moment).sql(COUNT).fetchall() == counted
    problem = db.history.status().problem
    assert problem is not None
    assert str(place) in problem
    assert "mount it" in problem
    db.admin.set_setting("history_grace_seconds", "0")
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_retired(working) == 0
    for call in (db.history.flush, lambda: db.history.erase("people", KEY)):
        with pytest.raises(HistoryUnreachable, match="not there"):
            call()
    if is_empty:  # else it was covered by what is mounted later
        assert [*place.iterdir()] == []
        place.rmdir()
    away.rename(place)
    assert flush(db).problem is None
    assert db.history.status().unfinished_erasures == 0
    db.change_log.prune(db.change_log.end())
    place.rename(away)
    with pytest.raises(HistoryUnreachable, match="not there"):
        db.at(moment).sql(COUNT)
