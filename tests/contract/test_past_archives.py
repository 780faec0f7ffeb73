"""The past of archived values: processes with older files go on writing fields that newer ones have
dropped. What they write is in the archive alone, and belongs to the log as the record does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import zapdb
from tests.contract.stored_pasts import begin, check_store, flush
from tests.support import Workspace
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import HistoryBehind
from zapdb.jobs import (
    archive_pruning,
    plan_jobs,
)
from zapdb.jobs.archive_pruning import prune_archives
from zapdb.jobs.blob_sweep import sweep_blobs
from zapdb.jobs.job_run import run_job, run_locally
from zapdb.log import (
    pending_changes,
)
from zapdb.past.files.history_manifest import Doubt
from zapdb.storage import (
    connect,
)
from zapdb.tables.change_decoding import RecordChange
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.export_loading import load_export

PEOPLE = """\
create_table: {table: people, key: [id], fields: [
      {name: id, type: integer},
      {name: name, type: string, default: ''},
      {name: fax, type: string}]}"""
DROP_FAX = (
    "drop_field: {table: people, field: fax, restore: {archive: true, otherwise: {value: ''}}}"
)
RESTORE_FAX = (
    "restore_field: {table: people, field: fax, archived_by: 2, otherwise: {value: never}}"
)
DROP_AGAIN = DROP_FAX
ADD_COLOR = "add_field: {table: people, field: {name: color, type: string, default: red}}"
ADD_INDEX = "create_index: {table: people, index: by_name, fields: [{field: name}]}"
LONG = "x" * 10_000


def read(source: Any) -> list[dict[str, Any]]:
    return [zapdb.asdict(record) for record in source.table("people").scan()]


class Life:
    """A database with a process whose files end at 1, and all states by moment."""

    def __init__(self, workspace: Workspace, store: Path, *, is_followed: bool) -> None:
        self.workspace, self.is_followed = workspace, is_followed
        self.number = 1
        workspace.write(1, PEOPLE)
        self.older = workspace.open()
        self.older.admin.set_setting("change_log", "on")
        begin(self.older, store)
        self.states = dict[int, Any]()
        self.newer = self.older

    def note(self) -> None:
        with self.workspace.open(apply="never") as db:
            moment = next(db.moments()).number
            self.states[moment] = read(db)
            if self.is_followed:
                flush(db)

    def up(self, *operations: str) -> None:
        self.number += 1
        self.workspace.write(self.number, *operations)
        choice = MigrationChoice(again=True)
        migrate_up(self.workspace.control, DEFAULT_TENANT, self.workspace.directory, choice)
        self.note()

    def convert(self) -> None:
        with self.workspace.open() as db:
            db.admin.run_jobs()

    def back(self) -> None:
        self.workspace.remove(self.number)
        self.number -= 1
        roll_back(self.workspace.control)
        self.note()

    def write(self, **values: Any) -> None:
        with self.older.transaction() as tx:
            tx.table("people").upsert(**values)
        self.note()

    def write_anew(self, key: int, **values: Any) -> None:
        """As a process does that does not see the dropped field."""
        with self.workspace.open() as db:
            db.table("people").upsert(id=key, **values)
        self.note()

    def flush_and_prune(self) -> None:
        with self.workspace.open() as db:
            flush(db)
            db.change_log.prune(next(db.moments()).bookmark)

    def check(self) -> Database:
        db = self.workspace.open()
        wrong = dict[int, Any]()
        for moment, state in self.states.items():
            with suppress(HistoryBehind):
                told = read(db.at(moment))
                if told != state:
                    wrong[moment] = "not in files yet", told, state
        flush(db)
        check_store(db)
        for moment, state in self.states.items():
            past = db.at(moment)
            if (read(past), past.exact) != (state, True):
                wrong[moment] = read(past), past.doubts, state
        assert wrong == {}
        assert not db.history.verify().problems
        return db


@pytest.fixture(params=[False, True], ids=["late", "followed"])
def life(workspace: Workspace, tmp_path: Path, request: pytest.FixtureRequest) -> Life:
    return Life(workspace, tmp_path / "store", is_followed=request.param)


def test_what_older_processes_write_comes_back_in_the_past(life: Life) -> None:
    life.write(id=1, fax="before")
    life.write(id=3, fax="left")
    life.write(id=4, fax=LONG)
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.write(id=2, fax="new")
    life.write(id=5, fax=LONG + "y")
    life.write_anew(3, name="Ada")
    life.write_anew(6, name="Bob")
    life.back()
    assert [row["fax"] for row in life.states[max(life.states)]] == [
        "changed",
        "new",
        "left",
        LONG,
        LONG + "y",
        "",
    ]
    life.up(DROP_FAX)
    life.write(id=2, fax="later")
    life.check()


def test_another_migration_is_rolled_back_with_it(life: Life) -> None:
    """Both are gone before a late follower reads."""
    life.write(id=1, fax="before")
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.up(ADD_COLOR)
    life.write(id=2, fax="new")
    life.convert()
    life.back()
    life.write(id=1, fax="again")
    life.back()
    life.up(ADD_COLOR)
    life.check()


def test_restored_and_dropped_again(life: Life) -> None:
    for key in range(1, 6):
        life.write(id=key, fax=f"f{key}")
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.write_anew(2, name="Ada")
    life.write_anew(7, name="Bob")
    with life.older.transaction() as tx:
        tx.table("people").delete(3)
        tx.table("people").insert(id=3, fax="inserted anew")
        tx.table("people").delete(4)
    life.note()
    life.up(RESTORE_FAX)
    life.write(id=2, fax="restored")
    life.up(DROP_AGAIN)
    life.write(id=5, fax="last")
    life.back()
    life.back()
    life.up(ADD_COLOR)
    life.check()


# What the log says


def list_changes(db: Database) -> list[RecordChange]:
    return [one for one in db.change_log.read() if isinstance(one, RecordChange)]


def test_a_change_says_what_became_of_archived_values(life: Life) -> None:
    life.write(id=1, fax="before")
    life.write(id=2, fax=LONG)
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.write_anew(2, name="Ada")  # whose value is still in the record, and stays what it is
    life.write(id=3, fax="new")
    life.older.table("people").delete(2)
    with life.workspace.open() as db:
        db.table("people").insert(id=4, name="Bob")
    told = [
        (one.operation, dict(one.archived_before), dict(one.archived_after))
        for one in list_changes(life.workspace.open())[2:]
    ]
    assert told == [
        ("update", {"fax": "before"}, {"fax": "changed"}),
        ("update", {}, {}),
        ("insert", {}, {"fax": "new"}),
        ("delete", {"fax": LONG}, {}),
        ("insert", {}, {}),
    ]
    db = life.workspace.open()
    flush(db)
    for _ in range(2):
        found = [
            (one.operation, one.fields[-1], one.archived_before, one.archived_after)
            for one in db.audit(table="people")
            if one.key in ((1,), (2,)) and one.archived_before
        ]
        assert found == [
            ("delete", "fax", {"fax": LONG}, {}),
            ("update", "fax", {"fax": "before"}, {"fax": "changed"}),
        ]
        last = db.table("people").history(1)[-1]
        assert (last.operation, last.fields) == ("update", ("fax",))
        # The second time, files alone tell it.
        db.change_log.prune(next(db.moments()).bookmark)


def test_changes_of_one_transaction_are_one_whatever_they_do_to_the_archive(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are joined in memory, beneath savepoints, and in the rows of those written early."""
    life = Life(workspace, tmp_path / "store", is_followed=False)
    life.write(id=1, fax="before")
    life.up(DROP_FAX)
    steps: dict[str, Callable[[Any], object]] = {
        "update": lambda people: people.update(1, fax="changed"),
        "delete": lambda people: people.delete(1),
        "insert": lambda people: people.insert(id=1, fax="anew"),
        "rename": lambda people: people.update(1, name="Ada"),
    }
    orders = [
        ("update", "update"),
        ("update", "rename"),
        ("rename", "update"),
        ("update", "delete"),
        ("delete", "insert"),
        ("delete", "insert", "update"),
        ("update", "delete", "insert", "rename"),
    ]
    told = []
    for pending_max in (1_000, 1):
        monkeypatch.setattr(pending_changes, "CHANGES_PENDING_MAX", pending_max)
        for order in orders:
            for has_savepoints in (False, True):
                life.older.table("people").upsert(id=1, fax="before", name="")
                with life.older.transaction() as tx:
                    for step in order:
                        people = tx.table("people")
                        with tx.savepoint() if has_savepoints else nullcontext():
                            steps[step](people)
                there = life.older.table("people").find(1)
                last = list_changes(life.workspace.follow())[-1]
                expected = {} if there is None else {"fax": there.fax}
                told.append((order, dict(last.archived_before), dict(last.archived_after)))
                assert told[-1] == (order, {"fax": "before"}, expected), pending_max
    assert len(told) == 4 * len(orders)


