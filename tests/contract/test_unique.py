"""Unique indexes: the database refuses what is there already, also while one is being built."""

from __future__ import annotations

import io
import itertools
import json
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.tables import ITEMS
from tests.lookups import between, find, starts_with
from tests.support import (
    WAYS,
    Faults,
    Way,
    Workspace,
    dump,
    error_of,
    finish,
    is_resolved,
    wait_until,
    writing,
)
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database, Table
from zapdb.errors import (
    CommitUnknown,
    RecordExists,
    RecordNotFound,
    TransactionConflict,
    UniqueViolation,
)
from zapdb.jobs import Job, plan_jobs
from zapdb.jobs.job_run import JobReport, run_job, run_locally
from zapdb.jobs.range_work import run_range
from zapdb.jobs.work_loading import load_work
from zapdb.records import asdict
from zapdb.storage import Storage
from zapdb.tables.commit_tokens import NEVER
from zapdb.tables.indexes.maintenance import IndexMaintainer, UniqueIndexMaintainer
from zapdb.tables.writes.write_plan import WritePlan

UNIQUE_SCAN = """\
create_table: {table: scans, key: [id], fields: [
      {name: id, type: integer},
      {name: scan, type: binary},
      {name: text, type: string, optional: true}]}"""
INDEX_SCAN = "create_index: {table: scans, index: one, unique: true, fields: [{field: scan}]}"
UNIQUE_TITLE = "create_index: {table: items, index: one, unique: true, fields: [{field: title}]}"
UNIQUE_NOTE = "create_index: {table: items, index: one, unique: true, fields: [{field: note}]}"
UNIQUE_FOLDED = """\
create_index: {table: items, index: one, unique: true, fields: [
      {field: title, collation: {locale: und, strength: primary}}]}"""
UNIQUE_BOTH = """\
create_index: {table: items, index: one, unique: true, fields: [
      {field: note, descending: true}, {field: title}]}"""


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, UNIQUE_TITLE)
    return workspace.open()


@pytest.fixture
def items(db: Database) -> Table:
    return db.table("items")


def contents(db: Database) -> list[dict[str, Any]]:
    return [asdict(record) for record in db.table("items").scan()]


def assert_clean(db: Database) -> None:
    for report in db.admin.verify():
        assert report.problems == ()
        assert report.building == ()


# Writers


def test_rule_25_a_value_that_is_there_is_refused_by_name(db: Database, items: Table) -> None:
    items.insert(id=1, title="Milk")
    with pytest.raises(UniqueViolation) as caught:
        items.insert(id=2, title="Milk")
    assert isinstance(caught.value, ValueError)
    assert caught.value.context == {
        "table": "items",
        "index": "one",
        "fields": "title",
        "values": "title='Milk'",
        "key": "2",
        "in_the_way": "1",
    }
    assert caught.value.hint.startswith("use other values")
    assert items.count() == 1
    items.insert(id=2, title="Bread")
    with pytest.raises(UniqueViolation) as caught:
        items.update(2, title="Milk", size=7)
    assert (caught.value.context["key"], caught.value.context["in_the_way"]) == ("2", "1")
    assert items.get(2).size == 0
    assert_clean(db)


def test_rule_25_a_key_that_is_there_is_another_error(items: Table) -> None:
    items.insert(id=1, title="Milk")
    with pytest.raises(RecordExists):
        items.insert(id=1, title="Milk")
    with pytest.raises(RecordExists):
        items.insert_many([{"id": 1, "title": "Bread"}])


def test_rule_25_a_value_is_free_when_its_record_is_gone(db: Database, items: Table) -> None:
    items.insert(id=1, title="Milk")
    items.update(1, title="Milk", size=2)
    items.update(1, title="Bread")
    items.insert(id=2, title="Milk")
    items.delete(1)
    items.update(2, title="Bread")
    items.insert(id=1, title="Milk")
    assert_clean(db)


