"""Pasts that are read while a record is erased: when it is half done, and with pinned files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.stored_pasts import begin
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.contract.test_history_beside import (
    GONE,
    KEPT,
    WAYS,
    act_beside,
    erase_half,
    make_replaced,
)
from tests.support import Workspace
from zapdb.catalog.cluster.leases import Owner, acquire
from zapdb.errors import HistoryErased
from zapdb.past.files import erased_files
from zapdb.past.files.cleaning import find_first_pin
from zapdb.past.files.history_manifest import PIN_PREFIX
from zapdb.storage import Connection


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_h2_a_deleted_record_does_not_come_back_while_it_is_erased(
    workspace: Workspace, tmp_path: Path, way: str
) -> None:
    """Its deletion is in the log alone, from which it goes before its rows go from the files. A
    migration came later, so that records are not rewound."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many([{"id": n, "title": f"t{n}"} for n in range(1, 4)])
    begin(db, tmp_path / "store")
    db.table("items").update(2, title="u")
    updated = next(db.moments()).number
    db.table("items").delete(2)
    deleted = next(db.moments()).number
    db.close()
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    act_beside(workspace, erase_half)
    without = [(1, "t1"), (3, "t3")]
    assert WAYS[way](db.at(deleted)) == without
    assert (2, "t2") not in WAYS[way](db.at(updated))
    db.history.flush()
    assert WAYS[way](db.at(deleted)) == without
    assert WAYS[way](db.at(updated)) == without


@pytest.mark.on_each_engine
def test_a_record_has_no_versions_while_it_is_erased(workspace: Workspace, tmp_path: Path) -> None:
    """Files still have what was pruned from the log, and not that it was deleted."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert_many([{"id": n, "title": f"t{n}"} for n in (1, 2)])
    begin(db, tmp_path / "store")
    db.table("items").update(2, title="u")
    db.history.flush()
    db.change_log.prune(db.change_log.end())
    db.table("items").delete(2)
    told = [one.operation for one in db.table("items").history(2)]
    assert told == ["baseline", "update", "delete"]
    act_beside(workspace, erase_half)
    assert db.table("items").history(2) == []
    db.history.flush()
    assert db.table("items").history(2) == []


@pytest.mark.parametrize("way", WAYS)
def test_h13_a_past_whose_pinned_files_were_erased_is_told_so(
    workspace: Workspace, tmp_path: Path, way: str
) -> None:
    db, moment = make_replaced(workspace, tmp_path / "store")
    with db.at(moment) as past:
        assert WAYS[way](past) == KEPT
        act_beside(workspace, lambda _, other: other.history.erase("items", GONE, now=True))
        for _ in range(2):
            with pytest.raises(HistoryErased, match="has pinned") as caught:
                WAYS[way](past)
        with past, pytest.raises(HistoryErased):  # another pin does not mend the first
            past.table("items", schema="now").count()
    (erasure,) = workspace.execute("SELECT id FROM zapdb_history_erasures")
    assert caught.value.context["erasure"] == erasure[0]
    assert WAYS[way](past) == KEPT
    with past:
        assert WAYS[way](past) == KEPT
        # Pins that are gone for another reason were broken by nobody.
        workspace.execute("DELETE FROM zapdb_leases WHERE substr(name, 1, 11) = 'history-pin'")
        assert past.table("items", schema="now").count() == len(KEPT)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_erasure_waits_for_those_who_read_what_was_there_before(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for those who began to read meanwhile, of files that stay."""
    db, moment = make_replaced(workspace, tmp_path / "store")
    readers, waited = [db.at(moment), db.at(moment)], list[int]()
    readers[0].__enter__()
    of_another = acquire(db._storage, f"{PIN_PREFIX}11/reader", Owner.here(), 60).name
    workspace.execute("UPDATE zapdb_leases SET since = 0 WHERE name = ?", (of_another,))

    def look(connection: Connection, tenant: int, now: int) -> int:
        waited.append(now)
        found = find_first_pin(connection, tenant, now)
        if len(waited) == 1:
            readers[1].__enter__()
            readers[0].__exit__(None, None, None)
        return found

    monkeypatch.setattr(erased_files, "find_first_pin", look)
    db.admin.set_setting("history_grace_seconds", "3")
    act_beside(workspace, lambda _, other: other.history.erase("items", GONE))
    assert len(waited) == 2
    left = "SELECT count(*) FROM zapdb_leases WHERE name = ?"
    assert workspace.execute(left, (of_another,)) == [(1,)]
    assert WAYS["records"](readers[1]) == KEPT
    readers[1].__exit__(None, None, None)
