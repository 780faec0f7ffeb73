"""Pruning the change log: what goes, what stays readable, who is told, and who is in the way."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests import processes
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.contract.test_changes import Hand, tell, tell_all
from tests.support import (
    GUARD_SECONDS,
    ROOT,
    Workspace,
    finish,
    has_waiting_session,
    wait_until,
)
from zapdb.catalog.schema_history import read_entries
from zapdb.database import (
    Database,
    RecordChange,
    SchemaEvent,
)
from zapdb.errors import ChangesPruned, TransactionConflict, UsageError
from zapdb.log import (
    change_log,
    change_log_pruning,
    pending_changes,
)
from zapdb.log.change_log import START
from zapdb.past.schema_history_pruning import PruneBound, plan_pruning, prune
from zapdb.storage import (
    TransactionMode,
)
from zapdb.tables import (
    changes_pruning,
)
from zapdb.tables.changes import open_log

Made = RecordChange | SchemaEvent
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
TO_COME = datetime(2200, 1, 1, tzinfo=UTC)
BOTH_AND_UNSEEN = pytest.mark.parametrize(
    ("engine", "looks"), [("sqlite", True), ("postgresql", True), ("postgresql", False)]
)
"""On PostgreSQL with and without somebody who looks, and so gives timestamps, in between."""


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    return db


def write_some(db: Database, looks: bool = True) -> list[Made]:
    """Some transactions of one and of several records; the whole log."""
    items = db.table("items")
    for n in range(4):
        with db.transaction():
            items.insert_many({"id": 10 * n + m, "title": f"{n}.{m}"} for m in range(3))
        items.insert(id=10 * n + 5, title="y")
        if looks:
            db.change_log.end()
        items.update(10 * n + 5, title="z")
    return list(db.change_log.read())


def count_rows(workspace: Workspace) -> dict[str, int]:
    """Transactions are counted that have changes; those with the stamp of the beginning stay."""
    logged = "SELECT tenant, transaction_number FROM zapdb_changes"
    counted = {
        "changes": workspace.execute("SELECT count(*) FROM zapdb_changes")[0][0],
        "stamps": workspace.execute("SELECT count(*) FROM zapdb_stamps")[0][0],
        "transactions": workspace.execute(
            f"SELECT count(*) FROM zapdb_transactions WHERE (tenant, number) IN ({logged})"
        )[0][0],
    }
    orphans = "SELECT count(*) FROM zapdb_changes AS c WHERE NOT EXISTS (SELECT 1 FROM"
    orphans += " zapdb_transactions AS t WHERE t.tenant = c.tenant"
    orphans += " AND t.number = c.transaction_number)"
    return counted | {"orphans": workspace.execute(orphans)[0][0]}


# What goes


@BOTH_AND_UNSEEN
@pytest.mark.on_each_engine
def test_rule_29_whole_transactions_before_a_bookmark_are_pruned(
    workspace: Workspace, db: Database, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log_pruning, "PRUNE_BATCH_CHANGES", 2)
    whole = write_some(db, looks)
    assert len(whole) == 1 + 4 * 5
    at = 1 + 5 + 1  # the second of three changes of one transaction
    assert whole[at].transaction == whole[at - 1].transaction == whole[at + 1].transaction
    planned = db.change_log.prune(whole[at].bookmark, dry_run=True)
    assert (planned.changes, planned.behind) == (6, ())
    assert list(db.change_log.read()) == whole
    done = db.change_log.prune(str(whole[at].bookmark))
    assert (done.changes, done.beginning) == (6, whole[5].bookmark)
    assert db.change_log.begin() == whole[5].bookmark == planned.beginning
    assert list(db.change_log.read()) == whole[6:]
    assert db.change_log.prune(whole[2].bookmark).changes == 0  # it never goes back
    assert db.change_log.prune(START).beginning == whole[5].bookmark
    pruning = change_log_pruning.ChangeLogPruning(open_log(db._session))
    with db._storage.transaction(TransactionMode.WRITE) as connection:  # as one that looked before
        pruning.write_beginning(connection, whole[3].bookmark)
    assert db.change_log.begin() == whole[5].bookmark
    assert db.change_log.prune(whole[8].bookmark).changes == 3
    assert list(db.change_log.read()) == whole[9:]
    rows = count_rows(workspace)
    assert (rows["changes"], rows["transactions"], rows["orphans"]) == (12, 8, 0)


@BOTH_AND_UNSEEN
def test_rule_29_what_was_made_before_a_moment_is_pruned(
    workspace: Workspace, db: Database, looks: bool
) -> None:
    whole = write_some(db, looks)
    assert db.change_log.prune(LONG_AGO).changes == 0
    assert db.change_log.begin() == START
    for at in (12, 18):
        moment = whole[at].made_at
        kept = next(n for n, made in enumerate(whole) if made.made_at >= moment)
        db.change_log.prune(moment)
        assert list(db.change_log.read()) == whole[kept:]
    # In another zone it is the same moment.
    zone = whole[18].made_at.astimezone(tz=None).tzinfo
    assert db.change_log.prune(whole[18].made_at.astimezone(zone)).changes == 0


@pytest.mark.on_each_engine
def test_rule_29_a_pruned_log_can_be_empty_and_goes_on(workspace: Workspace, db: Database) -> None:
    last = write_some(db)[-1]
    end = db.change_log.end()
    follower = db.change_log.follower("me")
    follower.advance(end)
    assert db.change_log.prune(TO_COME).changes == 21
    assert count_rows(workspace)["transactions"] == 0
    for place in (None, last.bookmark, end, db.change_log.end(), db.change_log.begin()):
        assert tell_all(db, place) == []
    assert list(follower.changes()) == []
    db.table("items").insert(id=77, title="new")
    for place in (None, last.bookmark, end):
        assert tell_all(db, place) == [("insert", 77, None, "new")]
    (status,) = db.change_log.followers()
    assert (status.name, status.lag.changes) == ("me", 1)
    (made,) = follower.changes()
    assert made.stamp > last.stamp
    assert made.transaction > last.transaction


@pytest.mark.long_on("postgresql")
def test_rule_29_the_log_of_another_tenant_stays(workspace: Workspace, db: Database) -> None:
    db.admin.create_tenant("acme")
    with db.for_tenant("acme") as acme:
        kept = write_some(acme)
        write_some(db)
        db.change_log.prune(TO_COME)
        assert tell_all(db) == []
        assert list(acme.change_log.read()) == kept
        assert acme.change_log.begin() == START


@pytest.mark.long_on("postgresql")
def test_rule_29_what_can_not_be_pruned_is_refused(workspace: Workspace, db: Database) -> None:
    whole = write_some(db)
    with pytest.raises(UsageError, match="needs a time zone"):
        db.change_log.prune(datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="this is not a bookmark"):
        db.change_log.prune("yesterday")
    with pytest.raises(UsageError, match="is beyond the end"):
        db.change_log.prune("1.9999.0.1.1.80")
    for block in (db.transaction, db.snapshot):
        with block(), pytest.raises(UsageError, match="cannot be pruned inside"):
            db.change_log.prune(TO_COME)
    with pytest.raises(UsageError, match="read-only"):
        workspace.open(apply="never", read_only=True).change_log.prune(TO_COME)
    assert list(db.change_log.read()) == whole


# Who reads


def test_rule_29_a_bookmark_before_what_was_pruned_is_refused(
    workspace: Workspace, db: Database
) -> None:
    whole = write_some(db)
    db.change_log.prune(whole[10].bookmark)
    for at, made in enumerate(whole):
        if at < 10:
            with pytest.raises(ChangesPruned) as caught:
                list(db.change_log.read(made.bookmark))
            assert "db.change_log.begin()" in caught.value.hint
        else:
            assert list(db.change_log.read(made.bookmark)) == whole[at + 1 :]
    with pytest.raises(ChangesPruned):
        list(db.change_log.read(START))
    assert (
        list(db.change_log.read(db.change_log.begin())) == list(db.change_log.read()) == whole[11:]
    )
    reading = workspace.open(apply="never", read_only=True)
    assert list(reading.change_log.read()) == whole[11:]
    with pytest.raises(ChangesPruned):
        list(reading.change_log.read(whole[3].bookmark))


@pytest.mark.on_each_engine
def test_rule_29_who_pages_through_what_is_pruned_meanwhile_is_told(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "CHANGES_PAGE", 4)
    monkeypatch.setattr(change_log, "CHUNK_FIRST", 1)
    monkeypatch.setattr(change_log, "STAMPS_PAGE", 2)
    write_some(db)
    with db.transaction():
        db.table("items").insert_many({"id": 100 + n, "title": "x"} for n in range(11))
    db.table("items").insert(id=200, title="last")
    whole, beside = list(db.change_log.read()), workspace.open()

    def read(first: int, last: int, upto: int) -> None:
        """From one change up to another one; then what follows is pruned."""
        reader = db.change_log.read(whole[first - 1].bookmark)
        seen = list(itertools.islice(reader, last - first))
        beside.change_log.prune(whole[upto].bookmark)
        with pytest.raises(ChangesPruned):
            seen.extend(reader)
        assert seen == whole[first : first + len(seen)]  # nothing is missing in between
        assert len(seen) < upto + 1 - first

    read(first=1, last=3, upto=12)
    read(first=13, last=13, upto=16)  # before it has read anything
    read(first=20, last=24, upto=31)  # in the midst of a large transaction
    read(first=32, last=32, upto=32)
    assert list(db.change_log.read()) == []


def test_rule_29_who_is_ahead_of_the_pruning_is_not_disturbed(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "CHANGES_PAGE", 4)
    monkeypatch.setattr(change_log, "CHUNK_FIRST", 1)
    monkeypatch.setattr(change_log, "STAMPS_PAGE", 2)
    whole, beside = write_some(db), workspace.open()
    follower, seen = db.change_log.follower("me"), []
    for made in follower.changes():
        seen.append(made)
        follower.advance(made.bookmark)
        beside.change_log.prune(follower.bookmark)
    assert seen == whole
    assert tell_all(db) == []


@pytest.mark.on_each_engine
def test_rule_29_a_snapshot_has_the_log_of_its_moment(workspace: Workspace, db: Database) -> None:
    whole, beside = write_some(db), workspace.open()
    with db.snapshot():
        seen = list(itertools.islice(db.change_log.read(), 2))
        run_beside(lambda: beside.change_log.prune(TO_COME))
        assert list(db.change_log.read()) == whole
        assert list(db.change_log.read(seen[-1].bookmark)) == whole[2:]
        assert db.change_log.begin() == START
    assert list(db.change_log.read()) == []


def run_beside(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    finish(thread)
    assert not thread.is_alive()


# Followers


def test_rule_29_what_a_follower_has_not_seen_is_not_pruned(
    workspace: Workspace, db: Database
) -> None:
    whole = write_some(db)
    slow, dead = db.change_log.follower("slow"), db.change_log.follower("dead")
    slow.advance(whole[8].bookmark)
    dead.advance(whole[3].bookmark)
    assert db.change_log.prune(TO_COME, dry_run=True).behind == ("dead", "slow")
    with pytest.raises(UsageError, match="have not read all") as caught:
        db.change_log.prune(TO_COME)
    assert caught.value.context["followers"] == "dead, slow"
    assert "zapdb changes remove-follower dead" in caught.value.hint
    assert list(db.change_log.read()) == whole
    assert db.change_log.prune(whole[3].bookmark).beginning == whole[3].bookmark
    with pytest.raises(UsageError, match="have not read all"):
        db.change_log.prune(whole[4].bookmark)
    dead.remove()
    db.change_log.prune(whole[8].bookmark)
    assert list(slow.changes()) == list(db.change_log.read()) == whole[9:]
    assert [status.name for status in db.change_log.followers()] == ["slow"]
    assert 'follower="slow"' in db.admin.metrics()
    assert 'follower=""' not in db.admin.metrics()
    slow.advance(db.change_log.end())
    db.change_log.prune(TO_COME)
    assert tell_all(db) == []


def test_rule_29_a_follower_can_not_stand_before_what_was_pruned(
    workspace: Workspace, db: Database
) -> None:
    whole = write_some(db)
    me, new = db.change_log.follower("me"), db.change_log.follower("new")
    me.advance(whole[10].bookmark)
    db.change_log.prune(whole[10].bookmark)
    with pytest.raises(ChangesPruned):
        me.advance(whole[9].bookmark)
    assert me.bookmark == whole[10].bookmark
    with pytest.raises(ChangesPruned):  # it never stood anywhere: it would miss what went
        list(new.changes())
    new.advance(db.change_log.begin())
    assert list(new.changes()) == whole[11:]


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_29_a_follower_that_moves_back_while_it_is_pruned_sees_it(
    workspace: Workspace, db: Database
) -> None:
    """Its transaction began before the pruning, and ends after it."""
    whole = write_some(db)
    follower, beside = db.change_log.follower("me"), workspace.open()
    follower.advance(db.change_log.end())
    with pytest.raises(TransactionConflict), db.transaction():  # noqa: PT012 - all of it
        follower.advance(whole[4].bookmark)
        run_beside(lambda: beside.change_log.prune(TO_COME))
    assert beside.change_log.begin() == whole[-1].bookmark
    assert list(follower.changes()) == []


# Who writes, and who prunes, too


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_29_what_a_transaction_under_way_has_written_is_not_pruned(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number is lower than those that go, and some of its changes are there already."""
    monkeypatch.setattr(pending_changes, "CHANGES_PENDING_MAX", 2)
    long = Hand(db)
    long.begin()
    long.do(lambda: long.items.insert_many({"id": n, "title": "long"} for n in range(5)))
    db.table("items").insert(id=50, title="short")
    db.table("items").insert(id=51, title="short")
    assert db.change_log.prune(TO_COME).changes == 3
    long.commit()
    long.stop()
    assert db.change_log.prune(db.change_log.begin()).changes == 0  # its number alone is lower
    assert tell_all(db) == [("insert", n, None, "long") for n in range(5)]
    assert db.change_log.prune(TO_COME).changes == 5


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_29_who_commits_after_the_pruning_with_an_older_position_is_told(
    workspace: Workspace, db: Database
) -> None:
    items = db.table("items")
    items.insert(id=1, title="a")
    whole = list(db.change_log.read())
    slow = workspace.connect().connection()
    number = "pg_current_xact_id()::text::bigint"
    slow.run("BEGIN")
    slow.run(
        "INSERT INTO zapdb_changes SELECT tenant, " + number + ", table_number, key, event, before,"
        " after FROM zapdb_changes WHERE event IS NULL"
    )
    slow.run(
        f"INSERT INTO zapdb_transactions SELECT 1, {number}, nextval('zapdb_commit_order'), 'x', 0"
    )
    items.insert(id=2, title="b")
    assert db.change_log.prune(TO_COME).changes == len(whole) + 1
    slow.run("COMMIT")
    assert db.change_log.prune(db.change_log.begin()).changes == 0
    (made,) = db.change_log.read(db.change_log.begin())
    assert (tell(made), made.principal) == (("insert", 1, None, "a"), "x")
    assert made.bookmark.commit_order < db.change_log.begin().commit_order
    # It was made long before, and has a stamp of now.
    assert db.change_log.prune(made.stamped_at - timedelta(days=1)).changes == 1