def test_a_past_is_exported_with_what_was_archived(life: Life, tmp_path: Path) -> None:
    """By rewinding, from files, and from what is not in files yet: a copy that is rolled back has
    what the database would have had."""
    life.write(id=1, fax="before" + LONG)
    life.write(id=2, fax="left")
    life.up(DROP_FAX)
    life.write(id=1, fax="changed" + LONG)
    life.write(id=3, fax="new")
    life.write_anew(2, name="Ada")
    life.write_anew(4, name="Bob")
    moment = max(life.states)
    expected = ["changed" + LONG, "left", "new", ""]
    life.write(id=1, fax="later")
    life.older.table("people").delete(3)
    for at, step in enumerate((life.note, lambda: life.up(ADD_COLOR), life.flush_and_prune)):
        step()
        to, copy = tmp_path / f"then-{at}", f"sqlite:///{tmp_path}/copy-{at}.db"
        with life.workspace.open() as db:
            export_directory(db.at(moment), to)
        load_export(to, copy)
        with closing(connect(copy)) as storage:
            roll_back(storage)
        with zapdb.open(copy) as copied:
            assert [record.fax for record in copied.table("people").scan()] == expected, at


# Whose blobs they are, and what an erasure reaches


def find_marker(workspace: Workspace, store: Path, marker: bytes) -> list[str]:
    """Return the columns of fixed tables, and the files, that hold some bytes."""
    found = []
    for table in ("zapdb_changes", "zapdb_archives", "zapdb_blobs"):
        for row in workspace.execute(f"SELECT * FROM {table}"):
            found += [table for cell in row if isinstance(cell, bytes) and marker in bytes(cell)]
    for path in sorted(store.rglob("*.parquet")):
        for column in parquet.read_table(path, partitioning=None).columns:
            cells = (cell for cell in column.to_pylist() if isinstance(cell, str | bytes))
            raw = (cell.encode() if isinstance(cell, str) else cell for cell in cells)
            found += [path.name for cell in raw if marker in cell]
    return found


