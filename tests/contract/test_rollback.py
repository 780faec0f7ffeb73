"""Rolling back: values come back, history returns, nothing is ever read under the wrong layout."""

from __future__ import annotations

import itertools
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

from tests.contract.tables import (
    ADD_COLOR,
    ADD_WEIGHT,
    DROP_NOTE,
    INDEX_SIZE,
    INDEX_TITLE,
    ITEMS,
    RENAME_SIZE,
)
from tests.lookups import find
from tests.support import LIVE, WAYS, Faults, Way, Workspace, dump, error_of, finish
from zapdb.activation import load_tenant_catalog
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import nodes
from zapdb.database import Database
from zapdb.errors import (
    CommitUnknown,
    CorruptCatalog,
    LeaseHeld,
    LeaseLost,
    PendingMigrations,
    RecordNotFound,
    RollbackInProgress,
    UnknownName,
    UsageError,
)
from zapdb.jobs import plan_jobs
from zapdb.jobs.job_run import run_locally
from zapdb.jobs.rollback_run import RolledBack, roll_back_newest
from zapdb.records import asdict, decode_prefix
from zapdb.storage import Storage, TransactionMode, connect

TAGS = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
COUNT = 300


def roll_back(place: Workspace, **options: Any) -> RolledBack:
    storage = connect(place.address)
    try:
        return roll_back_newest(storage, **options)
    finally:
        storage.close()


def up(place: Workspace, *, again: bool = False) -> None:
    storage = connect(place.address)
    try:
        migrate_up(storage, DEFAULT_TENANT, place.directory, MigrationChoice(again=again))
    finally:
        storage.close()


def contents(db: Database, table: str = "items") -> list[dict[str, Any]]:
    return [asdict(record) for record in db.table(table).scan()]


def log(db: Database, table: str = "items") -> list[tuple[int, str, int, int]]:
    return [
        (entry.revision, entry.event, entry.position, entry.layout_revision)
        for entry in db.admin.schema_history(table)
    ]


def assert_clean(db: Database) -> None:
    for report in db.admin.verify():
        assert report.problems == ()


