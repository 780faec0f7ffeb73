"""Rolling back: values come back, history returns, nothing is ever read under the wrong layout."""

from __future__ import annotations

import itertools
import subprocess
import threading
from decimal import Decimal
from typing import Any

import pytest

from tests.contract.rollbacks import leave_tenants_due
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
from zapdb.activation import load_tenant_catalog, rollback
from zapdb.activation.rollback import RolledBack
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import nodes
from zapdb.database import Database
from zapdb.errors import (
    LeaseHeld,
    LeaseLost,
    PendingMigrations,
    RecordNotFound,
    UnknownName,
    UsageError,
)
from zapdb.jobs import plan_jobs
from zapdb.records import asdict, decode_prefix
from zapdb.storage import Storage, TransactionMode, connect

TAGS = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
DROP_ITEMS = "drop_table: {table: items, records: archive}"
COUNT = 300


def roll_back(place: Workspace, **options: Any) -> RolledBack:
    storage = connect(place.address)
    try:
        return rollback.roll_back(storage, **options)
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
        (entry.revision, entry.event, entry.position, entry.first_layout_revision)
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
    assert [one.number for one in forgotten.migrations] == [number]
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
    assert forgotten.migrations[0].label == "0002_test"
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
        assert last.first_layout_revision == 1
        assert last.migration == first.migration
        assert_clean(db)
        db.admin.run_jobs()
        assert contents(db) == expected
        assert_clean(db)
        assert plan_jobs(db._storage, DEFAULT_TENANT) == []  # nothing is stale (rule 1)
        db.table("items").insert(id=-1, title="new")
        assert db.table("items").count() == COUNT + 1


