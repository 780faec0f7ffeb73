"""Open databases follow the catalog: views, callbacks, settings, and jobs in the background."""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import zapdb
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, DROP_NOTE, INDEX_SIZE, ITEMS
from tests.support import GUARD_SECONDS, Workspace, finish, wait_until
from zapdb.activation import rollback
from zapdb.catalog import cache, feed
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.row_kinds import KINDS, SettingRow, Tenant
from zapdb.database.catalog_watch import CatalogChange, ChangedRows
from zapdb.errors import CatalogBehind, IncompatibleVersion, UnknownName, UsageError
from zapdb.storage import TransactionMode


@pytest.mark.on_each_engine
def test_rule_30_a_change_is_seen_by_all_who_wait_for_its_token(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    first, second = workspace.open(), workspace.open()
    assert first.admin.catalog().position == 1
    for value in ("write_back", "leave", None, "write_back"):
        seq = first.admin.set_setting("on_read", value)
        assert seq <= first.admin.catalog_seq()
        views = [db.admin.wait_for_catalog(seq) for db in (first, second)]
        assert views[0].seq >= seq
        assert views[0].cache.to_bytes() == views[1].cache.to_bytes()
        row = views[1].cache.get(SettingRow, "*/*/*", "on_read")
        assert row == (None if value is None else SettingRow("*/*/*", "on_read", value))


@pytest.mark.long_on("sqlite")
@pytest.mark.on_each_engine
def test_rule_30_processes_have_byte_equal_views_at_one_token(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    others = [workspace.start("follow") for _ in range(2)]
    try:
        for other in others:
            assert other.stdout.readline() == "open\n"
        for number in range(5):
            seq = db.admin.set_setting("job_records_per_second", str(number + 1))
            mine = hashlib.sha256(db.admin.wait_for_catalog(seq).cache.to_bytes()).hexdigest()
            for other in others:
                other.stdin.write(f"{seq}\n")
                other.stdin.flush()
                assert other.stdout.readline() == f"{seq} {mine}\n"
    finally:
        for other in others:
            other.communicate(timeout=GUARD_SECONDS)
    with db._storage.transaction(TransactionMode.READ) as connection:
        loaded = cache.load_cache(connection)
    assert db.admin.wait_for_catalog(loaded.seq).cache.to_bytes() == loaded.to_bytes()


@pytest.mark.on_each_engine
def test_waiting_for_a_token_ends(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    seq = db.admin.catalog_seq()
    assert db.admin.wait_for_catalog(seq).seq == seq
    started = time.monotonic()
    with pytest.raises(CatalogBehind, match="has not seen a change") as caught:
        db.admin.wait_for_catalog(seq + 1, timeout_seconds=0.2)
    assert time.monotonic() - started >= 0.2
    assert caught.value.context == {"seq": seq + 1, "seen": seq, "waited_seconds": 0.2}
    waiting = threading.Thread(target=lambda: errors.append(wait()))
    errors: list[type[BaseException]] = []

    def wait() -> type[BaseException]:
        with pytest.raises(UsageError, match="the database is closed") as closed:
            db.admin.wait_for_catalog(seq + 1, timeout_seconds=GUARD_SECONDS)
        return closed.type

    waiting.start()
    wait_until(lambda: db._node_context.watcher._changed._waiters, "it waits")
    db.close()
    finish(waiting)
    assert errors == [UsageError]
    with pytest.raises(UsageError, match="the database is closed"):
        db.admin.wait_for_catalog(seq + 1)


@pytest.mark.on_each_engine
def test_rule_30_callbacks_hear_of_schema_changes(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    heard: list[tuple[CatalogChange, int]] = []

    def fail(change: CatalogChange) -> None:
        raise ZeroDivisionError

    def hear(change: CatalogChange) -> None:
        heard.append((change, db.position))

    for callback in (fail, hear):
        end = db.on_catalog_change(callback, kinds=["tenant", "index", "constraint"])
    db.admin.set_setting("on_read", "leave")  # is none
    workspace.write(2, ADD_COLOR)
    other = workspace.open()
    wait_until(lambda: heard, "the callback was called")
    ((change, position),) = heard
    assert (change.kind, change.key, change.tenant, position) == ("tenant", "1", 1, 2)
    assert isinstance(change.before, Tenant)
    assert isinstance(change.after, Tenant)
    assert (change.before.position, change.after.position) == (1, 2)
    assert change.seq <= db.admin.catalog().seq
    assert "a callback of on_catalog_change failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    end()
    end()
    workspace.write(3, ADD_WEIGHT)
    workspace.open()
    db.admin.wait_for_catalog(other.admin.catalog_seq())
    time.sleep(0.05)
    assert len(heard) == 1


@pytest.mark.on_each_engine
def test_rule_30_callbacks_hear_of_whatever_the_process_learns(workspace: Workspace) -> None:
    """Each row that another process writes, in the order of seqs; the last of all says that the
    others were told."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    every, mine, settings = list[CatalogChange](), list[CatalogChange](), list[CatalogChange]()
    db.on_catalog_change(every.append, all_tenants=True)
    db.on_catalog_change(mine.append)
    db.on_catalog_change(settings.append, kinds="setting")
    with pytest.raises(UnknownName, match="no such kind"):
        db.on_catalog_change(every.append, kinds=["schema"])  # type: ignore[list-item]  # no kind
    with workspace.open() as other:
        seq = other.admin.set_setting("on_read", "write_back", table="items")
        db.admin.wait_for_catalog(seq)  # else it comes and goes in one step
        other.admin.create_tenant("acme")
        other.for_tenant("acme").table("items").insert(id=1, title="Milk")
        other.table("items").insert(id=1, title="Milk")
        other.admin.set_setting("on_read", "leave", tenant="acme")
        workspace.write(2, INDEX_SIZE)
        with workspace.open() as third:
            third.admin.run_jobs()
        other.admin.set_setting("on_read", None, table="items")
    last = db.admin.set_setting("job_records_per_second", "7")
    wait_until(lambda: any(change.seq == last for change in every), "the last change was told")
    assert [change.seq for change in every] == sorted(change.seq for change in every)
    told = {(change.kind, change.tenant) for change in every}
    assert told >= {
        *(("setting", 2), ("setting", None), ("tenant", 1), ("tenant", 2)),
        *(("tenant-name", 2), ("node", None), ("index", 1), ("job", 1), ("chain", None)),
    }
    assert {(change.kind, change.tenant) for change in mine} == {
        (kind, tenant) for kind, tenant in told if tenant != 2
    }
    assert {change.kind for change in settings} == {"setting"}
    assert {change.tenant for change in settings} == {None}
    final = {(change.kind, change.key): change for change in every}
    rows = db.admin.catalog().cache
    for (kind, key), change in final.items():
        assert change.after == rows.get(KINDS[kind], key)
        assert rows.seqs[kind, key] == change.seq
    assert final["setting", "*/1/*/on_read"].after is None
    with db._storage.transaction(TransactionMode.READ) as connection:
        fed = [
            (row.kind, row.key, row.text is None)
            for row in feed.read_changed_rows(connection, 1 << 28)
        ]
    assert {(kind, key) for kind, key, is_deleted in fed if is_deleted} >= {
        (kind, key) for (kind, key), change in final.items() if change.after is None
    }


@pytest.mark.on_each_engine
def test_rule_30_the_tables_of_a_catalog_are_as_new_as_its_token(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=1, title="Milk")
    assert [state.schema.name for state in db.admin.catalog().tables] == ["items"]
    workspace.write(2, INDEX_SIZE)
    other = workspace.open()
    other.admin.run_jobs()
    (state,) = db.admin.wait_for_catalog(other.admin.catalog_seq()).tables
    assert [(index.index.name, index.state) for index in state.indexes] == [("by_size", "readable")]


SET = '{"format":1,"name":"on_read","scope":"*/*/*","value":"leave"}'


@pytest.mark.on_each_engine
def test_a_catalog_that_can_not_be_followed_is_told_and_tried_again(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    seq = db.admin.set_setting("on_read", "leave")
    db.admin.wait_for_catalog(seq)
    store_setting(workspace, "dance", seq + 1)
    with pytest.raises(IncompatibleVersion, match="a word that this release does not know"):
        db.admin.wait_for_catalog(seq + 1)
    assert db.admin.catalog().seq == seq
    assert "the catalog could not be followed" in caplog.text
    store_setting(workspace, "write_back", seq + 1)
    assert db.admin.wait_for_catalog(seq + 1).seq == seq + 1


def store_setting(workspace: Workspace, value: str, seq: int) -> None:
    """Change the setting as nobody may; the number comes last, since it is what is looked at."""
    update = "UPDATE zapdb_catalog SET value = ?, seq = ? WHERE kind = 'setting'"
    workspace.execute(update, (SET.replace("leave", value), seq))
    workspace.execute("UPDATE zapdb_counters SET value = ? WHERE name = 'seq'", (seq,))


class Pause:
    """Holds the first step of the watcher that it hears of."""

    def __init__(self) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()

    def on_change(self, cache: CatalogCache, changed: ChangedRows) -> None:
        self.reached.set()
        assert self.go_on.wait(GUARD_SECONDS)

    def stop(self) -> None:
        self.go_on.set()


@pytest.mark.on_each_engine
def test_who_waits_is_not_told_what_was_repaired_before(workspace: Workspace) -> None:
    """The step under way has read the wrong value; the one that is waited for has not."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    seq = db.admin.set_setting("on_read", "leave")
    db.admin.wait_for_catalog(seq)
    watcher, pause = db._node_context.watcher, Pause()
    watcher._listeners.insert(0, pause)
    store_setting(workspace, "dance", seq + 1)
    assert pause.reached.wait(GUARD_SECONDS)
    store_setting(workspace, "write_back", seq + 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(db.admin.wait_for_catalog, seq + 1)
        wait_until(lambda: watcher._changed._waiters, "it waits")
        pause.go_on.set()
        assert waiting.result(GUARD_SECONDS).seq == seq + 1


# Jobs in the background


def stale(db: zapdb.Database) -> int:
    (state,) = db.admin.catalog().tables
    counts = db.admin.count_by_revision("items")
    return sum(count for revision, count in counts.items() if revision < state.layout_revision)


def fill(db: zapdb.Database, count: int) -> None:
    db.table("items").insert_many({"id": n, "title": f"title {n}"} for n in range(count))


def test_rule_14_production_converts_in_the_background(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    fill(db, 300)
    db.admin.set_setting("profile", "production")
    workspace.write(2, ADD_COLOR, INDEX_SIZE)
    other = workspace.open()
    db.admin.wait_for_catalog(other.admin.catalog_seq())
    wait_until(
        lambda: all(i.state == "readable" for i in db.admin.catalog().tables[0].indexes),
        "the index is built",
    )
    assert stale(db) == 300
    (job,) = [job for job in db.jobs.list() if job.kind == "convert" and job.state == "planned"]
    (wait,) = db.jobs.get(job.id).waits
    assert wait.startswith("left until ")
    assert wait.endswith(" by convert_after_seconds: `zapdb convert run` does not wait")
    db.admin.set_setting("convert_after_seconds", "0", table="items")
    wait_until(lambda: stale(db) == 0, "all records are converted")
    seq = other.admin.set_setting("profile", "development")
    for process in (db, other):
        process.admin.wait_for_catalog(seq)
    workspace.write(3, ADD_WEIGHT)
    db.admin.wait_for_catalog(workspace.open().admin.catalog_seq())
    time.sleep(0.1)
    assert stale(db) == 300


@pytest.mark.on_each_engine
def test_rule_14_a_rollback_within_the_hour_of_production_gives_back_what_was_lost(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("profile", "production")
    fill(db, 300)
    db.table("items").where().update(note="a note")
    before = list(db.table("items"))
    workspace.write(2, DROP_NOTE, INDEX_SIZE)
    with workspace.open() as other:
        wait_until(
            lambda: all(i.state == "readable" for i in other.admin.catalog().tables[0].indexes),
            "the background is through with what it may run",
        )
        assert stale(other) == 300
    db.close()
    workspace.remove(2)
    rollback.roll_back(workspace.connect())
    assert list(workspace.open().table("items")) == before


def test_rule_14_the_background_begins_a_conversion_when_its_time_has_come(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    fill(db, 300)
    db.admin.set_setting("convert", "background")
    db.admin.set_setting("convert_after_seconds", "2", table="items")
    workspace.write(2, ADD_COLOR)
    other = workspace.open()
    wait_until(lambda: stale(other) == 0, "all records are converted")
    now = other._storage.now_us(other._storage.connection())
    ((changed,),) = workspace.execute(
        "SELECT migrated_at FROM zapdb_schema_history WHERE revision = 2"
    )
    assert now - changed >= 2_000_000


@pytest.mark.on_each_engine
def test_rule_14_a_conversion_by_hand_does_not_wait(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    fill(db, 300)
    db.admin.set_setting("profile", "production")
    workspace.write(2, ADD_COLOR)
    other = workspace.open()
    other.admin.run_jobs()
    assert stale(other) == 0


@pytest.mark.on_each_engine
def test_rule_14_background_jobs_end_with_their_batch(workspace: Workspace) -> None:
    """When the database is closed, and when the setting is taken back; others go on at once."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    fill(db, 1000)
    db.admin.set_setting("job_records_per_second", "10", table="items")
    db.admin.set_setting("convert", "background")
    workspace.write(2, ADD_COLOR)
    other = workspace.open()
    wait_until(lambda: stale(other) < 1000, "it has begun")
    other.close()
    db.close()
    last = workspace.open()
    assert stale(last) > 200  # it takes 100 s for all of them
    seq = last.admin.set_setting("convert", "on_access")
    last.admin.wait_for_catalog(seq)
    last.admin.set_setting("job_records_per_second", None, table="items")
    held = "SELECT count(*) FROM zapdb_ranges WHERE state <> 'done' AND expires_at > 0"
    wait_until(lambda: workspace.execute(held) == [(0,)], "the range is given back, not expired")
    last.admin.run_jobs()
    assert stale(last) == 0


def test_rule_14_jobs_keep_to_the_records_a_second_that_are_set(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    fill(db, 300)
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    db.admin.set_setting("job_records_per_second", "600")
    started = time.monotonic()
    db.admin.run_jobs()
    assert time.monotonic() - started >= 0.45
    assert stale(db) == 0


def test_rule_14_a_table_is_written_back_where_others_are_not(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, ITEMS.replace("table: items", "table: others"))
    db = workspace.open()
    for name in ("items", "others"):
        db.table(name).insert(id=1, title="Milk")
    workspace.write(2, ADD_COLOR, ADD_COLOR.replace("table: items", "table: others"), INDEX_SIZE)
    db, other = workspace.open(), workspace.open()
    seq = db.admin.set_setting("on_read", "write_back", table="others")
    assert db.admin.setting("on_read", table="others") == "write_back"
    assert db.admin.setting("on_read", table="items") == db.admin.setting("on_read") == "leave"
    other.admin.wait_for_catalog(seq)
    for name in ("items", "others"):
        other.table(name).get(1)
    counts = [list(db.admin.count_by_revision(name)) for name in ("items", "others")]
    assert counts == [[1], [2]]