@pytest.fixture
def base(workspace: Workspace) -> list[dict[str, Any]]:
    """A database at migration 1, with records; returns them."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many(
            {"id": at, "title": f"title {at}", "size": at % 7, "note": None if at % 2 else "n"}
            for at in range(COUNT)
        )
        return contents(db)


def apply(workspace: Workspace, number: int, *operations: str) -> None:
    workspace.write(number, *operations)
    workspace.open().close()


def take_back(workspace: Workspace, number: int) -> RolledBack:
    """Forget the newest, and remove its file."""
    forgotten = roll_back(workspace)
    assert forgotten.number == number
    workspace.remove(number)
    return forgotten


# What comes back

REVERSIBLE: dict[str, str] = {
    "add_field": ADD_COLOR,
    "rename_field": RENAME_SIZE,
    "drop_field": DROP_NOTE.replace("value: dropped", "expression: \"'n' if id >= 0 else 'm'\""),
    "create_index": INDEX_SIZE,
    "create_collated_index": INDEX_TITLE,
    "rename_table": "rename_table: {table: items, to: things}",
    "transform": "transform: {table: items, from: {title: string}, into: {a: string, b: string},"
    " up: {a: \"before(title, ' ')\", b: \"after(title, ' ')\"},"
    " down: {title: \"join(' ', a, b)\"}, reversibility: lossy}",
}


@pytest.mark.parametrize("kind", REVERSIBLE)
def test_rule_13_a_rollback_brings_values_and_the_fingerprint_back(
    workspace: Workspace, base: list[dict[str, Any]], kind: str
) -> None:
    apply(workspace, 2, REVERSIBLE[kind])
    with workspace.open() as db:
        (name,) = db._catalog.tables
        # Some are rewritten under the new revision, and some are not.
        for at in range(0, COUNT, 3):
            record = db.table(name).get(at)
            db.table(name).update(at, **{f: getattr(record, f) for f in record._fields})
        revision = db._catalog.table(name).revision
    forgotten = take_back(workspace, 2)
    assert forgotten.label == "0002_test"
    with workspace.open() as db:
        assert db.position == 1
        expected = base
        if kind == "drop_field":
            # What was dropped is filled in again, where it was gone.
            expected = [r | {"note": "n"} if r["id"] % 3 == 0 else r for r in base]
        assert contents(db) == expected
        first, changed, last = db.admin.schema_history("items")
        assert (last.revision, last.event, last.position) == (revision + 1, "rollback", 1)
        assert last.fingerprint == first.fingerprint != changed.fingerprint
        assert last.layout_revision == 1
        assert last.migration == first.migration
        assert_clean(db)
        # Nothing is stale (rule 1).
        assert plan_jobs(db._storage, DEFAULT_TENANT) == []
        db.table("items").insert(id=-1, title="new")
        assert db.table("items").count() == COUNT + 1


def test_rule_13_only_records_of_the_rolled_back_revision_are_converted(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    with workspace.open() as db:
        for at in range(10):
            db.table("items").update(at, color="blue")
    (report,) = take_back(workspace, 2).jobs
    assert (report.job.kind, report.progress.written) == ("roll_back", 10)
    with workspace.open() as db:
        assert db.admin.count_by_revision("items") == {1: COUNT - 10, 3: 10}
        assert contents(db) == base


def test_rule_13_a_rollback_of_a_created_table(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(
        workspace, 2, TAGS, "create_index: {table: tags, index: by_name, fields: [{field: name}]}"
    )
    with workspace.open() as db:
        db.table("tags").insert_many({"name": f"tag {at}"} for at in range(50))
        number = db._catalog.table("tags").schema.number
        (index,) = db._catalog.table("tags").indexes
    (report,) = take_back(workspace, 2).jobs
    assert report.progress.written == 50
    with workspace.open() as db:
        assert list(db._catalog.tables) == ["items"]
        with pytest.raises(UnknownName):
            db.table("tags")
        names = db._storage.dialect.table_names(db._storage.connection())
        assert f"zapdb_records_{number}" not in names
        assert f"zapdb_entries_{index.entry_table}" not in names
        assert contents(db) == base
    apply(workspace, 2, TAGS)
    with workspace.open() as db:
        assert db.table("tags").count() == 0
        assert db._catalog.table("tags").schema.number == number + 1


def test_rule_13_a_rollback_of_the_first_migration_leaves_an_empty_database(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    take_back(workspace, 1)
    storage = workspace.connect()
    with storage.transaction(TransactionMode.READ) as connection:
        catalog = load_tenant_catalog(connection, DEFAULT_TENANT)
    assert (catalog.position, catalog.tables, catalog.chain.end) == (0, {}, 0)
    with pytest.raises(UsageError, match="no migration is stored"):
        roll_back(workspace)
    workspace.write(1, TAGS)
    assert workspace.open().table("tags").count() == 0


@pytest.mark.on_each_engine
def test_rule_13_a_rollback_of_a_dropped_index_builds_it_again(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, INDEX_SIZE)
    apply(workspace, 3, "drop_index: {table: items, index: by_size}")
    take_back(workspace, 3)
    with workspace.open() as db:
        assert "by_size" not in db.table("items").readable_indexes()
        wanted = [record["id"] for record in base if record["size"] == 3]
        assert [record.id for record in find(db.table("items"), "by_size", 3)] == wanted
        db.admin.run_jobs()
        assert [record.id for record in find(db.table("items"), "by_size", 3)] == wanted
        assert "by_size" in db.table("items").readable_indexes()
        assert_clean(db)


def test_rule_13_a_rollback_keeps_the_indexes_whose_keys_stay(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, INDEX_SIZE, INDEX_TITLE)
    with workspace.open() as db:
        db.admin.run_jobs()
    apply(workspace, 3, ADD_COLOR, RENAME_SIZE)
    apply(
        workspace,
        4,
        "change_type: {table: items, field: extent, type: decimal, scale: 1,"
        " default: 0, up: 'decimal(extent, 1, else=0)', down: 'integer(extent, else=0)',"
        " reversibility: lossy, because: fractions are cut}",
    )
    with workspace.open() as db:
        db.admin.run_jobs()
        db.table("items").insert(id=-1, title="new", extent=Decimal("3.0"))
    take_back(workspace, 4)
    with workspace.open() as db:
        table = db.table("items")
        assert "by_size" not in table.readable_indexes()  # its keys are other bytes now
        assert "by_title" in table.readable_indexes()
        db.admin.run_jobs()
        assert_clean(db)
    take_back(workspace, 3)
    with workspace.open() as db:
        table = db.table("items")
        assert "by_size" in table.readable_indexes()
        assert "by_title" in table.readable_indexes()
        assert next(iter(find(table, "by_size", 3))).id == -1
        assert contents(db)[1:] == base
        assert_clean(db)


@pytest.mark.on_each_engine
def test_rule_13_rollbacks_of_several_migrations_one_after_another(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    steps = [(ADD_COLOR, "color"), (DROP_NOTE, ""), (INDEX_SIZE, ""), (ADD_WEIGHT, "weight")]
    for number, (operation, field) in enumerate(steps, 2):
        apply(workspace, number, operation)
        with workspace.open() as db:
            changes = {field: 9 if field == "weight" else "blue"} if field else {"size": 5}
            for at in range(number, COUNT, 5):
                db.table("items").update(at, **changes)
    with workspace.open() as db:
        newest = contents(db)
        assert log(db) == [
            (1, "create", 1, 1),
            (2, "change", 2, 2),
            (3, "change", 3, 3),
            (4, "change", 4, 3),
            (5, "change", 5, 5),
        ]
    for number in (5, 4, 3, 2):
        take_back(workspace, number)
        with workspace.open() as db:
            assert db.position == number - 1
            assert_clean(db)
            fields = [name for name in db.table("items").field_names if name != "note"]
            found = contents(db)
            assert [{name: r[name] for name in fields} for r in found] == [
                {name: r[name] for name in fields} for r in newest
            ]
            if number <= 3:
                # Records that were rewritten without the field have what the migration declares.
                notes = [(r["note"], before["note"]) for r, before in zip(found, base, strict=True)]
                assert {note for note, _ in notes} == {None, "n", "dropped"}
                assert all(note in (before, "dropped") for note, before in notes)
    with workspace.open() as db:
        assert log(db)[5:] == [
            (6, "rollback", 4, 3),
            (7, "rollback", 3, 3),
            (8, "rollback", 2, 2),
            (9, "rollback", 1, 1),
        ]
        fingerprints = [entry.fingerprint for entry in db.admin.schema_history("items")]
        assert fingerprints[5:] == fingerprints[3::-1]
        assert plan_jobs(db._storage, DEFAULT_TENANT) == []


# The same number again


@pytest.mark.on_each_engine
def test_rule_02_another_migration_under_the_same_number(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    """Fields of one size at one place: bytes of one layout would decode under the other."""
    variants = [
        "add_field: {table: items, field: {name: width, type: integer, default: 1}}",
        "add_field: {table: items, field: {name: paid, type: boolean, default: false}}",
        "add_field: {table: items, field: {name: height, type: integer, default: 5}}",
    ]
    values = [("width", 0), ("paid", True), ("height", -1)]
    for turn, (operation, (field, value)) in enumerate(zip(variants, values, strict=True)):
        apply(workspace, 2, operation)
        with workspace.open() as db:
            for at in range(turn, COUNT, 4):
                db.table("items").update(at, **{field: value})
            default = db._catalog.table("items").schema.field_named(field)
            assert default is not None
            assert contents(db) == [
                record | {field: value if record["id"] % 4 == turn else default.default}
                for record in base
            ]
            assert_clean(db)
        take_back(workspace, 2)
        with workspace.open() as db:
            assert contents(db) == base
            assert_clean(db)
    with workspace.open() as db:
        assert set(db.admin.count_by_revision("items")) <= {1, 3, 5, 7}
        assert [entry.event for entry in db.admin.schema_history("items")] == [
            "create",
            *["change", "rollback"] * 3,
        ]


@pytest.mark.on_each_engine
def test_rule_02_the_same_migration_again_and_again(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    for turn in range(3):
        workspace.write(2, ADD_COLOR)
        up(workspace, again=True)
        with workspace.open() as db:
            db.table("items").update(turn, color="blue")
            assert [r["color"] for r in contents(db)[:3]] == [
                "blue" if at == turn else "red" for at in range(3)
            ]
        take_back(workspace, 2)
    with workspace.open() as db:
        assert contents(db) == base


@pytest.mark.on_each_engine
def test_rule_02_bytes_that_one_layout_reads_as_the_other_are_told_apart(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    """A record of a forgotten revision has no layout: it is corrupt, never misread."""
    from zapdb.errors import CorruptRecord

    apply(workspace, 2, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, color="blue")
        number = db._catalog.table("items").schema.number
    ((value,),) = workspace.execute(
        f"SELECT value FROM zapdb_records_{number} ORDER BY value DESC LIMIT 1"
    )
    assert decode_prefix(bytes(value), 0)[0] == 2
    take_back(workspace, 2)
    apply(workspace, 2, "add_field: {table: items, field: {name: shade, type: string, default: x}}")
    workspace.execute(
        f"UPDATE zapdb_records_{number} SET value = ? WHERE key ="
        f" (SELECT key FROM zapdb_records_{number} ORDER BY key LIMIT 1)",
        (bytes(value),),
    )
    with workspace.open() as db:
        with pytest.raises(CorruptRecord) as caught:
            db.table("items").get(0)
        assert "unknown revision 2" in caught.value.context["what"]


# Not by itself


@pytest.mark.on_each_engine
def test_rule_13_a_rolled_back_migration_is_not_applied_again_by_itself(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    roll_back(workspace)
    before = dump(workspace)
    for apply_ in ("auto", "never"):
        with pytest.raises(PendingMigrations) as caught:
            workspace.open(apply=apply_)
        assert "zapdb migrate up" in str(caught.value)
    assert "was rolled back" in str(refusal(workspace))
    assert dump(workspace) == before
    up(workspace, again=True)
    with workspace.open() as db:
        assert db.position == 2
        assert contents(db) == [record | {"color": "red"} for record in base]


def refusal(workspace: Workspace) -> PendingMigrations:
    with pytest.raises(PendingMigrations) as caught:
        workspace.open(apply="auto")
    return caught.value


@pytest.mark.on_each_engine
def test_rule_13_a_changed_file_under_a_rolled_back_number_is_applied(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    roll_back(workspace)
    apply(workspace, 2, ADD_COLOR.replace("red", "blue"))
    assert workspace.open().table("items").get(1).color == "blue"


@pytest.mark.on_each_engine
def test_rule_13_none_of_several_is_applied_if_one_was_rolled_back(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    apply(workspace, 3, ADD_WEIGHT)
    take_back(workspace, 3)
    take_back(workspace, 2)
    workspace.write(2, DROP_NOTE)
    workspace.write(3, ADD_WEIGHT)
    before = dump(workspace)
    assert refusal(workspace).context["migration"] == "0003_test"
    assert dump(workspace) == before


# In use


@pytest.mark.on_each_engine
def test_rule_13_a_rollback_is_refused_while_a_process_uses_the_migration(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    db = workspace.open()
    before = dump(workspace)
    with pytest.raises(UsageError, match="running processes use the migration") as caught:
        roll_back(workspace)
    assert db._node.id in caught.value.context["nodes"]
    assert "--evict" in caught.value.hint
    assert dump(workspace) == before
    db.table("items").update(1, color="blue")
    db.close()
    roll_back(workspace)


@pytest.mark.on_each_engine
def test_rule_09_an_evicted_process_writes_nothing(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    process = workspace.start("hold_open")
    try:
        assert ask(process, "") == str(process.pid)
        assert ask(process, "-1") == "written"
        forgotten = roll_back(workspace, evict=True)
        assert forgotten.number == 2
        assert ask(process, "-2") == "LeaseLost"
        assert ask(process, "-3") == "LeaseLost"
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
    workspace.remove(2)
    with workspace.open() as db:
        assert contents(db) == [{"id": -1, "title": "mine", "size": 0, "note": None}, *base]


def ask(process: subprocess.Popen[str], line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    if line:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.mark.on_each_engine
def test_rule_09_an_evicted_process_reads_what_is_in_force(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    db = workspace.open()
    items = db.table("items")
    items.update(1, color="blue")
    roll_back(workspace, evict=True)
    assert [asdict(record) for record in items.scan()] == base
    db.admin.set_setting("on_read", "write_back")
    assert items.get(1).title == "title 1"
    # A block without a statement may not even be begun.
    for use in (items.count, lambda: items.get(1), lambda: items.delete(1)):
        with pytest.raises(LeaseLost), db.transaction():
            use()
    with pytest.raises(LeaseLost):
        items.delete(1)
    assert items.count() == COUNT


@pytest.mark.on_each_engine
def test_rule_09_a_process_that_is_gone_or_silent_is_put_out(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    """Its lease is over; should it wake up, what it writes is refused."""
    apply(workspace, 2, ADD_COLOR)
    db = workspace.open()
    workspace.execute(
        "UPDATE zapdb_leases SET expires_at = 1 WHERE name = ?",
        (f"node/{db._node.id}",),
    )
    roll_back(workspace)
    with pytest.raises(LeaseLost):
        db.table("items").insert(id=-1, title="late")


@pytest.mark.on_each_engine
def test_rule_13_a_process_whose_files_end_before_it_does_not_hinder(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    db = workspace.open()  # at 1
    workspace.write(2, ADD_COLOR)
    up(workspace)
    db.table("items").update(1, size=7)
    assert db.position == 2
    db.table("items").update(1, size=base[1]["size"])
    roll_back(workspace)
    assert contents(db) == base
    db.table("items").insert(id=-1, title="new")


@pytest.mark.on_each_engine
def test_rule_09_two_rollbacks_at_once(workspace: Workspace, base: list[dict[str, Any]]) -> None:
    apply(workspace, 2, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, color="blue")

    def runner(storage: Storage, job: Any) -> None:
        with pytest.raises(LeaseHeld, match="another process holds the lease"):
            roll_back(workspace)
        run_locally(storage, job)

    assert roll_back(workspace, runner=runner).number == 2
    workspace.remove(2)
    with workspace.open() as db:
        assert db.position == 1


@pytest.mark.on_each_engine
def test_rule_13_a_process_that_opens_while_it_is_rolled_back_does_not_slip_through(
    workspace: Workspace, base: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between what it read and its registration, the migration went."""
    apply(workspace, 2, ADD_COLOR)
    from zapdb.database import opening

    register = opening.register

    def forget_first(*arguments: Any, **said: Any) -> Any:
        monkeypatch.undo()
        roll_back(workspace)
        return register(*arguments, **said)

    monkeypatch.setattr(opening, "register", forget_first)
    with pytest.raises(PendingMigrations, match="does not store yet"):
        workspace.open(apply="never")
    storage = workspace.connect()
    assert nodes.list_nodes(storage.connection()) == []