@pytest.mark.on_each_engine
def test_rule_25_an_operation_that_was_refused_leaves_its_transaction_in_use(
    db: Database, items: Table
) -> None:
    items.insert(id=1, title="Milk")
    with db.transaction():
        items.insert(id=2, title="Bread")
        with pytest.raises(UniqueViolation):
            items.insert(id=3, title="Milk")
        with pytest.raises(UniqueViolation):
            items.update(2, title="Milk")
        with pytest.raises(UniqueViolation):
            items.insert_many([{"id": 4, "title": "Eggs"}, {"id": 5, "title": "Bread"}])
        items.delete(1)
        items.insert(id=3, title="Milk")
    assert [(r.id, r.title) for r in items.scan()] == [(2, "Bread"), (3, "Milk")]
    assert_clean(db)


@pytest.mark.parametrize(("at", "way"), [(1_500, 7), (1_500, 1_400)])
@pytest.mark.on_each_engine
def test_rule_25_of_a_batch_none_is_inserted_and_the_offender_is_named(
    db: Database, items: Table, at: int, way: int
) -> None:
    if way == 7:
        items.insert(id=7, title="title 1500")
    rows = [{"id": 10_000 + n, "title": f"title {n}"} for n in range(1_700)]
    if way != 7:
        rows[way]["title"] = f"title {at}"
    with pytest.raises(UniqueViolation) as caught:
        items.insert_many(rows)
    assert caught.value.hint == "none was inserted"
    assert caught.value.context["values"] == f"title='title {at}'"
    named = {caught.value.context["key"], caught.value.context["in_the_way"]}
    assert named == {str(10_000 + at), str(7 if way == 7 else 10_000 + way)}
    assert items.count() == (1 if way == 7 else 0)
    assert_clean(db)


# What is equal


def test_rule_24_nulls_never_collide(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, UNIQUE_BOTH)
    db = workspace.open()
    items = db.table("items")
    items.insert_many({"id": n, "title": "same", "note": None} for n in range(5))
    items.insert(id=5, title="same", note="n")
    with pytest.raises(UniqueViolation):
        items.insert(id=6, title="same", note="n")
    with pytest.raises(UniqueViolation):
        items.update(2, note="n")
    items.update(5, note=None)
    items.update(2, note="n")
    assert [r.id for r in items.using("one")] == [2, 0, 1, 3, 4, 5]
    assert [r.id for r in find(items, "one", None)] == [0, 1, 3, 4, 5]
    assert [r.id for r in find(items, "one", "n", "same")] == [2]
    assert [r.id for r in items.using("one").reverse()] == [5, 4, 3, 1, 0, 2]
    assert_clean(db)


@pytest.mark.on_each_engine
def test_rule_24_uniqueness_is_equality_under_the_collation(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, UNIQUE_FOLDED)
    db = workspace.open()
    items = db.table("items")
    items.insert(id=1, title="café")
    with pytest.raises(UniqueViolation) as caught:
        items.insert(id=2, title="CAFE")
    assert caught.value.context["values"] == "title='CAFE'"
    items.update(1, title="Cafe")  # the same entry: nothing is touched
    assert [r.id for r in find(items, "one", "Cafe")] == [1]
    assert list(find(items, "one", "cafe")) == []
    assert_clean(db)


def test_rule_24_long_values_differ_behind_the_cut(db: Database, items: Table) -> None:
    ends = ["", "a", "b", "\x00", "\U0001f600"]
    titles = [
        "x" * size + end for size in (980, 989, 990, 991, 992, 1_021, 1_022, 3_000) for end in ends
    ]
    titles = sorted(dict.fromkeys(titles))
    generator = random.Random(7)
    order = list(enumerate(titles))
    generator.shuffle(order)
    items.insert_many({"id": at, "title": title} for at, title in order)
    for title in (titles[-1], titles[0], "x" * 991):
        with pytest.raises(UniqueViolation) as caught:
            items.insert(id=-1, title=title)
        assert len(caught.value.context["values"]) < 100
    assert [r.title for r in items.using("one")] == titles
    assert [r.title for r in items.using("one").reverse()] == titles[::-1]
    for title in titles:
        assert [r.title for r in find(items, "one", title)] == [title]
        behind = [t for t in titles if t >= title]
        assert [r.title for r in between(items, "one", title)] == behind
        before = [t for t in titles if t < title]
        assert [r.title for r in between(items, "one", None, title)] == before
        assert [r.title for r in between(items, "one", None, title, descending=True)] == before[
            ::-1
        ]
        assert [r.title for r in starts_with(items, "one", title)] == [
            t for t in titles if t.startswith(title)
        ]
    assert_clean(db)


