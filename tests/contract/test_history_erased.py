"""Erasing a record from the past, and purging old moments: all of it goes, and nothing else."""

from __future__ import annotations

import sys
import threading
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests import forms, processes
from tests.contract.stored_pasts import begin, check_store, flush, read_manifest, stored_state
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.support import GUARD_SECONDS, ROOT, Workspace, advance_clock, finish, wait_until
from zapdb.catalog.cluster.leases import Owner, acquire
from zapdb.database import Database
from zapdb.errors import (
    ChangesPruned,
    HistoryDamaged,
    HistoryPurged,
    HistoryUnreachable,
    LeaseLost,
    UnknownName,
    UsageError,
)
from zapdb.log import (
    change_log_pruning,
)
from zapdb.past.files import (
    follower,
    follower_run,
    moving,
    working_store,
)
from zapdb.past.files import (
    history_file as history_files,
)
from zapdb.past.files.cleaning import PIN_PREFIX, delete_orphans, delete_retired
from zapdb.past.files.erased_files import finish_erasures
from zapdb.past.files.follower_run import Retention
from zapdb.past.files.history_manifest import list_history_files, list_timelines
from zapdb.past.files.purge import find_stored_before
from zapdb.past.files.stores import hold_store
from zapdb.past.files.working_store import StoreWriter
from zapdb.storage import (
    TransactionMode,
)
from zapdb.transfer.export.directory import export_directory
from zapdb.values.timestamp import EPOCH, MICROSECOND

PEOPLE = """\
create_table: {table: people, key: [mail], fields: [
      {name: mail, type: string},
      {name: name, type: string},
      {name: photo, type: binary, optional: true},
      {name: note, type: string, optional: true}]}"""
DROP_NOTE = (
    "drop_field: {table: people, field: note, restore: {archive: true, otherwise: {value: ''}}}"
)
MARK = "mallory-secret"
KEY, NAME, PHOTO = f"{MARK}@example.org", f"{MARK}-name", MARK.encode() * 1_000
ANOTHER = "anna@example.org"