def test_rule_13_only_records_of_the_rolled_back_revision_are_converted(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    with workspace.open() as db:
        for at in range(10):
            db.table("items").update(at, color="blue")
    take_back(workspace, 2)
    with workspace.open() as db:
        assert db.admin.count_by_revision("items") == {1: COUNT - 10, 2: 10}
        assert contents(db) == base
        (report,) = db.admin.run_jobs()
        assert (report.job.kind, report.progress.written) == ("convert", 10)
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
    take_back(workspace, 2)
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
        db.admin.run_jobs()
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
        assert set(db.admin.count_by_revision("items")) == {1, 2, 4, 6}
        db.admin.run_jobs()
        assert contents(db) == base
        assert set(db.admin.count_by_revision("items")) == {1, 7}
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
    """A record of a revision that was rolled back is read by the way from there."""
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
        assert asdict(db.table("items").get(0)) == {**base[1], "id": 0, "shade": "x"}
        assert asdict(db.table("items").get(1)) == {**base[1], "shade": "x"}
        db.admin.run_jobs()
        assert asdict(db.table("items").get(0)) == {**base[1], "id": 0, "shade": "x"}


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
def test_rule_09_an_evicted_process_writes_nothing(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    process = workspace.start("hold_open")
    try:
        assert ask(process, "") == str(process.pid)
        assert ask(process, "-1") == "written"
        forgotten = roll_back(workspace, evict=True)
        assert forgotten.migrations[0].number == 2
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
def test_rule_09_two_rollbacks_at_once(
    workspace: Workspace, base: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(workspace, 2, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, color="blue")
    follow = rollback.migrate_each_tenant

    def follow_beside(storage: Storage, due: list[Any]) -> Any:
        monkeypatch.setattr(rollback, "migrate_each_tenant", follow)
        monkeypatch.setattr(rollback, "ROLLBACK_WAIT_SECONDS", 0.1)
        with pytest.raises(LeaseHeld, match="another process holds the lease"):
            roll_back(workspace)
        return follow(storage, due)

    monkeypatch.setattr(rollback, "migrate_each_tenant", follow_beside)
    assert roll_back(workspace).migrations[0].number == 2
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
def test_rule_13_a_tenant_that_has_not_followed_stays_where_it_is_entirely(
    workspace: Workspace, ahead: Database, base: list[dict[str, Any]]
) -> None:
    items = ahead.table("items")
    leave_tenants_due(workspace)
    items.insert(id=-1, title="new", color="green")
    items.insert_many([{"id": -2, "title": "new"}])
    items.update(1, color="yellow")
    assert ahead.run(lambda: items.get(1)).color == "yellow"
    assert items.get(-1).color == "green"
    assert ahead.position == 2
    ahead.admin.run_jobs()
    assert_clean(ahead)
    fresh = workspace.follow()  # which moves the tenant where it belongs
    assert fresh.position == 1
    assert fresh.table("items").field_names == ("id", "title", "size", "note")
    items.update(1, size=9)  # by what was planned under the other schema
    assert ahead.position == 1
    assert contents(ahead) == contents(fresh)
    assert [r for r in contents(fresh) if r["id"] > 1] == base[2:]
    assert roll_back(workspace, to=1).migrations == ()
    assert_clean(fresh)


@pytest.mark.on_each_engine
def test_rule_13_a_rollback_that_was_interrupted_is_finished_and_rolls_back_no_more(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    apply(workspace, 3, ADD_WEIGHT)
    leave_tenants_due(workspace)
    finished = roll_back(workspace)
    assert (finished.migrations, finished.tenants) == ((), 1)
    workspace.remove(3)
    with workspace.open() as db:
        assert db.position == 2
        assert_clean(db)


@pytest.mark.on_each_engine
def test_rule_13_a_tenant_that_follows_late_goes_to_what_was_stored_meanwhile(
    workspace: Workspace, base: list[dict[str, Any]]
) -> None:
    apply(workspace, 2, ADD_COLOR)
    with workspace.open() as db:
        db.table("items").update(1, color="blue")
        shop = db.admin.create_tenant("shop")
        with db.for_tenant("shop") as other:
            other.table("items").insert(id=1, title="one", color="blue")
    leave_tenants_due(workspace)
    workspace.remove(2)
    workspace.write(2, ADD_WEIGHT)
    up(workspace)
    with workspace.open() as db, db.for_tenant("shop") as other:
        for one, events in ((db, ["rollback", "change"]), (other, ["create", "rollback"])):
            assert one.position == 2
            assert one.table("items").get(1).weight == 7
            assert [e.event for e in one.admin.schema_history("items")][-2:] == events
            one.table("items").update(1, weight=8)
            one.admin.run_jobs()
            assert one.table("items").get(1).weight == 8
            assert_clean(one)
    assert shop is not None


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
    assert [one.migrations[0].number for one in forgotten] == [2]
    assert_clean(ahead)
    ahead.admin.run_jobs()
    assert set(ahead.admin.count_by_revision("items")) == {1, 3}


@pytest.mark.on_each_engine
def test_rule_13_records_are_read_right_in_the_middle_of_their_conversion(
    workspace: Workspace, ahead: Database, base: list[dict[str, Any]]
) -> None:
    roll_back(workspace)
    items = ahead.table("items")
    for at in range(0, COUNT, 9):
        items.update(at, note="changed")
    expected = [r | {"note": "changed"} if r["id"] % 9 == 0 else r for r in base]
    assert ahead.admin.count_by_revision("items") == {1: 200, 2: 66, 3: 34}
    assert contents(ahead) == expected
    assert [record.id for record in items.where(note="changed")] == [*range(0, COUNT, 9)]
    assert_clean(ahead)
    ahead.admin.run_jobs()
    assert ahead.admin.count_by_revision("items") == {1: 200, 3: 100}
    assert contents(ahead) == expected


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize(
    ("function", "kill_at"),
    [
        ("move_end_back", 1),
        ("sweep_retired", 1),
        ("migrate_each_tenant", 1),
        ("log_event", 1),
    ],
)
@pytest.mark.on_each_engine
def test_rule_13_a_rollback_goes_on_after_its_process_was_killed(
    workspace: Workspace, base: list[dict[str, Any]], function: str, kill_at: int
) -> None:
    apply(workspace, 2, ADD_COLOR, TAGS, INDEX_SIZE)
    with workspace.open() as db:
        db.table("tags").insert(name="dairy")
        for at in range(0, COUNT, 2):
            db.table("items").update(at, color="blue")
    killed = workspace.run("rollback_dying", "rollback", function, str(kill_at))
    assert killed.returncode == -9, killed.stderr
    done = roll_back(workspace, to=1)
    assert [one.number for one in done.migrations] == ([2] if function == "move_end_back" else [])
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


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_rule_13_a_rollback_survives_a_fault_at_each_statement(
    workspace: Workspace, base: list[dict[str, Any]], way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        error = error_of(lambda: rollback.roll_back(storage, to=1))
        if error is None:
            break
        struck.append(faults.struck[0])
        workspace.execute("DELETE FROM zapdb_leases")
    faults.arm(0)
    assert len(struck) > 20
    workspace.remove(2)
    with workspace.open() as db:
        assert contents(db) == base
        assert log(db) == [(1, "create", 1, 1), (2, "change", 2, 2), (3, "rollback", 1, 1)]
        assert_clean(db)
        with pytest.raises(RecordNotFound):
            db.table("items").get(-1)