# While it is under way


@contextmanager
def half_way(workspace: Workspace) -> Iterator[Callable[[], RolledBack]]:
    """A forget that is marked and not published; yields the way to go on."""

    class Stopped(Exception):
        pass

    def stop(storage: Storage, job: Any) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        roll_back(workspace, runner=stop)
    yield lambda: roll_back(workspace)


@pytest.fixture
def ahead(workspace: Workspace, base: list[dict[str, Any]]) -> Database:
    """Opened by a process without files; others applied migration 2 and wrote under it."""
    db = workspace.follow()
    workspace.write(2, ADD_COLOR)
    up(workspace)
    for at in range(0, COUNT, 3):
        db.table("items").update(at, color="blue")
    return db


@pytest.mark.on_each_engine
def test_rule_13_writes_are_refused_while_it_is_under_way(
    workspace: Workspace, ahead: Database, base: list[dict[str, Any]]
) -> None:
    items = ahead.table("items")
    with half_way(workspace) as go_on:
        for write in (
            lambda: items.insert(id=-1, title="new"),
            lambda: items.insert_many([{"id": -1, "title": "new"}]),
            lambda: items.update(1, size=9),
            lambda: items.delete(1),
            lambda: ahead.run(lambda: items.get(1)),
        ):
            with pytest.raises(RollbackInProgress, match="being rolled back") as caught:
                write()
            assert caught.value.context["migration"] == "0002_test"
        assert items.get(0).color == "blue"  # reads go on
        assert len(list(items.scan())) == COUNT
        assert plan_jobs(ahead._storage, DEFAULT_TENANT) == []
        assert ahead.admin.run_jobs() == []
        with pytest.raises(RollbackInProgress):
            workspace.open()
        with pytest.raises(RollbackInProgress):
            up(workspace)
        go_on()
    items.update(1, size=9)
    assert contents(ahead)[2:] == base[2:]


