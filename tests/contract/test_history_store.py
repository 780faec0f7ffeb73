"""The history store: what the follower puts into files is what the tables were, once each."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from tests import forms, processes
from tests.contract.every_type import make_shop
from tests.contract.stored_pasts import (
    State,
    begin,
    check_store,
    current_state,
    digests,
    flush,
    read_little_at_a_time,
    read_manifest,
    stored_state,
    write_some,
)
from tests.contract.tables import ADD_COLOR, DROP_NOTE, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.forms import cases
from tests.support import GUARD_SECONDS, ROOT, WAYS, Faults, Way, Workspace, finish, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.catalog.cluster.leases import Owner, acquire, delete_lease, release, take
from zapdb.database import Database
from zapdb.errors import (
    ChangesPruned,
    CommitUnknown,
    ConcurrencyError,
    HistoryUnreachable,
    LeaseLost,
    UsageError,
    ZapdbError,
)
from zapdb.log import (
    followed_moments,
)
from zapdb.past.files import (
    baseline,
    follower_run,
    stores,
)
from zapdb.past.files.cleaning import PIN_PREFIX, delete_orphans, delete_retired
from zapdb.past.files.follower import HistoryFollower
from zapdb.past.files.history_file import FileFooter, write_file
from zapdb.past.files.history_manifest import HistoryStore, list_timelines
from zapdb.past.files.store_changes import StoreChange
from zapdb.past.files.stores import hold_store
from zapdb.past.files.working_store import StoreWriter, lease_of
from zapdb.storage import (
    Connection,
    TransactionMode,
)

PEOPLE = "create_table: {table: people, key: [name], fields: [{name: name, type: string}]}"
TREES = PEOPLE.replace("people", "trees")
LATER = (
    RENAME_SIZE,
    INDEX_SIZE.replace("size", "extent"),
    PEOPLE,
    ADD_COLOR,
    "rename_table: {table: people, to: persons}",
    DROP_NOTE,
    "change_type: {table: items, field: extent, type: string, default: '0', up: 'text(extent)',"
    " down: 'length(extent)', reversibility: lossy, because: a test}",
    "drop_table: {table: persons, records: archive}",
    "restore_table: {table: persons, archived_by: 9}",
)


def logged(workspace: Workspace, *operations: str) -> Database:
    workspace.write(1, ITEMS, *operations)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    return db


def newest(db: Database) -> int:
    return next(db.moments()).number


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("seed", range(cases(8)))
def test_every_moment_in_files_is_what_it_was(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rnd = random.Random(seed)
    monkeypatch.setattr(followed_moments, "HISTORY_PAGE_CHANGES", 3)  # transactions have many parts
    db, states, later = logged(workspace), dict[int, State](), list(LATER)
    for _ in range(5):
        write_some(db, rnd)
    begin(db, tmp_path / "store")
    if seed % 2:  # new eras after some changes
        db.admin.set_setting("history_store_flush_changes", "12")
    states[newest(db)] = current_state(db)
    number, kept = 1, digests(db)
    for _ in range(40):
        chance = rnd.random()
        if chance < 0.2 and later:
            number += 1
            workspace.write(number, later.pop(0))
            db.close()
            db = workspace.open()
        elif chance < 0.45:
            flush(db)
        else:
            write_some(db, rnd)
            if rnd.random() < 0.3:
                db.change_log.end()
        states[newest(db)] = current_state(db)
    flush(db)
    check_store(db)
    missed = [moment for moment, state in states.items() if stored_state(db, moment) != state]
    assert missed == []
    _, eras, _ = read_manifest(db)
    assert {era.state for era in eras} == ({"open", "sealed"} if seed % 2 else {"open"})
    left = digests(db)
    assert {path: left.get(path, was) for path, was in kept.items()} == kept  # H10


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_record_at_the_edge_of_a_file_is_merged(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is the only one with changes, it is in one file of the checkpoint afterwards."""
    read_little_at_a_time(monkeypatch)
    db = logged(workspace)
    db.table("items").insert_many({"id": at, "title": "t"} for at in range(12))
    begin(db, tmp_path / "store")
    db.admin.set_setting("history_store_flush_changes", "5")
    for at in (*range(12), *range(12)):
        for turn in range(4):
            db.table("items").update(at, title=f"u{turn}")
        flush(db)
        _, eras, files = read_manifest(db)
        held = [f for f in files if (f.kind, f.era) == ("checkpoint", eras[-1].era)]
        assert sum(file.rows for file in held) == 12
    assert len(held) > 1
    assert "ended" in {file.kind for file in files}