@pytest.mark.on_each_engine
def test_rule_29_pruning_goes_on_beside_writers_followers_and_another_pruning(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log_pruning, "PRUNE_BATCH_CHANGES", 3)
    stop, failed, told, pruned = (
        threading.Event(),
        list[BaseException](),
        list[RecordChange](),
        [0, 0],
    )

    def guarded(work: Callable[[Database], None]) -> threading.Thread:
        def run() -> None:
            try:
                work(workspace.open())
            except BaseException as error:
                failed.append(error)
                raise

        return threading.Thread(target=run)

    def write(mine: Database) -> None:
        draw, items = random.Random(1), mine.table("items")
        while not stop.is_set():
            with suppress(TransactionConflict), mine.transaction():
                for _ in range(draw.choice([1, 1, 2, 9])):
                    items.upsert(id=draw.randrange(20), title=f"{draw.random():.4f}")
            time.sleep(draw.choice([0, 0.01]))

    def follow(mine: Database) -> None:
        follower = mine.change_log.follower("me")
        while True:
            is_last = stop.is_set() and not any(w.is_alive() for w in writers)
            for made in follower.changes():
                if isinstance(made, RecordChange):
                    told.append(made)
                follower.advance(made.bookmark)
            if is_last:
                return

    def prune_at(at: int) -> Callable[[Database], None]:
        def work(mine: Database) -> None:
            while not stop.is_set():
                pruned[at] += mine.change_log.prune(mine.change_log.follower("me").bookmark).changes

        return work

    writers = [guarded(write), guarded(write)]
    threads = [*writers, guarded(follow), guarded(prune_at(0)), guarded(prune_at(1))]
    for thread in threads:
        thread.start()
    wait_until(lambda: failed or (sum(pruned) > 60 and len(told) > 100), "some went")
    stop.set()
    for thread in threads:
        finish(thread)
        assert not thread.is_alive()
    assert failed == []
    state: dict[int, Any] = {}
    for made in told:  # each begins where the one before has ended: none was missed
        assert state.get(made.key[0]) == made.before
        state[made.key[0]] = made.after
    assert {r.id: r for r in db.table("items").scan()} == state
    left = len(list(db.change_log.read()))
    sum_told = left + sum(pruned)
    db.change_log.prune(TO_COME)
    assert sum_told == len(told) + 1
    rows = count_rows(workspace)
    assert (rows["changes"], rows["transactions"], rows["orphans"]) == (0, 0, 0)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_29_two_that_prune_take_turns(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the other one is deleting is not taken for gone."""
    monkeypatch.setattr(change_log_pruning, "PRUNE_BATCH_CHANGES", 2)
    db.table("items").insert_many({"id": n, "title": "x"} for n in range(9))
    beside, done = workspace.open(), list[int]()
    prune_all = threading.Thread(
        target=lambda: done.append(beside.change_log.prune(TO_COME).changes)
    )
    pruning = change_log_pruning.ChangeLogPruning(open_log(db._session))
    place = list(db.change_log.read())[-1].bookmark
    with db._storage.transaction(TransactionMode.WRITE) as connection:
        pruning.write_beginning(connection, place)
    with db._storage.transaction(TransactionMode.JOB) as connection:
        mine = pruning.delete_some(connection, 0).changes
        prune_all.start()
        wait_until(lambda: has_waiting_session(workspace), "the other one waits")
    finish(prune_all)
    assert (mine, done) == (2, [8])
    rows = count_rows(workspace)
    assert (rows["changes"], rows["transactions"], rows["orphans"]) == (0, 0, 0)


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.on_each_engine
def test_rule_29_pruning_leaves_time_to_the_writers_of_other_processes(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no queue between processes: who comes back at once has the one place always."""
    monkeypatch.setattr(change_log_pruning, "PRUNE_BATCH_CHANGES", 30)
    items, pauses = db.table("items"), list[float]()
    items.insert_many({"id": n, "title": "x"} for n in range(300))
    beside = workspace.open()

    def write_meanwhile(seconds: float) -> None:
        pauses.append(seconds)
        run_beside(lambda: beside.table("items").update(1, title="y"))

    clock = SimpleNamespace(monotonic=itertools.count().__next__, sleep=write_meanwhile)
    monkeypatch.setattr(changes_pruning, "time", clock)
    assert db.change_log.prune(TO_COME).changes > 300
    assert pauses == [1] * (len(pauses))  # as long as the batch took
    assert len(pauses) >= 10


KILLED = """
import os, signal, sys, zapdb
from datetime import UTC, datetime
from zapdb.log import change_log_pruning
change_log_pruning.PRUNE_BATCH_CHANGES = 3
delete, calls = change_log_pruning.ChangeLogPruning.delete_some, []
def die(self, *given):
    calls.append(1)
    done = delete(self, *given)
    if len(calls) == 5:  # in the midst of a transaction
        os.kill(os.getpid(), signal.SIGKILL)
    return done
change_log_pruning.ChangeLogPruning.delete_some = die
zapdb.open(sys.argv[1]).change_log.prune(datetime(2200, 1, 1, tzinfo=UTC))
"""


@pytest.mark.on_each_engine
def test_rule_29_a_pruning_that_was_killed_is_gone_on_with(
    workspace: Workspace, db: Database
) -> None:
    whole = write_some(db)
    command = [sys.executable, "-c", KILLED, workspace.address]
    killed = processes.run(command, cwd=ROOT, capture_output=True, timeout=GUARD_SECONDS, text=True)
    assert killed.returncode == -9, killed.stderr
    assert 0 < count_rows(workspace)["changes"] < 21
    assert tell_all(db) == []
    for made in whole[:-1]:
        with pytest.raises(ChangesPruned):
            list(db.change_log.read(made.bookmark))
    db.table("items").insert(id=77, title="new")
    assert tell_all(db, whole[-1].bookmark) == tell_all(db) == [("insert", 77, None, "new")]
    left = count_rows(workspace)["changes"] - 1
    assert db.change_log.prune(LONG_AGO, dry_run=True).changes == left
    assert db.change_log.prune(LONG_AGO).changes == left
    rows = count_rows(workspace)
    assert (rows["changes"], rows["transactions"], rows["orphans"]) == (1, 1, 0)
    assert tell_all(db) == [("insert", 77, None, "new")]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_29_timestamps_that_nobody_needs_go_too(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log_pruning, "PRUNE_BATCH_CHANGES", 4)
    items = db.table("items")
    for n in range(12):
        items.upsert(id=1, title=str(n))
        db.change_log.end()
    whole = list(db.change_log.read())
    db.change_log.prune(whole[9].bookmark)
    kept = [number for (number,) in workspace.execute("SELECT number FROM zapdb_stamps")]
    assert min(kept) == whole[9].stamp - 1
    assert list(db.change_log.read(whole[9].bookmark)) == whole[10:]


# What looks after the rest


@pytest.mark.long_on("postgresql")
@pytest.mark.on_each_engine
def test_rule_29_what_stays_is_decoded_under_the_schema_of_its_time(
    workspace: Workspace, db: Database
) -> None:
    items, large = db.table("items"), "x" * 9_000
    items.insert(id=1, title="a", note=large)
    items.insert(id=2, title="b")
    items.update(1, note="small")
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    items = db.table("items")
    items.update(2, title="c")
    items.delete(1)
    whole = list(db.change_log.read())
    assert [tell(made)[0] for made in whole][3:7] == ["update", "activation", "change", "update"]
    db.change_log.prune(whole[2].bookmark)
    assert list(db.change_log.read()) == whole[3:]
    assert next(iter(db.change_log.read())).before.note == large
    time.sleep(0.01)  # blobs of this very millisecond are left alone
    assert db.admin.sweep(older_than_seconds=0).unowned == 0
    entries = list(read_entries(db._storage.connection(), db._catalog.tenant, 1))
    assert _plan(db, entries).required_by != ()
    # Once the changes of the first revision are gone, nothing needs it, nor the large value.
    db.change_log.prune(whole[5].bookmark)
    assert [repr(made.after) for made in db.change_log.read()] == [
        "items(id=2, title='c', size=0, note=None, color='red')",
        "None",
    ]
    assert db.admin.sweep(older_than_seconds=0).unowned == 1
    planned = _plan(db, entries)
    assert planned.required_by == ()
    prune(db._storage, planned)
    assert len(tell_all(db)) == 2
    assert [report.problems for report in db.admin.verify()] == [()]


def _plan(db: Database, entries: Any) -> Any:
    with db._storage.transaction(TransactionMode.READ) as connection:
        return plan_pruning(connection, entries, PruneBound(keep_last=1))