def test_rule_24_lookups_with_nulls_go_on_page_by_page(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, UNIQUE_NOTE)
    db = workspace.open()
    items = db.table("items")
    notes = [None if n % 3 else f"{n:04}" for n in range(3_000)]
    items.insert_many({"id": n, "title": "t", "note": note} for n, note in enumerate(notes))
    wanted = sorted(range(3_000), key=lambda n: (notes[n] is not None, notes[n] or "", n))
    assert [r.id for r in items.using("one")] == wanted
    for descending in (True, False):
        found = []
        for at, record in enumerate(between(items, "one", descending=descending)):
            found.append(record.id)
            if at == 100:  # from the next page on, by a scan, and then by the entries again
                change_state(workspace, "readable", "building")
            if at == 1_500:
                change_state(workspace, "building", "readable")
        assert found == (wanted[::-1] if descending else wanted)


def change_state(workspace: Workspace, before: str, after: str) -> None:
    workspace.execute(
        "UPDATE zapdb_catalog SET value = replace(value, ?, ?) WHERE kind = 'index'",
        (before, after),
    )
    workspace.execute("UPDATE zapdb_catalog_versions SET version = version + 1")


# Writers at one moment


def race(workspace: Workspace, *writes: Callable[[Database], object]) -> list[Any]:
    """Run each in a thread with an open database of its own; what they return or raise."""
    barrier, results = threading.Barrier(len(writes)), list[Any]([None] * len(writes))
    opened = [workspace.open() for _ in writes]

    def run(at: int) -> None:
        barrier.wait()
        try:
            results[at] = writes[at](opened[at])
        except Exception as error:
            results[at] = error
        opened[at]._storage.release_connection()

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(writes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        finish(thread)
    return results


@pytest.mark.on_each_engine
def test_rule_25_of_two_that_insert_one_value_exactly_one_wins(
    workspace: Workspace, db: Database
) -> None:
    for turn in range(8):
        rows = [{"id": turn * 10 + at, "title": f"turn {turn}"} for at in range(3)]
        results = race(
            workspace, *(lambda other, row=row: other.table("items").insert(**row) for row in rows)
        )
        losers = [r for r in results if isinstance(r, Exception)]
        assert [type(loser) for loser in losers] == [UniqueViolation] * 2
        (winner,) = (r for r in results if not isinstance(r, Exception))
        assert {loser.context["in_the_way"] for loser in losers} == {str(winner.id)}
    assert db.table("items").count() == 8
    assert_clean(db)


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_25_a_value_that_the_snapshot_does_not_see_is_a_conflict_and_then_a_violation(
    workspace: Workspace, db: Database, items: Table
) -> None:
    other, attempts = workspace.open().table("items"), list[int]()

    def insert() -> None:
        items.find(99)  # the snapshot is taken
        if not attempts:
            other.insert(id=1, title="Milk")
        attempts.append(1)
        items.insert(id=2, title="Milk")

    with pytest.raises(UniqueViolation) as caught:
        db.run(insert)
    assert len(attempts) == 2
    assert caught.value.context["in_the_way"] == "1"
    assert_clean(db)


# Builds


@pytest.fixture
def doubled(workspace: Workspace) -> Database:
    """Ten items, of which 8 has the title of 3 and 9 that of 4; the index is not built yet."""
    workspace.write(1, ITEMS)
    with workspace.open() as first:
        first.table("items").insert_many(
            {"id": n, "title": f"title {n if n < 8 else n - 5}"} for n in range(10)
        )
    workspace.write(2, UNIQUE_TITLE)
    return workspace.open()


def only_job(storage: Storage) -> Job:
    (job,) = plan_jobs(storage, DEFAULT_TENANT, is_by_hand=True)
    return job


def run_jobs(storage: Storage, batch_records_max: int = 4) -> list[JobReport]:
    reports = [
        run_job(
            storage,
            job,
            lambda s, j: run_locally(s, j, workers=2, batch_records_max=batch_records_max),
        )
        for job in plan_jobs(storage, DEFAULT_TENANT, is_by_hand=True)
    ]
    return [report for report in reports if report is not None]


def build_entries(storage: Storage, job: Job) -> None:
    work = load_work(storage, job.id)
    while run_range(storage, work, Owner.here()) is not None:
        pass


def test_rule_25_duplicates_that_the_build_finds_are_listed_until_they_are_gone(
    workspace: Workspace, doubled: Database
) -> None:
    items, storage = doubled.table("items"), workspace.connect()
    (report,) = run_jobs(storage)
    assert report.job.state == "blocked"
    (finding,) = report.job.findings
    assert (finding.what, finding.count) == ("index one", 2)
    assert finding.examples == (
        "8 has the values of 3: title='title 3'",
        "9 has the values of 4: title='title 4'",
    )
    assert "one" not in items.readable_indexes()
    assert [r.id for r in find(items, "one", "title 3")] == [3, 8]
    with pytest.raises(UniqueViolation):  # it binds new writes
        items.insert(id=20, title="title 3")
    with pytest.raises(UniqueViolation):
        items.update(7, title="title 4")
    items.update(8, size=5)  # what is there may stay as it is
    items.delete(3)  # its key is free, and has no entry now
    (report,) = run_jobs(storage)
    assert [f.count for f in report.job.findings] == [1]
    assert report.job.findings[0].examples == ("9 has the values of 4: title='title 4'",)
    items.update(9, title="another")
    (report,) = run_jobs(storage)
    assert (report.job.state, report.job.findings) == ("done", ())
    assert "one" in items.readable_indexes()
    assert [r.id for r in find(items, "one", "title 3")] == [8]
    assert run_jobs(storage) == []
    assert_clean(doubled)


@pytest.mark.parametrize("gone", [3, 8])
@pytest.mark.parametrize("change", ["update", "delete"])
def test_rule_25_only_a_records_own_entry_goes_with_it(
    workspace: Workspace, doubled: Database, change: str, gone: int
) -> None:
    """Decision 0009: the writer inserts the old entry if absent, and it may be another's."""
    items, storage = doubled.table("items"), workspace.connect()
    run_jobs(storage)
    items.delete(9)
    if change == "delete":
        items.delete(gone)
    else:
        items.update(gone, title="another")
    (index,) = doubled._catalog.table("items").indexes
    entries = workspace.execute(f"SELECT count(*) FROM zapdb_entries_{index.entry_table}")
    # 8 never had one; 3 takes its own away, and leaves 8 without.
    assert entries == [(8 - (gone == 3) + (change == "update"),)]
    if gone == 8:
        with pytest.raises(UniqueViolation):
            items.insert(id=30, title="title 3")
    (report,) = run_jobs(storage)
    assert report.job.state == "done"
    assert_clean(doubled)


def delete_any(index: IndexMaintainer, connection: Any, entries: list[tuple[bytes, bytes]]) -> None:
    sql = index.entries.delete_sql.rpartition(" AND ")[0]
    connection.run_many(sql, [(key,) for key, _ in entries])


@pytest.mark.on_each_engine
def test_rule_25_a_writer_that_took_anothers_entry_would_let_a_duplicate_in(
    doubled: Database, monkeypatch: pytest.MonkeyPatch, workspace: Workspace
) -> None:
    """The same with the protection taken away."""
    monkeypatch.setattr(UniqueIndexMaintainer, "remove_entries", delete_any)
    run_jobs(workspace.connect())
    items = doubled.table("items")
    items.delete(8)
    items.insert(id=30, title="title 3")
    assert [r.id for r in find(items, "one", "title 3")] == [3, 30]


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_25_the_builder_waits_for_a_writer_with_an_equal_key(
    workspace: Workspace, doubled: Database
) -> None:
    """The writer was first: the builder finds the key taken, and the record is listed."""
    other = workspace.connect()
    job = only_job(other)
    builder = threading.Thread(target=lambda: (build_entries(other, job), other.close()))
    with doubled.transaction():
        doubled.table("items").insert(id=40, title="title 5")
        builder.start()
        builder.join(timeout=0.3)
        assert builder.is_alive()
    finish(builder)
    (report,) = run_jobs(workspace.connect())
    assert [f.count for f in report.job.findings] == [3]
    assert "5 has the values of 40: title='title 5'" in report.job.findings[0].examples


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.on_each_engine
def test_rule_25_a_writer_that_gives_up_leaves_the_key_to_the_builder(
    workspace: Workspace, doubled: Database
) -> None:
    other = workspace.connect()
    job = only_job(other)
    builder = threading.Thread(target=lambda: (build_entries(other, job), other.close()))

    def give_up() -> None:
        with doubled.transaction():
            doubled.table("items").insert(id=40, title="title 5")
            builder.start()
            builder.join(timeout=0.3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        give_up()
    finish(builder)
    (report,) = run_jobs(workspace.connect())
    assert [f.count for f in report.job.findings] == [2]


@pytest.mark.parametrize("engine", ["postgresql"])
@pytest.mark.parametrize("change", ["insert", "update", "delete"])
@pytest.mark.on_each_engine
def test_rule_25_a_writer_that_does_not_see_the_builders_entry_runs_again(
    workspace: Workspace, doubled: Database, change: str
) -> None:
    """The builder was first: its entry is there unseen, be it the record's own or another's."""
    other = workspace.connect()
    job = only_job(other)
    items, attempts = doubled.table("items"), []

    def write() -> None:
        items.get(3)  # the snapshot is taken
        if not attempts:
            build_entries(other, job)
        attempts.append(change)
        if change == "insert":
            items.insert(id=40, title="title 5")
        elif change == "update":
            items.update(8, title="free")
        else:
            items.delete(3)

    if change == "insert":
        with pytest.raises(UniqueViolation) as caught:
            doubled.run(write)
        assert caught.value.context["in_the_way"] == "5"
    else:
        doubled.run(write)
    assert attempts == [change, change]
    items.delete(9)
    if change == "insert":
        items.delete(8)
    (report,) = run_jobs(other)
    assert report.job.state == "done"
    assert_clean(doubled)


def change_at_random(
    db: Database, seed: int, stop: Callable[[], bool], refused: list[UniqueViolation]
) -> None:
    generator, items = random.Random(seed), db.table("items")
    while not stop():
        number, title = generator.randint(0, 60), f"title {generator.randint(0, 40)}"
        kind = generator.random()
        try:
            if kind < 0.3:
                items.delete(number)
            elif kind < 0.6:
                items.update(number, title=title)
            else:
                items.insert(id=number, title=title)
        except UniqueViolation as error:
            refused.append(error)
        except (RecordNotFound, RecordExists, TransactionConflict):
            pass
        time.sleep(0.002)


@pytest.mark.on_each_engine
def test_rule_25_an_index_that_is_built_under_writers_ends_up_unique(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert_many({"id": n, "title": f"title {n % 25}"} for n in range(61))
    workspace.write(2, UNIQUE_TITLE)
    db = workspace.open()
    storage = workspace.connect()
    refused = list[UniqueViolation]()
    with writing(lambda seed, ends: change_at_random(db, seed, ends, refused)):
        for _ in range(5):
            run_jobs(storage, batch_records_max=8)
        wait_until(lambda: refused, "a duplicate was refused")
    items = db.table("items")
    for _ in range(60):
        for report in run_jobs(storage):
            for finding in report.job.findings:
                items.delete(int(finding.examples[0].split()[0]))
        if "one" in items.readable_indexes():
            break
    titles = [record.title for record in items.scan()]
    assert len(set(titles)) == len(titles)
    assert_clean(db)


def test_rule_26_a_rebuild_of_a_unique_index_lists_what_has_become_equal(
    workspace: Workspace,
) -> None:
    """Under new data, two values may be one: the index stays unreadable and says which."""
    workspace.write(1, ITEMS, UNIQUE_FOLDED)
    db = workspace.open()
    db.table("items").insert_many([{"id": 1, "title": "ae"}, {"id": 2, "title": "be"}])
    db.close()
    # As if it had been built with other data, under which the second title was no duplicate.
    ((value,),) = workspace.execute("SELECT value FROM zapdb_catalog WHERE kind = 'index'")
    row = json.loads(value)
    for dataset in row["built_with"].values():
        dataset["fingerprint"] = "0" * 64
    workspace.execute("UPDATE zapdb_catalog SET value = ? WHERE kind = 'index'", (json.dumps(row),))
    table = workspace.execute("SELECT key, value FROM zapdb_records_1 ORDER BY key")
    workspace.execute(
        "UPDATE zapdb_records_1 SET value = ? WHERE key = ?",
        (bytes(table[0][1]), bytes(table[1][0])),
    )
    db = workspace.open()
    db._refresher.stop()  # its thread would build the index again as soon as nothing is equal
    assert "one" not in db.table("items").readable_indexes()
    (report,) = db.admin.run_jobs()
    assert report.job.findings[0].examples == ("2 has the values of 1: title='ae'",)
    db.table("items").update(2, title="be")
    (report,) = db.admin.run_jobs()
    assert report.job.state == "done"
    assert_clean(db)


# Interruptions


def dump_without_tombstones(workspace: Workspace) -> dict[str, Any]:
    """All rows but those that say of a lost transaction that it never took effect: whoever asked
    wrote them, and they are purged."""
    found = dump(workspace)
    tokens = found["zapdb_commit_tokens"]
    return {**found, "zapdb_commit_tokens": [row for row in tokens if row[1] != NEVER]}


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", ["insert", "insert_many", "update", "delete", "violation"])
@pytest.mark.on_each_engine
def test_rule_25_a_fault_at_each_statement_leaves_all_of_a_change_or_none(
    workspace: Workspace, db: Database, change: str, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = db.table("items")
    items.insert(id=1, title="Milk")
    before = dump_without_tombstones(workspace)
    faults = Faults(workspace, db._storage, way, lasting=False)
    faults.install(monkeypatch)

    def act() -> None:
        if change == "insert":
            items.insert(id=2, title="Bread")
        elif change == "insert_many":
            items.insert_many([{"id": 2, "title": "Bread"}])
        elif change == "update":
            items.update(1, title="Eggs")
        elif change == "delete":
            items.delete(1)
        else:
            items.insert(id=2, title="Milk")

    def revert() -> None:
        if change in ("insert", "insert_many"):
            items.delete(2)
        elif change == "update":
            items.update(1, title="Milk")
        elif change == "delete":
            items.insert(id=1, title="Milk")

    for call in itertools.count(1):
        faults.arm(call)
        error, struck = error_of(act), faults.struck
        faults.arm(0)
        if isinstance(error, CommitUnknown):
            break  # after it, the change may be there
        if error is None or isinstance(error, UniqueViolation):
            if not struck:
                break
            # The session was lost before COMMIT, and all of the change was made in another one;
            # or the very statement that was to report an error told of the violation before.
            told = (change, way) == ("violation", "after")
            assert way == "drop" or told or is_resolved(workspace, struck)
            assert_clean(db)
            if error is None:
                assert change != "violation"
                revert()
                before = dump_without_tombstones(workspace)
        assert dump_without_tombstones(workspace) == before
    # A session that is lost before BEGIN is no fault; a violation is told by the statement itself
    # that inserts the entry.
    assert call > 4 - (way == "drop") - (change == "violation")
    assert_clean(db)


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_rule_25_a_build_with_duplicates_survives_a_fault_at_each_statement(
    workspace: Workspace, doubled: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.jobs.job.RANGE_LEASE_SECONDS", 0.0)
    storage = workspace.connect()
    faults = Faults(workspace, storage, way, lasting=False)
    faults.install(monkeypatch)
    ended: list[JobReport | None] = []

    def build() -> None:
        ended.extend(
            run_job(storage, job, lambda s, j: run_locally(s, j, workers=1))
            for job in plan_jobs(storage, DEFAULT_TENANT, is_by_hand=True)
        )

    for call in itertools.count(1):
        faults.arm(call)
        if error_of(build) is None:
            break
        faults.arm(0)
    faults.arm(0)
    assert call > 20
    (report,) = ended
    assert report is not None
    assert report.job.findings[0].count == 2
    for number in (8, 9):
        doubled.table("items").delete(number)
    run_jobs(storage)
    assert_clean(doubled)


def test_rule_19_a_stale_record_goes_with_the_entry_that_its_archived_value_has(
    workspace: Workspace,
) -> None:
    workspace.write(1, ITEMS)
    with workspace.open() as first:
        first.table("items").insert_many({"id": n, "title": f"title {n}"} for n in range(5))
    drop = (
        "drop_field: {table: items, field: title,"
        " restore: {archive: true, otherwise: {value: none}}}"
    )
    workspace.write(2, drop)
    with workspace.open() as second:
        second.admin.run_jobs()
    restore = (
        "restore_field: {table: items, field: title, archived_by: 2, position: 1,"
        " otherwise: {value: new}}"
    )
    workspace.write(3, restore, UNIQUE_TITLE)
    db = workspace.open()
    items = db.table("items")
    assert [report.job.state for report in db.admin.run_jobs(kinds=["index"])] == ["done"]
    with pytest.raises(UniqueViolation):
        items.insert(id=9, title="title 3")
    items.delete(3)
    items.update(2, title="title 9")
    items.insert(id=9, title="title 3")
    items.insert(id=10, title="title 2")
    assert_clean(db)


def test_a_value_from_a_file_is_refused_as_any_other(workspace: Workspace) -> None:
    """It is stored while it is read, and gone with the transaction; its record is read before."""
    workspace.write(1, UNIQUE_SCAN, INDEX_SCAN)
    scans, large = workspace.open().table("scans"), b"x" * 600_000
    scans.insert(id=1, scan=io.BytesIO(large))
    scans.insert(id=2, scan=b"other")
    for write in (
        lambda: scans.insert(id=3, scan=io.BytesIO(large)),
        lambda: scans.insert(id=3, scan=large),
        lambda: scans.update(2, scan=io.BytesIO(large)),
        lambda: scans.upsert(id=2, scan=io.BytesIO(large)),
        lambda: scans.upsert(id=3, scan=io.BytesIO(large)),
    ):
        error = error_of(write)
        assert isinstance(error, UniqueViolation)
        assert error.context["in_the_way"] == "1"
    assert [record.id for record in scans.scan()] == [1, 2]


def test_what_is_in_the_way_of_many_is_found_in_a_few_passes(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, passes = db.table("items"), list[int]()
    items.insert_many([{"id": n, "title": f"t{n}"} for n in range(200)])
    read_new = WritePlan.read_new

    def counted(plan: WritePlan) -> Any:
        passes.append(1)
        return read_new(plan)

    monkeypatch.setattr(WritePlan, "read_new", counted)
    again = [{"id": 1_000 + n, "title": f"t{n}"} for n in range(200)]
    error = error_of(lambda: items.insert_many(again))
    assert isinstance(error, UniqueViolation)
    assert {place: one.context["in_the_way"] for place, one in error.of_each.items()} == {
        n: str(n) for n in range(200)
    }
    assert len(passes) <= 3
