"""Moments in front of the change log's beginning: only the files of the history store have them."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.stored_pasts import begin, check_store, flush, read_manifest
from tests.contract.tables import ADD_COLOR, ITEMS, RENAME_SIZE
from tests.contract.test_past import later
from tests.contract.test_past_stored import ask_sql, read_state
from tests.support import Workspace
from zapdb.activation.inspection import read_log
from zapdb.catalog import DEFAULT_TENANT, principal
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import ChangesPruned, HistoryGap, HistoryPurged, UsageError
from zapdb.past.files import merging
from zapdb.past.files.cleaning import delete_retired
from zapdb.past.files.history_manifest import HistoryFile
from zapdb.past.files.stores import hold_store
from zapdb.past.reading.versions import Version
from zapdb.past.schema_history_pruning import PruneBound, Pruning, plan_pruning, prune
from zapdb.storage import TransactionMode

PEOPLE = "create_table: {table: people, key: [name], fields: [{name: name, type: string}]}"
LATER = (
    PEOPLE,
    "rename_table: {table: items, to: goods}",
    RENAME_SIZE.replace("items", "goods"),
    ADD_COLOR.replace("items", "goods"),
    "rename_table: {table: people, to: persons}",
    "drop_table: {table: persons, records: archive}",
)


def write(db: Database, rnd: random.Random) -> None:
    names = [name for name in db.tables if name in ("items", "goods")]
    with principal.acting_as(f"p{rnd.randint(1, 3)}"), db.transaction() as tx:
        if rnd.random() < 0.2:
            tx.table(names[0]).delete_many([rnd.randint(1, 20) for _ in range(2)])
        for _ in range(rnd.randint(1, 3)):
            tx.table(names[0]).upsert(id=rnd.randint(1, 20), title=f"t{rnd.random()}")
        if "people" in db.tables:
            tx.table("people").upsert(name=f"n{rnd.randint(1, 9)}")


@pytest.mark.long_on("sqlite")
def test_pruned_moments_are_told_by_files(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H2: all that is asked of a moment is the same before and after the log is pruned."""
    monkeypatch.setattr(merging, "MERGED_FILES", 4)
    rnd = random.Random(1)
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    for _ in range(3):
        write(db, rnd)
    store = begin(db, tmp_path / "store")
    places, states = [], {}

    def note() -> None:
        moment = next(db.moments())
        places.append(moment)
        states[moment.number] = read_state(db)

    note()
    for number, operation in enumerate(LATER, 2):
        for _ in range(2):
            write(db, rnd)
            note()
        workspace.write(number, operation)
        db.close()
        db = workspace.open()
        note()
        flush(db)
        if number == 3:
            monkeypatch.setattr(merging, "MERGED_FILES", 64)
    for _ in range(3):
        write(db, rnd)
        note()
    flush(db)
    moments = [file for file in read_manifest(db)[2] if file.kind == "moments"]
    assert max(file.rows for file in moments) > 4  # some were merged
    check_store(db)
    told = [tell(db, place) for place in places]
    listed = list(db.moments(since=store.begins))
    goods = db.table("goods")
    some = [list(db.moments(table=goods.name)), list(db.moments(principal="p1", until=places[9]))]
    change = next(db.change_log.read(places[4].bookmark))
    before = db.before(change).moment
    kept = db.at(places[5])  # which is rewound up to now
    assert kept.table("items").count() == len(states[places[5].number]["items"])
    schemas = db.diff_schemas(places[0], places[-1])
    differences = tell_differences(db, places)

    audited = tell_audit(db, store.begins)
    assert len(audited) > 40
    versions = {key: goods.history(key) for key in range(1, 22)}

    db.change_log.prune(places[19].bookmark)  # a table was dropped before it
    was = {record["id"]: record for record in read_state(db.at(store.begins))["items"]}
    for key, known in versions.items():
        later_ones = [one for one in known if one.since and one.since.number > store.begins]
        found = tell_versions(goods.history(key))
        first = [("baseline", was[key])] if key in was else []
        assert [one[:2] for one in found[: len(first)]] == first
        assert found[len(first) :] == tell_versions(later_ones)
    assert sum(map(len, versions.values())) > 30
    assert {one.operation for known in versions.values() for one in known} >= {"insert", "delete"}
    assert [tell(db, place) for place in places] == told
    for place in places[:19]:
        past, state = db.at(place), states[place.number]
        assert read_state(past) == state
        assert place is places[0] or db.at(place.visible_at).moment.number < place.number
        if place in places[2:19:8]:
            assert {name: ask_sql(past, name, rows) for name, rows in state.items()} == state
    assert read_state(kept) == states[places[5].number]
    assert list(db.moments()) == listed
    again = [list(db.moments(table=goods.name)), list(db.moments(principal="p1", until=places[9]))]
    assert [[one for one in made if one in listed] for made in some] == again
    assert [one.number for one in db.moments(since=places[3], until=places[6])] == [
        place.number for place in (places[6], places[5], places[4])
    ]
    assert db.before(change).moment == before
    assert db.diff_schemas(places[0], places[-1]) == schemas
    assert tell_differences(db, places) == differences
    for unstored in (store.begins - 1, places[0].visible_at - timedelta(seconds=5)):
        with pytest.raises(HistoryPurged, match=f"begins: {store.begins}"):
            db.at(unstored)
    with pytest.raises(HistoryPurged):
        list(db.change_log.read_back(places[3]))
    assert tell_audit(db, store.begins) == audited
    with pytest.raises(UsageError, match="files of the history store"):
        prune(workspace.control, plan_revisions(workspace, "goods"))
    first = min((f for f in read_manifest(db)[2] if f.kind == "moments"), key=first_of)
    kept_from = first.last_moment + 1
    workspace.execute("UPDATE zapdb_history_stores SET purged_before = ?", [kept_from])
    workspace.execute("DELETE FROM zapdb_history_files WHERE id = ?", [first.id])
    after = [place.number >= kept_from for place in places].index(True)
    assert 0 < after < 17
    assert [tell(db, place) for place in places[after:]] == told[after:]  # backwards from the log
    for place in places[:after]:
        with pytest.raises(HistoryPurged):
            db.at(place)