@pytest.mark.on_each_engine
def test_rule_13_a_rollback_that_began_during_a_transaction_waits_for_it(
    workspace: Workspace, ahead: Database
) -> None:
    forgotten: list[RolledBack] = []
    runner = threading.Thread(target=lambda: forgotten.append(roll_back(workspace)))
    with ahead.transaction():
        ahead.table("items").update(1, color="green")
        runner.start()
        runner.join(timeout=0.5)
        assert forgotten == []
        ahead.table("items").update(2, color="green")
    finish(runner)
    assert [one.number for one in forgotten] == [2]
    assert_clean(ahead)
    assert set(ahead.admin.count_by_revision("items")) == {1, 3}


def test_rule_13_records_are_read_right_in_the_middle(
    workspace: Workspace, ahead: Database, base: list[dict[str, Any]]
) -> None:
    """Some are back already, at a revision that no migration made."""

    class Stopped(Exception):
        pass

    def stop_half_way(storage: Storage, job: Any) -> None:
        from zapdb.catalog.cluster.leases import Owner
        from zapdb.jobs import (
            range_work,
            work_loading,
        )

        work, run, calls = (
            work_loading.load_work(storage, job.id),
            range_work._RangeRun._run_batch,
            itertools.count(1),
        )

        def run_batch(task: Any, position: Any) -> Any:
            if next(calls) == 4:
                raise Stopped
            return run(task, position)

        range_work._RangeRun._run_batch = run_batch
        try:
            range_work.run_range(storage, work, Owner.here(), batch_records_max=16)
        finally:
            range_work._RangeRun._run_batch = run

    with pytest.raises(Stopped):
        roll_back(workspace, runner=stop_half_way)
    assert ahead.admin.count_by_revision("items") == {1: 200, 2: 52, 3: 48}
    found = contents(ahead)
    assert [record["id"] for record in found] == list(range(COUNT))
    assert {record["color"] for record in found} == {"red", "blue"}
    (report,) = ahead.admin.verify()
    assert report.problems == ()
    workspace.execute("UPDATE zapdb_ranges SET expires_at = 0")
    roll_back(workspace)
    assert ahead.admin.count_by_revision("items") == {1: 200, 3: 100}
    assert contents(ahead) == base


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize(
    ("module", "function", "kill_at"),
    [
        ("rollback", "start_rollback", 1),
        ("rollback", "plan_table_rollback", 1),
        ("rollback", "run_job", 1),
        ("range_work", "send_progress", 1),
        ("range_work", "send_progress", 2),
        ("rollback", "sweep_retired", 1),
        ("rollback", "publish_rollback", 1),
        ("rollback", "sweep_retired", 2),
        ("rollback", "sweep_archives", 1),
    ],
)
@pytest.mark.on_each_engine
def test_rule_13_a_rollback_goes_on_after_its_process_was_killed(
    workspace: Workspace, base: list[dict[str, Any]], module: str, function: str, kill_at: int
) -> None:
    apply(workspace, 2, ADD_COLOR, TAGS, INDEX_SIZE)
    with workspace.open() as db:
        db.table("tags").insert(name="dairy")
        for at in range(0, COUNT, 2):
            db.table("items").update(at, color="blue")
    killed = workspace.run("rollback_dying", module, function, str(kill_at))
    assert killed.returncode == -9, killed.stderr
    is_published = (function, kill_at) in (("sweep_retired", 2), ("sweep_archives", 1))
    if not is_published:
        if function != "start_rollback":
            with pytest.raises(RollbackInProgress):
                workspace.open()
        assert roll_back(workspace).number == 2
    workspace.remove(2)
    with workspace.open() as db:
        assert db.position == 1
        assert contents(db) == base
        assert log(db) == [(1, "create", 1, 1), (2, "change", 2, 2), (3, "rollback", 1, 1)]
        assert_clean(db)
        names = db._storage.dialect.table_names(db._storage.connection())
        of_tables = ("zapdb_entries_", "zapdb_records_")
        assert [name for name in names if name.startswith(of_tables)] == ["zapdb_records_1"]
    assert (
        workspace.execute(
            "SELECT key FROM zapdb_catalog WHERE substr(kind, 1, 7) = 'retired'" + LIVE
        )
        == []
    )