@pytest.mark.on_each_engine
def test_a_rolled_back_migration_ends_the_era_and_comes_back_to_the_one_before(
    workspace: Workspace, tmp_path: Path
) -> None:
    db, rnd = logged(workspace), random.Random(4)
    begin(db, tmp_path / "store")
    states = dict[int, State]()

    def write_and_note(times: int) -> None:
        for _ in range(times):
            write_some(db, rnd)
            states[newest(db)] = current_state(db)

    write_and_note(5)
    workspace.write(2, ADD_COLOR)
    db.close()
    db = workspace.open()
    write_and_note(5)
    flush(db)
    write_and_note(3)
    db.close()
    workspace.remove(2)
    roll_back(workspace.control)
    db = workspace.open()
    states[newest(db)] = current_state(db)
    flush(db)
    write_and_note(3)
    flush(db)
    check_store(db)
    assert [era.layout_revision for era in read_manifest(db)[1]] == [1, 2, 3]
    for moment, state in states.items():
        assert stored_state(db, moment) == state, moment


# Killed, and two at once


@pytest.mark.long_on("postgresql")
@pytest.mark.on_each_engine
def test_h3_killed_at_each_step_it_stores_each_change_once(
    workspace: Workspace, tmp_path: Path
) -> None:
    db = logged(workspace, PEOPLE)
    rnd = random.Random(3)
    for _ in range(5):
        write_some(db, rnd)
    db.history.start(tmp_path / "store")
    db.admin.set_setting("history_store_flush_changes", "6")
    states = {newest(db): current_state(db)}
    for number, later in enumerate((RENAME_SIZE, TREES), 2):
        write_some(db, rnd)
        states[newest(db)] = current_state(db)
        workspace.write(number, later)
    db.close()
    db = workspace.open()
    states[newest(db)] = current_state(db)
    write_some(db, rnd)
    states[newest(db)] = current_state(db)
    done = processes.run(
        [
            sys.executable,
            "-m",
            "tests.contract.history_killed",
            workspace.address,
            "1",
            "1",
            "follow",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15
    check_store(db)
    assert db.history.status().lag.changes == 0
    for flushed_at in (1_000, 6):
        db.admin.set_setting("history_store_flush_changes", str(flushed_at))
        for _ in range(10):
            write_some(db, rnd)
        flush(db)
    for moment, state in states.items():
        assert stored_state(db, moment) == state, moment
    store, _, files = read_manifest(db)
    left = _list_files(store)
    assert left > {file.path for file in files}  # those of the killed, until they are old
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_orphans(working) == 0
        retired = db.history.status().files - len(files)
        assert retired > 0
        assert delete_orphans(working, age_seconds=-1) == len(left) - len(files) - retired
        # Retired files go after the grace, unless a reader that began before has pinned them.
        assert delete_retired(working) == 0
        db.admin.set_setting("history_grace_seconds", "0")
        pin = acquire(db._storage, f"{PIN_PREFIX}1/reader", Owner.here(), 60)
        workspace.execute("UPDATE zapdb_leases SET since = 0 WHERE name = ?", (pin.name,))
        assert delete_retired(working) == 0
        release(db._storage, pin)
        assert delete_retired(working) == retired
    assert db.history.status().files == len(files)
    assert _list_files(store) == {file.path for file in files}
    check_store(db)


def _list_files(store: HistoryStore) -> set[str]:
    """The files of a store but for its manifest."""
    found = [path for path in Path(store.directory).rglob("*.*") if path.suffix != ".json"]
    return {str(path.relative_to(store.directory)) for path in found}


def forget_leases(place: Workspace) -> None:
    """Those of a follower whose call failed: it does not know that it has them."""
    named = "('history/1', 'history-upkeep/1')"
    place.execute(f"DELETE FROM zapdb_leases WHERE name IN {named}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_h3_with_each_call_to_the_database_failed_it_stores_each_change_once(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    db, rnd = logged(workspace), random.Random(6)
    begin(db, tmp_path / "store")
    faults = Faults(workspace, db._storage, way, lasting=False)
    faults.install(monkeypatch)
    states, at, struck = dict[int, State](), 0, True
    step = 1 if forms.is_long else 7
    while struck:
        at += step
        write_some(db, rnd)
        states[newest(db)] = current_state(db)
        faults.arm(at)
        with suppress(ZapdbError):
            follower_run.flush_store(db._storage, 1, 0)
        struck = bool(faults.struck)
        faults.arm(0)
        forget_leases(workspace)
        if at // step % 4 == 0:  # what waits grows with each failure, and so do a flush's calls
            flush(db)
    flush(db)
    assert at > 20
    check_store(db)
    for moment, state in states.items():
        assert stored_state(db, moment) == state, moment


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("is_done", [True, False])
def test_h3_a_commit_with_an_unknown_outcome_is_settled_by_reading(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    db, commit, lost = logged(workspace), StoreWriter.committing, iter([True])
    begin(db, tmp_path / "store")

    @contextmanager
    def lose(*arguments: Any) -> Iterator[Connection]:
        with commit(*arguments) as connection:
            yield connection
            is_lost = next(lost, False)
            if is_lost and not is_done:
                raise CommitUnknown("the outcome is unknown")
        if is_lost:
            raise CommitUnknown("the outcome is unknown")

    write_some(db, random.Random(1))
    with monkeypatch.context() as patched:
        patched.setattr(StoreWriter, "committing", lose)
        with nullcontext() if is_done else pytest.raises(CommitUnknown):
            flush(db)
    assert (db.history.status().lag.changes == 0) == is_done
    flush(db)
    check_store(db)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_h3_a_store_that_was_moved_on_is_not_moved_from_where_it_was(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Though who is late has the lease."""
    db = logged(workspace)
    begin(db, tmp_path / "store")
    write_some(db, random.Random(1))
    with hold_store(db._storage, 1, Owner.here()) as working:
        loaded = working.load()
        assert loaded is not None
        assert HistoryFollower(working).step(flush=True).changes
        with pytest.raises(ConcurrencyError, match="has moved the history store on"):
            working.commit(loaded.store, loaded.store, StoreChange())
    check_store(db)


@pytest.mark.on_each_engine
def test_h3_two_followers_at_once_store_each_change_once(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Whatever their leases: each takes it from the other again and again."""
    db, rnd = logged(workspace), random.Random(5)
    begin(db, tmp_path / "store")
    states, stop = {}, threading.Event()
    errors = list[ZapdbError]()

    def follow() -> None:
        mine = workspace.open()
        owner = Owner.here()
        while not stop.is_set():
            try:
                with mine._storage.transaction(TransactionMode.CATALOG) as connection:
                    delete_lease(connection, lease_of(1))
                    lease = take(connection, lease_of(1), owner, 30)
                HistoryFollower(StoreWriter(mine._storage, 1, lease)).step(flush=True)
            except (LeaseLost, ConcurrencyError) as error:
                errors.append(error)
        mine.close()

    threads = [threading.Thread(target=follow) for _ in range(2)]
    for thread in threads:
        thread.start()

    def write() -> bool:
        write_some(db, rnd)
        states[newest(db)] = current_state(db)
        return len(states) >= 30 and bool(errors)

    wait_until(write, "they had met")
    stop.set()
    finish(*threads)
    forget_leases(workspace)
    flush(db)
    assert errors
    check_store(db)
    for moment, state in states.items():
        assert stored_state(db, moment) == state, moment


# Beginning


@pytest.mark.on_each_engine
def test_a_table_is_read_in_parts_beside_its_writers(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "HISTORY_RANGE_RECORDS", 50)
    monkeypatch.setattr(baseline, "ARROW_PAGE_RECORDS", 40)
    db, rnd = logged(workspace), random.Random(9)
    items = db.table("items")
    items.insert_many([{"id": n, "title": f"t{n}"} for n in range(300)])
    db.history.start(tmp_path / "store")
    before, moment = current_state(db), newest(db)
    for _ in range(4):
        with hold_store(db._storage, 1, Owner.here()) as working:
            assert HistoryFollower(working).step().is_any
        for _ in range(3):
            items.delete(rnd.choice(list(items.scan())).id)
            items.upsert(id=rnd.randint(0, 400), title="new")
    flush(db)
    store, (era,), files = read_manifest(db)
    assert (store.begins, store.state, era.live_rows) == (moment, "follows", 300)
    assert [file.rows for file in files if file.kind == "checkpoint"] == [80, 80, 80, 60]
    check_store(db)
    assert stored_state(db, moment) == before
    assert stored_state(db, newest(db)) == current_state(db)


def test_values_of_every_type_and_tenants_apart(workspace: Workspace, tmp_path: Path) -> None:
    db = make_shop(workspace, orders=40, long=False)
    db.admin.set_setting("change_log", "on")
    db.admin.create_tenant("other")
    other = db.for_tenant("other")
    begin(db, tmp_path / "store")
    begin(other, tmp_path / "store")
    first, began = newest(db), current_state(db)
    orders = db.table("orders")
    for number in range(0, 40, 2):
        orders.update(number, note="x" * 10_000, photo=bytes(range(256)) * 20)
    orders.delete(39)
    other.table("customers").insert(
        country="at", number=1, home={"lines": [], "country": None, "since": None}
    )
    for one in (db, other):
        flush(one)
        check_store(one)
        assert stored_state(one, newest(one)) == current_state(one)
    assert stored_state(db, first) == began
    assert {path.name for path in (tmp_path / "store").iterdir()} == {"1", "2"}


# What is in the way


@pytest.mark.on_each_engine
def test_h11_writers_go_on_without_the_directory(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_run, "HISTORY_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(follower_run, "HISTORY_POLL_SECONDS", 0.1)
    db, place = logged(workspace), tmp_path / "store"
    begin(db, place)
    db.admin.set_setting("history_store_flush_seconds", "0")
    stop, told = threading.Event(), list[str]()
    follower = threading.Thread(
        target=lambda: follower_run.run_store(db._storage, 1, stop=stop, wait=told.append)
    )
    follower.start()
    try:
        db.table("items").insert(id=1, title="a")
        wait_until(lambda: db.history.status().ends == newest(db), "it was in a file")
        place.rename(tmp_path / "away")
        db.table("items").insert(id=2, title="b")
        wait_until(lambda: told, "the reason why it waits is told")
        assert "is not there" in told[0]
        assert db.history.status().problem  # it is stored before it is told
        db.table("items").insert(id=3, title="c")
        (tmp_path / "away").rename(place)
        wait_until(lambda: db.history.status().ends == newest(db), "it was in a file")
        assert db.history.status().problem is None
        db.history.stop()
        wait_until(lambda: not follower.is_alive(), "it had stopped")
    finally:
        stop.set()
        finish(follower)
    check_store(db)
    assert stored_state(db, newest(db)) == current_state(db)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_a_store_is_stopped_while_its_follower_commits(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite no one commits between what a stop reads and writes."""
    db = logged(workspace)
    begin(db, tmp_path / "store")
    db.table("items").insert(id=1, title="a")
    read = stores.require_store

    def read_and_be_overtaken(connection: Connection, tenant: int) -> HistoryStore:
        monkeypatch.undo()
        found = read(connection, tenant)
        follower = threading.Thread(target=flush, args=(db,))
        follower.start()
        finish(follower)
        assert read(connection, tenant).ends > found.ends
        return found

    monkeypatch.setattr(stores, "require_store", read_and_be_overtaken)
    assert db.history.stop().state == "stopped"
    assert db.history.status().ends == newest(db)


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.on_each_engine
def test_a_directory_may_go_away_while_it_is_looked_through(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, place = logged(workspace), tmp_path / "store"
    begin(db, place)
    db.table("items").insert(id=1, title="a")
    flush(db)
    iterdir = Path.iterdir

    def list_what_goes_away(path: Path) -> Iterator[Path]:
        if path == place / "1" / "1" and place.exists():
            place.rename(tmp_path / "away")
        return iterdir(path)

    with hold_store(db._storage, 1, Owner.here()) as working:
        monkeypatch.setattr(Path, "iterdir", list_what_goes_away)
        assert delete_orphans(working) == 0
        assert not place.exists()
        (tmp_path / "away").rename(place)
        with pytest.raises(HistoryUnreachable):  # an erasure has to see every file
            delete_orphans(working, strict=True)


def test_the_log_is_kept_for_the_store_unless_it_is_given_up(
    workspace: Workspace, tmp_path: Path
) -> None:
    db = logged(workspace)
    begin(db, tmp_path / "store")
    db.table("items").insert(id=1, title="a")
    with pytest.raises(UsageError, match="some followers have not read"):
        db.change_log.prune(db.change_log.end())
    db.change_log.follower("zapdb.history").remove()
    db.change_log.prune(db.change_log.end())
    with hold_store(db._storage, 1, Owner.here()) as working, pytest.raises(ChangesPruned):
        HistoryFollower(working).step()
    status = db.history.status()
    assert (status.state, "pruned in front" in str(status.problem)) == ("broken", True)
    assert db.history.start().state == "baseline"
    db.table("items").insert(id=2, title="b")
    store = flush(db)
    assert (store.state, len(list_timelines(db._storage.connection(), 1))) == ("follows", 2)
    assert stored_state(db, newest(db)) == current_state(db)


def test_a_directory_of_something_else_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    db = logged(workspace)
    with pytest.raises(UsageError, match="needs a directory"):
        db.history.start()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="this is a file"):
        db.history.start(tmp_path / "file")
    footer = FileFooter(
        1, "another", 1, "7" * 32, "moments", 0, "", 0, 1, 1, "1.1.0.1.0.", 0, 0, 0, 1
    )
    write_file(tmp_path / "store", (footer, None), [pyarrow.table({"moment": [1]})], lambda: None)
    with pytest.raises(UsageError, match="of another database"):
        db.history.start(tmp_path / "store")
    for mark in "*?[":
        with pytest.raises(UsageError, match="characters of a pattern") as caught:
            db.history.start(tmp_path / f"a{mark}b" / "store")
        assert caught.value.context["characters"] == mark
    for character in ("\n", "\x1b", "\u202e", "\udc80"):
        with pytest.raises(UsageError, match="characters that are not printable"):
            db.history.start(tmp_path / f"a{character}b" / "store")
    assert not list(tmp_path.glob("a*b"))
    with pytest.raises(UsageError, match="no history store"):
        db.history.status()