def tell_versions(versions: list[Version]) -> list[tuple[Any, ...]]:
    return [
        (
            one.operation,
            None if one.record is None else zapdb.asdict(one.record),
            one.fields,
            one.since,
            one.until,
            one.principal,
            one.made_at,
        )
        for one in versions
    ]


def first_of(file: HistoryFile) -> int:
    return file.first_moment


def plan_revisions(place: Workspace, name: str) -> Pruning:
    with place.control.transaction(TransactionMode.READ) as connection:
        log = read_log(connection, DEFAULT_TENANT, name)
        return plan_pruning(connection, log, PruneBound(keep_last=1))


def test_nobody_knows_what_was_between_two_timelines(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    items = db.table("items")
    begin(db, tmp_path / "store")
    items.insert(id=1, title="a")
    first = flush(db)
    items.insert(id=2, title="b")
    lost = next(db.moments())
    later(db)  # SQLite's clock ticks in milliseconds
    items.insert(id=3, title="c")
    db.change_log.follower("zapdb.history").remove()
    db.change_log.prune(db.change_log.end())
    with suppress(ChangesPruned):
        flush(db)
    db.history.start()
    second = flush(db)
    items.update(1, title="d")
    last = next(db.moments())
    flush(db)
    db.change_log.prune(db.change_log.end())
    assert [db.at(n).table("items").count() for n in (first.begins, first.ends)] == [0, 1]
    assert [db.at(n).table("items").count() for n in (second.begins, last.number)] == [3, 3]
    told = {key: [one.operation for one in items.history(key)] for key in (1, 2, 3, 4)}
    assert told == {1: ["insert", "update"], 2: ["baseline"], 3: ["baseline"], 4: []}
    assert db.at(first.ends).table("items").get(1).title == "a"
    for unknown in (lost, lost.number, lost.visible_at + timedelta(microseconds=1)):
        with pytest.raises(HistoryPurged):
            db.at(unknown)
    assert [one.number for one in db.moments()] == [last.number, first.ends]
    made = [(one.operation, one.key) for one in db.audit(table="items")]
    assert made == [("update", (1,)), ("insert", (1,))]
    numbers = "SELECT timeline, begins, ends FROM zapdb_history_stores ORDER BY timeline"
    known = workspace.execute(numbers)
    for name in ("stores", "files", "eras"):
        workspace.execute(f"DELETE FROM zapdb_history_{name}")
    db.change_log.follower("zapdb.history").remove()
    rebuilt = db.history.rebuild_manifest(tmp_path / "store").timelines
    assert [one.timeline for one in rebuilt] == [second.timeline, first.timeline]
    assert workspace.execute(numbers) == known
    assert [one.name for one in db.change_log.followers()] == ["zapdb.history"]
    moved = db.history.move(last.number, tmp_path / "cold")
    assert moved.files == len({*(tmp_path / "cold").rglob("*.parquet")}) > 0
    assert db.at(first.ends).table("items").get(1).title == "a"
    db.history.purge(last.number)
    with pytest.raises(HistoryPurged):
        db.at(first.ends).table("items")
    live = "SELECT DISTINCT timeline FROM zapdb_history_files WHERE state = 'live'"
    assert workspace.execute(live) == [(second.timeline,)]
    db.admin.set_setting("history_grace_seconds", "0")
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_retired(working) > 0
    kept = {file.place_in(second.directory) for file in read_manifest(db)[2]}
    assert {*tmp_path.rglob("*.parquet")} == kept


def test_h7_a_moment_in_front_of_the_next_timeline_is_told_where_that_begins(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begin(db, tmp_path / "store")
    db.table("items").insert(id=1, title="a")
    db.change_log.follower("zapdb.history").remove()
    db.change_log.prune(db.change_log.end())
    with suppress(ChangesPruned):
        flush(db)
    db.table("items").insert(id=2, title="b")
    between = next(db.moments())
    db.table("items").insert(id=3, title="c")
    db.history.start()
    begins = flush(db).begins
    workspace.write(2, ADD_COLOR)
    db.close()
    past = workspace.open().at(between.number)
    with pytest.raises(HistoryGap, match=f"(?s)began anew.*recorded_from: {begins}") as told:
        past.table("items")
    assert told.value.hint == f"ask for moment #{begins} or a later one"


def tell_audit(db: Database, since: int) -> list[Any]:
    """All changes since a moment, in plain values."""
    return [
        (
            one.moment.number,
            one.made_at,
            one.principal,
            one.table,
            one.operation,
            one.key,
            one.fields,
            None if one.before is None else zapdb.asdict(one.before),
            None if one.after is None else zapdb.asdict(one.after),
        )
        for one in db.audit(since=since)
    ]


def tell(db: Database, place: Any) -> Any:
    """All that is asked of a moment."""
    past = db.at(place.visible_at + timedelta(microseconds=1))
    assert past.moment.number >= place.number
    found = [db.at(place), db.at(place.number), db.at(place.bookmark), past]
    return [
        (
            one.moment,
            one.position,
            one.tables,
            [one.schema(name) for name in one.tables],
            one.exact,
        )
        for one in found
    ]


def show(record: Any) -> Any:
    return None if record is None else zapdb.asdict(record)


def tell_differences(db: Database, places: Any) -> Any:
    return [
        [
            (one.table, one.key, one.fields, *map(show, (one.before, one.after)))
            for one in db.diff(places[a], places[b])
        ]
        for a, b in ((0, 1), (3, 9), (14, 2))
    ]