def test_the_log_owns_the_large_values_that_were_archived(life: Life) -> None:
    life.write(id=1, fax="before" + LONG)
    life.up(DROP_FAX)
    life.write(id=1, fax="changed" + LONG)
    life.write(id=2, fax="gone" + LONG)
    life.older.table("people").delete(2)
    db = life.workspace.open()
    sweep_blobs(db._storage, older_than_seconds=0)
    told = {one.archived_before.get("fax") for one in list_changes(db)}
    assert {"before" + LONG, "gone" + LONG} <= told
    assert sweep_blobs(db._storage, older_than_seconds=0).unowned == 0


@pytest.mark.parametrize("what", ["field of a record", "field", "record"])
def test_h13_an_erasure_reaches_archived_values(life: Life, tmp_path: Path, what: str) -> None:
    marker = "m4rk3r"
    life.write(id=1, fax=marker)
    life.write(id=2, fax="other")
    life.up(DROP_FAX)
    life.write(id=1, fax=marker + "1")
    life.write(id=1, fax=marker + LONG)
    life.write(id=1, fax=marker + "2")
    life.write(id=2, fax="another")
    life.older.table("people").delete(1)
    db = life.workspace.open()
    db.admin.run_jobs()
    flush(db)
    assert len(find_marker(life.workspace, tmp_path / "store", marker.encode())) > 4
    if what == "record":
        db.history.erase("people", 1, now=True)
    elif what == "field":
        db.history.erase_fields("people", "fax", now=True)
    else:
        db.history.erase("people", 1, fields=["fax"], now=True)
    assert find_marker(life.workspace, tmp_path / "store", marker.encode()) == []
    assert bool(find_marker(life.workspace, tmp_path / "store", b"another")) == (what != "field")
    assert not db.history.verify().problems


# Pruning and sweeping


def test_what_was_pruned_is_gone_from_that_moment(life: Life) -> None:
    for key in range(1, 5):
        life.write(id=key, fax=f"f{key}")
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.convert()
    prune_archives(life.workspace.control, DEFAULT_TENANT)
    life.note()
    life.write(id=2, fax="behind it")
    life.write_anew(3, name="Ada")
    life.up(RESTORE_FAX)
    life.up(ADD_COLOR)
    assert [row["fax"] for row in life.states[max(life.states)]] == [
        "never",
        "behind it",
        "never",
        "never",
    ]
    life.check()


@pytest.mark.parametrize("is_written", [False, True], ids=["pruned", "written behind it"])
def test_a_rollback_brings_back_what_was_pruned_of_no_record(
    life: Life, *, is_written: bool
) -> None:
    """It finds no archived value, so each record has what stands in its place; the follower comes
    when the migration is active again, and nothing else tells what was between."""
    for key in range(1, 5):
        life.write(id=key, fax=f"f{key}")
    life.up(DROP_FAX)
    with life.workspace.open() as db:
        flush(db)
    life.convert()
    prune_archives(life.workspace.control, DEFAULT_TENANT)
    life.note()
    if is_written:
        life.write(id=2, fax="behind it")
        life.write_anew(3, name="Ada")
    life.back()
    assert [row["fax"] for row in life.states[max(life.states)]] == [
        "",
        "behind it" if is_written else "",
        "",
        "",
    ]
    life.up(DROP_AGAIN)
    life.check()