def one_worker(storage: Storage, job: Any) -> None:
    run_locally(storage, job, workers=1)


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_rule_13_a_rollback_survives_a_fault_at_each_statement(
    workspace: Workspace, base: list[dict[str, Any]], way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zapdb.jobs.job.RANGE_LEASE_SECONDS", 0.0)
    apply(workspace, 2, ADD_COLOR, TAGS, INDEX_SIZE)
    with workspace.open() as db:
        db.table("tags").insert(name="dairy")
        for at in range(0, COUNT, 30):
            db.table("items").update(at, color="blue")
    storage = workspace.connect()
    faults = Faults(workspace, storage, way, lasting=False)
    faults.install(monkeypatch)
    struck = []
    for call in itertools.count(1):
        faults.arm(call)
        error = error_of(lambda: roll_back_newest(storage, runner=one_worker))
        if error is None:
            break
        struck.append(faults.struck[0])
        workspace.execute("DELETE FROM zapdb_leases")
        if workspace.execute("SELECT 1 FROM zapdb_migrations WHERE state = 'rolled_back'"):
            assert (way, struck[-1]) == ("after", "commit")
            assert isinstance(error, CommitUnknown)
            break
    faults.arm(0)
    assert len(struck) > (31 if way == "drop" else 40)  # no lost connection strikes a `begin`
    workspace.remove(2)
    with workspace.open() as db:
        assert contents(db) == base
        assert log(db) == [(1, "create", 1, 1), (2, "change", 2, 2), (3, "rollback", 1, 1)]
        assert_clean(db)
        with pytest.raises(RecordNotFound):
            db.table("items").get(-1)


@pytest.mark.on_each_engine
def test_a_rollback_is_not_stuck_by_a_process_that_planned_before_it_began(
    workspace: Workspace, base: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would give up what it does not know of: the jobs of the forget."""
    apply(workspace, 2, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, color="blue")
    from zapdb.jobs import (
        job_planning,
    )

    other, supersede = workspace.connect(), job_planning._supersede_all_but

    def meanwhile(*arguments: Any) -> Any:
        monkeypatch.undo()

        def runner(storage: Storage, job: Any) -> None:
            supersede(*arguments)
            run_locally(storage, job)

        assert roll_back(workspace, runner=runner).number == 2
        return True

    monkeypatch.setattr(job_planning, "_supersede_all_but", meanwhile)
    plan_jobs(other, DEFAULT_TENANT)
    workspace.remove(2)
    with workspace.open() as db:
        assert contents(db) == base


@pytest.mark.on_each_engine
def test_rule_01_a_rollback_is_not_published_while_a_record_is_left(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    """Counted for itself, whatever the jobs say of theirs."""
    apply(workspace, 2, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, color="blue")

    def pretend(storage: Storage, job: Any) -> None:
        workspace.execute("UPDATE zapdb_ranges SET state = 'done'")

    with pytest.raises(
        CorruptCatalog, match="some records still have the revision that was rolled back"
    ) as caught:
        roll_back(workspace, runner=pretend)
    assert caught.value.context == {"table": "items", "records": 1}
    with pytest.raises(RollbackInProgress):
        workspace.open()