def kill_at_each_step(workspace: Workspace, *command: str, apart: int = 3) -> int:
    """Run a command in processes that are killed, in the short form at some steps, so many apart;
    return how many were."""
    arguments = [workspace.address, "1", "1" if forms.is_long else str(apart), *command]
    done = processes.run(
        [sys.executable, "-m", "tests.contract.history_killed", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def make_people(workspace: Workspace, directory: Path) -> Database:
    """A store with several eras, retired files, and one person who was there and is gone."""
    workspace.write(1, PEOPLE)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    people = db.table("people")
    people.insert_many([{"mail": f"{n}@example.org", "name": f"n{n}"} for n in range(20)])
    people.insert(mail=ANOTHER, name="Anna", photo=b"a" * 20_000)
    people.insert(mail=KEY, name=NAME, photo=PHOTO, note=MARK)
    begin(db, directory)
    db.admin.set_setting("history_store_flush_changes", "5")
    db.admin.set_setting("history_checkpoint_percent", "60")
    for turn in range(3):
        people.update(KEY, name=f"{NAME}{turn}")
        people.update(ANOTHER, name=f"Anna{turn}")
        flush(db)
        for n in range(4):
            people.update(f"{n}@example.org", name=f"m{turn}")
        flush(db)
    return db


def delete_and_drop(workspace: Workspace, db: Database) -> Database:
    db.close()
    workspace.write(2, DROP_NOTE)
    db = workspace.open()
    db.table("people").update(KEY, photo=PHOTO + b"2")
    db.table("people").delete(KEY)
    return db


def names_at(db: Database, moment: int) -> dict[str, str]:
    return {one.mail: one.name for one in db.at(moment).table("people").scan()}


def all_names(db: Database, since: int) -> dict[int, dict[str, str]]:
    return {m.number: names_at(db, m.number) for m in db.moments() if m.number >= since}


def list_marked(directory: Path) -> list[str]:
    """The files that have a piece of what was erased."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return [str(path) for path in found if MARK.encode() in _read_raw(path)]


def _read_raw(path: Path) -> bytes:
    """All bytes of a file, and those of its columns, which are compressed."""
    from pyarrow import parquet

    try:
        raw = path.read_bytes()
        if path.suffix == ".parquet":
            raw += repr(parquet.read_table(path).to_pydict()).encode()
    except FileNotFoundError:  # of a follower that is at work
        return b""
    return raw


def dump(workspace: Workspace) -> str:
    """All that the database has in its tables."""
    if workspace.engine == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    else:
        query = (
            "SELECT schemaname || '.' || tablename FROM pg_tables"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
    tables = workspace.execute(query)
    assert tables
    found = ""
    for (name,) in tables:
        for row in workspace.execute(f"SELECT * FROM {name}"):
            found += repr([bytes(v) if isinstance(v, memoryview) else v for v in row])
    return found


def assert_gone(workspace: Workspace, directory: Path) -> None:
    assert list_marked(directory) == []
    held = dump(workspace)
    assert MARK not in held
    assert KEY.encode().hex() not in held
    if workspace.engine == "sqlite":
        workspace.execute("VACUUM")
        workspace.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        path = Path(workspace.address.removeprefix("sqlite:///"))
        assert MARK.encode() not in path.read_bytes()


def test_h13_what_is_erased_is_in_no_file_and_no_row(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_files, "ROW_GROUP_ROWS", 3)
    place = tmp_path / "store"
    db = make_people(workspace, place)
    began = read_manifest(db)[0].begins
    with pytest.raises(UsageError, match="still in the table"):
        db.history.erase("people", KEY)
    db = delete_and_drop(workspace, db)
    flush(db)
    db.change_log.follower("reader").advance(next(iter(db.change_log.read())).bookmark)
    with pytest.raises(UsageError, match="some followers") as caught:
        db.history.erase("people", KEY)
    assert caught.value.context["followers"] == "reader"
    last = list(db.change_log.read())[-1]
    assert last.bookmark.key.startswith(MARK.encode())
    db.change_log.follower("reader").advance(last.bookmark)
    (place / "1/1/checkpoint-0.parquet.part").write_bytes(PHOTO)  # of a follower that was killed
    before = all_names(db, began)
    assert all(KEY in names for names in list(before.values())[1:] if names)
    marked = list_marked(place)
    assert len(marked) > 6
    past = db.at(began + 1)
    assert KEY in {one.mail for one in past.table("people").scan()}

    counted = [era.live_rows + era.changes for era in read_manifest(db)[1]]
    done = db.history.erase("people", KEY)
    assert done.table == "people"
    _, eras, files = read_manifest(db)
    assert all(n > era.live_rows + era.changes for n, era in zip(counted, eras, strict=True))
    assert all(file.rows for file in files)  # none is left without rows
    assert (done.changes, done.archived_values > 0) == (6, False)
    assert done.large_values == 2
    assert done.files_rewritten >= 3
    assert done.rows >= 6
    assert done.files_deleted > done.files_rewritten
    assert done.files_searched >= done.files_rewritten
    assert_gone(workspace, place)
    after = all_names(db, began)
    assert {moment: after[moment] for moment in before} == {
        moment: {mail: name for mail, name in names.items() if mail != KEY}
        for moment, names in before.items()
    }
    assert past.table("people").find(KEY) is None
    assert past.sql("SELECT count(*) FROM people").fetchone() == (21,)
    assert [one.event for one in db.change_log.read() if hasattr(one, "event")][-1] == (
        "history_erased"
    )
    assert db.table("people").history(KEY) == []
    # The follower's place is the same one, though its record is not named any more.
    later = list(db.change_log.read(db.change_log.follower("reader").bookmark))
    assert [getattr(one, "event", None) for one in later] == ["history_erased"]
    flush(db)
    check_store(db)
    export_directory(past, tmp_path / "export", form="ndjson")
    (exported,) = (tmp_path / "export").rglob("people*.ndjson")
    assert ANOTHER in exported.read_text()
    assert list_marked(tmp_path / "export") == []
    again = db.history.erase("people", KEY)
    assert (again.changes, again.rows, again.files_deleted) == (0, 0, 0)
    with pytest.raises(UsageError, match="all fields of its key"):
        db.history.erase("people")
    with pytest.raises(UnknownName):
        db.history.erase("persons", KEY)


def test_other_tenants_keep_their_record_of_an_erased_key(
    workspace: Workspace, tmp_path: Path
) -> None:
    db = make_people(workspace, tmp_path / "store")
    db.admin.create_tenant("other")
    other = db.for_tenant("other")
    other.table("people").insert(mail=KEY, name=NAME, photo=PHOTO)
    for one in (db, other):
        one.table("people").delete(KEY)
    flush(db)
    db.history.erase("people", KEY)
    told = other.table("people").history(KEY)
    assert [one.operation for one in told] == ["insert", "delete"]
    assert told[0].record is not None
    assert told[0].record.photo == PHOTO


def test_h13_what_is_erased_is_in_no_file_of_a_former_timeline(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db.table("people").delete(KEY)
    db.change_log.follower("zapdb.history").remove()
    db.change_log.prune(db.change_log.end())
    with pytest.raises(ChangesPruned):
        flush(db)
    db.history.start()
    flush(db)
    assert list_marked(place)
    done = db.history.erase("people", KEY, sweep=False)
    assert list_marked(place) == []
    # The log knows no more which large values were the record's.
    assert "large values of changes that were pruned" in done.not_reached[1]
    done = db.history.erase("people", KEY)
    assert (done.large_values_swept, len(done.not_reached)) == (1, 2)
    assert_gone(workspace, place)
    # Nor does anything go of a timeline that no row names, as after a restore of the database.
    (former,) = workspace.execute("SELECT min(timeline) FROM zapdb_history_stores")
    left = {Path(file.path) for file in read_manifest(db)[2]}
    for name in ("stores", "files", "eras"):
        workspace.execute(f"DELETE FROM zapdb_history_{name} WHERE timeline = ?", former)
    there = {path.relative_to(place) for path in place.rglob("*.parquet")}
    assert len(there - left) > 1
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_orphans(working, age_seconds=-1) == 0


@pytest.mark.long_on("postgresql")
def test_h13_killed_at_each_step_it_is_finished(workspace: Workspace, tmp_path: Path) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    began = read_manifest(db)[0].begins
    db = delete_and_drop(workspace, db)
    flush(db)
    wanted = {
        moment: {mail: name for mail, name in names.items() if mail != KEY}
        for moment, names in all_names(db, began).items()
    }
    assert kill_at_each_step(workspace, "erase", "people", KEY) > 6
    assert_gone(workspace, place)
    found = all_names(db, began)
    assert {moment: found[moment] for moment in wanted} == wanted
    flush(db)
    check_store(db)
    assert workspace.execute(
        "SELECT count(*) FROM zapdb_history_erasures WHERE key IS NOT NULL OR finished_at IS NULL"
    ) == [(0,)]


@pytest.mark.long_on("postgresql")
def test_who_follows_next_finishes_and_pinned_files_stay_for_the_grace(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_run, "HISTORY_POLL_SECONDS", 0.05)
    monkeypatch.setattr(follower_run, "HISTORY_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.05)
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db = delete_and_drop(workspace, db)
    flush(db)
    place.rename(tmp_path / "away")
    with pytest.raises(HistoryUnreachable):
        db.history.erase("people", KEY)
    assert db.history.status().unfinished_erasures == 1
    (tmp_path / "away").rename(place)
    db.admin.set_setting("history_grace_seconds", "2")
    pin = acquire(db._storage, f"{PIN_PREFIX}1/reader", Owner.here(), 60)
    workspace.execute("UPDATE zapdb_leases SET since = 0 WHERE name = ?", (pin.name,))
    stop = threading.Event()
    following = threading.Thread(target=lambda: follower_run.run_store(db._storage, 1, stop=stop))
    following.start()
    try:
        wait_until(lambda: db.history.status().unfinished_erasures == 0, "it was finished")
        assert_gone(workspace, place)
        # The follower pauses for who wants everything in files, and for the next one.
        db.table("people").insert(mail="other@example.org", name="Other")
        assert db.history.flush().lag.changes == 0
        db.table("people").insert(mail=KEY, name=NAME)
        db.table("people").delete(KEY)
        assert db.history.erase("people", KEY, now=True).changes == 2
        db.table("people").insert(mail="last@example.org", name="Last")
        db.admin.set_setting("history_store_flush_seconds", "0")
        newest = next(db.moments()).number
        wait_until(lambda: db.history.status().ends >= newest, "it followed again")
    finally:
        stop.set()
        finish(following)
    assert_gone(workspace, place)
    check_store(db)


@pytest.mark.parametrize("at", ["write", "_write_manifest"])
@pytest.mark.on_each_engine
def test_h13_who_lost_the_lease_leaves_no_file_of_what_was_erased_since(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A follower that stood still before it wrote, or behind that, and goes on; it may be killed
    before it has tidied up."""
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db.table("people").update(KEY, name=f"{NAME}-last")
    db.table("people").delete(KEY)
    go_on, waiting = getattr(StoreWriter, at), [True]

    def stand_still(working: StoreWriter, *arguments: Any) -> Any:
        if waiting and waiting.pop():
            workspace.execute("DELETE FROM zapdb_leases WHERE name = 'history/1'")
            db.history.erase("people", KEY)
            assert list_marked(place) == []
        return go_on(working, *arguments)

    with hold_store(db._storage, 1, Owner.here()) as working:
        monkeypatch.setattr(StoreWriter, at, stand_still)
        if at == "write":
            monkeypatch.setattr(working_store, "_delete_written", lambda _: None)
        with pytest.raises(LeaseLost):
            follower.HistoryFollower(working).step(flush=True)
        assert waiting == []
    assert list_marked(place) == []
    db.history.flush()
    assert_gone(workspace, place)


@pytest.mark.on_each_engine
def test_h13_an_erasure_finds_what_a_killed_move_has_copied(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a directory that no row of a live file names."""
    db = delete_and_drop(workspace, make_people(workspace, tmp_path / "store"))
    ends = flush(db).ends

    def end(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, "_write_manifest", end)
        with pytest.raises(KeyboardInterrupt):
            db.history.move(ends, tmp_path / "cold")
    assert len(list_marked(tmp_path / "cold")) == 1
    db.history.erase("people", KEY)
    assert list_marked(tmp_path / "cold") == []
    assert_gone(workspace, tmp_path / "store")
    # What is damaged does not move.
    victim = next(f for f in read_manifest(db)[2] if f.kind == "ended").place_in(tmp_path / "store")
    raw = victim.read_bytes()
    victim.write_bytes(raw[:100] + bytes([raw[100] ^ 1]) + raw[101:])
    with pytest.raises(HistoryDamaged, match="not what was written"):
        db.history.move(ends, tmp_path / "cold")
    assert victim.exists()
    assert list((tmp_path / "cold").rglob("*.part")) == []
    victim.write_bytes(raw)
    assert db.history.move(ends, tmp_path / "cold").files > 0
    assert db.history.verify(sample=9).problems == ()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_h13_a_move_that_lost_the_lease_copies_nothing(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still with an open file, while that was erased from."""
    db = delete_and_drop(workspace, make_people(workspace, tmp_path / "store"))
    ends = flush(db).ends
    go_on, waiting = moving.writing_new, [True]

    def stand_still(*arguments: Any) -> Any:
        if waiting and waiting.pop():
            workspace.execute("DELETE FROM zapdb_leases WHERE name LIKE 'history%'")
            db.history.erase("people", KEY)
        return go_on(*arguments)

    monkeypatch.setattr(moving, "writing_new", stand_still)
    with pytest.raises(LeaseLost):
        db.history.move(ends, tmp_path / "cold")
    assert waiting == []
    assert list_marked(tmp_path / "store") == list_marked(tmp_path / "cold") == []


@pytest.mark.parametrize("engine", ["sqlite"])
def test_it_is_not_finished_while_files_can_not_be_told_apart(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Files of killed work may hold anything, and go only where each is of this database."""
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db = delete_and_drop(workspace, db)
    flush(db)
    (known, *_) = place.glob("1/*/*.parquet")
    killed = known.with_name("killed.parquet")
    killed.write_bytes(known.read_bytes())
    broken = known.with_name("broken.parquet")
    broken.write_bytes(b"PAR1")
    lost = next(file for file in read_manifest(db)[2] if file.kind == "checkpoint")
    lost.place_in(place).unlink()  # of which `verify` tells
    with pytest.raises(HistoryDamaged, match="not a file of a history store"):
        db.history.erase("people", KEY)
    assert db.history.status().unfinished_erasures == 1
    assert killed.exists()
    broken.unlink()
    with hold_store(db._storage, 1, Owner.here()) as working:
        (erasure,) = finish_erasures(working)
    assert erasure.proof.files_deleted >= 1
    assert not killed.exists()
    assert db.history.status().unfinished_erasures == 0
    assert_gone(workspace, place)


def _cut(raw: bytes) -> bytes:
    return raw[: len(raw) // 2]


def _clear_footer(raw: bytes) -> bytes:
    """Arrow tells of this as an error of the system that has no number."""
    size = int.from_bytes(raw[-8:-4], "little")
    return raw[: -8 - size] + b"\xff" * size + raw[-8:]


def _change_what_it_says(raw: bytes) -> bytes:
    assert b'{"format":' in raw
    return raw.replace(b'{"format":', b'["format":')


DAMAGES = (_cut, _clear_footer, _change_what_it_says, lambda raw: b"")


@pytest.mark.parametrize("how", ["erase", "sweep"])
def test_h13_a_damaged_file_that_nobody_needs_is_deleted_as_another_is(
    workspace: Workspace, tmp_path: Path, how: str
) -> None:
    """It can't say of which database it is, but its row does."""
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db = delete_and_drop(workspace, db)
    flush(db)
    with db._storage.transaction(TransactionMode.READ) as connection:
        (store,) = list_timelines(connection, 1)
        retired = list_history_files(connection, store, state="retired")
    paths = [file.place_in(place) for file in retired]
    there = [path for path in paths if path.exists()]
    for path, damage in zip(there, cycle(DAMAGES), strict=False):
        path.write_bytes(damage(path.read_bytes()))
        with pytest.raises(HistoryDamaged):
            history_files.read_footer(path)
    assert len(there) >= len(DAMAGES)
    if how == "erase":
        db.history.erase("people", KEY, now=True)
        assert db.history.status().unfinished_erasures == 0
        assert sum(not path.exists() for path in there) >= len(DAMAGES)
    db.admin.set_setting("history_grace_seconds", "0")
    with hold_store(db._storage, 1, Owner.here()) as working:
        delete_retired(working)
    assert not any(path.exists() for path in there)
    if how == "erase":
        assert_gone(workspace, place)
    check_store(db)


def test_an_archived_value_and_a_record_of_a_dropped_table_are_erased(
    workspace: Workspace, tmp_path: Path
) -> None:
    db = make_people(workspace, tmp_path / "store")
    workspace.write(2, DROP_NOTE)
    db.close()
    db = workspace.open()
    db.admin.run_jobs()
    assert MARK in str(workspace.execute("SELECT value FROM zapdb_archives"))
    workspace.write(3, "drop_table: {table: people, records: archive}")
    db.close()
    db = workspace.open()
    flush(db)
    done = db.history.erase("people", KEY)
    assert done.archived_values == 2
    assert done.large_values >= 1
    assert_gone(workspace, tmp_path / "store")
    assert "Anna" in dump(workspace)


# Purging


def test_h7_moments_that_were_purged_are_refused_and_others_are_as_before(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    store, eras, files = read_manifest(db)
    kept = eras[-1].first_moment
    states = {moment: stored_state(db, moment) for moment in range(kept, store.ends + 1)}
    with pytest.raises(UsageError, match="not in the files"):
        db.history.purge(store.ends + 1)
    planned = db.history.purge(kept, dry_run=True)
    assert read_manifest(db) == (store, eras, files)
    past = db.at(eras[-1].first_moment - 1)
    was = past.sql("SELECT * FROM people ORDER BY mail").fetchall()

    done = db.history.purge(db.at(kept).moment)
    assert done == planned
    assert (done.kept_from, done.eras) == (kept, len(eras) - 1)
    store, eras, left = read_manifest(db)
    assert (store.purged_before, len(eras), len(left)) == (kept, 1, len(files) - done.files)
    assert [f.id for f in left if f.kind == "moments" and f.last_moment < kept] == []
    # A past that was open keeps its files for the grace.
    assert past.sql("SELECT * FROM people ORDER BY mail").fetchall() == was
    db.admin.set_setting("history_grace_seconds", "0")
    late, early, of_another = (
        acquire(db._storage, f"{PIN_PREFIX}{name}", Owner.here(), 60).name
        for name in ("1/late", "1/early", "11/reader")
    )
    set_pin = "UPDATE zapdb_leases SET {} WHERE name = ?"
    workspace.execute(set_pin.format("since = 0"), (early,))
    workspace.execute(set_pin.format("since = 0"), (of_another,))
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_retired(working) == 0
        # The processes that have pinned them were killed.
        workspace.execute(set_pin.format("expires_at = 0"), (late,))
        workspace.execute(set_pin.format("expires_at = 0"), (early,))
        assert delete_retired(working) >= done.files
    assert {str(path) for path in place.rglob("*.parquet")} == {
        str(place / file.path) for file in left
    }
    db.history.purge(kept - 1)  # what is gone stays gone
    db.close()
    workspace.write(2, ADD_COLOR.replace("items", "people"))
    db = workspace.open()
    flush(db)
    with pytest.raises(HistoryPurged, match="purged from the history store") as caught:
        db.at(kept - 1).table("people")
    assert caught.value.context["kept_from"] == kept
    for moment, state in states.items():
        assert stored_state(db, moment) == state
    assert any(getattr(one, "event", "") == "history_purged" for one in db.change_log.read())


def test_h7_a_purge_leaves_the_eras_of_other_tables(workspace: Workspace, tmp_path: Path) -> None:
    """Eras are numbered for each table."""
    workspace.write(1, PEOPLE, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("people").insert(mail=ANOTHER, name="Anna")
    begin(db, tmp_path / "store")
    db.admin.set_setting("history_store_flush_changes", "1")
    for turn in range(3):
        db.table("items").upsert(id=1, title=f"t{turn}")
        flush(db)
    ends = flush(db).ends
    state = stored_state(db, ends)
    assert db.history.purge(ends).eras > 0
    assert stored_state(db, ends) == state


def test_h7_an_exact_purge_leaves_nothing_of_before(workspace: Workspace, tmp_path: Path) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db.admin.set_setting("history_checkpoint_percent", "100000")
    people = db.table("people")
    people.update(ANOTHER, name="old-value", photo=b"o" * 10_000)
    people.insert(mail="gone@example.org", name="gone-value")
    flush(db)
    people.delete("gone@example.org")
    people.update(ANOTHER, name="Kept")
    kept = flush(db).ends
    people.update("1@example.org", name="later")
    people.delete("2@example.org")
    flush(db)
    store, eras, _ = read_manifest(db)
    assert eras[-1].first_moment < kept < store.ends
    states = {moment: stored_state(db, moment) for moment in range(kept, store.ends + 1)}
    planned = db.history.purge(kept, exact=True, dry_run=True)
    assert read_manifest(db)[1] == eras
    assert db.history.purge(kept, exact=True) == planned
    db.admin.set_setting("history_grace_seconds", "0")
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_retired(working) >= planned.files
    store, eras, files = read_manifest(db)
    counted = [(era.first_moment, era.live_rows, era.changes) for era in eras]
    assert counted == [(kept, len(names_at(db, kept)), 2)]
    raw = b"".join(_read_raw(path) for path in place.rglob("*.parquet"))
    assert (b"old-value" in raw, b"gone-value" in raw, b"Kept" in raw) == (False, False, True)
    assert all(file.first_moment >= kept for file in files if file.kind != "moments")
    for moment, state in states.items():
        assert stored_state(db, moment) == state
    assert db.history.verify(sample=99).problems == ()
    people.update(ANOTHER, name="After")
    flush(db)
    db.change_log.prune(db.change_log.end())
    assert names_at(db, kept)[ANOTHER] == "Kept"
    assert db.history.verify(sample=99).problems == ()


@pytest.mark.long_on("postgresql")
def test_killed_at_each_step_of_a_purge_nothing_is_half_gone(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    _, eras, _ = read_manifest(db)
    db.admin.set_setting("history_grace_seconds", "0")
    kept = eras[-1].first_moment
    names: Any = names_at(db, kept)
    assert kill_at_each_step(workspace, "purge", str(kept)) > 2
    store, eras, left = read_manifest(db)
    assert (store.purged_before, len(eras)) == (kept, 1)
    assert {str(path) for path in place.rglob("*.parquet")} == {
        str(place / file.path) for file in left
    }
    assert names_at(db, kept) == names
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert finish_erasures(working) == []


@pytest.mark.long_on("postgresql")
def test_killed_at_each_step_of_an_exact_purge_what_is_kept_is_as_it_was(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db.admin.set_setting("history_grace_seconds", "0")
    db.admin.set_setting("history_checkpoint_percent", "100000")
    people = db.table("people")
    people.update(ANOTHER, name="old-value")
    flush(db)
    people.update(ANOTHER, name="Kept")
    kept = flush(db).ends
    people.update("1@example.org", name="later")
    people.delete("2@example.org")
    store = flush(db)
    states = {moment: stored_state(db, moment) for moment in range(kept, store.ends + 1)}
    names = all_names(db, kept)
    assert kill_at_each_step(workspace, "purge", str(kept), "exact", apart=2) > 4
    store, eras, _ = read_manifest(db)
    assert (store.purged_before, [era.first_moment for era in eras]) == (kept, [kept])
    assert {moment: stored_state(db, moment) for moment in states} == states
    found = all_names(db, kept)
    assert {moment: found[moment] for moment in names} == names
    assert db.history.verify(sample=99).problems == ()
    with hold_store(db._storage, 1, Owner.here()) as working:
        delete_orphans(working, age_seconds=-1)
    assert b"old-value" not in b"".join(_read_raw(path) for path in place.rglob("*.parquet"))
    people.update(ANOTHER, name="After")
    flush(db)
    assert db.history.verify(sample=99).problems == ()


def test_retention_purges_the_store_and_prunes_the_log_behind_it(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log_pruning, "PRUNE_BATCH_CHANGES", 3)
    db = make_people(workspace, tmp_path / "store")
    flush(db)
    reader = db.change_log.follower("reader")
    reader.advance(next(iter(db.change_log.read())).bookmark)
    _, eras, _ = read_manifest(db)
    newest = next(db.moments()).number
    logged = len(list(db.change_log.read()))
    with hold_store(db._storage, 1, Owner.here()) as working:
        Retention(working).step()
        assert len(list(db.change_log.read())) == logged
        db.admin.set_setting("change_log_retention_seconds", "60")
        db.admin.set_setting("history_retention_seconds", "60")
        advance_clock(monkeypatch, db._storage, 61)
        kept = find_stored_before(working, db._storage.now_us(db._storage.connection()))
        assert kept == newest
        visible_at = (next(db.moments()).visible_at - EPOCH) // MICROSECOND
        assert (find_stored_before(working, visible_at) or 0) < newest
        Retention(working).step()
        store, left, _ = read_manifest(db)
        assert (store.purged_before, len(left), len(eras) > 1) == (newest, 1, True)
        assert len(list(db.change_log.read())) == logged + 1  # the reader has not read them
        reader.remove()
        db.history.stop()
        Retention(working).step()
        assert len(list(db.change_log.read())) == logged + 1
    db.history.start()
    with hold_store(db._storage, 1, Owner.here()) as working:
        retention = Retention(working)
        retention.step()
        events = [getattr(one, "event", None) for one in db.change_log.read()]
        assert events == ["history_purged"]
        assert workspace.execute("SELECT count(*) FROM zapdb_changes") == [(1,)]
        db.table("people").insert(mail="later@example.org", name="PendingRows")
        retention.step()  # tomorrow
    flush(db)
    with hold_store(db._storage, 1, Owner.here()) as working:
        Retention(working).step()
    assert len(list(db.change_log.read())) > 0
    assert db.at(newest).table("people").count() == 22
