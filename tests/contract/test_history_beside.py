"""What asks the history more than once, while something happens to it in between."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.stored_pasts import begin, flush
from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.support import Workspace
from zapdb.activation import rollback
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.database.past import Past
from zapdb.errors import HistoryDamaged, HistoryErased, HistoryPurged, HistoryReplaced
from zapdb.log import rewinding
from zapdb.past.files import (
    erasing,
    file_verification,
)
from zapdb.past.files.cleaning import delete_retired
from zapdb.past.files.history_manifest import HistoryFile
from zapdb.past.files.stores import hold_store, take_over_store
from zapdb.past.reading import audit, verification
from zapdb.past.reading import versions as history_versions
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.rewound import RewoundTable
from zapdb.sql import (
    statement_run as sql_run,
)
from zapdb.tables.indexes import BoundTable

Act = Callable[[Workspace, Database], object]
GONE, CHANGED = 2, 3


def make_store(workspace: Workspace, directory: Path) -> Database:
    """Some items at several moments; one of them is deleted at the last."""
    workspace.write(1, ITEMS)
    workspace.write(2, INDEX_SIZE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begin(db, directory)
    items = db.table("items")
    items.insert_many([{"id": n, "title": f"t{n}"} for n in range(1, 6)])
    items.update(CHANGED, title="u")
    flush(db)
    items.delete(GONE)
    flush(db)
    db.close()
    return workspace.follow()


def erase_record(_: Workspace, db: Database) -> None:
    db.history.erase("items", GONE)


def erase_field(_: Workspace, db: Database) -> None:
    db.history.erase("items", CHANGED, fields=["title"])


def erase_half(_: Workspace, db: Database) -> None:
    """What is in the database, and not in files."""
    tenant = db._catalog.tenant
    with take_over_store(db._storage, tenant) as working:
        with db._session.reading() as connection:
            catalog = working.load_catalog(connection)
            table = erasing.find_erasure_target(connection, catalog, "items")
        erasing.begin_erasure(working, table, erasing._encode_key(catalog, table, [GONE]))


def migrate(workspace: Workspace, _: Database) -> None:
    workspace.write(3, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, color="blue")
        db.table("items").delete(5)


def roll_back(workspace: Workspace, _: Database) -> None:
    rollback.roll_back(workspace.connect())
    workspace.remove(2)
    with workspace.open() as db:
        db.table("items").update(1, title="v")


def purge(_: Workspace, db: Database) -> None:
    db.history.purge(db.history.status().ends)


@pytest.mark.parametrize("act", [erase_record, erase_field, erase_half, migrate, roll_back, purge])
def test_h1_a_verification_finds_nothing_wrong_in_what_goes_on_beside(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Act
) -> None:
    """Both ways to a moment are read one after the other: here, something happens between."""
    db = make_store(workspace, tmp_path / "store")
    read, acts = verification._read_page, iter([act])

    def read_and_act(past: PastSession, bound: BoundTable, after: bytes) -> Any:
        page = read(past, bound, after)
        if len(page) == 5:
            assert isinstance(bound, RewoundTable) or not [*acts]
            for one in acts:
                one(workspace, db)
        return page

    monkeypatch.setattr(verification, "_read_page", read_and_act)
    assert db.history.verify(sample=99).problems == ()
    assert [*acts] == []
    assert db.history.verify(sample=99).problems == ()


@pytest.mark.parametrize("is_inside", [False, True])
def test_h10_a_file_that_is_replaced_is_not_missing(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_inside: bool
) -> None:
    """When the manifest was read, or half of the file."""
    db = make_store(workspace, tmp_path / "store")
    read, acts = file_verification.find_keys, iter([erase_record])

    def erase_and_read(path: Path, file: HistoryFile) -> Any:
        if file.key_lower is not None:
            for act in acts:
                act(workspace, db)
        return read(path, file)

    def erase_and_list(*arguments: Any) -> Any:
        erase_record(workspace, db)
        return list_problems(*arguments)

    list_problems = verification.list_problems
    if is_inside:
        monkeypatch.setattr(file_verification, "find_keys", erase_and_read)
    else:
        monkeypatch.setattr(verification, "list_problems", erase_and_list)
    assert db.history.verify(sample=0).problems == ()


@pytest.mark.parametrize("has_store", [True, False])
def test_h7_a_difference_misses_no_change_that_is_pruned_meanwhile(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_store: bool
) -> None:
    db = make_store(workspace, tmp_path / "store")
    first = db.history.status().begins
    whole = [show(one) for one in db.diff(first, db.history.status().ends)]
    assert len(whole) == 4
    if not has_store:
        for table in ("stores", "files", "eras"):
            workspace.execute(f"DELETE FROM zapdb_history_{table}")
        workspace.execute("DELETE FROM zapdb_followers")
    monkeypatch.setattr(rewinding, "NET_CHANGES_PAGE", 2)
    differences = db.diff(first, next(db.moments()))
    found = [show(next(differences))]
    db.change_log.prune(db.change_log.end())
    if has_store:
        assert found + [show(one) for one in differences] == whole
    else:
        with pytest.raises(HistoryPurged):
            list(differences)


@pytest.mark.parametrize("way", [(history_versions, "_list_pruned"), (audit, "iterate_rows")])
def test_h7_no_version_and_no_entry_is_lost_that_is_pruned_meanwhile(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: tuple[Any, str]
) -> None:
    db = make_store(workspace, tmp_path / "store")

    def ask() -> list[Any]:
        found = db.audit(table="items") if way[0] is audit else db.table("items").history(CHANGED)
        return [show(one) for one in found]

    whole = ask()
    assert len(whole) > 1
    read = getattr(*way)
    monkeypatch.setattr(*way, then(read, lambda: db.change_log.prune(db.change_log.end())))
    assert ask() == whole


def then(ask: Callable[..., Any], act: Callable[..., Any]) -> Callable[..., Any]:
    """The same, and then something else, once."""
    acts = iter([act])

    def both(*arguments: Any) -> Any:
        found = ask(*arguments)
        for one in acts:
            one()
        return found

    return both


def show(one: Any) -> tuple[Any, ...]:
    """A difference, a version, or an entry of the audit, whatever told it."""
    record = one.record if hasattr(one, "record") else one.after
    told = [getattr(one, name, None) for name in ("key", "operation", "fields", "principal")]
    return *told, None if record is None else zapdb.asdict(record)


def test_h1_a_record_that_is_read_late_is_that_of_then(workspace: Workspace) -> None:
    """Values of a restored field are looked for in the archive when a record is decoded: by then,
    it may have been changed."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many([{"id": n, "title": "t", "note": f"n{n}"} for n in (1, 2, 3)])
    restore = "{archive: true, otherwise: {value: lost}}"
    workspace.write(2, f"drop_field: {{table: items, field: note, restore: {restore}}}")
    with workspace.open() as db:
        db.admin.run_jobs()  # which fills the archive
    workspace.write(3, "restore_field: {table: items, field: note, archived_by: 2}")
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    past, items = db.at(next(db.moments())), db.table("items")
    expected = ["n1", "n2", "n3"]
    assert [one.note for one in past.table("items").scan()] == expected
    found = past.table("items").scan()
    notes = [next(found).note]
    items.update(2, note="later")
    items.delete(3)
    items.insert(id=3, title="t", note="another")
    assert notes + [one.note for one in found] == expected
    assert [one.note for one in past.table("items").scan()] == expected