@pytest.mark.parametrize("change", [ADD_COLOR, ADD_INDEX], ids=["a field", "an index"])
def test_pruning_behind_a_rollback_leaves_no_gap(life: Life, change: str) -> None:
    """The era that begins with it has the same records as the one before."""
    for key in range(1, 5):
        life.write(id=key, fax=f"f{key}")
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.up(change)
    life.back()
    life.convert()
    prune_archives(life.workspace.control, DEFAULT_TENANT)
    life.note()
    life.write(id=2, fax="behind it")
    life.up(ADD_COLOR)
    life.check()


def test_a_pruning_that_did_not_end_is_why_a_past_is_not_exact(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(workspace, tmp_path / "store", is_followed=False)
    for key in range(1, 4):
        life.write(id=key, fax=f"f{key}")
    life.up(DROP_FAX)
    life.convert()

    def delete_one(*given: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(archive_pruning, "delete_archives", delete_one)
    with pytest.raises(KeyboardInterrupt):
        prune_archives(workspace.control, DEFAULT_TENANT)
    life.up(RESTORE_FAX)
    moment = max(life.states)
    life.up(ADD_COLOR)
    db = workspace.open()
    flush(db)
    past = db.at(moment)
    assert (past.exact, dict(past.doubts)) == (False, {"people": Doubt.ARCHIVE_PRUNING})
    assert dict(db.history.verify().doubts) == {"people": Doubt.ARCHIVE_PRUNING}
    first = min(life.states)
    assert db.at(first).exact


def test_rule_19_a_sweep_takes_nothing_that_a_drop_beside_it_archives(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides once, and deletes then: in between, the restored field is dropped again."""
    workspace.write(1, PEOPLE)
    older = workspace.open()
    workspace.write(2, DROP_FAX)
    workspace.open().close()
    older.table("people").insert(id=1, fax="kept")
    older.close()
    workspace.write(3, RESTORE_FAX)
    with workspace.open() as db:
        db.table("people").update(1, name="Ada")  # its archived value is left behind
    begin, is_dropped = archive_pruning._begin_deleting, list[bool]()

    def drop_before(*given: Any) -> Any:
        if not is_dropped:
            is_dropped.append(True)
            workspace.write(4, DROP_FAX)
            with workspace.open() as dropping:
                for job in plan_jobs(dropping._storage, DEFAULT_TENANT, ["convert"]):
                    run_job(dropping._storage, job, run_locally)
        return begin(*given)

    with monkeypatch.context() as patched:
        patched.setattr(archive_pruning, "_begin_deleting", drop_before)
        archive_pruning.sweep_archives(workspace.connect(), DEFAULT_TENANT)
    assert is_dropped
    workspace.remove(4)
    roll_back(workspace.control)
    with workspace.open() as db:
        assert [row["fax"] for row in read(db)] == ["kept"]


# Files that are made anew


def test_a_file_that_is_made_anew_has_archived_values(life: Life, tmp_path: Path) -> None:
    """From the log, from the era before, and merged and cut: a roll back later takes them."""
    life.write(id=1, fax="before")
    life.write(id=2, fax="left")
    life.up(DROP_FAX)
    life.write(id=1, fax="changed")
    life.write(id=3, fax="new")
    with life.workspace.open() as db:
        flush(db)
        kept_from = next(db.moments()).number
        for path in sorted((tmp_path / "store").rglob("segment-*.parquet")):
            path.unlink()
        for path in sorted((tmp_path / "store").rglob("checkpoint-*.parquet"))[-1:]:
            path.unlink()
        assert db.history.repair().left == ()
        assert not db.history.verify().problems
    life.write_anew(1, name="Ada")
    life.write_anew(2, name="Bob")
    with life.workspace.open() as db:
        db.admin.set_setting("history_store_flush_changes", "1")
        flush(db)
        db.history.purge(kept_from, exact=True)
    life.states = {at: state for at, state in life.states.items() if at >= kept_from}
    life.back()
    life.up(ADD_COLOR)
    assert [row["fax"] for row in life.states[max(life.states)]] == ["changed", "left", "new"]
    db = life.workspace.open()
    flush(db)
    for moment, state in life.states.items():
        assert read(db.at(moment)) == state, moment
    assert not db.history.verify().problems
