"""Verifying a history store, waiting for it, and what is left of a removed tenant."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.contract.stored_pasts import begin, check_store, flush, read_manifest, stored_state
from tests.contract.tables import ADD_COLOR
from tests.contract.test_history_erased import (
    ANOTHER,
    KEY,
    assert_gone,
    kill_at_each_step,
    make_people,
    names_at,
)
from tests.support import GUARD_SECONDS, Workspace, advance_clock, finish
from zapdb.catalog.cluster.leases import Owner
from zapdb.errors import HistoryBehind, HistoryUnreachable, UsageError
from zapdb.past.files import (
    cleaning,
    follower_run,
)
from zapdb.past.files.cleaning import delete_orphans, delete_retired
from zapdb.past.files.follower_run import Retention
from zapdb.past.files.history_file import read_footer
from zapdb.past.files.history_manifest import HistoryEra, HistoryFile
from zapdb.past.files.stores import hold_store


def test_h10_verify_tells_what_is_wrong_with_files_and_records(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    _, _, files = read_manifest(db)
    found = db.history.verify()
    assert (found.problems, found.doubts, found.files) == ((), {}, len(files))
    assert found.tables >= 2
    assert db.history.verify(sample=0).tables == 0

    victim = place / next(f for f in files if f.kind != "moments").path
    raw = victim.read_bytes()
    victim.write_bytes(raw[:100] + bytes([raw[100] ^ 1]) + raw[101:])
    told = db.history.verify(sample=0).problems
    assert [problem.rpartition(": ")[2] for problem in told] == ["its digest is another one"]
    assert str(victim) in told[0]
    victim.unlink()
    told = db.history.verify(sample=0).problems
    assert [problem.rpartition(": ")[2] for problem in told] == ["it is not there"]
    victim.write_bytes(raw)
    assert db.history.verify(sample=0).problems == ()

    workspace.execute("UPDATE zapdb_history_files SET rows = rows + 1 WHERE kind = 'moments'")
    assert "rows instead of" in db.history.verify(sample=0).problems[0]
    workspace.execute("UPDATE zapdb_history_files SET rows = rows - 1 WHERE kind = 'moments'")
    # A change that files and log do not agree on.
    workspace.execute(
        "DELETE FROM zapdb_changes WHERE transaction_number ="
        " (SELECT max(transaction_number) FROM zapdb_changes)"
    )
    told = db.history.verify(sample=50).problems
    assert told
    assert all("another one than in the change log" in problem for problem in told)
    db.admin.create_tenant("other")
    other = db.for_tenant("other")
    with pytest.raises(UsageError, match="no history store"):
        other.history.verify()


@pytest.mark.on_each_engine
def test_a_process_waits_until_its_changes_are_in_files(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_run, "HISTORY_POLL_SECONDS", 0.05)
    db = make_people(workspace, tmp_path / "store")
    assert db.history.wait(seconds=0).lag.changes == 0
    db.table("people").insert(mail="later@example.org", name="PendingRows")
    assert 'zapdb_history_store_problem{tenant="default"} 0.0' in db.admin.metrics()
    with pytest.raises(HistoryBehind) as caught:
        db.history.wait(seconds=0.2)
    assert caught.value.context["behind"] == 1
    db.admin.set_setting("history_store_flush_seconds", "0")
    stop = threading.Event()
    follower = threading.Thread(target=lambda: follower_run.run_store(db._storage, 1, stop=stop))
    follower.start()
    try:
        assert db.history.wait(db.change_log.end(), seconds=30).lag.changes == 0
    finally:
        stop.set()
        finish(follower)


def test_the_files_of_a_removed_tenant_go_with_it(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, cold = tmp_path / "store", tmp_path / "cold"
    db = make_people(workspace, place)
    db.admin.create_tenant("other")
    other = db.for_tenant("other")
    begin(other, place)
    other.admin.set_setting("history_store_flush_changes", "1")
    for turn in range(3):
        other.table("people").upsert(mail="x@example.org", name=f"X{turn}")
        flush(other)
    assert other.history.move(read_manifest(other)[0].ends, cold).files > 0
    assert list((place / "2").rglob("*.parquet"))
    db.admin.set_setting("history_retention_seconds", "60", tenant="other")
    advance_clock(monkeypatch, db._storage, 61)
    for tenant, purged in ((1, False), (2, True)):
        with hold_store(db._storage, tenant, Owner.here()) as working:
            Retention(working).step()
        one = (db, other)[tenant - 1]
        assert (read_manifest(one)[0].purged_before > 0) is purged
    other.close()
    db.admin.remove_tenant("other")
    assert not (place / "2").exists()
    assert list(cold.iterdir()) == []
    assert list((place / "1").rglob("*.parquet"))
    assert db.history.verify(sample=0).problems == ()


@pytest.mark.long_on("sqlite")
def test_old_eras_move_to_another_directory_and_are_read_there(
    workspace: Workspace, tmp_path: Path
) -> None:
    place, cold = tmp_path / "store", tmp_path / "cold"
    db = make_people(workspace, place)
    store, eras, files = read_manifest(db)
    newest = next(db.moments()).number
    old = eras[0].first_moment
    before = {m: names_at(db, m) for m in (old, store.ends)}
    ended = eras[0].last_moment
    assert ended is not None
    assert db.history.move(ended, cold).files == 0
    assert kill_at_each_step(workspace, "move", str(newest), str(cold)) > 2
    _, _, left = read_manifest(db)
    moved = [file for file in left if file.directory == str(cold)]
    assert moved
    assert db.history.move(newest, cold).files == 0
    assert {f.sha256 for f in left} == {f.sha256 for f in files}
    assert len(left) == len(files)
    assert db.history.verify().problems == ()
    db.admin.set_setting("history_grace_seconds", "0")
    with hold_store(db._storage, 1, Owner.here()) as working:
        delete_retired(working)
        delete_orphans(working, age_seconds=-1)
    there = {str(path) for path in (*place.rglob("*.parquet"), *cold.rglob("*.*"))}
    assert there == {str(file.place_in(store.directory)) for file in left}
    assert {m: names_at(db, m) for m in before} == before
    db.close()
    workspace.write(2, ADD_COLOR.replace("items", "people"))
    db = workspace.open()
    flush(db)
    counted = "SELECT count(*) FROM people"
    assert db.at(old).sql(counted).fetchone() == (len(before[old]),)
    assert names_at(db, old) == before[old]
    cold.rename(tmp_path / "away")
    db.close()
    db = workspace.open()
    with pytest.raises(HistoryUnreachable):
        names_at(db, old)
    assert names_at(db, newest) == before[store.ends]
    db.change_log.prune(db.change_log.end())
    for ask in (
        lambda: list(db.audit()),
        lambda: db.table("people").history(ANOTHER),
        lambda: db.history.purge(ended, exact=True),
        lambda: db.history.move(newest, place),
        lambda: db.history.move(None, tmp_path / "third"),
    ):
        with pytest.raises(HistoryUnreachable, match="not there"):
            ask()
    planned = db.history.repair(dry_run=True)
    assert planned.repaired == ()
    assert {"mount it" in text for text in planned.left} == {True}
    (tmp_path / "away").rename(cold)
    assert names_at(db, old) == before[old]
    # What is erased is erased there, too; and what went can come back.
    db.table("people").delete(KEY)
    assert db.history.erase("people", KEY, now=True).rows > 0
    assert_gone(workspace, place)
    assert_gone(workspace, cold)
    assert db.history.move(newest, place).files > 0
    assert not [file for file in read_manifest(db)[2] if file.directory is not None]
    with pytest.raises(UsageError, match="this is a file"):
        db.history.move(newest, workspace.directory / "0001_test.yaml")


@pytest.mark.on_each_engine
def test_an_open_database_follows_in_a_thread_until_it_is_closed(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_run, "HISTORY_POLL_SECONDS", 0.05)
    db = make_people(workspace, tmp_path / "store")
    db.admin.set_setting("history_store_flush_seconds", "0")
    assert db.history.follow().state == "follows"
    db.history.follow()
    named = [t for t in threading.enumerate() if t.name == "zapdb-history"]
    assert len(named) == 1
    db.table("people").insert(mail="later@example.org", name="PendingRows")
    assert db.history.wait(seconds=GUARD_SECONDS).is_followed
    db.close()
    assert not named[0].is_alive()
    db = workspace.open()
    assert not db.history.status().is_followed
    db.history.stop()
    with pytest.raises(UsageError, match="is stopped"):
        db.history.follow()


def test_a_step_reads_as_many_rows_and_footers_however_long_the_history(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H8 of those who follow and ask how far they are, not only of those who read the past."""
    place = tmp_path / "store"
    db = make_people(workspace, place)
    _, eras, files = read_manifest(db)
    assert len({era.table_number for era in eras}) == 1 < len(eras)
    read = Counter[str]()

    def count(what: Any) -> None:
        of_row = what.from_row

        def counted(row: object) -> object:
            read[what.__name__] += 1
            return of_row(row)

        monkeypatch.setattr(what, "from_row", counted)

    count(HistoryEra)
    count(HistoryFile)
    with hold_store(db._storage, 1, Owner.here()) as working:
        loaded = working.load()
    assert loaded is not None
    assert (*loaded.eras.values(),) == (eras[-1],)
    assert read == {"HistoryEra": 1}
    read.clear()
    status = db.history.status()
    kept = workspace.execute("SELECT count(*), sum(size_bytes) FROM zapdb_history_files")
    assert (status.files, status.size_bytes) == tuple(map(int, kept[0]))
    assert (read, status.files > len(files)) == ({}, True)

    orphan = place / files[-1].path
    orphan = orphan.with_name(f"orphan-{orphan.name}")
    orphan.write_bytes((place / files[-1].path).read_bytes())
    footers = list[Path]()

    def note(path: Path) -> object:
        footers.append(path)
        return read_footer(path)

    monkeypatch.setattr(cleaning, "read_footer", note)
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_orphans(working, age_seconds=-1) == 1
    assert footers == [orphan]
    assert db.history.verify(sample=9).problems == ()


@pytest.mark.long_on("postgresql")
def test_h2_a_cut_era_tells_its_last_moments_as_before(
    workspace: Workspace, tmp_path: Path
) -> None:
    """An era that another one followed, as it had changed much, has that one's first changes."""
    db = make_people(workspace, tmp_path / "store")
    people = db.table("people")
    for turn in range(4):
        for n in range(5):
            people.update(f"{n}@example.org", name=f"turn {turn} of {n}")
        flush(db)
    sealed = [era for era in read_manifest(db)[1] if era.last_moment is not None]
    era = max(sealed, key=lambda one: (one.last_moment or 0) - one.first_moment)
    assert era.last_moment is not None
    kept = era.first_moment + 1
    assert kept < era.last_moment
    newest = next(db.moments())
    states = {moment: stored_state(db, moment) for moment in range(kept, newest.number + 1)}
    names = {moment: names_at(db, moment) for moment in states}
    db.history.purge(kept, exact=True)
    db.change_log.prune(newest.bookmark)
    assert {moment: names_at(db, moment) for moment in names} == names
    assert {moment: stored_state(db, moment) for moment in states} == states
    check_store(db, newest.number)