WAYS: dict[str, Callable[[Past], list[Any]]] = {
    "records": lambda past: [(one.id, one.title) for one in past.table("items").scan()],
    "sql": lambda past: [*past.sql("SELECT id, title FROM items ORDER BY id")],
    "versions": lambda past: [
        *past.sql(
            "SELECT id, title FROM zapdb_versions_items"
            " WHERE _until IS NULL AND _operation <> 'delete' ORDER BY id"
        )
    ],
}
KEPT = [(1, "t1"), (3, "u"), (4, "t4"), (5, "t5")]


def make_replaced(workspace: Workspace, directory: Path) -> tuple[Database, int]:
    """A store, and a moment that only its files have, since a migration came later."""
    db = make_store(workspace, directory)
    moment = db.history.status().ends
    migrate(workspace, db)
    db.history.flush()
    return db, moment


def act_beside(workspace: Workspace, act: Act) -> None:
    with workspace.open() as other, ThreadPoolExecutor(1) as pool:
        pool.submit(act, workspace, other).result()


def move_at_once(workspace: Workspace, db: Database) -> None:
    """The former files are deleted without a grace."""
    db.admin.set_setting("history_grace_seconds", "0")
    db.history.move(db.history.status().ends, Path(db.history.status().directory) / "cold")
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_retired(working) > 0


@pytest.mark.parametrize("way", WAYS)
def test_h10_a_past_is_read_again_from_files_that_took_the_place_of_others(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """They are deleted when they were found, and not opened."""
    db, moment = make_replaced(workspace, tmp_path / "store")
    before: Any = (
        (PastSession, "find_stored") if way == "records" else (sql_run._Offer, "add_named")
    )
    read = getattr(*before)
    monkeypatch.setattr(*before, then(read, lambda: act_beside(workspace, erase_record)))
    assert WAYS[way](db.at(moment)) == KEPT


@pytest.mark.parametrize("way", WAYS)
def test_h13_a_snapshot_is_told_which_erasure_deleted_its_files(
    workspace: Workspace, tmp_path: Path, way: str
) -> None:
    db, moment = make_replaced(workspace, tmp_path / "store")
    past = db.at(moment)
    with db.snapshot():
        assert db.table("items").count() == 3  # by which it begins
        act_beside(workspace, erase_record)
        with pytest.raises(HistoryErased, match="deleted by an erasure") as caught:
            WAYS[way](past)
    (erasure,) = workspace.execute("SELECT id FROM zapdb_history_erasures")
    assert caught.value.context["erasure"] == erasure[0]
    assert WAYS[way](past) == KEPT
    with db.snapshot():
        for path in (tmp_path / "store").rglob("*.parquet"):
            path.unlink()
        with pytest.raises(HistoryDamaged):
            WAYS[way](db.at(moment))


def test_h10_a_snapshot_is_told_that_the_grace_of_its_files_was_over(
    workspace: Workspace, tmp_path: Path
) -> None:
    db, moment = make_replaced(workspace, tmp_path / "store")
    past = db.at(moment)
    with db.snapshot():
        assert db.table("items").count() == 3
        act_beside(workspace, move_at_once)
        with pytest.raises(HistoryReplaced, match="after the grace") as caught:
            WAYS["records"](past)
        assert not isinstance(caught.value, HistoryErased)
    assert WAYS["records"](past) == KEPT
